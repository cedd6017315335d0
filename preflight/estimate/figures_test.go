package estimate

import (
	"math"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

const gb = 1_000_000_000

// paramsOnly is a job on a model of which only the number of parameters is known, in 16-bit weights with an fp32 master
// copy unless edit says otherwise.
func paramsOnly(parameters int64, edit func(*job.Job)) Input {
	j := &job.Job{}
	j.ParamDtype, j.Precision, j.MasterFP32 = known("bf16"), known("bf16"), known(true)
	j.Optimizer, j.Sharding = known("adamw"), known("none")
	j.MicroBatch, j.SeqLen, j.GradAccum = known(1), known(2048), known(1)
	j.Checkpointing = known("none")
	if edit != nil {
		edit(j)
	}
	return Input{Job: j, Model: model.FromParams(parameters), Hardware: Hardware{ContextBytes: -1, NCCLBytes: -1},
		Options: DefaultOptions()}
}

func run(t testing.TB, in Input) *Estimate {
	t.Helper()
	e, err := Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// 7 billion parameters in bf16 with AdamW: 14 GB of weights, 28 GB of fp32 master weights, 14 GB of gradients and 56 GB
// of optimizer state are 112 GB (2 + 4 + 2 + 8 = 16 bytes a parameter; Rajbhandari et al. 2020, section 3.1).
func TestSevenBillionParametersNeed112GB(t *testing.T) {
	c := stageOf(t, run(t, paramsOnly(7*gb, nil)), OptimizerStep).Components
	for component, want := range map[Component]int64{Parameters: 14 * gb, MasterWeights: 28 * gb, Gradients: 14 * gb,
		Optimizer: 56 * gb} {
		if c[component] != want {
			t.Errorf("%s = %d, want %d", component, c[component], want)
		}
	}
	if c.ModelStates() != 112*gb {
		t.Errorf("model states = %d, want 112 GB", c.ModelStates())
	}
}

// The weights alone of 7 billion parameters: 28 GB in fp32, 14 GB in fp16, 7 GB in int8.
func TestWeightsAloneOfSevenBillionParameters(t *testing.T) {
	tests := []struct {
		name string
		edit func(*job.Job)
		want int64
	}{
		{"fp32", func(j *job.Job) {
			j.ParamDtype, j.Precision, j.MasterFP32 = known("fp32"), known("fp32"),
				known(false)
		}, 28 * gb},
		{"fp16", func(j *job.Job) {
			j.ParamDtype, j.Precision, j.MasterFP32 = known("fp16"), known("fp16"),
				known(false)
		}, 14 * gb},
		{"int8", func(j *job.Job) {
			j.Quant, j.MasterFP32 = known(&job.Quant{Method: "bnb", Bits: 8, Type: "int8"}), known(false)
		}, 7 * gb},
		{"nf4", func(j *job.Job) {
			j.Quant, j.MasterFP32 = known(&job.Quant{Method: "bnb", Bits: 4, Type: "nf4"}), known(false)
		}, 3_937_500_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := run(t, paramsOnly(7*gb, tt.edit))
			if got := stageOf(t, e, ModelLoad).Components[Parameters]; got != tt.want {
				t.Errorf("parameters = %d, want %d", got, tt.want)
			}
		})
	}
}

// SGD with momentum keeps 4 bytes a parameter, Adam 8, plain SGD none, 8-bit Adam 2.03125 (blocks of 256 with fp32
// scales).
func TestOptimizerStateBytesPerParameter(t *testing.T) {
	for name, want := range map[string]float64{"sgd": 0, "sgd_momentum": 4, "adamw": 8, "adamw_fused": 8,
		"adamw_8bit": 2.03125, "lion": 4} {
		in := paramsOnly(1<<30, func(j *job.Job) { j.Optimizer = known(name) })
		if got := float64(stageOf(t, run(t, in), OptimizerStep).Components[Optimizer]) / (1 << 30); got != want {
			t.Errorf("%s: %v bytes a parameter, want %v", name, got, want)
		}
	}
	pure := paramsOnly(1<<30, func(j *job.Job) { j.MasterFP32 = known(false) }) // states follow 16-bit weights
	if got := stageOf(t, run(t, pure), OptimizerStep).Components[Optimizer]; got != 4<<30 {
		t.Errorf("AdamW on bf16 weights: %d bytes, want 4 a parameter", got)
	}
}

// Parameters 14, master 28, gradients 14, optimizer 56, activations 6 and 1 of anything else: the optimizer is the
// bottleneck, 47 %.
func TestOptimizerIsTheBottleneckWith47Percent(t *testing.T) {
	share := func(c Components) float64 { return math.Round(100 * float64(c[Optimizer]) / float64(c.Sum())) }
	c := Components{Parameters: 14 * gb, MasterWeights: 28 * gb, Gradients: 14 * gb, Optimizer: 56 * gb,
		Activations: 6 * gb, Context: 1 * gb}
	if share(c) != 47 || c.Bottleneck() != Optimizer {
		t.Errorf("share %v %%, bottleneck %s: want 47 %% and optimizer", share(c), c.Bottleneck())
	}
	in := paramsOnly(7*gb, func(j *job.Job) { j.GradAccum, j.Optimizer = known(2), known("adamw_fused") })
	in.Options.ActivationBytes, in.Options.ContextBytes = 6*gb, 1*gb
	e := run(t, in)
	// backward begins with the same
	if share(e.PerGPU.Components) != 47 || e.Bottleneck != "optimizer" || e.PerGPU.PeakStage != Forward {
		t.Errorf("share %v %%, bottleneck %s at %s: want 47 %%, optimizer, forward", share(e.PerGPU.Components),
			e.Bottleneck, e.PerGPU.PeakStage)
	}
	for component, want := range map[Component]int64{Parameters: 14 * gb, MasterWeights: 28 * gb, Gradients: 14 * gb,
		Optimizer: 56 * gb, Activations: 6 * gb, Context: 1 * gb} {
		if got := e.PerGPU.Components[component]; got != want {
			t.Errorf("%s = %d, want %d", component, got, want)
		}
	}
}

// ZeRO-3 on 8 GPUs: 16 bytes of model states over 8 are 2 bytes a parameter on each.
func TestZeRO3On8GPUsIsTwoBytesAParameter(t *testing.T) {
	in := paramsOnly(8*gb, func(j *job.Job) { j.Sharding, j.WorldSize = known("zero3"), known(8) })
	if got := stageOf(t, run(t, in), OptimizerStep).Components.ModelStates(); got != 2*8*gb {
		t.Errorf("model states = %d, want 2 bytes for each of 8e9 parameters", got)
	}
}

// batch x seq x hidden x layers x 16: 1 x 2048 x 4096 x 32 x 16 B = 4 GiB.
func TestActivationFactorRule(t *testing.T) {
	in := paramsOnly(7*gb, nil)
	in.Model.Hidden, in.Model.Layers = 4096, 32
	in.Options.ActivationFactor = DefaultActivationFactor
	e := run(t, in)
	if got := stageOf(t, e, Forward).Components[Activations]; got != 4<<30 {
		t.Errorf("activations = %d, want 4 GiB", got)
	}
	if !assumed(e, "activations by the rough rule batch x seq x hidden x layers x 16") {
		t.Errorf("the rough rule is not among the assumptions %+v", e.Assumptions)
	}
}

func assumed(e *Estimate, what string) bool {
	for _, a := range e.Assumptions {
		if a.What == what {
			return true
		}
	}
	return false
}

// Published and derived sizes of quantised and sharded models.
func TestPublishedFigures(t *testing.T) {
	llama := loadModel(t, "meta-llama/Meta-Llama-3-8B")
	qlora := func(j *job.Job) {
		j.Method, j.LoRA = known("qlora"),
			known(&job.LoRA{R: 16, Targets: []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
				"down_proj"}})
		j.Quant = known(&job.Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true})
		j.ParamDtype, j.MasterFP32 = known("fp32"), known(false)
	}
	tests := []struct {
		name   string
		edit   func(*job.Job)
		source string
		want   float64 // GiB of parameters after loading
	}{
		{"QLoRA, fp32 rest", qlora, "7.267 GiB of base and 41.9 M adapters in fp32 (0.156)", 7.267 + 0.156},
		{"QLoRA, bf16 rest", func(j *job.Job) { qlora(j); j.BaseDtype = known("bf16") }, "5.310 GiB", 5.310 + 0.156},
		{"full bf16", nil, "2 bytes for each of 8,030,261,248", 14.958},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := paramsOnly(1, tt.edit)
			in.Model = llama
			e := run(t, in)
			if got := float64(stageOf(t, e, ModelLoad).Components[Parameters]) / gib; math.Abs(got-tt.want) > 0.002 {
				t.Errorf("parameters = %.3f GiB, want %.3f (%s)", got, tt.want, tt.source)
			}
		})
	}
	in := paramsOnly(1, qlora)
	in.Model = llama
	// r (in + out) over all seven matrices of 32 layers
	if got := run(t, in).Model.TrainableParameters; got != 41_943_040 {
		t.Errorf("trainable = %d, want 41943040", got)
	}
}

