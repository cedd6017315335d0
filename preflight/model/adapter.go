package model

import (
	"regexp"
	"slices"
	"strings"
)

// Adapter is what a LoRA run trains, as PEFT's LoraConfig says it.
type Adapter struct {
	R             int      // rank
	Targets       []string // see LoRATargets
	DoRA          bool
	ModulesToSave []string // modules that are trained whole, beside the low-rank adapters
}

// TrainableParameters is the number of parameters that an adapter trains: those of LoRAParameters and the whole modules
// of SavedWeights. A module that is trained whole gets no low-rank adapter. Errors are those of LoRATargets.
func (a *Architecture) TrainableParameters(adapter Adapter) (int64, error) {
	var saved int64
	for _, t := range a.SavedWeights(adapter.ModulesToSave) {
		saved += t.Count * t.Elements()
	}
	base := *a
	kept := adapterFree(adapter.ModulesToSave)
	if a.TiedHead != nil && kept(*a.TiedHead) {
		base.TiedHead = nil
	}
	base.TiedTables = slices.DeleteFunc(slices.Clone(a.TiedTables), kept)
	base.Units = slices.Clone(a.Units)
	for i, u := range a.Units {
		base.Units[i].Tensors = slices.DeleteFunc(slices.Clone(u.Tensors), kept)
	}
	lora, err := base.LoRAParameters(adapter.R, adapter.Targets, adapter.DoRA)
	return lora + saved, err
}

// SavedWeights lists the weights that PEFT's modules_to_save trains as copies: those of every module whose full name
// ends in one of names (_set_trainable in peft/utils/other.py), with all that is inside it. A tied output projection is
// copied, and trained, on its own.
func (a *Architecture) SavedWeights(names []string) []Target {
	var saved []Target
	matches := func(path string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return endsInside(path, name) })
	}
	units := append(slices.Clone(a.Units), Unit{Repeat: 1, Tensors: a.tied()})
	for _, u := range units {
		for _, t := range u.Tensors {
			if n := u.countBlocks(t, matches); n > 0 {
				saved = append(saved, Target{Tensor: t, Count: n})
			}
		}
	}
	return saved
}

// endsInside reports whether path, or one of the modules around it, ends in name.
func endsInside(path, name string) bool {
	for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], '.') {
		if strings.HasSuffix(path[:at], name) {
			return true
		}
	}
	return false
}

// adapterFree tells the weights that modules_to_save keeps adapters off: PEFT takes the names as regular expressions
// that match whole parts of a path (check_target_module_exists in peft/tuners/tuners_utils.py).
func adapterFree(names []string) func(Tensor) bool {
	var patterns []*regexp.Regexp
	for _, name := range names {
		// PEFT would stop at a broken expression, which is no module's name either
		if pattern, err := regexp.Compile(`^(?:.*\.)?(?:` + name + `)(?:\..*)?$`); err == nil {
			patterns = append(patterns, pattern)
		}
	}
	return func(t Tensor) bool {
		return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(t.Path) })
	}
}
