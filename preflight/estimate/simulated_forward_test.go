package estimate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"oomguard/preflight/job"
)

// A forwardCase is the forward pass of a real model on a fake CUDA device: autocast, dropout and LoRA, which the other
// set lacks.
type forwardCase struct {
	Model         string   `json:"model"`
	Method        string   `json:"method"`
	R             int      `json:"lora_r"`
	Targets       []string `json:"lora_targets"`
	Dropout       float64  `json:"lora_dropout"`
	ParamDtype    string   `json:"param_dtype"`
	Autocast      bool     `json:"autocast"`
	Checkpointing string   `json:"checkpointing"`
	ConfigDropout bool     `json:"config_dropout"`
	Trainable     int64    `json:"trainable_parameters"`
	Loaded        int64    `json:"loaded_bytes"`
	ForwardPeak   int64    `json:"forward_peak_bytes"`
}

func (c forwardCase) input(t testing.TB) Input {
	t.Helper()
	j := &job.Job{}
	j.MicroBatch, j.SeqLen, j.GradAccum, j.Attention = known(2), known(512), known(1), known("eager")
	j.Checkpointing, j.Optimizer, j.ParamDtype, j.MasterFP32 = known(c.Checkpointing), known("adamw"),
		known(c.ParamDtype), known(false)
	j.Precision, j.Framework = known("bf16"), known("hf-trainer")
	if c.Method == "lora" {
		j.Method, j.BaseDtype = known("lora"), known("bf16")
		j.LoRA = known(&job.LoRA{R: c.R, Dropout: c.Dropout, Targets: c.Targets})
		if !c.Autocast {
			j.Framework = known("lightning") // runs adapters without autocast, and lets go of the logits
		}
	}
	a := loadModel(t, c.Model)
	if !c.ConfigDropout {
		a.HiddenDropout, a.AttentionDropout, a.EmbeddingDropout = 0, 0, 0
	}
	opt := DefaultOptions()
	opt.ContextBytes = 0
	return Input{Job: j, Model: a, Hardware: Hardware{Kind: "cuda", ComputeCapability: "8.0"}, Options: opt}
}

func TestSimulatedForward(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "simulated_forward.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []forwardCase `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var sum, worst float64
	for _, c := range file.Cases {
		name := fmt.Sprintf("%s %s %s autocast=%v dropout=%v %s", filepath.Base(c.Model), c.Method, c.ParamDtype,
			c.Autocast, c.Dropout > 0 || c.ConfigDropout, c.Checkpointing)
		e := run(t, c.input(t))
		if c.Trainable > 0 && e.Model.TrainableParameters != c.Trainable {
			t.Errorf("%s: %d trainable parameters, want %d", name, e.Model.TrainableParameters, c.Trainable)
		}
		if loaded := stageOf(t, e, ModelLoad).AllocatedBytes; c.Loaded > 0 &&
			math.Abs(percent(loaded, c.Loaded)) > 0.01 {
			t.Errorf("%s: %d bytes after loading, want %d", name, loaded, c.Loaded)
		}
		f := stageOf(t, e, Forward).Components
		p := percent(f[Activations]+f[Logits]+f[Temporaries]-workspaces[Forward], c.ForwardPeak)
		sum, worst = sum+math.Abs(p), max(worst, math.Abs(p))
		t.Logf("%-60s forward %+6.2f %%", name, p)
	}
	mean := sum / float64(len(file.Cases))
	t.Logf("forward beyond the model: mean absolute error %.3f %%, worst %.3f %%", mean, worst)
	if mean > 0.5 || worst > 1.5 {
		t.Errorf("mean absolute error %.2f %%, worst %.2f %%: want at most 0.5 and 1.5", mean, worst)
	}
}
