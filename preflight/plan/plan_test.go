package plan

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

const gb = 1_000_000_000

func bf16Master(edit func(*job.Job)) estimate.Input {
	j := &job.Job{}
	j.ParamDtype, j.Precision, j.MasterFP32 = set("bf16"), set("bf16"), set(true)
	j.Optimizer, j.Sharding, j.WorldSize, j.NProc = set("adamw"), set("none"), set(1), set(1)
	j.MicroBatch, j.SeqLen, j.GradAccum, j.Checkpointing, j.Attention = set(4), set(2048), set(1), set("none"),
		set("sdpa")
	edit(j)
	return estimate.Input{Job: j, Model: model.FromParams(7 * gb), Options: estimate.DefaultOptions(),
		Hardware: estimate.Hardware{Kind: "cuda", TotalBytes: 80 * gb, Count: 8, ContextBytes: -1, NCCLBytes: -1,
			ComputeCapability: "9.0"}}
}

// 8 GPUs of 80 GB with ZeRO-3, bf16, AdamW and 20 GB held back: (80 - 20) GB over 2 bytes a parameter are 30 billion.
func TestMaxParamsRuleOfThumbIs30Billion(t *testing.T) {
	in := bf16Master(func(j *job.Job) { j.Sharding, j.WorldSize, j.NProc = set("zero3"), set(8), set(8) })
	got, err := MaxParams(in, 20*gb)
	if err != nil {
		t.Fatal(err)
	}
	if got.RuleOfThumb != 30*gb || got.Quantity != "params" {
		t.Errorf("%+v: want 30e9 params", got)
	}
	if got.Estimate <= 0 || got.Estimate >= got.RuleOfThumb {
		t.Errorf("estimate %d: want less than the rule of thumb, which forgets buffers, context and the optimizer's "+
			"step", got.Estimate)
	}
	in.Options.ActivationBytes = 20 * gb
	for n, fits := range map[int64]bool{got.Estimate: true, got.Estimate + gb/100: false} {
		in.Model = model.FromParams(n)
		e, err := estimate.Run(in)
		if err != nil || (e.PerGPU.DeviceBytes <= in.Hardware.TotalBytes) != fits {
			t.Errorf("%d parameters: %d bytes of %d, %v", n, e.PerGPU.DeviceBytes, in.Hardware.TotalBytes, err)
		}
	}
}

func TestMaxParamsRefuses(t *testing.T) {
	in := bf16Master(func(*job.Job) {})
	for _, reserve := range []int64{-1, 80 * gb} {
		if _, err := MaxParams(in, reserve); err == nil {
			t.Errorf("a reserve of %d is accepted", reserve)
		}
	}
	in.Hardware.TotalBytes = 0
	if _, err := MaxParams(in, 0); err == nil {
		t.Error("an unknown device is accepted")
	}
}

func load(t testing.TB, name string) *model.Architecture {
	t.Helper()
	a, err := model.Load(filepath.Join("testdata", "configs", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ids(rs []Remedy) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.ID)
	}
	return out
}

func TestRemediesAreEstimatesOfTheChangedJob(t *testing.T) {
	in := bf16Master(func(j *job.Job) {
		j.Precision, j.ParamDtype, j.MasterFP32 = set("fp32"), set("fp32"), set(false)
		j.Sharding, j.WorldSize, j.NProc, j.GradAccum = set("ddp"), set(8), set(8), set(2)
	})
	in.Model = load(t, "meta-llama__Llama-3.2-1B")
	now, err := estimate.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := Remedies(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"amp", "fused-loss", "grad-accum", "checkpointing", "sharding", "optimizer-8bit", "offload",
		"model-parallel", "lora", "shorter-seq"}
	if !slices.Equal(ids(rs), want) {
		t.Errorf("remedies %v, want %v", ids(rs), want)
	}
	for _, r := range rs {
		if *r.SavesBytes <= 0 || *r.NewDeviceBytes+*r.SavesBytes != now.PerGPU.DeviceBytes || r.Fits == nil ||
			r.How == "" || r.Why == "" || r.Cost == "" {
			t.Errorf("%+v", r)
		}
	}
	if in.Job.Precision.Value != "fp32" || in.Job.Sharding.Value != "ddp" || in.Job.MicroBatch.Value != 4 {
		t.Error("the job was changed")
	}
}

// When the peak is the optimizer's step, nothing that shrinks activations helps, and it is not offered; what is on
// already is not offered again.
func TestRemediesLeaveOutWhatDoesNotHelp(t *testing.T) {
	in := bf16Master(func(j *job.Job) {
		j.MicroBatch, j.SeqLen, j.Checkpointing, j.FusedLoss = set(1), set(512), set("full"), set("chunked")
	})
	in.Model = load(t, "meta-llama__Llama-2-7b-hf")
	rs, err := Remedies(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"amp", "grad-accum", "checkpointing", "fused-loss", "sharding", "model-parallel",
		"shorter-seq"} {
		if slices.Contains(ids(rs), id) {
			t.Errorf("%s is offered: %v", id, ids(rs))
		}
	}
	for _, id := range []string{"optimizer-8bit", "lora", "offload"} {
		if !slices.Contains(ids(rs), id) {
			t.Errorf("%s is missing: %v", id, ids(rs))
		}
	}
}

func TestRemediesWithoutADevice(t *testing.T) {
	in := bf16Master(func(*job.Job) {})
	in.Hardware = estimate.Hardware{ContextBytes: -1, NCCLBytes: -1}
	rs, err := Remedies(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Fits != nil {
			t.Errorf("%s has a verdict without a device", r.ID)
		}
	}
	in.Job = nil
	if _, err := Remedies(in); err == nil {
		t.Error("no job is accepted")
	}
}

