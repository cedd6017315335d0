package estimate

import (
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

const llama1B = 1235814400 // Llama-3.2-1B, tied

func pureBF16(j *job.Job) {
	j.ParamDtype, j.Precision, j.MasterFP32 = known("bf16"), known("bf16"), known(false)
}

func assumes(e *Estimate, part string) bool {
	return strings.Contains(e.Lacks(), part) ||
		slices.ContainsFunc(e.Assumptions, func(a Assumption) bool { return strings.Contains(a.What, part) })
}

// What the weights of a run take, by task and method: the policy's alone, or more models'.
func TestSecondModels(t *testing.T) {
	lora := func(j *job.Job) {
		j.Method, j.LoRA, j.BaseDtype = known("lora"), known(&job.LoRA{R: 8, Targets: []string{"q_proj"}}),
			known("bf16")
	}
	for name, c := range map[string]struct {
		edit func(*job.Job)
		want int64 // bytes of weights, adapters left out
		says string
	}{
		"plain": {func(*job.Job) {}, 2 * llama1B, ""},
		"dpo, reference unknown": {func(j *job.Job) { j.Task = known("dpo") }, 4 * llama1B,
			"a reference model of the same size"},
		"dpo, computed before": {func(j *job.Job) { j.Task, j.RefModel = known("dpo"), known(false) }, 2 * llama1B,
			"2 sequences per sample"},
		"dpo in fp32": {func(j *job.Job) {
			j.Task, j.RefModel, j.ParamDtype = known("dpo"), known(true),
				known("fp32")
		}, 8 * llama1B, ""},
		"dpo with adapters": {func(j *job.Job) { j.Task = known("dpo"); lora(j) }, 2 * llama1B,
			"no reference model"},
		"adapters and a reference": {func(j *job.Job) { j.Task, j.RefModel = known("dpo"), known(true); lora(j) },
			4 * llama1B, ""},
		"kto": {func(j *job.Job) { j.Task, j.RefModel = known("kto"), known(true) }, 4 * llama1B,
			""},
		"grpo without KL": {func(j *job.Job) { j.Task, j.RefModel = known("grpo"), known(false) }, 2 * llama1B,
			"answers are generated"},
		"ppo": {func(j *job.Job) { j.Task, j.RefModel = known("ppo"), known(true) }, 4 * llama1B,
			"reward model and value model not counted"},
		"a teacher of 8 B": {func(j *job.Job) {
			j.Task, j.RefModel, j.SecondModels = known("kd"), known(true),
				known(job.SecondModels{{Role: "teacher", Name: "t", Params: 8e9}})
		}, 2*llama1B + 16e9, "the teacher's logits are not counted"},
		"a teacher of unknown size": {func(j *job.Job) {
			j.Task, j.RefModel, j.SecondModels = known("kd"), known(true),
				known(job.SecondModels{{Role: "teacher", Name: "t"}})
		}, 2 * llama1B, "teacher t not counted"},
		"a teacher elsewhere": {func(j *job.Job) {
			j.Task, j.RefModel, j.SecondModels = known("kd"), known(true),
				known(job.SecondModels{{Role: "teacher", Name: "t", Params: 8e9, Idle: true}})
		}, 2 * llama1B, "the teacher t is in host memory"},
		"ppo, judges elsewhere": {func(j *job.Job) {
			j.Task, j.RefModel, j.SecondModels = known("ppo"), known(false), known(job.SecondModels{})
		}, 2 * llama1B, ""},
		"ppo, own sizes": {func(j *job.Job) {
			j.Task, j.RefModel = known("ppo"), known(true)
			j.SecondModels = known(job.SecondModels{{Role: "reward", Params: 3e9},
				{Role: "critic", Params: 2e9, Trained: true}})
		}, 4*llama1B + 6e9 + 4e9, "the critic is among the parameters"},
		"zero3": {func(j *job.Job) {
			j.Task, j.RefModel, j.Sharding, j.WorldSize, j.NProc = known("dpo"), known(true), known("fsdp-full"),
				known(8), known(8)
		}, 4 * llama1B / 8, ""},
	} {
		e := run(t, small(t, func(j *job.Job) { pureBF16(j); c.edit(j) }))
		got := stageOf(t, e, Forward).Components[Parameters]
		if diff := got - c.want; diff < 0 || diff > 20<<20 { // adapters and buffers
			t.Errorf("%s: %d bytes of weights, want %d", name, got, c.want)
		}
		if c.says != "" && !assumes(e, c.says) {
			t.Errorf("%s: no assumption says %q: %v", name, c.says, e.Assumptions)
		}
	}
}

// DPO's rows stand twice in a batch; a reward model has no logits, and one output in place of the projection.
func TestRowsAndOutputsByTask(t *testing.T) {
	at := func(task string, batch int) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			pureBF16(j)
			j.Task, j.MicroBatch, j.RefModel = known(task), known(batch), known(false)
		}))
	}
	if dpo, sft := at("dpo", 2), at("sft", 4); stageOf(t, dpo, Forward).AllocatedBytes != stageOf(t, sft,
		Forward).AllocatedBytes {
		t.Error("two samples of DPO are not four rows")
	}
	reward := at("rm", 2)
	// the tied projection is gone, 2048 weights score
	if want := int64(llama1B + 2048); reward.Model.Parameters != want {
		t.Errorf("a reward model of %d parameters, want %d", reward.Model.Parameters, want)
	}
	if logits := stageOf(t, reward, Forward).Components[Logits]; logits > 1<<20 {
		t.Errorf("a reward model has %d bytes of logits", logits)
	}
}

