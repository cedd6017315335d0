package estimate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// jobs is a spread of settings over which properties are tested.
func jobs() map[string]func(*job.Job) {
	all := map[string]func(*job.Job){}
	precisions := map[string]func(*job.Job){
		"fp32": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.MasterFP32 = known("fp32"), known("fp32"),
				known(false)
		},
		"bf16-mixed": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.MasterFP32 = known("bf16"), known("fp32"),
				known(false)
		},
		"bf16-master": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.MasterFP32 = known("bf16"), known("bf16"),
				known(true)
		},
		"bf16-true": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.MasterFP32 = known("bf16"), known("bf16"),
				known(false)
		},
	}
	for name, precision := range precisions {
		for _, sharding := range shardings {
			for _, accum := range []int{1, 4} {
				for _, checkpointing := range []string{"none", "full", "selective", "selective:2", "offload"} {
					all[fmt.Sprintf("%s/%s/accum%d/%s", name, sharding, accum, checkpointing)] = func(j *job.Job) {
						precision(j)
						j.Sharding, j.GradAccum, j.Checkpointing = known(sharding), known(accum), known(checkpointing)
						j.WorldSize, j.NProc, j.Attention = known(8), known(8), known("eager")
					}
				}
			}
		}
	}
	all["lora"] = func(j *job.Job) {
		precisions["bf16-true"](j)
		j.Method, j.LoRA = known("lora"), known(&job.LoRA{R: 16, Dropout: 0.05, Targets: []string{"all-linear"}})
	}
	all["tp2 pp2"] = func(j *job.Job) {
		precisions["bf16-master"](j)
		j.TP, j.PP, j.WorldSize, j.Sharding, j.GradAccum = known(2), known(2), known(8), known("dist-optim"), known(8)
	}
	return all
}

func small(t testing.TB, edit func(*job.Job)) Input {
	t.Helper()
	in := paramsOnly(1, func(j *job.Job) {
		j.MicroBatch, j.SeqLen = known(2), known(512)
		edit(j)
	})
	in.Model = loadModel(t, "meta-llama/Llama-3.2-1B")
	in.Hardware = Hardware{Kind: "cuda", TotalBytes: 80 * gb, Count: 8, ContextBytes: -1, NCCLBytes: -1,
		ComputeCapability: "9.0"}
	return in
}

func TestComponentsSumToTheByte(t *testing.T) {
	for name, edit := range jobs() {
		e := run(t, small(t, edit))
		for _, s := range e.Stages {
			if s.Components.Allocated() != s.AllocatedBytes || s.Components.Sum() != s.DeviceBytes {
				t.Errorf("%s: %s: components %d and %d, stage says %d and %d", name, s.Stage, s.Components.Allocated(),
					s.Components.Sum(), s.AllocatedBytes, s.DeviceBytes)
			}
			for c, bytes := range s.Components {
				if bytes < 0 {
					t.Errorf("%s: %s: %s is negative: %d", name, s.Stage, Component(c), bytes)
				}
			}
		}
		p := e.PerGPU
		if p.Components.Sum() != p.DeviceBytes || p.Components.Allocated() > p.AllocatedBytes ||
			p.LowBytes > p.DeviceBytes || p.DeviceBytes > *p.HighBytes || p.LowBytes < 0 {
			t.Errorf("%s: inconsistent %+v", name, p)
		}
		worst := int64(0)
		for _, r := range e.Ranks {
			worst = max(worst, r.DeviceBytes)
		}
		if worst != p.DeviceBytes {
			t.Errorf("%s: per_gpu is %d, the worst rank %d", name, p.DeviceBytes, worst)
		}
	}
}

// More tokens never lower a component of a stage's activations, and never the device.
func TestMoreWorkNeverNeedsLess(t *testing.T) {
	for name, edit := range jobs() {
		in := small(t, edit)
		before := run(t, in)
		grow := map[string]func(*Input){
			"micro_batch": func(in *Input) { in.Job.MicroBatch = known(4) },
			"seq_len":     func(in *Input) { in.Job.SeqLen = known(1024) },
			"layers":      func(in *Input) { in.Model = moreLayers(in.Model) },
		}
		for what, change := range grow {
			bigger, j := in, *in.Job
			bigger.Job = &j
			change(&bigger)
			after := run(t, bigger)
			for i, r := range after.Ranks {
				if r.AllocatedBytes < before.Ranks[i].AllocatedBytes {
					t.Errorf("%s: more %s: pipeline stage %d fell from %d to %d", name, what, i,
						before.Ranks[i].AllocatedBytes, r.AllocatedBytes)
				}
			}
			if len(after.Ranks) > 1 { // the stages are the worst rank's, which may be another one now
				continue
			}
			for i, s := range after.Stages {
				if s.AllocatedBytes < before.Stages[i].AllocatedBytes {
					t.Errorf("%s: more %s: %s fell from %d to %d", name, what, s.Stage, before.Stages[i].AllocatedBytes,
						s.AllocatedBytes)
				}
			}
			f, g := stageOf(t, before, Forward).Components, stageOf(t, after, Forward).Components
			for c := range f {
				if Component(c) != Fragmentation && g[c] < f[c] {
					t.Errorf("%s: more %s: forward's %s fell from %d to %d", name, what, Component(c), f[c], g[c])
				}
			}
			if after.PerGPU.DeviceBytes < before.PerGPU.DeviceBytes {
				t.Errorf("%s: more %s: device fell from %d to %d", name, what, before.PerGPU.DeviceBytes,
					after.PerGPU.DeviceBytes)
			}
		}
	}
}

