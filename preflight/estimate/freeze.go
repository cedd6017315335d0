package estimate

import (
	"fmt"
	"slices"

	"oomguard/preflight/model"
)

// settleFreeze reads method freeze: some decoder layers are trained, the last ones or the first ones, and nothing else
// is.
func (s *scenario) settleFreeze() {
	const fallback = 2 // freeze_trainable_layers of LLaMA-Factory
	n := int64(choose(s, s.job.TrainableLayers, fallback, "trainable_layers"))
	switch {
	case !s.sized() || s.arch.Encoder != nil:
		s.notes.assume("every weight is trained",
			"method freeze has a formula for models of one stack whose sizes are known", true)
		return
	case n == 0 || n >= s.arch.Blocks() || -n >= s.arch.Blocks():
		s.notes.assume("every layer is trained, and no embedding or output projection",
			fmt.Sprintf("trainable_layers = %d of %d", n, s.arch.Blocks()), false)
		n = s.arch.Blocks()
	case n < 0:
		s.notes.assume("frozen layers keep as much as trained ones",
			"gradients pass through them on their way to the first layers", true)
	}
	s.arch, s.trainedLayers = frozenBut(s.arch, n), n
}

// frozenBut is the model with everything frozen but its last n blocks, or its first -n.
func frozenBut(a *model.Architecture, n int64) *model.Architecture {
	from, to := a.Blocks()-n, a.Blocks()
	if n < 0 {
		from, to = 0, -n
	}
	frozen := *a
	frozen.Units = nil
	var seen int64
	for _, u := range a.Units {
		if unitKind(u) != layerUnit {
			frozen.Units = append(frozen.Units, withoutGradients(u, u.Repeat))
			continue
		}
		before, trained := min(max(from-seen, 0), u.Repeat), max(min(seen+u.Repeat, to)-max(seen, from), 0)
		parts := []model.Unit{withoutGradients(u, before), u, withoutGradients(u, u.Repeat-before-trained)}
		parts[1].Repeat = trained
		frozen.Units = append(frozen.Units,
			slices.DeleteFunc(parts, func(u model.Unit) bool { return u.Repeat == 0 })...)
		seen += u.Repeat
	}
	return &frozen
}

func withoutGradients(u model.Unit, repeat int64) model.Unit {
	u.Tensors, u.Repeat = slices.Clone(u.Tensors), repeat
	for i := range u.Tensors {
		u.Tensors[i].Frozen = true
	}
	return u
}

// freezes says that whole layers are frozen, and so are embeddings, last norm and head.
func (s *scenario) freezes() bool { return s.trainedLayers != 0 }

// trainsEnds says that embeddings and head get gradients.
func (s *scenario) trainsEnds() bool { return !s.adapters() && !s.freezes() }

// recordedLayers is the layers of this rank that keep something for backward: those in front of the first trained one
// keep nothing.
func (r *rank) recordedLayers() int64 {
	if r.trainedLayers > 0 {
		return r.unfrozen
	}
	if r.arch.SharedBlocks {
		return r.arch.Layers / max(r.pp, 1)
	}
	return r.layers
}

// frozenWidth is the bytes of a weight that is not trained where there are no adapters.
func (r *rank) frozenWidth() int64 {
	if r.freezes() {
		return r.baseWidth()
	}
	return r.precision.param
}

// firstTrained is the op of a layer with which its trained weights begin: behind frozen layers the one that applies the
// first norm's weight, since nothing is recorded of what the norm does before; elsewhere the first of all.
func (b *block) firstTrained() int {
	first := slices.IndexFunc(b.ops, func(o op) bool { return o.name == "norm" })
	if !b.freezes() || first < 0 {
		return 0
	}
	for first+1 < len(b.ops) && (b.ops[first+1].name == "norm" || b.ops[first+1].name == "cast") {
		first++
	}
	for b.ops[first].name != "norm" { // casts that belong to what follows
		first--
	}
	return first
}

// pastFrozen is the block as the layers' successors see it: no weight behind them gets a gradient.
func (b *block) pastFrozen() *block {
	if !b.freezes() {
		return b
	}
	own := *b
	own.trainable, own.keepsInputs = false, false
	return &own
}