// PEFT's published runs of Llama-3.2-3B on an L40S (method_comparison/MetaMathQA, transformers 5, bf16 without
// autocast, batch 4, at most 768 tokens, outputs kept): max_memory_reserved. T is the padded length of the worst batch,
// which is not published, so only the difference that adapters make is asserted: 2.17 GB between rank-32 adapters on q
// and v and almost none.
func TestLoRAAdapterCostMatchesPublishedRuns(t *testing.T) {
	in := paramsOnly(1, func(j *job.Job) {
		j.Method, j.ParamDtype, j.BaseDtype, j.MasterFP32 = known("lora"), known("fp32"), known("bf16"), known(false)
		j.MicroBatch, j.SeqLen, j.Attention, j.Optimizer = known(4), known(768), known("sdpa"), known("adamw")
		j.Framework, j.LoRA = known("custom"), known(&job.LoRA{R: 32, Targets: []string{"q_proj", "v_proj"}})
	})
	in.Model = loadModel(t, "meta-llama/Llama-3.2-3B")
	with := run(t, in)
	base := paramsOnly(1, nil)
	*base.Job = *in.Job
	base.Model, base.Job.LoRA = in.Model, known(&job.LoRA{R: 1, Targets: []string{"embed_tokens"}})
	without := run(t, base)
	got := float64(with.PerGPU.AllocatedBytes-without.PerGPU.AllocatedBytes) / gb
	if math.Abs(got-2.25) > 0.2 {
		t.Errorf("rank-32 adapters cost %.2f GB, want about 2.2", got)
	}
}

