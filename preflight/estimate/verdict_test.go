package estimate

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

func open[T any]() job.Setting[T] { return job.Setting[T]{Origin: "test"} }

// own makes it the job of a program that is not known, about which nothing is known but the batch and the sequence.
func own(j *job.Job) {
	j.Argv, j.Framework = []string{"python", "own.py"}, known("custom")
	j.ParamDtype, j.Precision, j.MasterFP32, j.Optimizer = open[string](), open[string](), open[bool](), open[string]()
}

func what(e *Estimate) []string {
	var list []string
	for _, n := range e.NotCounted {
		list = append(list, n.What)
	}
	return list
}

// What is not counted leaves a lower bound: it may say "does not fit", and never "fits".
func TestPartial(t *testing.T) {
	const unknown, no = "unknown", "no"
	all := func(j *job.Job) {}
	for name, c := range map[string]struct {
		in     func() Input
		want   string
		counts []string
	}{
		"a number of parameters": {func() Input { return paramsOnly(25e6, all) }, unknown,
			[]string{"activations"}},
		"whose states alone are too much": {func() Input { return paramsOnly(70*gb, all) }, no,
			[]string{"activations"}},
		"LoRA on a number of parameters": {func() Input {
			return paramsOnly(12*gb, func(j *job.Job) { j.Method, j.LoRA = known("lora"), known(&job.LoRA{R: 16}) })
		}, unknown, []string{"activations"}},
		"a state-space model": {func() Input { return tinyInput(t, tinyMamba) }, unknown, []string{"activations"}},
		"no micro-batch": {func() Input { return small(t, func(j *job.Job) { j.MicroBatch = open[int]() }) },
			unknown, []string{"micro_batch"}},
		"no sequence": {func() Input { return small(t, func(j *job.Job) { j.SeqLen = open[int]() }) }, unknown,
			[]string{"seq_len"}},
		"neither": {func() Input {
			return small(t,
				func(j *job.Job) { j.SeqLen, j.MicroBatch = open[int](), open[int]() })
		}, unknown,
			[]string{"micro_batch", "seq_len"}},
		"a model beside it": {func() Input {
			return small(t, func(j *job.Job) {
				j.SecondModels = known(job.SecondModels{{Role: "vae", Name: "a/b", Origin: "command line --vae"}})
			})
		}, unknown, []string{"vae a/b"}},
		"a model beside known activations": {func() Input {
			in := paramsOnly(gb, func(j *job.Job) { j.SecondModels = known(job.SecondModels{{Role: "text encoder"}}) })
			in.Options.ActivationBytes = gib
			return in
		}, unknown, []string{"text encoder"}},
		"weights quantised, and who knows what beside them": {func() Input {
			return paramsOnly(7*gb, func(j *job.Job) {
				j.Quant = known(&job.Quant{Method: "bnb", Bits: 8,
					Type: "int8"})
			})
		}, unknown, []string{"activations", "what is trained beside the quantised weights"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.in()
			in.Hardware = Hardware{Kind: "cuda", Name: "GPU", TotalBytes: 80 * gb, ContextBytes: -1, NCCLBytes: -1}
			e := run(t, in)
			verdict := unknown
			if e.Fits != nil {
				verdict = map[bool]string{true: "fits", false: no}[*e.Fits]
			}
			if verdict != c.want || !e.Partial || e.PerGPU.HighBytes != nil || e.HeadroomBytes != nil ||
				e.Bottleneck != "" || e.PerGPU.LowBytes > e.PerGPU.DeviceBytes {
				t.Errorf("%s: %+v, bottleneck %q, headroom %v", verdict, e.PerGPU, e.Bottleneck, e.HeadroomBytes)
			}
			if !slices.Equal(what(e), c.counts) || e.Give() == "" {
				t.Errorf("not counted %v, want %v; give %q", what(e), c.counts, e.Give())
			}
			var again Estimate
			if data, err := json.Marshal(e); err != nil || json.Unmarshal(data, &again) != nil || !again.Partial ||
				again.PerGPU.HighBytes != nil || again.Lacks() != e.Lacks() {
				t.Errorf("read again: %v, %+v", err, again)
			}
		})
	}
}

// The user's own word for what is missing makes the sum whole.
func TestWholeByOwnWord(t *testing.T) {
	for name, edit := range map[string]func(*Input){
		"activations":       func(in *Input) { in.Options.ActivationBytes = gib },
		"without a batch":   func(in *Input) { in.Options.ActivationBytes, in.Job.MicroBatch = gib, open[int]() },
		"activation factor": func(in *Input) { in.Options.ActivationFactor = 16 },
		"models beside it": func(in *Input) {
			in.Options.ActivationBytes, in.Options.SecondModelBytes = gib, 3*gib
			in.Job.SecondModels = known(job.SecondModels{{Role: "vae"}})
		},
		"PPO's models as well": func(in *Input) {
			in.Options.ActivationBytes, in.Options.SecondModelBytes = gib, 3*gib
			in.Job.Task = known("ppo")
		},
	} {
		in := paramsOnly(gb, nil)
		in.Hardware = Hardware{Kind: "cuda", TotalBytes: 80 * gb, ContextBytes: -1, NCCLBytes: -1}
		edit(&in)
		e := run(t, in)
		if e.Partial || e.Fits == nil || !*e.Fits || e.PerGPU.HighBytes == nil || e.NotCounted != nil {
			t.Errorf("%s: %+v", name, e)
		}
		if in.Options.SecondModelBytes > 0 {
			in.Options.SecondModelBytes -= gib
			if less := run(t, in); e.PerGPU.DeviceBytes-less.PerGPU.DeviceBytes < gib {
				t.Errorf("%s: a GiB more adds %d", name, e.PerGPU.DeviceBytes-less.PerGPU.DeviceBytes)
			}
		}
	}
}

