package estimate

import (
	"cmp"
	"slices"

	"oomguard/preflight/model"
)

// The pieces of a model in the order of the forward pass.
const (
	embeddingUnit = "embeddings"
	layerUnit     = "layer"
	finalUnit     = "final"
	encoderUnit   = "encoder layer"
	denseUnit     = "dense layer" // a layer of the stack in front
)

// A weight is one tensor as a rank holds it before data-parallel sharding; Shape is the rank's own, after tensor
// parallelism.
type weight struct {
	model.Tensor
	unit     string
	repeat   int64 // how many identical ones this rank holds
	elements int64 // of one
	encoder  bool  // of the stack in front, in models that have two
	dense    bool  // of a layer without experts in a mixture of experts
	ranks    int64 // of an adapted module: by how much its adapter's rank is that of the others
	// shapeless: stands for a whole model of which only the parameter count is known.
	shapeless bool
	// width, if not 0, is the bytes of an element of this trained weight and its gradient where they are not those of
	// all others.
	width int64
}

func (w weight) total() int64 { return w.repeat * w.elements }

// A rank is what one process of a pipeline stage holds.
type rank struct {
	*scenario
	stage, layers int64
	unfrozen      int64 // layers with weights that are trained, if not all are
	first, last   bool
	base          []weight // the model
	whole         *rank    // the rank that this is one of two stacks of; nil: it has one stack
	trained       []weight // what the optimizer updates: the model itself, or the adapters
}

func (s *scenario) rankOf(stage int64) *rank {
	r := &rank{scenario: s, stage: stage, first: stage == 0, last: stage == s.pp-1}
	if !s.sized() {
		r.base = []weight{{unit: layerUnit, repeat: 1, elements: ceilDiv(s.arch.Parameters(), s.tp*s.pp),
			shapeless: true,
			Tensor:    model.Tensor{Role: model.Linear}}}
	} else {
		r.placeUnits()
	}
	r.trained = slices.DeleteFunc(slices.Clone(r.base), func(w weight) bool { return w.Frozen || w.Unused })
	if s.adapters() {
		r.trained = r.adapterWeights()
	}
	return r
}

// placeUnits gives the rank its part of the layers, the embeddings on the first stage and the head on the last.
func (r *rank) placeUnits() {
	var total, seen int64
	for _, u := range r.arch.Units {
		if unitKind(u) == layerUnit {
			total += u.Repeat
		}
	}
	from, to := r.stage*total/r.pp, (r.stage+1)*total/r.pp
	for _, u := range r.arch.Units {
		switch kind := unitKind(u); kind {
		case embeddingUnit:
			if r.first {
				r.place(u, kind, u.Repeat)
			}
		case finalUnit:
			if r.last {
				r.place(u, kind, u.Repeat)
			}
		default:
			here := min(seen+u.Repeat, to) - max(seen, from)
			seen += u.Repeat
			if here > 0 {
				r.place(u, kind, here)
				r.layers += here
			}
		}
	}
	if r.arch.Tied && r.last && !r.first { // the last pipeline stage keeps its own copy of the tied embedding
		r.base = append(r.base, r.slice(model.Tensor{Module: "lm_head", Role: model.Head, Part: model.PartHead,
			Shape: []int64{r.arch.Vocab, r.arch.Hidden}}, finalUnit, 1))
	}
}

func unitKind(u model.Unit) string {
	if u.Name == embeddingUnit || u.Name == finalUnit {
		return u.Name
	}
	return layerUnit
}

func (r *rank) place(u model.Unit, kind string, repeat int64) {
	if kind == layerUnit && slices.ContainsFunc(u.Tensors, func(t model.Tensor) bool { return !t.Frozen }) {
		r.unfrozen += repeat
	}
	for _, t := range u.Tensors {
		w := r.slice(t, kind, repeat)
		w.encoder, w.dense = u.Name == encoderUnit, u.Name == denseUnit
		r.base = append(r.base, w)
	}
}

// slice applies tensor parallelism: matrices are split, everything else is replicated (Megatron's and torchtitan's
// plans).
func (r *rank) slice(t model.Tensor, unit string, repeat int64) weight {
	w := weight{Tensor: t, unit: unit, repeat: repeat, elements: t.Elements()}
	degree := int64(1)
	switch t.Role {
	case model.Linear, model.Head, model.Embedding:
		degree = r.tp
	case model.Expert: // stacked: whole experts go to expert-parallel ranks, each split by tensor parallelism
		degree = r.etp * r.ep
	case model.Bias, model.Norm, model.Other:
	}
	if degree > 1 && len(t.Shape) > 0 {
		w.Shape = append([]int64{ceilDiv(t.Shape[0], degree)}, t.Shape[1:]...)
		w.elements = ceilDiv(t.Elements(), degree)
	}
	return w
}

// count adds up the elements of the weights that match; a nil match takes all.
func count(ws []weight, match func(weight) bool) int64 {
	var n int64
	for _, w := range ws {
		if match == nil || match(w) {
			n += w.total()
		}
	}
	return n
}

// trainedBytes is the bytes of the trained weights, or of their gradients, at that width where a weight has none of its
// own.
func (r *rank) trainedBytes(width int64) int64 {
	var n int64
	for _, w := range r.trained {
		n += cmp.Or(w.width, width) * w.total()
	}
	return n
}

func inUnit(unit string) func(weight) bool {
	return func(w weight) bool { return w.unit == unit }
}

// oneLayer is the elements of one layer of these weights, on average over unlike ones.
func (r *rank) oneLayer(ws []weight) int64 {
	if r.layers == 0 {
		return 0
	}
	return ceilDiv(count(ws, inUnit(layerUnit)), r.layers)
}

// oneTrained is the elements of one layer's trained weights.
func (r *rank) oneTrained() int64 {
	if r.freezes() {
		return ceilDiv(count(r.trained, inUnit(layerUnit)), max(r.unfrozen, 1))
	}
	return r.oneLayer(r.trained)
}

func largest(ws []weight) int64 {
	var most int64
	for _, w := range ws {
		most = max(most, w.elements)
	}
	return most
}

// linear counts the weights of matrix products: what autocast casts and caches. A tied embedding is the head's matrix
// too.
func (r *rank) linear(unit string) int64 {
	n := count(r.base, func(w weight) bool {
		return (unit == "" || w.unit == unit) && isMatrix(w)
	})
	if unit != layerUnit && r.tiedHere() {
		n += r.tiedElements()
	}
	return n
}

func isMatrix(w weight) bool {
	return w.Role == model.Linear || w.Role == model.Head || w.Role == model.Expert
}

// tiedHere says that this rank uses its embedding as the output projection.
func (r *rank) tiedHere() bool { return r.arch.Tied && r.arch.LogitsWidth > 0 && r.first && r.last }

// tiedElements is the size of that weight, which may be narrower than the model (ELECTRA, OPT).
func (r *rank) tiedElements() int64 {
	width := r.arch.Hidden
	if r.arch.TiedHead != nil {
		width = r.arch.TiedHead.Shape[1]
	}
	return ceilDiv(r.arch.Vocab, r.tp) * width
}