// moreLayers is the model with two more layers.
func moreLayers(a *model.Architecture) *model.Architecture {
	b := *a
	b.Units = slices.Clone(a.Units)
	for i, u := range b.Units {
		if unitKind(u) == layerUnit {
			b.Units[i].Repeat += 2
		}
	}
	b.Layers += 2
	return &b
}

func TestMoreShardsNeverNeedMore(t *testing.T) {
	for name, edit := range jobs() {
		if name == "tp2 pp2" {
			continue
		}
		in := small(t, edit)
		before := run(t, in)
		j := *in.Job
		j.WorldSize, j.NProc = known(16), known(16)
		in.Job = &j
		after := run(t, in)
		for i, s := range after.Stages {
			for c := Parameters; c <= Optimizer; c++ {
				if s.Components[c] > before.Stages[i].Components[c] {
					t.Errorf("%s: %s: %s rose from %d to %d on 16 ranks", name, s.Stage, c,
						before.Stages[i].Components[c], s.Components[c])
				}
			}
		}
	}
}

func TestPeakIsTheWorstStageAndNotTheSum(t *testing.T) {
	e := run(t, small(t, jobs()["bf16-true/none/accum1/none"]))
	var sum, most int64
	for _, s := range e.Stages {
		most = max(most, s.AllocatedBytes)
	}
	var largest Components
	for _, s := range e.Stages {
		for c := range s.Components {
			largest[c] = max(largest[c], s.Components[c])
		}
	}
	sum = largest.Allocated()
	if e.PerGPU.AllocatedBytes != most || sum <= most {
		t.Errorf("peak %d, worst stage %d, everything at once %d", e.PerGPU.AllocatedBytes, most, sum)
	}
	order := []Stage{Start, ModelLoad, OptimizerInit, Forward, Backward, OptimizerStep, Eval, CheckpointSave}
	for i, s := range e.Stages {
		if s.Stage != order[i] {
			t.Errorf("stage %d is %s, want %s", i, s.Stage, order[i])
		}
	}
}

func TestPipelineStages(t *testing.T) {
	in := small(t, func(j *job.Job) { j.PP, j.WorldSize, j.GradAccum = known(4), known(4), known(8) })
	e := run(t, in)
	if len(e.Ranks) != 4 {
		t.Fatalf("%d ranks, want 4", len(e.Ranks))
	}
	sc, err := newScenario(in)
	if err != nil {
		t.Fatal(err)
	}
	var layers, elements int64
	for i := range int64(4) {
		r := sc.rankOf(i)
		layers += r.layers
		elements += count(r.base, nil)
	}
	tied := in.Model.Vocab * in.Model.Hidden // the last stage has its own copy
	if layers != in.Model.Layers || elements != in.Model.Parameters()+tied {
		t.Errorf("stages hold %d layers and %d parameters, want %d and %d", layers, elements, in.Model.Layers,
			in.Model.Parameters()+tied)
	}
}

func TestCPU(t *testing.T) {
	in := small(t, func(j *job.Job) {
		j.Precision, j.ParamDtype, j.MasterFP32 = known("fp32"), known("fp32"),
			known(false)
	})
	in.Hardware = Hardware{Kind: "cpu", TotalBytes: 64 * gib}
	e := run(t, in)
	if e.PerGPU.ReservedBytes != e.PerGPU.AllocatedBytes || e.PerGPU.Components[Context] != idlePythonBytes {
		t.Errorf("reserved %d, allocated %d, context %d", e.PerGPU.ReservedBytes, e.PerGPU.AllocatedBytes,
			e.PerGPU.Components[Context])
	}
	largest := in.Model.LargestTensor()
	if got := stageOf(t, e, OptimizerStep).Components[Temporaries]; got != 2*4*largest {
		t.Errorf("temporaries = %d: want two of the largest tensor (%d), the for-loop's", got, 2*4*largest)
	}
}

