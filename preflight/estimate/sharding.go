package estimate

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// shardings are the ways of sharing model states that Run knows.
var shardings = []string{"none", "ddp", "dp", "zero1", "zero2", "zero3", "fsdp-full", "fsdp-grad", "fsdp-hybrid", "dist-optim"}

// A layout is what one rank holds of the model states, and what sharing them costs.
type layout struct {
	params, master, grads, optimizer int64 // bytes between and within steps
	gradShards                       int64 // ranks among which gradients are split while backward produces them
	gradsResident                    bool  // gradients of the whole rank are there before backward starts
	gradsPersistent                  bool  // they live in a buffer that is never freed
	// Communication buffers: always there; in forward; in backward; when backward reaches the root group; in the step.
	persistent, forward, backward, backwardEnd, step int64
	stepTemporaries                                  int64
}

// DeepSpeed's defaults, in elements (deepspeed/runtime/zero/config.py).
var deepSpeedDefaults = job.DeepSpeed{
	ReduceBucketSize: 5e8, AllgatherBucketSize: 5e8, PrefetchBucketSize: 5e7, ParamPersistenceThreshold: 1e5,
	MaxLiveParameters: 1e9, SubGroupSize: 1e9, ContiguousGradients: true,
}

// layout applies the sharding to the rank's weights.
func (r *rank) layout() layout {
	p := r.precision
	n := count(r.trained, nil)
	l := layout{
		params: p.param * n, master: p.master * n, grads: p.grad * n, gradShards: 1,
		optimizer:     r.optimizer.stateBytes(r.resident(), p.state, r.huggingFace()),
		gradsResident: r.accum > 1,
	}
	if r.adapters() {
		l.params += r.frozenBytes()
	}
	l.params += r.bufferBytes()
	updated := n // elements that this rank's optimizer updates
	if r.megatron() {
		r.megatronBuffers(&l, n)
	}
	switch r.sharding {
	case "ddp":
		r.replicate(&l)
	case "dp":
		r.notes.assume("the first GPU holds no more than the others", "nn.DataParallel gathers outputs there", true)
	case "zero1", "zero2", "zero3":
		updated = r.zeroLayout(&l, n)
	case "fsdp-full", "fsdp-grad", "fsdp-hybrid":
		updated = r.fsdpLayout(&l, n)
	case "dist-optim":
		l.master, l.optimizer = r.distributedOptimizer(l.master)
		updated = 0 // the fused Adam updates in place
	}
	switch {
	case r.zero():
	case r.deepspeed() && l.master > 0:
		l.stepTemporaries = 4 * n // flat fp32 gradients (runtime/fp16/fused_optimizer.py)
	default:
		biggest := min(largest(r.trained), updated)
		l.stepTemporaries = r.optimizer.temporaryBytes(updated, biggest, p.state, r.cpu())
	}
	if r.stepsInBackward() {
		biggest := largest(r.trained)
		l.grads, l.stepTemporaries = p.grad*biggest, r.optimizer.temporaryBytes(biggest, biggest, p.state, r.cpu())
	}
	r.applyOffload(&l)
	r.addReference(&l)
	return l
}

// resident are the trained weights whose optimizer states PyTorch's allocator holds. Paged optimizers keep those of large tensors in CUDA
// managed memory, which moves to the host when the device is full (bitsandbytes/optim/optimizer.py: get_state_buffer, 1e5 elements).
func (r *rank) resident() []weight {
	const pagedElements = 100_000
	if !strings.HasPrefix(r.optimizer.name, "paged_") {
		return r.trained
	}
	r.notes.assume("optimizer states in managed memory, outside PyTorch's allocator", "they fill what is free and move to the host otherwise", true)
	return slices.DeleteFunc(slices.Clone(r.trained), func(w weight) bool { return w.elements >= pagedElements })
}

// stepsInBackward says that each parameter is updated as soon as its gradient is there, which is then freed (torchtune's
// optimizer_in_bwd, LOMO): one gradient at a time.
func (r *rank) stepsInBackward() bool {
	return r.accum == 1 && !r.sharded() && (slices.Contains(r.job.ScriptArgs, "optimizer_in_bwd=True") || r.optimizer.name == "lomo")
}

// replicate is DistributedDataParallel: buckets hold a second copy of the gradients unless gradient_as_bucket_view is on
// (torch/nn/parallel/distributed.py; measured 8 bytes a parameter against 4). Megatron's has one fp32 buffer and nothing else.
func (r *rank) replicate(l *layout) {
	if r.megatron() || r.deepspeed() {
		return
	}
	l.persistent = l.grads
	r.notes.assume("DDP keeps a second copy of the gradients in its buckets", "gradient_as_bucket_view is False by default", false)
}

