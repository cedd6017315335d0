package estimate

import (
	"slices"

	"oomguard/preflight/model"
)

// shardings are the ways of sharing model states that Run knows.
var shardings = []string{"none", "ddp", "dp", "zero1", "zero2", "zero3", "fsdp-full", "fsdp-grad", "fsdp-hybrid",
	"dist-optim"}

// A layout is what one rank holds of the model states, and what sharing them costs.
type layout struct {
	params, master, grads, optimizer int64 // bytes between and within steps
	gradShards                       int64 // ranks among which gradients are split while backward produces them
	gradsResident                    bool  // gradients of the whole rank are there before backward starts
	gradsPersistent                  bool  // they live in a buffer that is never freed
	// whole gradients that micro-batches before the last one leave, if it is not grads
	accumulated int64
	// What communication holds: always; in the optimizer's step.
	persistent, step int64
	// In forward: when the first unit is gathered, while a layer computes, while the loss is made, and when forward has
	// returned.
	gather, layers, forward, forwardEnd int64
	// In backward: while the loss and the head have theirs, while a layer has its, when the embeddings' gradients are
	// there, and at the end.
	backwardStart, backward, rootGradients, backwardEnd int64
	fsdp                                                *fsdp // nil: not FSDP
	stepTemporaries                                     int64
	// of the optimizer's step, where grads and stepTemporaries do not say it
	steps []stepPhase
	host  []HostPart // what lives in host memory instead
}

// layout applies the sharding to the rank's weights.
func (r *rank) layout() layout {
	p := r.precision
	n := count(r.trained, nil)
	l := layout{
		params: r.trainedBytes(p.param), master: p.master * n, grads: r.trainedBytes(p.grad), gradShards: 1,
		optimizer:     r.optimizerBytes(r.resident()),
		gradsResident: r.accum > 1,
	}
	if r.adapters() {
		l.params += r.frozenBytes()
	} else {
		l.params += r.frozenWidth() * (count(r.base, nil) - n)
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
	case r.zero(), updated == 0:
	case r.deepspeed() && l.master > 0:
		l.stepTemporaries = 4 * n // flat fp32 gradients (runtime/fp16/fused_optimizer.py)
	default:
		l.stepTemporaries = r.optimizer.StepBytes(r.update(ceilDiv(n, updated)))
	}
	if alive := r.stepsInBackward(); alive > 0 {
		l.grads, l.stepTemporaries = p.grad*alive*largest(r.trained), r.largestUpdate()
	}
	r.applyOffload(&l)
	r.addReference(&l)
	return l
}

// replicate is DistributedDataParallel: buckets hold a second copy of the gradients unless gradient_as_bucket_view is
// on (torch/nn/parallel/distributed.py; measured 8 bytes a parameter against 4). Megatron's has one fp32 buffer and
// nothing else.
func (r *rank) replicate(l *layout) {
	if r.megatron() || r.deepspeed() {
		return
	}
	l.persistent = l.grads
	if r.job.BucketView.Or(false) {
		l.persistent, l.gradsResident, l.gradsPersistent = 0, true, true
		if r.accum > 1 && r.traits.NoSync {
			// zero_grad(set_to_none=True) cuts gradients and buckets apart; under no_sync new ones are made beside the
			// buckets, until the last backward pass moves them there (measured: testdata/measured_gpu.json)
			l.accumulated = 2 * l.grads
		}
		return
	}
	r.notes.assume("DDP keeps a second copy of the gradients in its buckets",
		"gradient_as_bucket_view is False by default", false)
}

// distributedOptimizer is the master weights and states that one rank keeps. Those of experts are shared among fewer
// ranks: experts are spread over data-parallel ranks already (megatron/core/parallel_state.py:
// expert_data_parallel_size is the world's size over that of expert tensor, expert and pipeline parallelism; 1 of them
// with as many expert-parallel ranks as GPUs).
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
	}{{dense, r.shards}, {experts, max(r.world/(r.etp*r.ep*r.pp), 1)}} {
		mine += ceilDiv(master*count(group.weights, nil), group.ranks)
		states += ceilDiv(r.optimizerBytes(group.weights), group.ranks)
	}
	return mine, states
}

// megatronBuffers: one contiguous gradient buffer that is never freed (param_and_grad_buffer.py). Where gradients are
// 16 bit wide, the master weights have fp32 ones of their own (optimizer.py: main_grad).
func (r *rank) megatronBuffers(l *layout, n int64) {
	l.gradsResident, l.gradsPersistent = true, true
	if l.master > 0 && r.precision.grad == 2 {
		l.grads += 4 * n
		// without that buffer, gradients are flattened into one tensor to be reduced (distributed.py of 2021)
		l.backwardEnd = 2 * n
	}
}
