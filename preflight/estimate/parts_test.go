package estimate

import (
	"strings"
	"testing"

	"oomguard/preflight/model"
)

// TestEveryLinearHasAPart: the weights of every linear layer of every model type's blocks say what they are for, and
// some step of the block takes them: the memory of what nothing takes would not be counted when it appears, nor that
// of an adapter on it.
func TestEveryLinearHasAPart(t *testing.T) {
	for _, config := range allConfigs(t) {
		a, err := model.Parse(config, "config.json")
		if err != nil {
			t.Fatal(err)
		}
		kind := a.Type
		for _, u := range a.Units {
			for _, w := range u.Tensors {
				if (w.Role == model.Linear || w.Role == model.Expert) && strings.Contains(w.Path, "*") && w.Part == "" {
					t.Errorf("%s: %s has no part: name it where %s is declared in preflight/model", kind, w.Path, kind)
				}
			}
		}
		if a.NoActivations == "" {
			takesAll(t, kind, a)
		}
	}
}

// takesAll builds the blocks of both stacks and looks at what no step has taken.
func takesAll(t *testing.T, kind string, a *model.Architecture) {
	t.Helper()
	in := paramsOnly(1, nil)
	in.Model = a
	s, err := newScenario(in)
	if err != nil {
		t.Fatal(err)
	}
	whole := s.rankOf(0)
	stacks := []*rank{whole}
	if a.Encoder != nil {
		stacks = []*rank{whole.stack(true), whole.stack(false)}
	}
	for _, r := range stacks {
		b := r.block()
		b.layer()
		for _, w := range r.base {
			left := w.unit == layerUnit && !w.dense && w.Role == model.Linear && b.elements[w.Part] > 0
			if left && w.Part != model.PartTalking {
				t.Errorf("%s: no step of a block takes %s, which is %q", kind, w.Path, w.Part)
			}
		}
	}
}
