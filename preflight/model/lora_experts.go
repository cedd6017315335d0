package model

import (
	"fmt"
	"slices"
	"strings"
)

// An ExpertKind is how the installed releases keep routed experts, which decides what the targets of an adapter reach.
type ExpertKind int

// The kinds of experts.
const (
	// StackedExperts are weights [experts, out, in] (transformers 5). PEFT turns targets that name the projections of
	// an expert, as they were in transformers 4, into adapters on these weights, for the model types that it knows
	// (convert_peft_config_for_transformers in peft/utils/transformers_weight_conversion.py, since 0.19).
	StackedExperts ExpertKind = iota
	// UnreachedExperts are the same with an older PEFT, which adapts modules alone.
	UnreachedExperts
	// SeparateExperts are an nn.Linear for each projection of each expert (transformers 4).
	SeparateExperts
)

// projections are the names that transformers 4 gave to those of an expert, and what PEFT knows of the type:
// _MODEL_TO_CONVERSION_PATTERN in transformers/conversion_mapping.py (5.24), which PEFT reads, and the modelling files
// of transformers 4.57. A type without any has stacked experts in every release, and PEFT knows no names for them.
type projections struct {
	gate, up, down string
	router         string // the router's module, where it was an nn.Linear in transformers 4
	converted      bool   // PEFT turns these names into adapters on stacked weights
	separate       bool   // its own code has a Linear for each in every release
}

var (
	mixtralProjections = projections{gate: "w1", up: "w3", down: "w2", router: "gate", converted: true}
	mlpProjections     = projections{gate: "gate_proj", up: "up_proj", down: "down_proj", router: "gate",
		converted: true}
	// routerWeights: the router held a bare weight in transformers 4 as well.
	routerWeights = projections{gate: "gate_proj", up: "up_proj", down: "down_proj", converted: true}
)

// expertKind is how this model keeps its experts.
func (a *Architecture) expertKind() ExpertKind {
	if a.Facts.experts.separate {
		return SeparateExperts
	}
	return a.ExpertKind
}

// replaced are the names that PEFT takes for stacked weights; nil when it takes none for such.
func (p projections) replaced() map[string]string {
	if !p.converted {
		return nil
	}
	return map[string]string{"gate": "gate", p.gate: "gate_up_proj", p.up: "gate_up_proj", p.down: "down_proj"}
}

// convertTargets splits targets into those that stay modules' names and the adapters on stacked experts that PEFT makes
// of the others. Strings ("all-linear", a regular expression) first become the last parts of the names that they match.
func (a *Architecture) convertTargets(targets []string) (modules []string, experts []Target, err error) {
	names := a.Facts.experts.replaced()
	if a.Experts == 0 || a.expertKind() != StackedExperts || names == nil {
		return targets, nil, nil
	}
	if len(targets) == 1 && (strings.EqualFold(targets[0], allLinear) || isPattern(targets[0])) {
		if targets, err = a.resolve(targets, names); err != nil {
			return nil, nil, err
		}
	}
	wanted := map[string]bool{}
	for _, target := range targets {
		last := lastPart(target)
		if names[last] == "" {
			modules = append(modules, target)
			continue
		}
		wanted[last] = true
	}
	p := a.Facts.experts
	if wanted[p.gate] != wanted[p.up] {
		return nil, nil, fmt.Errorf("LoRA targets %s and %s are one weight in transformers 5, and PEFT stops when "+
			"only one of them is named: name both or none",
			p.gate, p.up)
	}
	return modules, a.stackedTargets(wanted, p), nil
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// stackedTargets are the adapters on the experts' weights, the router's among them. That of gate and up has twice the
// rank.
func (a *Architecture) stackedTargets(wanted map[string]bool, p projections) []Target {
	var found []Target
	for _, u := range a.Units {
		first := true
		for _, t := range u.Tensors {
			switch {
			case t.Role == Expert && len(t.Shape) == 3:
				name, part, ranks := "down_proj", PartExpertDown, int64(1)
				if first { // gate and up come first, see routed
					name, part, ranks = "gate_up_proj", PartExpertGateUp, 2
				}
				if first && wanted[p.gate] || !first && wanted[p.down] {
					found = append(found, Target{Tensor: tensor(t.Path+"."+name, Expert, t.Shape...).as(part),
						Count: u.Repeat, Ranks: ranks})
				}
				first = false
			case t.Part == PartRouter && len(t.Shape) == 2 && wanted["gate"]:
				found = append(found, Target{Tensor: t, Count: u.Repeat})
			}
		}
	}
	return found
}

// resolve lists the last parts of the names that a string means.
func (a *Architecture) resolve(targets []string, names map[string]string) ([]string, error) {
	matches, err := a.matcher(targets)
	if err != nil {
		return nil, err
	}
	all := strings.EqualFold(targets[0], allLinear)
	var found []string
	add := func(name string) {
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	for name := range names {
		if all {
			add(name)
		}
	}
	for _, u := range a.adaptableUnits() {
		for _, t := range u.Tensors {
			if matches(t, u) > 0 {
				add(t.Module)
			}
		}
	}
	if all {
		return found, nil
	}
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			if t.Part == PartRouter && matches(t, u) > 0 {
				add("gate")
			}
			for name := range names {
				if t.Role == Expert && name != "gate" && matches(tensor(t.Path+"."+name, Linear), u) > 0 {
					add(name)
				}
			}
		}
	}
	return found, nil
}

// separateExperts are a unit's experts and router as modules of their own, each with how many there are in a block.
func (a *Architecture) separateExperts(u Unit) (modules []Tensor, each int64) {
	p := a.Facts.experts
	if p == (projections{}) || a.expertKind() != SeparateExperts {
		return nil, 0
	}
	for _, t := range u.Tensors {
		if t.Role != Expert || len(t.Shape) != 3 {
			continue
		}
		out, in := t.Shape[1], t.Shape[2]
		if modules == nil { // gate and up
			modules = slices.Concat(linear(PartExpertGate, t.Path+".0."+p.gate, in, out/2, false),
				linear(PartExpertUp, t.Path+".0."+p.up, in, out/2, false))
			continue
		}
		modules = append(modules, linear(PartExpertDown, t.Path+".0."+p.down, in, out, false)...)
	}
	return modules, a.Experts
}

// separateRouter is a unit's router where transformers 4 had an nn.Linear for it.
func (a *Architecture) separateRouter(t Tensor) bool {
	p := a.Facts.experts
	return a.expertKind() == SeparateExperts && t.Role == Other && p.router != "" && t.Part == PartRouter &&
		len(t.Shape) == 2
}
