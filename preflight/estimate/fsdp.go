package estimate

// An fsdpUnit is what PyTorch's FSDP gathers at a time. Beside its shard, a rank holds the units that compute, and
// whole gradients of a unit until they are reduced.
//
// Units are layers; embeddings, last norm and head form the root group, which stays gathered from the start of forward
// to the end of backward (FSDP 1: _post_forward_reshard frees only non-roots; FSDP 2: reshard_after_forward is False
// for the root unless given).
//
// The two generations differ in their buffers (simulated, testdata/simulated_sharded.json):
//
//   - FSDP 2 gathers into a buffer and copies out of it. In forward that buffer lives until the next unit has been
//     gathered, in backward the next unit's is there already; the input of a reduce-scatter stays until the next unit's
//     (_fsdp_param_group.py).
//   - FSDP 1 gathers in place. Its weights are views of one flat tensor, so that all gradients of a unit are there
//     beside their concatenation when the unit ends (_flat_param.py, _runtime_utils.py: _reduce_grad).
type fsdpUnit struct {
	gathered int64 // bytes of the weights while they are used
	trained  int64 // elements that have gradients
}

// fsdpLayout applies FSDP to the states and says what travels. It returns the elements that the rank's optimizer
// updates.
func (r *rank) fsdpLayout(l *layout, n int64) int64 {
	part, wide := r.shards, r.precision.unsharded()
	l.params, l.master = ceilDiv(l.params, part), ceilDiv(l.master, part)
	l.optimizer = ceilDiv(l.optimizer, part)
	l.gradShards = part
	l.grads = ceilDiv(l.grads, part)
	unit, root := r.fsdpUnits()
	cast := int64(0) // a 16-bit copy of the shard, which is what is gathered
	if r.precision.param > wide && !r.adapters() {
		cast = ceilDiv(unit.gathered, part)
	}
	f := &fsdp{wide: wide, reduce: r.reduceWidth(), whole: unit.gathered == 0, unit: unit, root: root,
		share: ceilDiv(r.precision.grad*unit.trained, part), rootShare: ceilDiv(r.precision.grad*root.trained, part)}
	if r.job.FSDPVersion.Or(2) == 1 {
		l.firstGeneration(f, cast)
	} else {
		l.secondGeneration(f, cast)
	}
	if r.sharding == "fsdp-grad" { // weights stay gathered from forward to backward
		all := unit.gathered*max(r.layers, 1) + root.gathered
		l.layers, l.forward = all+l.layers-root.gathered-unit.gathered, all+l.forward-root.gathered
		l.forwardEnd, l.backwardStart, f.top = all, all, all
	}
	if r.accum > 1 && r.traits.NoSync {
		// Trainer accumulates under no_sync, which keeps whole gradients (accelerate's gradient synchronization guide):
		// FSDP 2's in the dtype in which they are reduced (_set_unsharded_grad_dtypes).
		l.gradsResident, l.accumulated = true, max(wide, f.reduce)*n
		r.notes.assume("unsharded gradients while accumulating", "Trainer uses no_sync between optimizer steps", true)
	}
	l.fsdp = f
	return ceilDiv(n, part)
}

// An fsdp is how FSDP's backward pass goes through a unit.
type fsdp struct {
	wide, reduce int64 // bytes an element of whole gradients, and of what is reduced
	unit, root   fsdpUnit
	top          int64 // held while the last layer computes, which has no reduction before it
	waiting      int64 // what the reduction of the layer before still holds then
	reducing     int64 // what a layer's gradients hold when they are reduced, less its weights

	share, rootShare int64 // what the rank keeps of a layer's reduced gradients, and of the root group's
	whole            bool  // the whole model is one unit
}

func (l *layout) secondGeneration(f *fsdp, cast int64) {
	unit, root := f.unit, f.root
	u, reduced := unit.gathered, f.reduce*unit.trained
	held := u // the buffer that was gathered last
	if f.whole {
		held = root.gathered
	}
	l.gather = root.gathered + max(root.gathered+u, 2*u+cast)
	l.layers = root.gathered + u + held
	l.forward = root.gathered + held
	l.forwardEnd = root.gathered
	l.backwardStart = root.gathered + u
	f.top = root.gathered + 2*u
	f.waiting = reduced
	l.backward = f.top + f.waiting
	f.reducing = f.wide*unit.trained + reduced - u // its output is made when the gradients are gone
	l.rootGradients = root.gathered + f.wide*root.trained + reduced
	l.backwardEnd = (f.wide + f.reduce) * root.trained
}

func (l *layout) firstGeneration(f *fsdp, cast int64) {
	unit, root := f.unit, f.root
	u, reduced := unit.gathered, int64(0)
	if f.reduce != f.wide {
		reduced = f.reduce
	}
	l.gather = root.gathered + u + cast
	l.layers = root.gathered + u
	l.forward, l.forwardEnd = root.gathered, root.gathered
	l.backwardStart = root.gathered + u
	f.top = root.gathered + 2*u
	l.backward = f.top
	f.reducing = max(2*f.wide*unit.trained, (f.wide+reduced)*unit.trained+f.share-u)
	l.rootGradients = root.gathered + 2*f.wide*root.trained
	l.backwardEnd = (f.wide+reduced)*root.trained + f.rootShare
}

