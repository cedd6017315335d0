package estimate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// cloneWays are jobs whose memory depends on what the weights are for. The targets of "named" are those of all-linear
// by their names.
var cloneWays = map[string]string{
	"full":  "method=full precision=bf16-mixed micro-batch=2",
	"kept":  "method=full precision=bf16 micro-batch=2 checkpointing=full attention=eager",
	"all":   "method=lora precision=bf16 lora-r=16 lora-targets=all-linear micro-batch=4 attention=eager",
	"named": "method=lora precision=bf16 lora-r=16 lora-dropout=0.1 micro-batch=4",
	"quantised": "method=qlora quant=nf4-dq precision=bf16 optimizer=paged_adamw_8bit lora-r=8 " +
		"lora-targets=all-linear micro-batch=1",
	"liger": "method=full precision=bf16 micro-batch=2 layer-kernels=liger",
	"old":   "method=lora precision=bf16 lora-r=16 lora-targets=all-linear micro-batch=2 transformers=4.51.3",
}

// allConfigs are the config.json files whose weights preflight/model's tests count.
func allConfigs(t *testing.T) []json.RawMessage {
	t.Helper()
	var counted struct {
		Cases []struct{ Config json.RawMessage }
	}
	readJSON(t, "../model/testdata/modules.json", &counted)
	var configs []json.RawMessage
	for _, c := range counted.Cases {
		configs = append(configs, c.Config)
	}
	files, err := filepath.Glob("../model/known/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var published struct{ Config json.RawMessage }
		readJSON(t, file, &published)
		configs = append(configs, published.Config)
	}
	return configs
}

// typeConfigs is one for every model type that can be counted.
func typeConfigs(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	configs := map[string]json.RawMessage{}
	for _, config := range allConfigs(t) {
		a, err := model.Parse(config, "config.json")
		if err != nil {
			t.Fatal(err)
		}
		if configs[a.Type] == nil {
			configs[a.Type] = config
		}
	}
	for _, kind := range model.Types() {
		if configs[kind] == nil {
			t.Errorf("no config of model_type %q: add one to testdata/count.py or known in preflight/model", kind)
		}
	}
	return configs
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(path, err)
	}
}

// renaming gives every part of a module's path a made-up name. The heads of tasks keep theirs, by which PEFT knows
// them.
type renaming map[string]string

func (r renaming) path(path string) string {
	parts := strings.Split(path, ".")
	for i, part := range parts {
		if part == "*" || part == "" || strings.Trim(part, "0123456789") == "" {
			continue
		}
		if r[part] == "" {
			r[part] = fmt.Sprintf("part%c%c", 'a'+len(r)/26, 'a'+len(r)%26)
		}
		parts[i] = r[part]
	}
	return strings.Join(parts, ".")
}

func (r renaming) tensor(t model.Tensor) model.Tensor {
	if t.Role != model.Head {
		t.Path = r.path(t.Path)
		t.Module = t.Path[strings.LastIndexByte(t.Path, '.')+1:]
	}
	return t
}

// clone is a model type of the same code under other names.
func (r renaming) clone(a *model.Architecture) *model.Architecture {
	own := *a
	own.Type = "a-clone-of-" + a.Type
	if a.TextType != "" {
		own.TextType = "a-clone-of-" + a.TextType
	}
	if a.Encoder != nil {
		encoder := *a.Encoder
		encoder.Type = "a-clone-of-" + encoder.Type
		own.Encoder = &encoder
	}
	own.Units, own.TiedTables = slices.Clone(a.Units), slices.Clone(a.TiedTables)
	for i, u := range own.Units {
		own.Units[i].Tensors = slices.Clone(u.Tensors)
		for k, t := range u.Tensors {
			own.Units[i].Tensors[k] = r.tensor(t)
		}
	}
	for i, t := range own.TiedTables {
		own.TiedTables[i] = r.tensor(t)
	}
	return &own
}

