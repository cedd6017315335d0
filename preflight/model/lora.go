package model

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Target is a module that gets a low-rank adapter.
type Target struct {
	Tensor       // the weight it is added to; a Linear's shape is [out, in]
	Count  int64 // how many modules of this kind, over all blocks
	// Ranks is by how much the adapter's rank is that of the others: 2 for the stacked gate and up of experts, which
	// were two modules once. 0 means 1. Stacked experts (of the role Expert) have the shape [experts, out, in] and an
	// adapter for each of them.
	Ranks int64
}

// allLinear is PEFT's shorthand for every linear layer but the output projection.
const allLinear = "all-linear"

// LoRATargets finds the modules that PEFT would adapt for target_modules (check_target_module_exists in
// peft/tuners/tuners_utils.py): those whose full name is a target or ends in "."+target. A single target with
// regular-expression characters must match full names, "all-linear" means every Linear but an output projection, and
// none at all PEFT's default for the model_type. As in PEFT it is no error if some of several targets are not there
// (see UnknownTargets); the error when none is lists the modules there are. What targets mean for the experts of a
// mixture of experts depends on ExpertKind.
func (a *Architecture) LoRATargets(targets []string) ([]Target, error) {
	if len(a.Units) == 0 {
		return nil, fmt.Errorf("the modules of %s are not known, only its number of parameters: give the model's "+
			"config.json with --model", a.Name)
	}
	if len(targets) == 0 {
		if targets = slices.Clone(a.Facts.LoRA); len(targets) == 0 {
			return nil, fmt.Errorf("PEFT has no default LoRA targets for model_type %q and stops: name some with "+
				"--lora-targets (there are %s)",
				a.Type, strings.Join(a.adaptable(), ", "))
		}
	}
	if a.Experts > 0 && slices.ContainsFunc(targets, namesAllExperts) {
		return nil, fmt.Errorf("LoRA target %s is the list of experts, which PEFT cannot adapt as a whole: name "+
			"their projections", strings.Join(targets, ", "))
	}
	modules, found, err := a.convertTargets(a.renamed(targets))
	if err != nil {
		return nil, err
	}
	matches, err := a.matcher(modules)
	if err != nil {
		return nil, err
	}
	for _, u := range a.Units {
		experts, each := a.separateExperts(u)
		for _, t := range experts {
			if n := matches(t, u); n > 0 {
				found = append(found, Target{Tensor: t, Count: n * each})
			}
		}
	}
	for _, u := range a.adaptableUnits() {
		for _, t := range u.Tensors {
			if n := matches(t, u); n > 0 {
				found = append(found, Target{Tensor: t, Count: n})
			}
		}
	}
	if refused := a.Facts.refused; slices.ContainsFunc(found,
		func(t Target) bool { return slices.Contains(refused, t.Module) }) {
		return nil, fmt.Errorf("LoRA target %s reaches %s, which PEFT refuses in %s models: name other modules, "+
			"such as in_proj,x_proj",
			strings.Join(targets, ", "), strings.Join(refused, " or "), a.Type)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("LoRA target %s is not in this model: --lora-targets can name %s, or all-linear",
			strings.Join(targets, ", "), strings.Join(a.adaptable(), ", "))
	}
	return found, nil
}

// namesAllExperts reports whether a target is the module that holds a block's experts.
func namesAllExperts(target string) bool {
	return target == "experts" || strings.HasSuffix(target, ".experts")
}

