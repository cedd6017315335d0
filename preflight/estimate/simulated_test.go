package estimate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// A simulatedCase is a training of a real transformers model under PyTorch's FakeTensorMode: exact live bytes by stage.
type simulatedCase struct {
	Model           string         `json:"model"`
	ConfigOverrides map[string]any `json:"config_overrides"`
	Parameters      int64          `json:"parameters"`
	Precision       string         `json:"precision"`
	MicroBatch      int            `json:"micro_batch"`
	SeqLen          int            `json:"seq_len"`
	Checkpointing   string         `json:"checkpointing"`
	Attention       string         `json:"attention"`
	Optimizer       string         `json:"optimizer"`
	GradAccum       int            `json:"grad_accum"`
	OutputsKept     bool           `json:"outputs_kept"`
	PaddedBatch     bool           `json:"padded_batch"`
	Loaded          int64          `json:"allocated_after_load"`
	First           simulatedStep  `json:"first_step"`
	Steady          simulatedStep  `json:"steady_step"`
	PeakBytes       int64          `json:"peak_bytes"`
}

type simulatedStep struct {
	Forward       int64 `json:"forward"`
	Backward      int64 `json:"backward"`
	OptimizerStep int64 `json:"optimizer_step"`
}

func (c simulatedCase) String() string {
	name := fmt.Sprintf("%s %s b%d s%d %s %s %s", filepath.Base(c.Model), c.Precision, c.MicroBatch, c.SeqLen,
		c.Checkpointing, c.Attention, c.Optimizer)
	if c.GradAccum > 1 {
		name += fmt.Sprintf(" accum%d", c.GradAccum)
	}
	if c.OutputsKept {
		name += " outputs-kept"
	}
	if c.PaddedBatch {
		name += " padded"
	}
	return name
}

func simulatedCases(t testing.TB) []simulatedCase {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "simulated_cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []simulatedCase `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func loadModel(t testing.TB, name string) *model.Architecture {
	t.Helper()
	a, err := model.Load(filepath.Join("testdata", "configs", strings.ReplaceAll(name, "/", "__")+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// input is the case as a job. The simulation counts live tensors on a CPU: no cuBLAS workspace, and no context.
func (c simulatedCase) input(t testing.TB) Input {
	t.Helper()
	j := &job.Job{}
	j.MicroBatch, j.SeqLen, j.GradAccum = known(c.MicroBatch), known(c.SeqLen), known(c.GradAccum)
	j.Checkpointing, j.Attention = known(c.Checkpointing), known(c.Attention)
	j.Optimizer = known(map[string]string{"adamw-foreach": "adamw_foreach", "adamw-loop": "adamw_loop",
		"sgd-momentum": "sgd_momentum"}[c.Optimizer])
	dtype := strings.TrimSuffix(c.Precision, "-true")
	j.Precision, j.ParamDtype, j.MasterFP32 = known(dtype), known(dtype), known(false)
	j.Framework = known("hf-trainer") // drops the model's output before backward
	if c.OutputsKept {
		j.Framework = known("custom")
	}
	if c.PaddedBatch {
		j.Packing = known(false)
	}
	a := loadModel(t, c.Model)
	if _, ok := c.ConfigOverrides["attn_pdrop"]; ok {
		a.HiddenDropout, a.AttentionDropout, a.EmbeddingDropout = 0, 0, 0
	}
	opt := DefaultOptions()
	opt.ContextBytes = 0
	return Input{Job: j, Model: a, Hardware: Hardware{Kind: "cpu"}, Options: opt}
}

// flagged is what is read of one of oomguard's flags.
func flagged(name, value string) *job.Job {
	return job.Read(job.Sources{Flags: map[string]string{name: value}, GPUs: -1})
}

func known[T any](v T) job.Setting[T] { return job.Setting[T]{Value: v, Known: true, Origin: "test"} }

func percent(predicted, measured int64) float64 {
	return 100 * (float64(predicted)/float64(measured) - 1)
}

func TestSimulatedCases(t *testing.T) {
	stages := []Stage{Forward, Backward, OptimizerStep}
	var sum, worst float64
	var stageSum, stageWorst [3]float64
	cases := simulatedCases(t)
	for _, c := range cases {
		e, err := Run(c.input(t))
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if e.Model.Parameters != c.Parameters {
			t.Errorf("%s: %d parameters, want %d", c, e.Model.Parameters, c.Parameters)
		}
		peak := percent(e.PerGPU.AllocatedBytes, c.PeakBytes)
		sum, worst = sum+math.Abs(peak), max(worst, math.Abs(peak))
		line := fmt.Sprintf("%-70s peak %+6.2f %%", c, peak)
		measured := [3]int64{c.Steady.Forward, c.Steady.Backward, c.Steady.OptimizerStep}
		for i, s := range stages {
			p := percent(stageOf(t, e, s).AllocatedBytes, measured[i])
			stageSum[i], stageWorst[i] = stageSum[i]+math.Abs(p), max(stageWorst[i], math.Abs(p))
			line += fmt.Sprintf("  %s %+6.2f", s, p)
		}
		t.Log(line)
	}
	n := float64(len(cases))
	t.Logf("peak: mean absolute error %.3f %%, worst %.3f %%", sum/n, worst)
	for i, s := range stages {
		t.Logf("%s: mean absolute error %.3f %%, worst %.3f %%", s, stageSum[i]/n, stageWorst[i])
	}
	if sum/n > 0.2 || worst > 1 {
		t.Errorf("peak: mean absolute error %.2f %%, worst %.2f %%: want at most 0.2 and 1", sum/n, worst)
	}
	for i, s := range stages {
		if stageSum[i]/n > 0.5 || stageWorst[i] > 2 {
			t.Errorf("%s: mean absolute error %.2f %%, worst %.2f %%: want at most 0.5 and 2", s, stageSum[i]/n,
				stageWorst[i])
		}
	}
}

func stageOf(t testing.TB, e *Estimate, s Stage) StageMemory {
	t.Helper()
	for _, m := range e.Stages {
		if m.Stage == s {
			return m
		}
	}
	t.Fatalf("no stage %s", s)
	return StageMemory{}
}
