package estimate

import (
	"regexp"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// placed says how often this rank holds a module that is there count times in the whole model, and in which unit.
func (r *rank) placed(t model.Tensor, count int64) weight {
	w := r.slice(t, layerUnit, count*r.layers/max(r.arch.Blocks(), 1))
	switch {
	case strings.Contains(t.Path, "*"):
	case t.Role == model.Embedding:
		w.unit, w.repeat = embeddingUnit, oneIf(r.first)
	default:
		w.unit, w.repeat = finalUnit, oneIf(r.last)
	}
	return w
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// adapted lists the modules of this rank that carry an adapter: the targets, less the modules that are trained whole.
func (r *rank) adapted() []weight {
	targets, err := r.arch.LoRATargets(r.lora.Names()) // settleMethod has refused what fails here
	if err != nil {
		return nil
	}
	whole := r.arch.SavedWeights(r.lora.ModulesToSave)
	var out []weight
	for _, t := range targets {
		w := r.placed(t.Tensor, t.Count)
		w.ranks = max(t.Ranks, 1)
		w.encoder = slices.ContainsFunc(r.base, func(o weight) bool { return o.encoder && o.Path == t.Path })
		copied := slices.ContainsFunc(whole, func(s model.Target) bool { return s.Path == t.Path })
		if w.repeat > 0 && !copied {
			out = append(out, w)
		}
	}
	return out
}

// adapterWeights are the matrices A [r, in] and B [out, r] of every adapted module, DoRA's magnitudes, biases that are
// trained too, and the trainable copies of modules_to_save.
func (r *rank) adapterWeights() []weight {
	if r.weightsOnly {
		return nil
	}
	if !r.sized() {
		n := max(r.base[0].elements/200, 1)
		return []weight{{unit: layerUnit, repeat: 1, elements: n, shapeless: true,
			Tensor: model.Tensor{Role: model.Linear}}}
	}
	var out []weight
	add := func(w weight, role model.Role, shape ...int64) {
		t := model.Tensor{Module: w.Module, Path: w.Path, Role: role, Part: w.Part, Shape: shape}
		out = append(out, weight{Tensor: t, unit: w.unit, repeat: w.repeat, elements: t.Elements()})
	}
	modules := r.adapted()
	for _, w := range modules {
		rank := r.rankOfModule(w.Path) * w.ranks
		if w.Role == model.Expert { // each expert has its own, side by side (lora.ParamWrapper)
			rank *= w.Shape[0]
			add(w, model.Linear, rank, w.Shape[2])
			add(w, model.Linear, w.Shape[1], rank)
			continue
		}
		add(w, model.Linear, rank, w.Shape[1])
		add(w, model.Linear, w.Shape[0], rank)
		switch {
		case r.lora.DoRA && w.Role == model.Embedding:
			add(w, model.Other, w.Shape[1])
		case r.lora.DoRA:
			add(w, model.Other, w.Shape[0])
		}
	}
	out = append(out, r.trainedBiases(modules)...)
	return append(out, r.savedModules()...)
}

// rankOfModule is the module's own rank in rank_pattern, whose keys PEFT takes as the ends of full names
// (get_pattern_key in peft/utils/other.py), or that of all.
func (r *rank) rankOfModule(path string) int64 {
	for key, rank := range r.lora.RankPattern {
		pattern, err := regexp.Compile(`^(?:.*\.)?(?:` + key + `)$`)
		if err == nil && rank > 0 && pattern.MatchString(path) {
			return int64(rank)
		}
	}
	return int64(r.lora.R)
}

// trainedBiases are the biases that LoraConfig's bias option trains: all of the model's, or those of adapted modules.
func (r *rank) trainedBiases(modules []weight) []weight {
	var out []weight
	for _, w := range r.base {
		ofAdapted := slices.ContainsFunc(modules, func(m weight) bool { return m.Path == w.Path })
		if w.Role == model.Bias && (r.lora.Bias == "all" || r.lora.Bias == "lora_only" && ofAdapted) {
			out = append(out, w)
		}
	}
	return out
}

// savedModules are the copies that PEFT trains whole. They keep the dtype of what they copy (ModulesToSaveWrapper in
// peft/utils/other.py), whatever the adapters have.
func (r *rank) savedModules() []weight {
	var out []weight
	for _, t := range r.arch.SavedWeights(r.lora.ModulesToSave) {
		w := r.placed(t.Tensor, t.Count)
		if w.repeat > 0 {
			w.width = r.baseWidth()
			out = append(out, w)
		}
	}
	return out
}

// magnitude is DoRA's part of an adapted module: both the module's result and the adapter's are scaled by a trained
// vector, so both are kept. With dropout the module runs a second time on what dropout left, and the copy of its weight
// is kept for that (peft/tuners/lora/dora.py).
func (b *block) magnitude(y, branch *tensor, a adapter) *tensor {
	o := op{name: "magnitude", in: []*tensor{y, branch}, saves: []*tensor{y, branch}, grads: b.precision.grad * a.out}
	if b.lora.Dropout > 0 {
		o.saves = []*tensor{branch}
		o.extra = b.c*a.in*a.out + y.bytes()
	}
	return b.add(o, branch.n, max(branch.width, b.precision.param))
}
