package estimate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// A familyCase is one that lab/cases.py lists and lab/simulate.py has run: a small model of some family, trained in
// some way. Absent keys have the defaults of lab/simulate.py.
type familyCase struct {
	Name          string  `json:"name"`
	Config        int     `json:"config"`
	Set           string  `json:"set"`
	ParamDtype    string  `json:"param_dtype"`
	Autocast      bool    `json:"autocast"`
	Method        string  `json:"method"`
	TrainedLayers int     `json:"trained_layers"`
	R             int     `json:"lora_r"`
	Targets       any     `json:"lora_targets"`
	Dropout       float64 `json:"lora_dropout"`
	AdapterFP32   *bool   `json:"adapter_fp32"`
	MicroBatch    int     `json:"micro_batch"`
	SeqLen        int     `json:"seq_len"`
	GradAccum     int     `json:"grad_accum"`
	Checkpointing string  `json:"checkpointing"`
	Attention     string  `json:"attention"`
	Padded        bool    `json:"padded"`
	Optimizer     string  `json:"optimizer"`
	OutputsKept   bool    `json:"outputs_kept"`
	Loss          string  `json:"loss"`
	Parameters    int64   `json:"parameters"`
	Trainable     int64   `json:"trainable_parameters"`
	Loaded        int64   `json:"loaded"`
	// Peaks of forward, backward and optimizer step, and what is saved at the end of forward.
	First, Steady [4]int64
}

type familyFile struct {
	Versions map[string]string `json:"versions"`
	Configs  []json.RawMessage `json:"configs"`
	Cases    []familyCase      `json:"cases"`
}

func (c familyCase) input(t testing.TB, config []byte) Input {
	t.Helper()
	or := func(text, fallback string) string {
		if text == "" {
			return fallback
		}
		return text
	}
	a, err := model.Parse(config, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{}
	j.MicroBatch, j.SeqLen, j.GradAccum = known(max(c.MicroBatch, 0)), known(c.SeqLen), known(max(c.GradAccum, 1))
	if c.MicroBatch == 0 {
		j.MicroBatch = known(2)
	}
	if c.SeqLen == 0 {
		j.SeqLen = known(512)
	}
	j.Checkpointing, j.Attention = known(or(c.Checkpointing, "none")), known(or(c.Attention, "sdpa"))
	j.Optimizer, j.MasterFP32 = known(strings.TrimSuffix(or(c.Optimizer, "adamw_foreach"), "_hf")), known(false)
	dtype := or(c.ParamDtype, "bf16")
	j.ParamDtype, j.Precision, j.Framework = known(dtype), known(dtype), known("hf-trainer")
	j.Autocast = known(c.Autocast)
	if c.Autocast {
		j.Precision = known("bf16")
	}
	if c.OutputsKept {
		j.Framework = known("custom")
	}
	if c.Padded {
		j.Packing = known(false)
	}
	if c.Loss == "chunked" {
		j.FusedLoss = known("chunked")
	}
	if c.Method == "lora" {
		j.Method, j.BaseDtype, j.ParamDtype = known("lora"), known(dtype), known("fp32")
		j.LoRA = known(&job.LoRA{R: max(c.R, 8), Dropout: c.Dropout, Targets: moduleNames(c.Targets)})
		if c.AdapterFP32 != nil && !*c.AdapterFP32 {
			j.ParamDtype = known("bf16")
		}
		if !c.Autocast {
			j.Framework = known("lightning") // runs adapters without autocast, and lets go of the logits
		}
	}
	if c.Method == "freeze" {
		j.Method, j.TrainableLayers, j.BaseDtype = known("freeze"), known(c.TrainedLayers), known(dtype)
		if c.AdapterFP32 == nil || *c.AdapterFP32 {
			j.ParamDtype = known("fp32")
		}
	}
	opt := DefaultOptions()
	opt.ContextBytes = 0
	return Input{Job: j, Model: a, Hardware: Hardware{Kind: "cuda", ComputeCapability: "8.0"}, Options: opt}
}

// workspaces is what an estimate holds for cuBLAS in a stage, which the simulation does not see.
var workspaces = map[Stage]int64{Forward: 2 * smallWorkspace, Backward: 2 * smallWorkspace,
	OptimizerStep: 2 * smallWorkspace}

func moduleNames(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, s := range v {
			out = append(out, fmt.Sprint(s))
		}
		return out
	}
	return nil
}

