package estimate

import (
	"cmp"

	"oomguard/preflight/job"
	"oomguard/preflight/optim"
)

// DeepSpeed's defaults, in elements (deepspeed/runtime/zero/config.py).
var deepSpeedDefaults = job.DeepSpeed{
	ReduceBucketSize: 5e8, AllgatherBucketSize: 5e8, PrefetchBucketSize: 5e7, ParamPersistenceThreshold: 1e5,
	MaxLiveParameters: 1e9, SubGroupSize: 1e9, ContiguousGradients: true,
}

// A stepPhase is a part of the optimizer's step: the bytes of gradients that are there, and what lies beside them for a
// moment.
type stepPhase struct{ gradients, temporaries int64 }

// normWidth is the bytes of an element while DeepSpeed takes the norm of the gradients, one weight's after the other's,
// in fp64 (get_grad_norm_direct in stage_1_and_2.py and stage3.py).
const normWidth = 8

// zeroLayout is DeepSpeed's ZeRO. It returns the elements that the rank's optimizer updates.
func (r *rank) zeroLayout(l *layout, n int64) int64 {
	ds, local := r.deepSpeed(), ceilDiv(n, r.shards)
	l.master, l.optimizer = ceilDiv(l.master, r.shards), ceilDiv(l.optimizer, r.shards)
	if r.sharding == "zero3" {
		r.splitWeights(l, ds, local)
	} else {
		r.splitFlat(l, ds, n, local)
	}
	return local
}

// splitFlat is stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py): weights are whole, and a rank updates a part
// of all of them laid end to end. Gradients pass through a bucket, from which those of the rank's part are copied
// (copy_grads_in_partition). Stage 1 does that after the last backward pass unless it overlaps communication.
func (r *rank) splitFlat(l *layout, ds job.DeepSpeed, n, local int64) {
	p := r.precision
	bucket := ds.ReduceBucketSize * p.grad
	if r.older("deepspeed", 0, 4) {
		bucket = bucket * 9 / 2 // the constructor multiplied the size by 4.5 in 0.3
	}
	if ds.OverlapComm {
		bucket *= 2
	}
	l.backward, l.backwardEnd = bucket, bucket // allocated in each backward pass (setup_buckets)
	if r.older("deepspeed", 0, 18, 3) {
		l.backwardStart = bucket // since then with the first gradient that is there (pull request 7665)
	}
	if r.older("deepspeed", 0, 12, 4) {
		// since then weights are gathered in place (pull request 4705)
		l.step = min(ds.AllgatherBucketSize, n) * p.param
	}
	whole, norm := r.touched(local)
	switch {
	case r.sharding == "zero2", ds.OverlapComm && r.accum == 1:
		l.grads, l.gradShards = p.grad*whole, r.shards
		if r.accum > 1 {
			l.backwardEnd += l.grads // this pass's own, before they are added to the others
		}
	case r.accum > 1: // the bucket stays until the last pass (_release_ipg_buffers)
		l.forward, l.forwardEnd, l.backwardStart = bucket, bucket, bucket
	}
	l.stepTemporaries = 4 * local // fp32 gradients of the partition (single_grad_partition)
	if r.sharding == "zero1" && p.grad > p.param {
		return // bf16_optimizer.py, whose fp32 gradients stay
	}
	// whatever else there was is gone when the step begins (independent_gradient_partition_epilogue)
	kept := p.grad * whole
	l.steps = append(r.flatSteps(kept, 0, local), stepPhase{0, norm})
}

// flatSteps are the phases in which a rank that holds those bytes of gradients updates so many elements: gradients are
// laid end to end, that is copied to the master weights' dtype, and the optimizer works on one flat tensor
// (single_grad_partition in stage_1_and_2.py, _prepare_fp32_grad_for_sub_group in stage3.py).
func (r *rank) flatSteps(gradients, kept, elements int64) []stepPhase {
	p := r.precision
	wide := cmp.Or(p.master, p.param)
	flat := p.grad * elements
	if wide != p.grad {
		flat += wide * elements
	}
	u := r.update(1)
	u.Tensors = []optim.Tensor{{Shape: []int64{elements}, Repeat: 1, Elements: elements}}
	return []stepPhase{{gradients, flat}, {kept, wide*elements + r.optimizer.StepBytes(u)}}
}

