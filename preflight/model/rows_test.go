package model

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// missing is what a row of the table of model types does not say, a sentence each. configs are the type's configs
// with known counts.
func missing(f family, configs []json.RawMessage) []string {
	var found []string
	for _, state := range []struct {
		said bool
		what string
	}{
		{f.usual != "", "usual: the class that is meant when a config names none"},
		{f.build != nil, "build: how its config becomes weights"},
		{f.facts.LoRA != nil, "LoRA: PEFT's default targets, or noDefault"},
		{f.facts.Attention != nil, "Attention: what transformers takes when none is named, or usualAttention"},
		{f.facts.Measured != 0, "Measured: Closely or Roughly after make simulate, or Unmeasured"},
		{f.facts.Liger != nil, "Liger: what its switch replaces, or notInLiger"},
		{len(configs) > 0, "a config with a known count: a case in testdata/count.py, or a file in known"},
	} {
		if !state.said {
			found = append(found, state.what)
		}
	}
	if f.build == nil {
		return found
	}
	for _, config := range configs {
		found = append(found, missingOf(f, config)...)
	}
	return slices.Compact(found)
}

// missingOf is what the weights of one config do not say.
func missingOf(f family, config json.RawMessage) []string {
	a, err := Parse(config, f.modelType)
	if err != nil {
		return []string{"a config that can be read: " + err.Error()}
	}
	var found []string
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			if (t.Role == Linear || t.Role == Expert) && t.Part == "" {
				found = append(found, "the Part of "+t.Path)
			}
		}
	}
	if _, err := a.LoRATargets(nil); len(f.facts.LoRA) > 0 && err != nil {
		found = append(found, "LoRA: the default targets are no modules of it: "+err.Error())
	}
	return found
}

// TestRowsAreWhole names what a new model type still needs.
func TestRowsAreWhole(t *testing.T) {
	configs := map[string][]json.RawMessage{}
	add := func(config json.RawMessage) {
		if a, err := Parse(config, "config.json"); err == nil {
			configs[a.Type] = append(configs[a.Type], config)
		}
	}
	for _, c := range readModules(t).Cases {
		add(c.Config)
	}
	files, err := filepath.Glob("known/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var published struct{ Config json.RawMessage }
		readJSON(t, file, &published)
		add(published.Config)
	}
	seen := map[string]bool{}
	for _, f := range rows() {
		if seen[f.modelType] {
			t.Errorf("%s has two rows", f.modelType)
		}
		seen[f.modelType] = true
		if f.usual == "" && (f.sizes != nil || f.build == nil) { // it stands only inside others
			continue
		}
		for _, what := range missing(f, configs[f.modelType]) {
			t.Errorf("%s lacks %s", f.modelType, what)
		}
	}
}

// TestMissingIsNamed: a row that says nothing lacks all, and a weight without a part is named.
func TestMissingIsNamed(t *testing.T) {
	if found := missing(family{modelType: "new"}, nil); len(found) != 7 {
		t.Errorf("a bare row lacks %d things: %s", len(found), strings.Join(found, "; "))
	}
	bare := family{modelType: "new", usual: "NewForCausalLM", build: llama.blueprint,
		facts: Facts{LoRA: []string{"q"}, Attention: usualAttention,
			Measured: Unmeasured, Liger: notInLiger}}
	if found := missing(bare, []json.RawMessage{[]byte(`{}`)}); len(found) != 1 ||
		!strings.Contains(found[0], "model_type") {
		t.Errorf("a config that cannot be read: %s", strings.Join(found, "; "))
	}
}