// isPattern tells a regular expression, which PEFT takes as a string, from the name of a module.
func isPattern(target string) bool { return strings.ContainsAny(target, `*+?()[]{}|^$\`) }

// UnknownTargets lists the targets that match no module; PEFT passes over them in silence as long as another one
// matches.
func (a *Architecture) UnknownTargets(targets []string) []string {
	names := a.Facts.experts.replaced()
	return slices.DeleteFunc(slices.Clone(targets), func(target string) bool {
		if a.Experts > 0 && a.expertKind() == StackedExperts && names[lastPart(target)] != "" {
			return true
		}
		_, err := a.LoRATargets([]string{target})
		return err == nil
	})
}

// LoRAParameters is the number of trainable parameters that adapters of rank r add to the targets: r*(in+out) for each
// module, and out more with DoRA's magnitudes (for an embedding, the width of its rows). See LoRATargets for the
// meaning of targets and errors.
func (a *Architecture) LoRAParameters(r int, targets []string, dora bool) (int64, error) {
	if r < 1 || r > maxCount {
		return 0, fmt.Errorf("LoRA rank %d: want a whole number from 1 to %d, such as --lora-r 16", r, maxCount)
	}
	found, err := a.LoRATargets(targets)
	if err != nil {
		return 0, err
	}
	var ranked, magnitudes int64 // neither can overflow: each is at most about the model's own size
	for _, t := range found {
		if t.Role == Expert {
			if dora {
				return 0, errors.New("PEFT cannot train stacked experts with DoRA (lora.ParamWrapper): switch DoRA " +
					"off or name attention modules alone")
			}
			ranked += t.Count * t.Ranks * t.Shape[0] * (t.Shape[1] + t.Shape[2])
			continue
		}
		ranked += t.Count * (t.Shape[0] + t.Shape[1])
		switch {
		case dora && t.Role == Embedding:
			magnitudes += t.Count * t.Shape[1]
		case dora:
			magnitudes += t.Count * t.Shape[0]
		}
	}
	if ranked > maxParameters/int64(r) {
		return 0, fmt.Errorf("LoRA rank %d would add more than %d parameters: choose a smaller --lora-r", r,
			int64(maxParameters))
	}
	return int64(r)*ranked + magnitudes, nil
}

// renamed gives targets their present names where transformers 5 renamed modules and scripts still use the old ones.
func (a *Architecture) renamed(targets []string) []string {
	targets = slices.Clone(targets)
	for i, target := range targets {
		targets[i] = cmp.Or(a.Facts.formerNames[target], target)
	}
	return targets
}

// adaptableUnits are the units less everything that cannot have an adapter, and with the head that shares the
// embedding.
func (a *Architecture) adaptableUnits() []Unit {
	units := append(slices.Clone(a.Units), Unit{Name: "tied", Repeat: 1, Tensors: a.tied()})
	for i, u := range units {
		units[i].Tensors = nil
		for _, t := range u.Tensors {
			if t.isConvolution() { // an adapter's two matrices see its kernel as so many more inputs
				t.Shape = []int64{t.Shape[0], t.Elements() / t.Shape[0]}
			} else if t.Role != Linear && t.Role != Head && t.Role != Embedding && !a.separateRouter(t) {
				continue
			}
			units[i].Tensors = append(units[i].Tensors, t)
		}
	}
	return units
}

// isConvolution finds what makes positions out of patches or frames. "all-linear" does not mean it, but it may be
// named.
func (t Tensor) isConvolution() bool {
	return t.Role == Other && (len(t.Shape) > 3 || t.Part.IsConvolution())
}

// tied are the modules whose weight is another's.
func (a *Architecture) tied() []Tensor {
	tensors := slices.Clone(a.TiedTables)
	if a.TiedHead != nil {
		tensors = append(tensors, *a.TiedHead)
	}
	return tensors
}

// adaptable lists the names of modules that can be targets.
func (a *Architecture) adaptable() []string {
	var names []string
	for _, u := range a.adaptableUnits() {
		for _, t := range u.Tensors {
			if !slices.Contains(names, t.Module) {
				names = append(names, t.Module)
			}
		}
	}
	return names
}

// matcher returns a function that counts in how many blocks of a unit the module of a tensor is a target.
func (a *Architecture) matcher(targets []string) (func(Tensor, Unit) int64, error) {
	if len(targets) == 1 && strings.EqualFold(targets[0], allLinear) {
		return func(t Tensor, u Unit) int64 {
			if t.Role == Linear || t.Role == Head && !a.isOutput(t) || a.separateRouter(t) {
				return u.Repeat
			}
			return 0
		}, nil
	}
	matches := func(path string) bool {
		return slices.ContainsFunc(targets, func(target string) bool {
			return path == target || strings.HasSuffix(path, "."+target)
		})
	}
	perBlock := strings.ContainsAny(strings.Join(targets, ""), "0123456789") // a target may name one block
	if len(targets) == 1 && isPattern(targets[0]) {
		pattern, err := regexp.Compile(`^(?:` + targets[0] + `)$`)
		if err != nil {
			return nil, fmt.Errorf("LoRA target %q: %w: write it as a regular expression that Go understands, or "+
				"list module names", targets[0], err)
		}
		matches, perBlock = pattern.MatchString, true
	}
	return func(t Tensor, u Unit) int64 {
		if perBlock {
			return u.countBlocks(t, matches)
		}
		if matches(t.Path) {
			return u.Repeat
		}
		return 0
	}, nil
}

// isOutput reports whether PEFT's "all-linear" leaves a head out: the projection to the vocabulary, and what sequence
// classifiers call score or classifier (_maybe_include_all_linear_layers in peft/tuners/tuners_utils.py; a sequence
// classifier is taken to say its task_type).
func (a *Architecture) isOutput(t Tensor) bool {
	_, does, _ := taskOf(a.Class)
	return does.vocabulary && t.Shape[0] == a.Vocab ||
		does == sequenceClassification && (t.Path == "score" || t.Path == "classifier")
}

// countBlocks counts the blocks of u in which the full name of t's module matches.
func (u Unit) countBlocks(t Tensor, matches func(path string) bool) int64 {
	if !strings.Contains(t.Path, "*") {
		if matches(t.Path) {
			return u.Repeat
		}
		return 0
	}
	var n int64
	for i := range u.Repeat {
		if u.Indices != nil {
			i = u.Indices[i]
		}
		if matches(strings.Replace(t.Path, "*", strconv.FormatInt(i, 10), 1)) {
			n++
		}
	}
	return n
}
