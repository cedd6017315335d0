package estimate

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// An adapterCase is one of lab/adapters.py: adapters of every kind, and evaluation between steps.
type adapterCase struct {
	familyCase
	DoRA          bool     `json:"lora_dora"`
	Bias          string   `json:"lora_bias"`
	ModulesToSave []string `json:"modules_to_save"`
	Eval          int64    `json:"eval"` // peak of a forward pass without gradients; 0: not asked for
}

func readAdapterCases(t *testing.T) (configs []json.RawMessage, cases []adapterCase) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "simulated_adapters.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Configs []json.RawMessage `json:"configs"`
		Cases   []adapterCase     `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Configs, file.Cases
}

func (c adapterCase) input(t *testing.T, config []byte) Input {
	t.Helper()
	in := c.familyCase.input(t, config)
	if c.Method == "lora" {
		l := in.Job.LoRA.Value
		l.DoRA, l.ModulesToSave = c.DoRA, c.ModulesToSave
		if c.Bias != "none" {
			l.Bias = c.Bias
		}
	}
	return in
}

// Trainable parameters are PEFT's own, to the unit: DoRA's magnitudes, biases, copied embeddings and output
// projections, tied or not. The model package counts the same where it knows the option.
func TestTrainableParameters(t *testing.T) {
	configs, cases := readAdapterCases(t)
	for _, c := range cases {
		in := c.input(t, configs[c.Config])
		e, err := Run(in)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if e.Model.TrainableParameters != c.Trainable {
			t.Errorf("%s: %d trainable parameters, want %d", c.Name, e.Model.TrainableParameters, c.Trainable)
		}
		if c.Method != "lora" || c.Bias != "" {
			continue
		}
		l := in.Job.LoRA.Value
		counted, err := in.Model.TrainableParameters(model.Adapter{R: l.R, Targets: l.Names(), DoRA: l.DoRA,
			ModulesToSave: l.ModulesToSave})
		if err != nil || counted != c.Trainable {
			t.Errorf("%s: package model counts %d (%v), want %d", c.Name, counted, err, c.Trainable)
		}
	}
}

// Every stage's peak within 3 % of the simulated one in the mean.
func TestSimulatedAdapters(t *testing.T) {
	configs, cases := readAdapterCases(t)
	sums := map[Stage]*errorSum{Forward: {}, Backward: {}, OptimizerStep: {}, Eval: {}, "peak": {}}
	for _, c := range cases {
		e, err := Run(c.input(t, configs[c.Config]))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		stages, peak := peaks(t, e)
		most := slices.Max(c.Steady[:3])
		sums["peak"].add(c.Name, percent(peak, most))
		t.Logf("%-90s peak %+6.2f %%", c.Name, percent(peak, most))
		for i, s := range []Stage{Forward, Backward, OptimizerStep} {
			sums[s].add(c.Name, percent(stages[i], c.Steady[i]))
			if p := percent(stages[i], c.Steady[i]); math.Abs(p) > 3 {
				t.Logf("    %s %+.2f %%", s, p)
			}
		}
		if c.Eval > 0 {
			p := percent(stageOf(t, e, Eval).AllocatedBytes-workspaces[OptimizerStep], c.Eval)
			sums[Eval].add(c.Name, p)
			t.Logf("    eval %+.2f %%", p)
		}
	}
	for stage, sum := range sums {
		t.Logf("%-16s %s", stage, sum)
		if sum.mean() > 3 {
			t.Errorf("%s: %s: want a mean of at most 3 %%", stage, sum)
		}
	}
}

// rank_pattern gives single modules another rank.
func TestRankPattern(t *testing.T) {
	in := small(t, func(j *job.Job) {
		j.Method, j.LoRA = known("lora"),
			known(&job.LoRA{R: 8, Targets: []string{"q_proj", "v_proj"}, RankPattern: map[string]int{"v_proj": 32}})
	})
	// 16 layers of Llama-3.2-1B: q 2048 x 2048, v 512 x 2048
	if got, want := run(t, in).Model.TrainableParameters, int64(16*(8*4096+32*2560)); got != want {
		t.Errorf("%d trainable parameters, want %d", got, want)
	}
}