// reduceWidth is the dtype in which gradients are reduced: torchtitan's mp_policy asks for fp32; accelerate's mixed
// precision policy has the compute dtype throughout; without a policy it is the weights' own.
func (r *rank) reduceWidth() int64 {
	if r.precision.param == r.precision.compute || r.traits.ReducesInCompute {
		return r.precision.compute
	}
	return 4
}

// fsdpUnits is one layer, on average, and the root group.
func (r *rank) fsdpUnits() (unit, root fsdpUnit) {
	wide := r.precision.unsharded()
	outside := func(w weight) bool { return w.unit != layerUnit }
	switch {
	case !r.sized():
		r.notes.assume("layers of a 32nd of the parameters", "what FSDP gathers at a time needs the model's shapes",
			true)
		layer := ceilDiv(count(r.base, nil), 32)
		return fsdpUnit{wide * layer, layer}, fsdpUnit{}
	case r.job.FSDPWrap.Or("") == "whole":
		return fsdpUnit{}, fsdpUnit{r.unshardedBytes(nil), count(r.trained, nil)}
	}
	return fsdpUnit{ceilDiv(r.unshardedBytes(inUnit(layerUnit)), max(r.layers, 1)), r.oneTrained()},
		fsdpUnit{r.unshardedBytes(outside), count(r.trained, outside)}
}

// unshardedBytes is the gathered weights that match: frozen ones travel as they are stored.
func (r *rank) unshardedBytes(match func(weight) bool) int64 {
	if r.adapters() {
		return r.storedBytes(match)
	}
	return r.precision.unsharded() * count(r.base, match)
}

// fsdpBackward is the backward pass under FSDP: a unit's gradients are whole until the unit is done. Memory peaks at
// the loss, at the last layer, at the first one, at the one before it (whose neighbour is gathered already), or at the
// root group.
func (m *builder) fsdpBackward() []Components {
	f, head := m.layout.fsdp, m.wholeHead()
	out := []Components{
		m.reduced(m.layout.backwardStart, 0, m.activations(), m.loss.backward, m.castCache()+m.loss.working),
		m.reduced(m.layout.backwardStart+head, 0, m.activations(), m.loss.gradient, m.castCache()),
	}
	top, bottom := m.ends()
	out = append(out, m.fsdpLayer(f.top, 0, top, 0)...)
	if n := m.tape.layers; n > 1 {
		if m.sharding == "fsdp-grad" { // most is still gathered when the last layer's gradients are being reduced
			out = append(out, m.fsdpLayer(f.top-f.unit.gathered, f.waiting, m.tape.outside+m.tape.kept(n-2), 1)...)
		}
		out = append(out, m.fsdpLayer(m.layout.backward-f.waiting, f.waiting, bottom+m.tape.kept(1)+m.hoarded(),
			n-2)...)
		out = append(out, m.fsdpLayer(m.layout.backward-f.waiting-f.unit.gathered, f.waiting, bottom+m.hoarded(),
			n-1)...)
	}
	return append(out,
		m.reduced(m.layout.rootGradients, m.layout.grads-f.rootShare, bottom, m.loss.held, m.lastWholeGradients()),
		m.reduced(m.layout.backwardEnd, m.layout.grads-f.rootShare, bottom, m.loss.held, 0))
}

// reduced is a moment of backward with the gradients that have been reduced so far, or those of earlier micro-batches.
func (m *builder) reduced(communication, gradients, activations, logits, live int64) Components {
	c := m.inBackward(communication)
	c[Gradients], c[Activations], c[Logits] = max(min(gradients, m.layout.grads), m.residentGradients()), activations,
		logits
	c[Temporaries] += live
	return c
}

// fsdpLayer is the backward pass through one layer and the reduction of its gradients, with what is gathered and what
// the reduction of the layer before holds; kept are the activations of earlier layers, done the layers behind it.
func (m *builder) fsdpLayer(gathered, waiting, kept, done int64) []Components {
	f, layer := m.layout.fsdp, m.oneTrained()
	gradients := ceilDiv(m.precision.grad*done*layer, m.layout.gradShards)
	whole := m.wholeHead()
	if f.whole {
		whole, gradients = whole+f.wide*done*layer, 0
	}
	out := m.walkLayer(&m.tape, 0, func(shares, activations, logits, live int64) Components {
		unit := f.wide * shares * m.layout.gradShards / m.precision.grad
		return m.reduced(gathered+waiting+whole+unit, gradients, activations, logits, live)
	}, kept, 0)
	if f.whole {
		return out
	}
	return append(out, m.reduced(max(gathered+f.reducing, 0)+whole, gradients, kept, m.loss.held, 0))
}

// wholeHead is the head's whole gradients, which wait for those of the rest of the root group.
func (m *builder) wholeHead() int64 {
	head := count(m.trained, inUnit(finalUnit))
	if m.tiedHere() && m.trainsEnds() {
		head += m.tiedElements()
	}
	return m.layout.fsdp.wide * head
}

// lastWholeGradients is what the root group's gradients need beside themselves: lastGradients in the dtype of whole
// ones.
func (m *builder) lastWholeGradients() int64 {
	return m.lastGradients(unitGradients{tied: m.layout.fsdp.wide * m.unitGradients().tied / m.precision.grad})
}
