package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/job/document"
)

func (r *reader) torchtuneBatch(c *configuration, kind string) {
	j := r.job
	switch r.family.task {
	case "ppo":
		j.GradAccum.take(c.size(1, "gradient_accumulation_steps"))
		if all, accum := c.size(0, "ppo_batch_size"), j.GradAccum; all.Value > 0 && accum.Known {
			j.MicroBatch.Offer(max(1, all.Value/accum.Value), all.Origin+": ppo_batch_size by accumulation")
		}
	// one step takes all samples of all prompts of a batch (recipes/dev/grpo_full_finetune_distributed.py, grpo_step)
	case "grpo":
		prompts, samples := c.size(1, "batch_size"), c.size(1, "grpo_samples")
		if rows := product(prompts.Value, samples.Value); prompts.Known && samples.Known && rows > 0 &&
			kind == "grpo_full_finetune" {
			j.MicroBatch.Offer(rows, fmt.Sprintf("batch_size %d (%s) x grpo_samples %d (%s)", prompts.Value,
				prompts.Origin, samples.Value, samples.Origin))
			j.GradAccum.Offer(1, "the recipe takes one step for each batch")
		}
		j.MicroBatch.Unknown("the recipe's workers decide; give --micro-batch")
		j.GradAccum.Unknown("the recipe derives it from the number of samples; give --grad-accum")
	default:
		for _, key := range []string{"batch_size", "gradient_accumulation_steps"} {
			if _, shipped := torchtuneRecipes()[kind]; shipped && c.find(key) == nil {
				r.fail("the recipe needs "+key+", which its configuration does not give", c.doc.Origin())
			}
		}
		if c.find("batch_size") != nil {
			j.MicroBatch.take(c.size(1, "batch_size"))
		}
		j.GradAccum.take(c.size(1, "gradient_accumulation_steps"))
	}
	length := c.size(0, "tokenizer.max_seq_len", "dataset.max_seq_len")
	packed := c.flag(false, "dataset.packed")
	if n := c.doc.Get("dataset"); n != nil {
		if _, several := n.Value.([]*document.Node); several {
			packed = c.flag(false, "dataset[0].packed")
		}
	}
	j.Packing.take(packed)
	generated := c.size(0, "max_generated_tokens")
	switch {
	case length.Known && length.Value > 0 && generated.Known && generated.Value > 0 &&
		(r.family.task == "ppo" || r.family.task == "grpo"):
		j.SeqLen.Offer(length.Value+generated.Value,
			length.Origin+": the prompt, and max_generated_tokens "+generated.Origin)
	case length.Known && length.Value > 0:
		j.SeqLen.take(length)
	case length.Known && packed.Known && packed.Value:
		r.fail("ValueError: PackedDataset requires a max_seq_len to be set on the tokenizer.", packed.Origin)
	case length.Known:
		j.SeqLen.Unknown("tokenizer.max_seq_len is not set: the longest text of the data decides")
	default:
		j.SeqLen.Unknown(length.Origin)
	}
}

// torchtunePrecision: dtype is that of weights, gradients, optimizer state and computation at once; there is no
// autocast.
func (r *reader) torchtunePrecision(c *configuration) {
	j := r.job
	dtype := c.word("fp32", "dtype")
	switch {
	case !dtype.Known:
	case dtype.Value == "fp16":
		r.fail("ValueError: full fp16 training is not supported with this recipe; use bf16 or fp32", dtype.Origin)
	case dtype.Value != "bf16" && dtype.Value != "fp32" && dtype.Value != "fp64":
		r.fail("ValueError: dtype "+dtype.Value+" must be one of fp16, bf16, fp32, fp64", dtype.Origin)
	}
	j.ParamDtype.take(dtype)
	r.load.take(dtype)
	if eight := c.flag(false, "enable_fp8_training"); eight.Value {
		j.Precision.Offer("fp8", eight.Origin)
	}
	j.Precision.take(dtype)
	j.MasterFP32.Offer(false, "torchtune keeps no second copy of the weights")
}