// The interval of a program that is not known holds the need at every plausible value of what is not known of it, and
// the verdict rests on both of its ends.
func TestUnsettledHoldsEveryTruth(t *testing.T) {
	truths := map[string]func(*job.Job){
		"full, fp32": func(j *job.Job) { j.Precision, j.ParamDtype = known("fp32"), known("fp32") },
		"autocast": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.Autocast = known("bf16"), known("fp32"),
				known(true)
		},
		"pure bf16, sgd": func(j *job.Job) {
			pureBF16(j)
			j.Optimizer = known("sgd")
		},
		"master copy": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.MasterFP32 = known("bf16"), known("bf16"),
				known(true)
		},
		"checkpointed": func(j *job.Job) {
			pureBF16(j)
			j.Checkpointing = known("full")
		},
		"eager attention": func(j *job.Job) {
			j.Precision, j.ParamDtype, j.Attention = known("fp32"), known("fp32"), known("eager")
		},
		"lora": func(j *job.Job) {
			pureBF16(j)
			j.Method, j.LoRA, j.BaseDtype, j.Checkpointing = known("lora"),
				known(&job.LoRA{R: 16, Targets: []string{"q_proj", "v_proj"}}), known("bf16"), known("full")
		},
		"qlora": func(j *job.Job) {
			pureBF16(j)
			j.Method, j.LoRA = known("qlora"), known(&job.LoRA{R: 8, Targets: []string{"q_proj"}})
		},
		"8-bit optimizer": func(j *job.Job) {
			pureBF16(j)
			j.Optimizer = known("adamw_8bit")
		},
	}
	at := func(edit func(*job.Job)) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			own(j)
			j.Method, j.Checkpointing = open[string](),
				open[string]()
			edit(j)
		}))
	}
	e := at(func(*job.Job) {})
	if want := []string{"method", "precision", "optimizer", "checkpointing", "attention"}; !slices.Equal(e.Unsettled,
		want) || e.Partial || e.PerGPU.HighBytes == nil {
		t.Fatalf("unsettled %v, %+v", e.Unsettled, e.PerGPU)
	}
	for name, truth := range truths {
		all := at(func(j *job.Job) {
			j.Method, j.Checkpointing, j.Optimizer, j.Attention = known("full"), known("none"), known("adamw"),
				known("sdpa")
			truth(j)
		})
		if n := all.PerGPU.DeviceBytes; n < e.PerGPU.LowBytes || n > *e.PerGPU.HighBytes {
			t.Errorf("%s: %d is outside %d to %d", name, n, e.PerGPU.LowBytes, *e.PerGPU.HighBytes)
		}
	}
	for total, want := range map[int64]string{e.PerGPU.LowBytes: "no", *e.PerGPU.HighBytes: "not known",
		*e.PerGPU.HighBytes * 10 / 8: "yes"} {
		in := small(t, func(j *job.Job) { own(j); j.Method, j.Checkpointing = open[string](), open[string]() })
		in.Hardware.TotalBytes = total
		again := run(t, in)
		got := "not known"
		if again.Fits != nil {
			got = map[bool]string{true: "yes", false: "no"}[*again.Fits]
		}
		if got != want {
			t.Errorf("of %d bytes with a need of %d to %d: %s, want %s", total, again.PerGPU.LowBytes,
				*again.PerGPU.HighBytes, got, want)
		}
	}
}

// settings are the values that each decider is tried with.
var settings = map[string][]func(*job.Job){
	"method": {
		func(j *job.Job) { j.Method = known("full") },
		func(j *job.Job) {
			j.Method, j.LoRA, j.BaseDtype = known("lora"), known(&job.LoRA{R: 64, Targets: []string{"all-linear"}}),
				known("bf16")
		},
		func(j *job.Job) {
			j.Method, j.LoRA = known("qlora"), known(&job.LoRA{R: 8, Targets: []string{"all-linear"}})
		},
	},
	"precision": {
		func(j *job.Job) { j.Precision, j.ParamDtype, j.MasterFP32 = known("fp32"), known("fp32"), known(false) },
		func(j *job.Job) {
			j.Precision, j.ParamDtype, j.MasterFP32, j.Autocast = known("bf16"), known("fp32"), known(false),
				known(true)
		},
		func(j *job.Job) { j.Precision, j.ParamDtype, j.MasterFP32 = known("bf16"), known("bf16"), known(true) },
		pureBF16,
	},
	"optimizer": {
		func(j *job.Job) { j.Optimizer = known("adamw") }, func(j *job.Job) { j.Optimizer = known("sgd") },
		func(j *job.Job) { j.Optimizer = known("adamw_8bit") }, func(j *job.Job) { j.Optimizer = known("adafactor") },
		func(j *job.Job) { j.Optimizer = known("lion") },
	},
	"checkpointing": {func(j *job.Job) { j.Checkpointing = known("none") },
		func(j *job.Job) { j.Checkpointing = known("full") }},
	"attention": {
		func(j *job.Job) { j.Attention = known("sdpa") }, func(j *job.Job) { j.Attention = known("eager") },
		func(j *job.Job) { j.Attention = known("flash_attention_2") },
	},
}

