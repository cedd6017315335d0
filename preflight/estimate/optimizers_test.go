package estimate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// realOptimizers is what lab/optimizers.py counted on real optimizers.
type realOptimizers struct {
	Rank    int64 `json:"rank"`
	Tensors []struct {
		Role  model.Role `json:"role"`
		Shape []int64    `json:"shape"`
	} `json:"tensors"`
	Rows []realOptimizer `json:"rows"`
}

type realOptimizer struct {
	Optimizer   string `json:"optimizer"`
	HuggingFace bool   `json:"huggingface"`
	OnlyLinear  bool   `json:"only_linear"`
	ParamDtype  string `json:"param_dtype"`
	State       int64  `json:"state_bytes"`
	First       *int64 `json:"first_step_bytes"` // states made, and temporaries; absent where a compiler decides
	Step        *int64 `json:"step_bytes"`
}

func readRealOptimizers(t *testing.T) realOptimizers {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "simulated_optimizers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file realOptimizers
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f realOptimizers) weights(onlyLinear bool) []weight {
	var ws []weight
	for _, tensor := range f.Tensors {
		if w := (weight{Tensor: model.Tensor{Role: tensor.Role, Shape: tensor.Shape}, repeat: 1}); !onlyLinear || tensor.Role == model.Linear {
			w.elements = w.Elements()
			ws = append(ws, w)
		}
	}
	return ws
}

// States agree with the real optimizers to the byte; a step's temporaries within 10 % (small leftovers of the tensor before; in models of
// ordinary size they vanish) and 40 KiB.
func TestRealOptimizers(t *testing.T) {
	file := readRealOptimizers(t)
	for _, row := range file.Rows {
		name := fmt.Sprintf("%s/%s/hf=%v/linear=%v", row.Optimizer, row.ParamDtype, row.HuggingFace, row.OnlyLinear)
		o, err := findOptimizer(row.Optimizer)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ws, setting := file.weights(row.OnlyLinear), stateSetting{width: dtypeBytes[row.ParamDtype], rank: file.Rank}
		if got := o.stateBytes(ws, setting, row.HuggingFace); got != row.State {
			t.Errorf("%s: %d bytes of state, want %d", name, got, row.State)
		}
		if row.Step == nil {
			continue
		}
		// GaLore decomposes in its first step and every 200th
		want := max(*row.Step, *row.First-row.State)
		got := o.temporaries(update{weights: ws, shards: 1, stateSetting: setting})
		if miss := math.Abs(float64(got - want)); miss > 0.10*float64(want) && miss > 40<<10 {
			t.Errorf("%s: a step holds %d bytes more, want %d", name, got, want)
		}
	}
}

// Every optimizer has a source, and all but those named here were run. The paged ones have the states of those that are not; the others have
// no package on a CPU.
func TestOptimizersWereRun(t *testing.T) {
	file := readRealOptimizers(t)
	untested := []string{"adamw_foreach", "adamw_anyprecision", "cpu_adam", "lamb", "stable_adamw", "grokadamw", "schedule_free_adamw",
		"schedule_free_radam", "schedule_free_sgd", "galore_adamw_8bit"}
	for _, o := range optimizers {
		base := strings.TrimPrefix(o.name, "paged_")
		ran := slices.ContainsFunc(file.Rows, func(r realOptimizer) bool {
			return r.Optimizer == o.name || r.Optimizer == base
		})
		if o.source == "" || ran == slices.Contains(untested, o.name) {
			t.Errorf("%s: source %q, run %v", o.name, o.source, ran)
		}
	}
}

// Every word of the job's vocabulary, and every name of transformers' OptimizerNames that it passes on, has a row.
func TestEveryOptimizerOfTheVocabulary(t *testing.T) {
	var names []string
	for _, k := range job.Keys() {
		if k.Name == "optimizer" {
			names = k.Values
		}
	}
	if len(names) == 0 {
		t.Fatal("the job has no key optimizer")
	}
	names = append(names, "galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "apollo_adamw", "apollo_adamw_layerwise",
		"paged_ademamix_32bit", "paged_ademamix_8bit", "adamw_anyprecision", "grokadamw", "schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd",
		"stable_adamw")
	for _, name := range names {
		if _, err := findOptimizer(name); err != nil {
			t.Error(err)
		}
	}
}

// The rank that gradients are projected to is Trainer's rank=N, and is named as an assumption where nothing sets it.
func TestProjectionRank(t *testing.T) {
	at := func(args ...string) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			j.Optimizer, j.ScriptArgs, j.ParamDtype, j.Precision = known("galore_adamw"), args, known("bf16"), known("bf16")
		}))
	}
	states := func(e *Estimate) int64 { return stageOf(t, e, OptimizerStep).Components[Optimizer] }
	low, usual, high := at("--optim_args", "rank=64,update_proj_gap=200"), at(), at("--optim_args=scale=0.25,rank=512")
	if states(low) >= states(usual) || states(usual) >= states(high) {
		t.Errorf("states of rank 64, default and 512: %d, %d, %d", states(low), states(usual), states(high))
	}
	noted := func(e *Estimate) bool {
		return slices.ContainsFunc(e.Assumptions, func(a Assumption) bool { return a.What == "gradients projected to rank 128" && a.Widens })
	}
	if !noted(usual) || noted(low) {
		t.Errorf("rank 128 noted: %v, with a rank given: %v", noted(usual), noted(low))
	}
}

// Updates during backward hold one or two gradients instead of all.
func TestUpdatesInBackward(t *testing.T) {
	at := func(name string, accum int) Components {
		return stageOf(t, run(t, small(t, func(j *job.Job) {
			j.Optimizer, j.GradAccum, j.ParamDtype, j.Precision, j.MasterFP32 = known(name), known(accum), known("bf16"), known("bf16"), known(false)
		})), OptimizerStep).Components
	}
	const largest = 128256 * 2048 // Llama-3.2-1B's embedding
	if got := at("lomo", 1)[Gradients]; got != 2*2*largest {
		t.Errorf("LOMO: %d bytes of gradients, want two of the embedding's, %d", got, 2*2*largest)
	}
	if got := at("galore_adamw_layerwise", 1)[Gradients]; got != 2*largest {
		t.Errorf("layerwise GaLore: %d bytes of gradients, want one of the embedding's, %d", got, 2*largest)
	}
	if all := at("lomo", 4)[Gradients]; all != 2*1235814400 {
		t.Errorf("LOMO with accumulation: %d bytes of gradients, want all", all)
	}
}