// distributedOptimizer is the master weights and states that one rank keeps. Those of experts are shared among fewer ranks: experts are
// spread over data-parallel ranks already.
func (r *rank) distributedOptimizer(master int64) (mine, states int64) {
	if master > 0 {
		master = 4
	}
	isExpert := func(w weight) bool { return w.Role == model.Expert }
	experts := slices.DeleteFunc(slices.Clone(r.trained), func(w weight) bool { return !isExpert(w) })
	dense := slices.DeleteFunc(slices.Clone(r.trained), isExpert)
	for _, group := range []struct {
		weights []weight
		ranks   int64
	}{{dense, r.shards}, {experts, max(r.shards/r.ep, 1)}} {
		mine += ceilDiv(master*count(group.weights, nil), group.ranks)
		states += ceilDiv(r.optimizer.stateBytes(group.weights, r.precision.state, r.huggingFace()), group.ranks)
	}
	return mine, states
}

// megatronBuffers: one contiguous gradient buffer that is never freed (param_and_grad_buffer.py). Where gradients are 16 bit wide, the
// master weights have fp32 ones of their own (optimizer.py: main_grad).
func (r *rank) megatronBuffers(l *layout, n int64) {
	l.gradsResident, l.gradsPersistent = true, true
	if l.master > 0 && r.precision.grad == 2 {
		l.grads += 4 * n
		l.backwardEnd = 2 * n // without that buffer, gradients are flattened into one tensor to be reduced (distributed.py of 2021)
	}
}

// zeroLayout is DeepSpeed's ZeRO.
func (r *rank) zeroLayout(l *layout, n int64) int64 {
	ds := r.deepSpeed()
	part, p := r.shards, r.precision
	l.master, l.optimizer = ceilDiv(l.master, part), ceilDiv(l.optimizer, part)
	local := ceilDiv(n, part)
	l.stepTemporaries = 4 * local // fp32 gradients of the partition (stage_1_and_2.py: single_grad_partition)
	bucket := ds.ReduceBucketSize * p.grad
	switch r.sharding {
	case "zero1", "zero2":
		if r.older("deepspeed", 0, 4) {
			bucket = bucket * 9 / 2 // the constructor multiplied the size by 4.5 in 0.3
		}
		if ds.OverlapComm {
			bucket *= 2
		}
		l.backward, l.backwardEnd = bucket, bucket // allocated at each backward (setup_buckets)
		l.step = min(ds.AllgatherBucketSize, n) * p.param
		if r.sharding == "zero2" {
			l.grads, l.gradShards = ceilDiv(l.grads, part), part
		}
	case "zero3":
		persistent := r.persistentElements(ds.ParamPersistenceThreshold) * p.param
		whole := l.params
		l.params = ceilDiv(l.params, part) + persistent
		l.grads, l.gradShards = ceilDiv(l.grads, part), part
		l.gradsResident, l.gradsPersistent = true, true
		l.persistent = bucket // and the flat gradient buffer: both from init (_setup_for_real_optimizer)
		live := min(whole-persistent, ds.MaxLiveParameters*min(p.param, p.compute))
		l.forward, l.backward, l.backwardEnd = live, live, live
		l.stepTemporaries = 4 * min(local, max(ds.SubGroupSize, 1))
	}
	return local
}

func (r *rank) deepSpeed() job.DeepSpeed {
	if known := r.job.DeepSpeed.Or(nil); known != nil {
		ds := *known
		for _, size := range []*int64{&ds.ReduceBucketSize, &ds.AllgatherBucketSize, &ds.MaxLiveParameters, &ds.SubGroupSize} {
			*size = min(max(*size, 0), maxParameters) // a file may hold any number
		}
		return ds
	}
	ds := deepSpeedDefaults
	ds.OverlapComm = r.sharding == "zero3"
	r.notes.assume("DeepSpeed's default buckets", "the DeepSpeed configuration is unknown: "+reason(r.job.DeepSpeed), true)
	return ds
}

// persistentElements are those of small tensors, which ZeRO-3 never splits.
func (r *rank) persistentElements(threshold int64) int64 {
	return count(r.base, func(w weight) bool { return !w.shapeless && w.elements < threshold })
}