// namesOfPEFT are the modules that PEFT treats in a way of their own by their names: those of experts and of
// recurrences.
func namesOfPEFT(a *model.Architecture) renaming {
	names := renaming{}
	if a.Experts == 0 && a.NoActivations == "" {
		return names
	}
	for name := range strings.FieldsSeq("experts gate router gate_proj up_proj down_proj w1 w2 w3 out_proj conv1d") {
		names[name] = name
	}
	return names
}

// linearNames are the modules of the blocks' linear layers.
func linearNames(a *model.Architecture) []string {
	var names []string
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			if t.Role == model.Linear && strings.Contains(t.Path, "*") && !slices.Contains(names, t.Module) {
				names = append(names, t.Module)
			}
		}
	}
	return names
}

// TestClonesTakeTheSameMemory: nothing but the row of a model type says what its weights are for, so that a type
// whose modules have other names takes the same memory to the byte. The original is read as a user gives it, from
// flags and config.json.
func TestClonesTakeTheSameMemory(t *testing.T) {
	for kind, config := range typeConfigs(t) {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, config, 0o600); err != nil {
			t.Fatal(err)
		}
		for way, words := range cloneWays {
			names := renaming{}
			original, err := cloneInput(path, words, way == "named")
			if err != nil {
				t.Errorf("%s %s: %v", kind, way, err)
				continue
			}
			if original.Job.LoRA.Value != nil {
				names = namesOfPEFT(original.Model)
			}
			copied := original
			copied.Model = names.clone(original.Model)
			if way == "named" {
				own, lora := *original.Job, *original.Job.LoRA.Value
				lora.Modules, lora.Targets = nil, nil
				for _, target := range original.Job.LoRA.Value.Targets {
					lora.Targets = append(lora.Targets, names[target])
				}
				own.LoRA.Value = &lora
				copied.Job = &own
			}
			compareClone(t, kind+" "+way, original, copied)
		}
	}
}

func cloneInput(path, words string, named bool) (Input, error) {
	flags, versions := map[string]string{"model": path}, map[string]string{}
	for word := range strings.FieldsSeq("optimizer=adamw seq-len=512 nproc=1 " + words) {
		name, value, _ := strings.Cut(word, "=")
		if name == "transformers" {
			versions[name] = value
			continue
		}
		flags[name] = value
	}
	a, err := model.Load(path)
	if err != nil {
		return Input{}, err
	}
	if named {
		flags["lora-targets"] = strings.Join(linearNames(a), ",")
	}
	j := job.Read(job.Sources{Flags: flags, Versions: versions, GPUs: 1})
	gpu := Hardware{Kind: "cuda", TotalBytes: 80 * gb, Count: 1, ContextBytes: -1, NCCLBytes: -1,
		ComputeCapability: "9.0"}
	in := Input{Job: j, Model: j.Architecture, Hardware: gpu, Options: DefaultOptions()}
	if j.Architecture == nil {
		return in, fmt.Errorf("no architecture: %v", j.Problems)
	}
	return in, nil
}

func compareClone(t *testing.T, name string, original, clone Input) {
	t.Helper()
	want, wantErr := Run(original)
	got, err := Run(clone)
	if wantErr != nil || err != nil {
		if (wantErr == nil) != (err == nil) {
			t.Errorf("%s: %v, and its clone %v", name, wantErr, err)
		}
		return
	}
	for i, s := range want.Stages {
		if got.Stages[i].Components != s.Components {
			t.Errorf("%s: %s takes %v, and its clone %v", name, s.Stage, s.Components, got.Stages[i].Components)
			return
		}
	}
	low, high := want.PerGPU.LowBytes, want.PerGPU.HighBytes
	ownLow, ownHigh := got.PerGPU.LowBytes, got.PerGPU.HighBytes
	if low != ownLow || (high == nil) != (ownHigh == nil) || high != nil && *high != *ownHigh {
		t.Errorf("%s: its range is another than that of its clone", name)
	}
}