// The largest batch and sequence are those at which the estimator's own answer turns, for each of the three measures.
func TestLargest(t *testing.T) {
	in := bf16Master(func(j *job.Job) { j.Method, j.LoRA = set("lora"), set(&job.LoRA{R: 16, Alpha: 32}) })
	in.Model = load(t, "meta-llama__Llama-2-7b-hf")
	usable := in.Hardware.TotalBytes - in.Hardware.TotalBytes/10
	for what, change := range map[string]func(*job.Job, int64){
		"batch": func(j *job.Job, n int64) { j.MicroBatch = set(int(n)) },
		"seq":   func(j *job.Job, n int64) { j.SeqLen = set(int(n)) },
	} {
		got, err := Largest(in, what)
		if err != nil {
			t.Fatal(err)
		}
		if got.Certain > got.Estimate || got.WithHeadroom > got.Estimate || got.Certain < 1 || got.Quantity != what ||
			len(got.Assumptions) == 0 {
			t.Errorf("%s: %+v", what, got)
		}
		need := func(n int64) estimate.PerGPU {
			changed, j := in, *in.Job
			change(&j, n)
			changed.Job = &j
			e, err := estimate.Run(changed)
			if err != nil {
				t.Fatal(err)
			}
			return e.PerGPU
		}
		for _, m := range []struct {
			name  string
			n     int64
			bytes func(estimate.PerGPU) int64
			room  int64
		}{
			{"estimate", got.Estimate, func(g estimate.PerGPU) int64 { return g.DeviceBytes }, in.Hardware.TotalBytes},
			{"with headroom", got.WithHeadroom, func(g estimate.PerGPU) int64 { return g.DeviceBytes }, usable},
			{"certain", got.Certain, func(g estimate.PerGPU) int64 { return *g.HighBytes }, in.Hardware.TotalBytes},
		} {
			if here, next := m.bytes(need(m.n)), m.bytes(need(m.n+1)); here > m.room || next <= m.room {
				t.Errorf("%s %s: %d takes %d and one more %d of %d", what, m.name, m.n, here, next, m.room)
			}
		}
	}
}

func TestLargestEndsWithPositions(t *testing.T) {
	in := bf16Master(func(j *job.Job) {
		j.MicroBatch, j.Method, j.LoRA = set(1), set("lora"), set(&job.LoRA{R: 16, Alpha: 32})
	})
	in.Model = load(t, "meta-llama__Llama-2-7b-hf")
	got, err := Largest(in, "seq")
	if err != nil || got.Estimate != in.Model.MaxPositions || got.Limit != in.Model.MaxPositions {
		t.Errorf("%+v, %v: want the model's %d positions", got, err, in.Model.MaxPositions)
	}
}

func TestLargestWhereNothingFits(t *testing.T) {
	in := bf16Master(func(*job.Job) {})
	in.Model = load(t, "meta-llama__Llama-2-7b-hf") // 16 bytes a parameter are 108 GB
	got, err := Largest(in, "batch")
	if err != nil || got.Estimate != 0 || got.Certain != 0 {
		t.Errorf("%+v, %v: want none", got, err)
	}
}

func TestLargestRefuses(t *testing.T) {
	in := bf16Master(func(*job.Job) {})
	if _, err := Largest(in, "batch"); err == nil {
		t.Error("a bare number of parameters is accepted")
	}
	in.Model, in.Hardware.TotalBytes = load(t, "meta-llama__Llama-3.2-1B"), 0
	if _, err := Largest(in, "batch"); err == nil {
		t.Error("an unknown device is accepted")
	}
}

// Where something is not counted nothing is called fitting: no largest batch, no combination, and parameters only "no
// more than".
func TestNothingFitsInPart(t *testing.T) {
	in := bf16Master(func(*job.Job) {})
	for name, change := range map[string]func(*estimate.Input){
		"a number of parameters": func(*estimate.Input) {},
		"no sequence": func(in *estimate.Input) {
			in.Model, in.Job.SeqLen = load(t, "meta-llama__Llama-3.2-1B"), job.Setting[int]{}
		},
		"a VAE beside it": func(in *estimate.Input) {
			in.Model = load(t, "meta-llama__Llama-3.2-1B")
			in.Job.SecondModels = set(job.SecondModels{{Role: "vae", Name: "a/b"}})
		},
		"known activations": func(in *estimate.Input) { in.Options.ActivationBytes = gb },
	} {
		changed, j := in, *in.Job
		changed.Job = &j
		change(&changed)
		if got, err := Largest(changed, "batch"); !errors.Is(err, ErrUnknown) ||
			!strings.Contains(err.Error(), "give --") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		rs, err := Remedies(changed)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			if name != "known activations" && r.Fits != nil && *r.Fits {
				t.Errorf("%s: %s is said to fit", name, r.ID)
			}
		}
	}
	if c, err := Combine(bf16Master(func(j *job.Job) { j.WorldSize, j.NProc = set(8), set(8) })); err != nil ||
		c != nil {
		t.Errorf("states are too much alone, and activations not known: %+v, %v", c, err)
	}
	most, err := MaxParams(in, 0)
	if err != nil || most.Partial {
		t.Fatal(most, err)
	}
	if most = most.WithoutReserve(); !most.Partial || most.Certain != 0 || len(most.NotCounted) != 1 ||
		most.NotCounted[0].Give != "--reserve SIZE" {
		t.Errorf("%+v", most)
	}
}
