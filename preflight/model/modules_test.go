package model

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// modules is testdata/modules.json: what transformers and PEFT have, written by testdata/count.py.
type modules struct {
	Cases []struct {
		Config     json.RawMessage
		Parameters int64
		Weights    map[string]int64 // "path role" -> elements over all blocks
	}
	Adapters []struct {
		Class      string
		Targets    []string
		Save       []string // modules_to_save; Parameters is then all that is trained
		R          int
		DoRA       bool
		Parameters int64
	}
}

func readModules(t testing.TB) (m modules) {
	t.Helper()
	readJSON(t, "testdata/modules.json", &m)
	return m
}

// withoutClass are the types whose code comes with the checkpoint, so that transformers alone cannot count them:
// TestPublishedModels compares them with published counts.
var withoutClass = []string{"baichuan", "chatglm", "deepseek", "internlm2", "qwen"}

// TestEveryWeight compares every weight's module, role and size with transformers', for all classes of all families.
func TestEveryWeight(t *testing.T) {
	seen := map[string]bool{}
	for _, want := range readModules(t).Cases {
		a, err := Parse(want.Config, "config.json")
		if err != nil {
			t.Errorf("%s: %v", want.Config, err)
			continue
		}
		seen[a.Type] = true
		got := map[string]int64{}
		for _, u := range a.Units {
			for _, w := range u.Tensors {
				if w.Module != w.Path[strings.LastIndexByte(w.Path, '.')+1:] {
					t.Errorf("%s: module %q of path %q", a.Class, w.Module, w.Path)
				}
			}
		}
		for _, m := range a.Modules() {
			got[m.Path+" "+string(m.Role)] = m.Elements
		}
		if strings.HasSuffix(a.Class, "LlamaForQuestionAnswering") { // keeps its base model as .transformer
			want.Weights = renamed(want.Weights, "transformer.", "model.")
		}
		for _, path := range slices.Sorted(maps.Keys(merged(got, want.Weights))) {
			if got[path] != want.Weights[path] {
				t.Errorf("%s %s: %s has %d elements, want %d", a.Class, want.Config, path, got[path],
					want.Weights[path])
			}
		}
		if a.Parameters() != want.Parameters {
			t.Errorf("%s %s: %d parameters, want %d", a.Class, want.Config, a.Parameters(), want.Parameters)
		}
	}
	for _, modelType := range Types() {
		if !seen[modelType] && !slices.Contains(withoutClass, modelType) {
			t.Errorf("no case for model_type %q: add one to testdata/count.py", modelType)
		}
	}
}

func renamed(weights map[string]int64, from, to string) map[string]int64 {
	out := map[string]int64{}
	for path, n := range weights {
		if rest, ok := strings.CutPrefix(path, from); ok {
			path = to + rest
		}
		out[path] = n
	}
	return out
}

func merged(a, b map[string]int64) map[string]int64 {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// TestAdaptersLikePEFT compares the number of parameters that adapters add with what PEFT creates.
func TestAdaptersLikePEFT(t *testing.T) {
	m := readModules(t)
	for _, want := range m.Adapters {
		at := slices.IndexFunc(m.Cases, func(c struct {
			Config     json.RawMessage
			Parameters int64
			Weights    map[string]int64
		}) bool {
			return strings.Contains(string(c.Config), `"`+want.Class+`"`)
		})
		a, err := Parse(m.Cases[at].Config, "config.json")
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.TrainableParameters(Adapter{R: want.R, Targets: want.Targets, DoRA: want.DoRA,
			ModulesToSave: want.Save})
		if err != nil || got != want.Parameters {
			t.Errorf("%s %q saving %q r=%d DoRA=%v: %d parameters (%v), want %d", want.Class, want.Targets, want.Save,
				want.R, want.DoRA, got, err, want.Parameters)
		}
	}
}
