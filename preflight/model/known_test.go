package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKnown checks the table's form: every config is in it under its hub name, and every name leads to one.
func TestKnown(t *testing.T) {
	files, err := filepath.Glob("known/*.json")
	if err != nil {
		t.Fatal(err)
	}
	published := map[string]bool{}
	for _, file := range files {
		var entry struct {
			Name   string `json:"hf_name"`
			Params struct{ Total int64 }
		}
		readJSON(t, file, &entry)
		published[entry.Name] = true
		if a, err := Known(entry.Name); err != nil || a == nil || a.Parameters() != entry.Params.Total {
			t.Errorf("%s is not found in the table under %s (%v)", file, entry.Name, err)
		}
	}
	aliases, err := os.ReadFile("known/aliases.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(aliases)) {
		names := strings.Fields(line)
		if names[0] == "#" {
			continue
		}
		if !published[names[0]] {
			t.Errorf("aliases.txt: %s has no config", names[0])
		}
		for _, word := range names {
			name, _, _ := strings.Cut(word, "=")
			if seen[strings.ToLower(name)] {
				t.Errorf("aliases.txt: %s is there twice", name)
			}
			seen[strings.ToLower(name)] = true
			if _, err := (HubModel{Name: name}).check(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestKnownNames looks models up as people name them. Counts: the published safetensors totals of the model cards.
func TestKnownNames(t *testing.T) {
	for _, test := range []struct {
		name, source, dtype, quant string
		params                     int64
	}{
		{name: "meta-llama/Llama-3.1-8B", source: "config of meta-llama/Llama-3.1-8B", dtype: "bf16",
			params: 8_030_261_248},
		{name: "Qwen/Qwen2.5-7B-Instruct",
			source: "config of Qwen/Qwen2.5-7B, whose architecture Qwen/Qwen2.5-7B-Instruct shares", dtype: "bf16",
			params: 7_615_616_512},
		{name: "unsloth/Meta-Llama-3.1-8B-bnb-4bit", source: "meta-llama/Llama-3.1-8B", dtype: "bf16", quant: "nf4",
			params: 8_030_261_248},
		{name: "unsloth/Qwen2.5-7B-unsloth-bnb-4bit", source: "Qwen/Qwen2.5-7B", dtype: "bf16", quant: "nf4",
			params: 7_615_616_512},
		{name: "TinyLlama/TinyLlama-1.1B-Chat-v1.0", source: "TinyLlama", dtype: "bf16", params: 1_100_048_384},
		{name: "bigscience/bloomz-560m", source: "bigscience/bloom-560m", params: 559_214_592},
		{name: "GPT2", source: "openai-community/gpt2", dtype: "fp32", params: 124_439_808},
		{name: "mistralai/Mistral-7B-v0.3"},        // another vocabulary
		{name: "someone/Qwen2.5-7B-bnb-4bit"},      // not Unsloth's
		{name: "meta-llama/Llama-3.1-8B-bnb-4bit"}, // no such mirror
		{name: "../known/aliases.txt"}, {name: "#"}, {name: ""}, {name: "-bnb-4bit"}, {name: "unsloth/-bnb-4bit"},
	} {
		a, err := Known(test.name)
		if err != nil || (a != nil) != (test.params > 0) {
			t.Errorf("%q: %v, %v", test.name, a, err)
			continue
		}
		if a == nil {
			continue
		}
		if a.Parameters() != test.params || !strings.Contains(a.Source, test.source) || a.QuantType != test.quant ||
			a.Dtype != test.dtype {
			t.Errorf("%s: %d parameters, dtype %q, quant %q, source %q", test.name, a.Parameters(), a.Dtype,
				a.QuantType, a.Source)
		}
	}
}