// fsdpLayout is PyTorch's FSDP: a rank's shard, plus what is gathered while a unit computes. Units are layers; embeddings, last
// norm and head form the root group, which stays gathered through forward and backward (FSDP 1: _post_forward_reshard frees only
// non-roots; FSDP 2: reshard_after_forward is False for the root).
func (r *rank) fsdpLayout(l *layout, n int64) int64 {
	part, wide := r.shards, r.precision.unsharded()
	l.params, l.master = ceilDiv(l.params, part), ceilDiv(l.master, part)
	l.optimizer = ceilDiv(l.optimizer, part)
	unit, root := r.fsdpUnits()
	unitBytes, rootBytes := wide*unit, wide*root
	if r.adapters() && r.sized() { // frozen weights travel as they are stored
		unitBytes, rootBytes = ceilDiv(r.storedBytes(inUnit(layerUnit)), max(r.layers, 1)), r.storedBytes(func(w weight) bool { return w.unit != layerUnit })
	}
	reduce := int64(4) // torchtitan's mp_policy reduces in fp32
	if r.huggingFace() || r.precision.compute == 4 {
		reduce = r.precision.compute // accelerate's mixed precision policy reduces in the compute dtype
	}
	trained := func(elements int64) int64 { // gradients exist for trained weights alone
		if r.adapters() {
			return ceilDiv(n, max(r.layers, 1))
		}
		return elements
	}
	gathers := int64(3) // current unit, its all-gather output, the next one's (_fsdp_param_group.py)
	if r.job.FSDPVersion.Or(2) == 1 {
		gathers = 2 // limit_all_gathers
	}
	l.forward = rootBytes + gathers*unitBytes
	l.backward = rootBytes + 2*unitBytes + (wide+reduce)*trained(unit)
	l.backwardEnd = rootBytes + (wide+reduce)*trained(root)
	if r.sharding == "fsdp-grad" { // weights stay gathered between forward and backward
		all := wide * count(r.base, nil)
		l.forward, l.backward = all, all+(wide+reduce)*trained(unit)
		l.backwardEnd = all + (wide+reduce)*trained(root)
	}
	l.gradShards = part
	if r.accum > 1 && r.huggingFace() {
		// Trainer accumulates under no_sync, which keeps whole gradients (accelerate's gradient synchronization guide).
		l.gradShards = 1
		r.notes.assume("unsharded gradients while accumulating", "Trainer uses no_sync between optimizer steps", true)
	}
	l.grads = ceilDiv(l.grads, l.gradShards)
	return ceilDiv(n, part)
}

// fsdpUnits is the elements of the largest wrapped unit and of the root group.
func (r *rank) fsdpUnits() (unit, root int64) {
	if !r.sized() {
		r.notes.assume("layers of a 32nd of the parameters", "what FSDP gathers at a time needs the model's shapes", true)
		return ceilDiv(count(r.base, nil), 32), 0
	}
	if r.job.FSDPWrap.Or("") == "whole" {
		return 0, count(r.base, nil)
	}
	return r.oneLayer(r.base), count(r.base, func(w weight) bool { return w.unit != layerUnit })
}

// applyOffload moves what lives in host memory off the GPU. On the GPU the step then works on nothing.
func (r *rank) applyOffload(l *layout) {
	away := func(where string) bool { return where == "cpu" || where == "nvme" }
	if away(r.offload.Optimizer) || r.optimizer.name == "cpu_adam" {
		stay := int64(0)
		if ds := r.job.DeepSpeed.Or(nil); ds != nil && ds.OffloadOptimizerRatio > 0 && ds.OffloadOptimizerRatio < 1 {
			stay = int64(1000 * (1 - ds.OffloadOptimizerRatio)) // Twin-Flow keeps a part on the GPU
		}
		moved := (l.master + l.optimizer) * (1000 - stay) / 1000
		r.notes.assume(fmt.Sprintf("%.2f GiB of host memory for each rank's optimizer", float64(moved)/gib),
			"offloaded; pinned copies and gradients in transit come on top", false)
		l.master, l.optimizer = l.master*stay/1000, l.optimizer*stay/1000
		l.stepTemporaries = l.stepTemporaries * stay / 1000
		if r.sharding != "zero1" && r.sharded() { // gradient partitions go to the host as they appear
			l.grads, l.gradsResident = 0, false
		}
		if !r.sharded() {
			r.notes.assume("optimizer states in host memory", fmt.Sprintf("offload without sharding (%s)", r.sharding), true)
		}
	}
	if away(r.offload.Params) {
		l.params = 0
		if r.fsdp() {
			l.master, l.optimizer, l.grads, l.stepTemporaries, l.gradsResident = 0, 0, 0, 0, false
		}
	}
}

// addReference adds the second, frozen model of preference and reinforcement learning: whole on every rank unless ZeRO-3
// or FSDP splits it (TRL prepares it like the policy).
func (r *rank) addReference(l *layout) {
	if !r.job.RefModel.Or(false) || r.adapters() {
		return
	}
	ref := r.precision.unsharded() * count(r.base, nil)
	if r.sharding == "zero3" || r.sharding == "fsdp-full" || r.sharding == "fsdp-hybrid" {
		ref = ceilDiv(ref, r.shards)
	}
	l.params += ref
}