// An errorSum collects signed errors in percent.
type errorSum struct {
	n          int
	sum, worst float64
	worstCase  string
}

func (e *errorSum) add(name string, percent float64) {
	e.n++
	e.sum += math.Abs(percent)
	if math.Abs(percent) > math.Abs(e.worst) {
		e.worst, e.worstCase = percent, name
	}
}

// errorSums are such sums by what they are of.
type errorSums map[string]*errorSum

func (s errorSums) add(key, name string, percent float64) {
	if s[key] == nil {
		s[key] = &errorSum{}
	}
	s[key].add(name, percent)
}

func (e errorSum) mean() float64 { return e.sum / float64(max(e.n, 1)) }

func (e errorSum) String() string {
	return fmt.Sprintf("%3d cases, mean absolute error %.2f %%, worst %+.2f %% (%s)", e.n, e.mean(), e.worst,
		e.worstCase)
}

// peaks of the stages without cuBLAS's workspaces, and the highest of them.
func peaks(t testing.TB, e *Estimate) (stages [3]int64, peak int64) {
	t.Helper()
	for i, s := range []Stage{Forward, Backward, OptimizerStep} {
		stages[i] = stageOf(t, e, s).AllocatedBytes - workspaces[s]
		peak = max(peak, stages[i])
	}
	return stages, peak
}

// TestSimulatedFamilies compares every stage of small models of all families. The formulas were made with
// simulated_families.json; simulated_held_out.json, of other sizes and mixtures of settings, shows what they are worth.
// Neither side is blind any more: what the held-out cases missed at first (-17 % at worst) was looked into, and each
// cause is now a rule that holds for every model (ACCURACY.md, The laboratory). simulated_random.json was drawn twice
// by lab/random_cases.py, architectures and settings alike: of the second half (b) only one case led to a change.
func TestSimulatedFamilies(t *testing.T) {
	for file, worst := range map[string]float64{"simulated_families.json": 5, "simulated_held_out.json": 5,
		"simulated_random.json": 5, "simulated_half.json": 5} {
		t.Run(file, func(t *testing.T) {
			compareFamilies(t, file, worst)
		})
	}
}

// compareFamilies logs all errors and limits those of the types that are said to be measured.
func compareFamilies(t *testing.T, name string, worst float64) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var file familyFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	t.Logf("simulated with %v", file.Versions)
	sums := errorSums{}
	for _, c := range file.Cases {
		e, err := Run(c.input(t, file.Configs[c.Config]))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if c.Method != "lora" && e.Model.Parameters != c.Parameters {
			t.Errorf("%s: %d parameters, want %d", c.Name, e.Model.Parameters, c.Parameters)
		}
		family, _, _ := strings.Cut(strings.Fields(c.Name)[0], ":")
		kind, _, _ := strings.Cut(family, "-")
		measured := model.FactsOf(kind).Measured >= model.Closely || model.FactsOf(family).Measured >= model.Closely
		stages, peak := peaks(t, e)
		p := percent(peak, slices.Max(slices.Concat(c.Steady[:3], c.First[:3])))
		sums.add("family "+family, c.Name, p)
		line := fmt.Sprintf("%-70s peak %+6.2f %%", c.Name, p)
		if measured {
			sums.add("all peak", c.Name, p)
		}
		for i, s := range []Stage{Forward, Backward, OptimizerStep} {
			p := percent(stages[i], c.Steady[i])
			line += fmt.Sprintf("  %s %+6.2f", s, p)
			if measured {
				sums.add("all "+string(s), c.Name, p)
			}
		}
		t.Log(line)
	}
	for _, k := range slices.Sorted(maps.Keys(sums)) {
		t.Logf("%-24s %s", k, sums[k])
		switch {
		case k == "all peak" && (sums[k].mean() > 1.5 || math.Abs(sums[k].worst) > worst):
			t.Errorf("peaks: %s: want a mean of at most 1.5 %%, at worst %g %%", sums[k], worst)
		case strings.HasPrefix(k, "all ") && sums[k].mean() > 3:
			t.Errorf("%s: %s: want a mean of at most 3 %%", k, sums[k])
		}
	}
}