// An unknown reference model widens the interval down by its weights, an unknown inference engine up by TRL's share.
func TestSecondModelsInTheInterval(t *testing.T) {
	at := func(edit func(*job.Job)) PerGPU {
		return run(t, small(t, func(j *job.Job) { pureBF16(j); edit(j) })).PerGPU
	}
	sure := at(func(j *job.Job) { j.Task, j.RefModel = known("dpo"), known(true) })
	unsure := at(func(j *job.Job) { j.Task = known("dpo") })
	if unsure.DeviceBytes != sure.DeviceBytes || sure.LowBytes-unsure.LowBytes < 2*llama1B {
		t.Errorf("low with the reference known %d, unknown %d", sure.LowBytes, unsure.LowBytes)
	}
	taught := at(func(j *job.Job) { j.SecondModels = known(job.SecondModels{{Role: "teacher", Params: llama1B}}) })
	judged := at(func(j *job.Job) { j.SecondModels = known(job.SecondModels{{Role: "reward", Params: llama1B}}) })
	if over := *taught.HighBytes - *judged.HighBytes; taught.DeviceBytes != judged.DeviceBytes ||
		over < 2*taught.Components[Logits] || over == 0 {
		t.Errorf("high is %d over that with a reward model, want the teacher's logits", over)
	}
	alone := at(func(j *job.Job) { j.Task, j.RefModel, j.InferenceShare = known("grpo"), known(false), known(0.0) })
	maybe := at(func(j *job.Job) { j.Task, j.RefModel = known("grpo"), known(false) })
	if *maybe.HighBytes-*alone.HighBytes < int64(colocatedShare*80*gb) {
		t.Errorf("high without an engine %d, unknown %d", *alone.HighBytes, *maybe.HighBytes)
	}
	shared := at(func(j *job.Job) { j.Task, j.RefModel, j.InferenceShare = known("grpo"), known(false), known(0.25) })
	if got, want := shared.Components[Context]-alone.Components[Context], int64(20*gb); got != want {
		t.Errorf("a quarter of 80 GB for the engine counts as %d, want %d", got, want)
	}
}