// torchtuneMemory reads checkpointing, offloading, the loss and the step within backward.
func (r *reader) torchtuneMemory(c *configuration) {
	j := r.job
	full, mode := c.flag(false, "enable_activation_checkpointing"), c.word("", "ac_mode")
	offload := c.flag(false, "enable_activation_offloading")
	switch {
	case !full.Known:
		j.Checkpointing.Unknown(full.Origin)
	case full.Value && mode.Value == "": // with ac_mode beside it neither of the two branches runs
		j.Checkpointing.Offer("full", full.Origin)
	case !full.Value && mode.Value == "full":
		j.Checkpointing.Offer("full", mode.Origin)
	case !full.Value && mode.Value == "selective":
		kind := "selective"
		if every := c.word("", "ac_option"); every.Known && every.Value != "" && every.Value != "op" {
			kind += ":" + every.Value
		}
		j.Checkpointing.Offer(kind, mode.Origin)
	default:
		j.Checkpointing.Offer("none", full.Origin)
	}
	if offload.Value && !full.Value {
		r.fail("RuntimeError: enable_activation_offloading should only be True when enable_activation_checkpointing "+
			"is True", offload.Origin)
	}
	j.ActivationOffload.take(offload)
	loss := c.word("", "loss._component_", "loss")
	switch name := loss.Value; {
	case strings.HasSuffix(name, "LinearCrossEntropyLoss"), strings.HasSuffix(name, "ChunkedOutputLoss"):
		j.FusedLoss.Offer("chunked", loss.Origin)
	case name != "":
		j.FusedLoss.Offer("none", loss.Origin)
	}
	j.Attention.Offer("sdpa", "torchtune's own models (flex_attention for packed rows where the GPU has it)")
	compile := c.flag(false, "compile")
	if n := c.find("compile"); n != nil {
		if _, parts := n.Value.(map[string]*document.Node); parts { // newer recipes name what is compiled
			compile = c.flag(true, "compile.model")
		}
	}
	j.Compile.take(compile)
	inBackward := c.flag(false, "optimizer_in_bwd")
	if inBackward.Value && j.GradAccum.Or(1) > 1 {
		r.fail("RuntimeError: Gradient accumulation is not supported with optimizer in bwd; set one of the two aside",
			inBackward.Origin)
	}
	if clip := c.find("clip_grad_norm"); inBackward.Value && clip != nil {
		r.fail("RuntimeError: Gradient clipping is not supported with optimizer in bwd; set one of the two aside",
			clip.Origin())
	}
	j.OptimizerInBackward.take(inBackward)
	if r.family.task != "grpo" {
		j.InferenceShare.Offer(0, "the recipe has no inference engine")
	}
	switch r.family.task {
	case "dpo":
		j.RefModel.Offer(!strings.Contains(j.Script.Value, "lora"),
			"full DPO holds the reference model, LoRA DPO switches the adapters off for it")
	case "ppo", "grpo":
		j.RefModel.Offer(true, "the recipe holds the reference policy")
	case "kd":
		teacher := c.word("", "teacher_model._component_")
		name := teacher.Value[strings.LastIndexByte(teacher.Value, '.')+1:]
		if hub := torchtuneHubNames()[builderDecoration.ReplaceAllString(name, "")]; hub != "" {
			teacher = Setting[string]{Value: hub, Known: true, Origin: teacher.Origin + " " + name}
		}
		r.hold("teacher", teacher, false, false)
		j.RefModel.Offer(true, "distillation holds the teacher beside the model")
	default:
		j.RefModel.Offer(false, "the recipe holds one model")
	}
}

// torchtuneParallel: distributed recipes shard with FSDP 2, a unit for each layer (torchtune/training/_distributed.py).
func (r *reader) torchtuneParallel(c *configuration, place string) {
	j := r.job
	world := product(j.NNodes.Or(0), j.NProc.Or(0))
	j.TP.take(c.size(1, "tensor_parallel_dim"))
	j.CP.take(c.size(1, "context_parallel_dim"))
	if j.TP.Or(1) > 1 && c.find("tensor_parallel_plan") == nil && r.family.task == "sft" {
		r.fail("ValueError: Tensor Parallel plan needs to be provided when tensor parallel is enabled; give "+
			"tensor_parallel_plan", j.TP.Origin)
	}
	if place != "distributed" {
		j.Sharding.Offer("none", "a recipe for one device")
		return
	}
	shard, replicate := c.number(-1, "data_parallel_shard_dim"), c.size(1, "data_parallel_replicate_dim")
	degrees := product(j.TP.Or(0), j.CP.Or(0), replicate.Or(0))
	switch {
	case world == 0 || degrees == 0 || !shard.Known:
		j.Sharding.Withhold("the number of processes or a parallel degree is not known")
		j.Offload.Withhold("the number of processes or a parallel degree is not known")
		return
	case shard.Value < 0:
		shard.Value = world / degrees
	}
	if product(shard.Value, degrees) != world {
		r.fail(fmt.Sprintf("AssertionError: Invalid parallel dims: replicate %d x shard %d x tp %d x cp %d != %d "+
			"processes",
			replicate.Value, shard.Value, j.TP.Value, j.CP.Value, world), shard.Origin)
		j.Sharding.Withhold("the parallel degrees do not fit the processes")
		return
	}
	keep := c.flag(true, "fsdp_reshard_after_forward")
	sharding := shardingName(shard.Value*j.CP.Value, replicate.Value, keep.Or(true))
	j.Sharding.Offer(sharding, fmt.Sprintf("a distributed recipe: shard %d, replicate %d, %s", shard.Value,
		replicate.Value, c.originOf("fsdp_reshard_after_forward")))
	if strings.HasPrefix(sharding, "fsdp") {
		j.FSDPVersion.Offer(2, "torchtune shards with fully_shard")
		j.FSDPWrap.Offer("layers", "torchtune shards each layer")
	}
	cpu := c.flag(false, "fsdp_cpu_offload")
	if cpu.Value {
		j.Offload.Offer(Offload{Optimizer: "cpu", Params: "cpu"}, cpu.Origin)
	}
}

// shardingName is the vocabulary's word for a mesh of FSDP: ranks that share one copy, copies, and whether gathered
// weights are dropped after the forward pass.
func shardingName(shard, replicate int, reshard bool) string {
	switch {
	case shard <= 1 && replicate > 1:
		return "ddp"
	case shard <= 1:
		return "none"
	case replicate > 1:
		return "fsdp-hybrid"
	case !reshard:
		return "fsdp-grad"
	}
	return "fsdp-full"
}