// touched is, for the rank that has most of it, the elements of all weights of which a part of so many elements holds
// any, and the bytes while the norm of their gradients is taken, of which each weight's piece is copied.
func (r *rank) touched(size int64) (whole, norm int64) {
	const manyTensors = 1 << 16
	var tensors int64
	for _, w := range r.trained {
		tensors += w.repeat
	}
	width := r.precision.grad
	if !r.sized() || tensors > manyTensors || size == 0 {
		return size, width * size // pieces are not known
	}
	var at, sum, piece int64
	next := func() {
		whole, norm = max(whole, sum), max(norm, width*sum+normWidth*piece)
		at, sum, piece = 0, 0, 0
	}
	r.inOrder(func(elements int64) {
		for left := elements; left > 0; {
			here := min(left, size-at)
			sum, piece = sum+elements, max(piece, here)
			if left, at = left-here, at+here; at == size {
				next()
			}
		}
	})
	next()
	return whole, norm
}

// inOrder visits every trained weight in the order of the model's parameters: layer after layer.
func (r *rank) inOrder(visit func(elements int64)) {
	rest := r.trained
	for len(rest) > 0 {
		first, n := rest[0], 1
		for n < len(rest) && first.unit == layerUnit && rest[n].unit == layerUnit && rest[n].repeat == first.repeat &&
			rest[n].encoder == first.encoder {
			n++
		}
		for range first.repeat {
			for _, w := range rest[:n] {
				visit(w.elements)
			}
		}
		rest = rest[n:]
	}
}

// splitWeights is stage 3 (deepspeed/runtime/zero/stage3.py): each weight is split among all ranks. Gradients lie in a
// flat buffer that stays; the step looks for infinities among their absolute values, takes their norm, and updates one
// group of weights after the other.
func (r *rank) splitWeights(l *layout, ds job.DeepSpeed, local int64) {
	part, p := r.shards, r.precision
	persistent := r.persistentElements(ds.ParamPersistenceThreshold) * p.param
	whole := l.params
	l.params = ceilDiv(l.params, part) + persistent
	l.grads, l.gradShards = ceilDiv(l.grads, part), part
	l.gradsResident, l.gradsPersistent = true, true
	// and the flat gradient buffer: both from init (_setup_for_real_optimizer)
	l.persistent = ds.ReduceBucketSize * p.grad
	live := min(whole-persistent, ds.MaxLiveParameters*min(p.param, p.compute))
	l.layers, l.forward, l.forwardEnd = live, live, live
	l.backwardStart, l.backward, l.backwardEnd = live, live, live
	group := min(local, max(ds.SubGroupSize, 1))
	l.stepTemporaries = 4 * group
	l.steps = append(r.flatSteps(l.grads, l.grads, group), stepPhase{l.grads, (p.grad + 1) * local})
	if r.sized() {
		l.steps = append(l.steps, stepPhase{l.grads, normWidth * ceilDiv(largest(r.trained), part)})
	}
}

func (r *rank) deepSpeed() job.DeepSpeed {
	if known := r.job.DeepSpeed.Or(nil); known != nil {
		ds := *known
		for _, size := range []*int64{&ds.ReduceBucketSize, &ds.AllgatherBucketSize, &ds.MaxLiveParameters,
			&ds.SubGroupSize} {
			*size = min(max(*size, 0), maxParameters) // a file may hold any number
		}
		return ds
	}
	ds := deepSpeedDefaults
	ds.OverlapComm = r.sharding == "zero3"
	r.notes.assume("DeepSpeed's default buckets", "the DeepSpeed configuration is unknown: "+reason(r.job.DeepSpeed),
		true)
	return ds
}

// persistentElements are those of small tensors, which ZeRO-3 never splits.
func (r *rank) persistentElements(threshold int64) int64 {
	return count(r.base, func(w weight) bool { return !w.shapeless && w.elements < threshold })
}