// The option wins over the job; without a GPU's size the share is named and not counted.
func TestInferenceShareOption(t *testing.T) {
	in := small(t, func(j *job.Job) { pureBF16(j); j.Task, j.InferenceShare = known("grpo"), known(0.25) })
	in.Options.InferenceShare = 0.5
	if e := run(t, in); e.PerGPU.Components[Context] < 40*gb {
		t.Errorf("context %d, want half of 80 GB in it", e.PerGPU.Components[Context])
	}
	in.Hardware = Hardware{ContextBytes: -1, NCCLBytes: -1}
	if e := run(t, in); !assumes(e, "50 % of the GPU are not counted") {
		t.Errorf("%v", e.Assumptions)
	}
}

// Managed memory of paged optimizers is not PyTorch's, but the device shows it while there is room, and the host
// otherwise.
func TestPagedStatesWidenTheInterval(t *testing.T) {
	at := func(name string) *Estimate {
		return run(t, small(t, func(j *job.Job) { pureBF16(j); j.Optimizer = known(name) }))
	}
	paged, fused := at("paged_adamw"), at("adamw_fused")
	if got := *paged.PerGPU.HighBytes - paged.PerGPU.DeviceBytes; got < 8*llama1B*99/100 {
		t.Errorf("the interval reaches %d bytes up, want the states of 8 bytes a parameter", got)
	}
	if paged.Host.PerRankBytes < 8*llama1B*99/100 || fused.Host.PerRankBytes != 0 {
		t.Errorf("host memory %d paged, %d not", paged.Host.PerRankBytes, fused.Host.PerRankBytes)
	}
}

// verl takes padding out of its rows: the lower end has answers of a quarter of the length, and the loss keeps no fp32
// copy of the logits.
func TestAnswersOfUnknownLength(t *testing.T) {
	at := func(framework string) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			pureBF16(j)
			j.Task, j.RefModel, j.InferenceShare, j.MicroBatch, j.Framework = known("grpo"), known(false), known(0.0),
				known(8), known(framework)
		}))
	}
	verl, trl := at("verl"), at("trl")
	if !assumes(verl, "every answer is as long as is allowed") ||
		assumes(trl, "every answer is as long as is allowed") {
		t.Errorf("assumptions %v", verl.Assumptions)
	}
	below := verl.PerGPU.DeviceBytes - verl.PerGPU.LowBytes
	if below < (verl.PerGPU.Components[Activations]+verl.PerGPU.Components[Logits])/2 {
		t.Errorf("the interval reaches %d bytes down", below)
	}
	if got, want := stageOf(t, verl, Backward).Components[Logits],
		stageOf(t, trl, Backward).Components[Logits]; got*3 > want+want/10 {
		t.Errorf("logits of %d bytes, want a third of %d", got, want)
	}
}

// A critic that is trained has gradients and states by its own size.
func TestTrainedCritic(t *testing.T) {
	at := func(models job.SecondModels) Components {
		e := run(t, small(t, func(j *job.Job) {
			pureBF16(j)
			j.Task, j.RefModel, j.SecondModels = known("ppo"), known(false), known(models)
		}))
		return stageOf(t, e, OptimizerStep).Components
	}
	alone, both := at(nil), at(job.SecondModels{{Role: "critic", Params: 2 * llama1B, Trained: true}})
	for _, part := range []Component{Gradients, Optimizer} {
		if got, want := both[part], 3*alone[part]; got < want-100 || got > want+100 {
			t.Errorf("%v of policy and critic %d, want %d", part, got, want)
		}
	}
}

// The head that task_type adds to modules_to_save is trained whole, once; names that the model does not have add
// nothing.
func TestHeadTrainedBesideAdapters(t *testing.T) {
	at := func(saved ...string) int64 {
		return run(t, small(t, func(j *job.Job) {
			pureBF16(j)
			j.Task, j.RefModel, j.Method, j.BaseDtype = known("rm"), known(false), known("lora"), known("bf16")
			j.LoRA = known(&job.LoRA{R: 8, Targets: []string{"q_proj"}, ModulesToSave: saved})
		})).Model.TrainableParameters
	}
	if got, want := at("classifier", "score")-at(), int64(2048); got != want { // Llama-3.2-1B's hidden width
		t.Errorf("the head adds %d trained weights, want %d", got, want)
	}
}