// Whatever is hidden of a program that is not known, what its GPU takes is within what is said without it.
func TestHidingWidens(t *testing.T) {
	keys := []string{"method", "precision", "optimizer", "checkpointing", "attention"}
	models := []string{"meta-llama/Llama-3.2-1B", "openai-community/gpt2", "google/gemma-2b"}
	draw := rand.New(rand.NewPCG(7, 11))
	for range 200 {
		choice, hidden := map[string]int{}, map[string]bool{}
		for _, key := range keys {
			choice[key], hidden[key] = draw.IntN(len(settings[key])), draw.IntN(2) == 0
		}
		name, batch, length := models[draw.IntN(len(models))], 1<<draw.IntN(6), 128<<draw.IntN(3)
		at := func(hide bool) *Estimate {
			in := small(t, func(j *job.Job) {
				own(j)
				j.MicroBatch, j.SeqLen, j.Checkpointing = known(batch), known(length), open[string]()
				for _, key := range keys {
					if !hide || !hidden[key] {
						settings[key][choice[key]](j)
					}
				}
			})
			in.Model = loadModel(t, name)
			return run(t, in)
		}
		truth, e := at(false), at(true)
		if most, _ := e.Most(); truth.PerGPU.DeviceBytes < e.Least() || truth.PerGPU.DeviceBytes > most {
			t.Errorf("%s %dx%d %v without %v: %.2f GiB outside %.2f to %.2f", name, batch, length, choice, hidden,
				float64(truth.PerGPU.DeviceBytes)/gib, float64(e.Least())/gib, float64(most)/gib)
		}
	}
}

// A known program's defaults are known, and what is not said without a command is what oomguard itself assumes: neither
// is widened.
func TestKnownProgramsAreSettled(t *testing.T) {
	for name, edit := range map[string]func(*job.Job){
		"Trainer":    func(j *job.Job) { own(j); j.Framework = known("hf-trainer") },
		"no command": func(j *job.Job) { own(j); j.Argv, j.Framework = nil, open[string]() },
	} {
		if e := run(t, small(t, edit)); e.Open() || e.Fits == nil || e.Least() != e.PerGPU.DeviceBytes {
			t.Errorf("%s: unsettled %v, not counted %v", name, e.Unsettled, e.NotCounted)
		}
	}
}

// Positions that end where the assumed sequence does bound it; images have one length.
func TestBoundedSequences(t *testing.T) {
	in := small(t, func(j *job.Job) { own(j); j.SeqLen = open[int]() })
	in.Model = loadModel(t, "openai-community/gpt2")
	if e := run(t, in); e.Partial || !slices.Contains(e.Unsettled, "seq_len") {
		t.Errorf("gpt2: %v, %v", e.NotCounted, e.Unsettled)
	}
	var err error
	if in.Model, err = model.Known("google/vit-base-patch16-224"); err != nil {
		t.Fatal(err)
	}
	if e := run(t, in); e.Partial || slices.Contains(e.Unsettled, "seq_len") {
		t.Errorf("vit: %v, %v", e.NotCounted, e.Unsettled)
	}
}

// The advice names what is missing for this job.
func TestAdvice(t *testing.T) {
	for name, c := range map[string]struct {
		in        Input
		want, not string
	}{
		"no command":  {paramsOnly(gb, nil), "--model DIR or config.json, or --activations SIZE", "no formula"},
		"own program": {paramsOnly(gb, own), "no formula: measure one small run", ""},
		"known program": {paramsOnly(gb, func(j *job.Job) { own(j); j.Framework = known("trl") }),
			"--model DIR or config.json", "no formula"},
	} {
		give := run(t, c.in).Give()
		if !strings.Contains(give, c.want) || c.not != "" && strings.Contains(give, c.not) ||
			strings.Contains(give, "--params") {
			t.Errorf("%s: %s", name, give)
		}
	}
	var none Estimate
	if none.PerGPU.HighBytes != nil || none.Lacks() != "" || none.Give() != "" || !none.Open() {
		t.Errorf("an empty estimate is not open")
	}
	if _, err := Run(Input{Job: &job.Job{}, Model: model.FromParams(0), Options: DefaultOptions()}); err == nil {
		t.Error("no parameters are accepted")
	}
}