func TestVerdict(t *testing.T) {
	in := small(t, jobs()["bf16-true/none/accum1/none"])
	in.Hardware.ContextBytes, in.Hardware.NCCLBytes = 500*mib, 0
	e := run(t, in)
	if e.Fits == nil || !*e.Fits || *e.HeadroomBytes != in.Hardware.TotalBytes-e.PerGPU.DeviceBytes {
		t.Errorf("fits %v, headroom %v", e.Fits, e.HeadroomBytes)
	}
	in.Hardware.TotalBytes = e.PerGPU.DeviceBytes + 1 // fits, but without the headroom
	if e = run(t, in); *e.Fits || *e.HeadroomBytes != 1 {
		t.Errorf("fits %v, headroom %d: want false and 1", *e.Fits, *e.HeadroomBytes)
	}
	in.Hardware = Hardware{ContextBytes: -1, NCCLBytes: -1}
	if e = run(t, in); e.Fits != nil || e.HeadroomBytes != nil {
		t.Errorf("verdict %v without a device", *e.Fits)
	}
}

func TestUnknownSettingsWiden(t *testing.T) {
	in := small(t, jobs()["bf16-true/none/accum1/none"])
	in.Job.Attention, in.Job.MicroBatch = known("sdpa"), known(8) // so that activations decide the peak
	width := func(e *Estimate) int64 { return *e.PerGPU.HighBytes - e.PerGPU.LowBytes }
	forget := map[string]func(*job.Job){
		"attention":     func(j *job.Job) { j.Attention = job.Setting[string]{} },
		"checkpointing": func(j *job.Job) { j.Checkpointing = job.Setting[string]{} },
	}
	for key, edit := range forget {
		j := *in.Job
		edit(&j)
		changed := in
		changed.Job = &j
		before := width(run(t, in))
		e := run(t, changed)
		named := slices.ContainsFunc(e.Assumptions,
			func(a Assumption) bool { return a.Widens && strings.HasPrefix(a.What, key+" = ") })
		if width(e) <= before || !named {
			t.Errorf("%s unknown: width %d after %d, assumptions %+v", key, width(e), before, e.Assumptions)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	tests := []struct {
		name, want string
		edit       func(*Input)
	}{
		{"no job", "no job", func(in *Input) { in.Job = nil }},
		{"no model", "--params", func(in *Input) { in.Model = nil }},
		{"no parameters", "0 parameters", func(in *Input) { in.Model = model.FromParams(0) }},
		{"optimizer", `unknown optimizer "adamz": use one of adamw, adam`,
			func(in *Input) { in.Job.Optimizer = known("adamz") }},
		{"sharding", `unknown sharding "zero4"`, func(in *Input) { in.Job.Sharding = known("zero4") }},
		{"dtype", `param_dtype: unknown dtype "int3"`, func(in *Input) { in.Job.ParamDtype = known("int3") }},
		{"micro-batch", "micro_batch 0", func(in *Input) { in.Job.MicroBatch = known(0) }},
		{"sequence", "out of range", func(in *Input) { in.Job.SeqLen = known(1 << 40) }},
		{"tp", "tp = -1", func(in *Input) { in.Job.TP = known(-1) }},
		{"lora target", "LoRA target", func(in *Input) {
			in.Job.Method, in.Job.LoRA = known("lora"), known(&job.LoRA{R: 8, Targets: []string{"nothing"}})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := small(t, func(*job.Job) {})
			tt.edit(&in)
			if _, err := Run(in); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestComponentsJSON(t *testing.T) {
	c := Components{Parameters: 1, Fragmentation: 10}
	data, err := json.Marshal(c)
	const want = `{"parameters":1,"master_weights":0,"gradients":0,"optimizer":0,"activations":0,"logits":0,"temporaries":0,"communication":0,"context":0,"fragmentation":10}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v: want %s", data, err, want)
	}
	var back Components
	if err := json.Unmarshal(data, &back); err != nil || back != c {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []string{`[1]`, `{"parameters":"x"}`, `{"parameters":1.5}`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	e := run(t, small(t, func(*job.Job) {}))
	if data, err = json.Marshal(e); err != nil || !strings.Contains(string(data), `"schema":"oomguard.estimate/v1"`) {
		t.Errorf("%v: %.80s", err, data)
	}
	if got := ComponentNames(); len(got) != int(NumComponents) || got[Context] != "context" ||
		Component(99).String() != "component(99)" {
		t.Errorf("names %v", got)
	}
}

func BenchmarkEstimate70BZeRO3(b *testing.B) {
	in := paramsOnly(1, func(j *job.Job) {
		j.Sharding, j.WorldSize, j.Checkpointing = known("zero3"), known(64),
			known("full")
	})
	in.Model = loadModel(b, "meta-llama/Meta-Llama-3-70B")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(in); err != nil {
			b.Fatal(err)
		}
	}
}