// Activations of one layer in bytes a token, measured with saved-tensor hooks on transformers' modules (h = q = kv
// here).
func TestActivationsPerLayer(t *testing.T) {
	a := loadModel(t, "meta-llama/Llama-2-7b-hf")
	const h, i, n, s = 4096, 11008, 32, 2048
	const casts = 2 * (4*h*h + 3*h*i) / s // autocast's 16-bit copies of the layer's weights
	tests := []struct {
		name, precision, param, attention string
		lora                              bool
		want                              int64
	}{
		{"bf16 flash", "bf16", "bf16", "flash_attention_2", false, 16*h + 8*h + 8*i + 8 + 4*n},
		{"bf16 eager", "bf16", "bf16", "eager", false, 16*h + 8*h + 8*i + 8 + 6*n*s},
		{"autocast flash", "bf16", "fp32", "sdpa", false, 26*h + 8*h + 8*i + 8 + 4*n + casts},
		{"autocast eager", "bf16", "fp32", "eager", false, 26*h + 8*h + 8*i + 8 + 6*n*s + casts},
		{"fp32 flash", "fp32", "fp32", "sdpa", false, 24*h + 16*h + 16*i + 8 + 4*n},
		{"frozen bf16 flash", "bf16", "bf16", "sdpa", true, 8*h + 8*h + 6*i + 8 + 4*n + 2*h + 2*h + 2*i + 7*2*8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := paramsOnly(1, func(j *job.Job) {
				j.Precision, j.ParamDtype, j.MasterFP32, j.Attention, j.SeqLen = known(tt.precision), known(tt.param),
					known(false), known(tt.attention), known(s)
				if tt.lora {
					j.Method, j.BaseDtype, j.LoRA = known("lora"), known("bf16"),
						known(&job.LoRA{R: 8, Targets: []string{"all-linear"}})
				}
			})
			in.Model = a
			sc, err := newScenario(in)
			if err != nil {
				t.Fatal(err)
			}
			tape, ok := sc.rankOf(0).tape()
			if got := saved(tape.steps) / s; !ok || got != tt.want {
				t.Errorf("%d bytes a token, want %d", got, tt.want)
			}
		})
	}
}
