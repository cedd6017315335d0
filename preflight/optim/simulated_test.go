package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// realOptimizers is what lab/optimizers.py counted on real optimizers.
type realOptimizers struct {
	Rank    int64 `json:"rank"`
	Tensors []struct {
		Role  string  `json:"role"`
		Shape []int64 `json:"shape"`
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
	data, err := os.ReadFile(filepath.Join("testdata", "simulated.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file realOptimizers
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f realOptimizers) tensors(onlyLinear bool) []Tensor {
	var list []Tensor
	for _, shown := range f.Tensors {
		t := Tensor{Shape: shown.Shape, Elements: 1, Repeat: 1, Linear: shown.Role == "linear",
			Embedding: shown.Role == "embedding"}
		for _, d := range t.Shape {
			t.Elements *= d
		}
		if t.Linear || !onlyLinear {
			list = append(list, t)
		}
	}
	return list
}

// States agree with the real optimizers to the byte; a step's temporaries within 10 % (small leftovers of the tensor
// before; in models of ordinary size they vanish) and 40 KiB.
func TestRealOptimizers(t *testing.T) {
	file := readRealOptimizers(t)
	width := map[string]int64{"fp32": 4, "bf16": 2}
	for _, row := range file.Rows {
		name := fmt.Sprintf("%s/%s/hf=%v/linear=%v", row.Optimizer, row.ParamDtype, row.HuggingFace, row.OnlyLinear)
		o, known := Find(row.Optimizer, Ours)
		if !known {
			t.Errorf("%s: no row", name)
			continue
		}
		tensors, setting := file.tensors(row.OnlyLinear),
			Setting{Width: width[row.ParamDtype], Rank: file.Rank, Trainer: row.HuggingFace}
		if got := o.StateBytes(tensors, setting); got != row.State {
			t.Errorf("%s: %d bytes of state, want %d", name, got, row.State)
		}
		if row.Step == nil {
			continue
		}
		// GaLore decomposes in its first step and every 200th
		want := max(*row.Step, *row.First-row.State)
		got := o.StepBytes(Update{Tensors: tensors, Shards: 1, Setting: setting})
		if miss := math.Abs(float64(got - want)); miss > 0.10*float64(want) && miss > 40<<10 {
			t.Errorf("%s: a step holds %d bytes more, want %d", name, got, want)
		}
	}
}

// All optimizers but those named here were run. The paged ones have the states of those that are not; the others have
// no package on a CPU.
func TestOptimizersWereRun(t *testing.T) {
	file := readRealOptimizers(t)
	untested := []string{"adamw_foreach", "adamw_anyprecision", "cpu_adam", "lamb", "grokadamw", "galore_adamw_8bit"}
	for _, o := range optimizers {
		ran := o.Paged || slices.ContainsFunc(file.Rows, func(r realOptimizer) bool { return r.Optimizer == o.Name })
		if ran == slices.Contains(untested, o.Name) {
			t.Errorf("%s: run %v (preflight/estimate/lab/optimizers.py)", o.Name, ran)
		}
	}
}
