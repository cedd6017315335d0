package job

import (
	"fmt"
)

// precision: --bf16 until 0.9.1, --param_dtype with the default bf16 since 0.9.2. DeepSpeed keeps an fp32 copy of
// half-precision weights; without a half precision it makes the weights fp32.
func (o *openrlhf) precision() {
	j := o.r.job
	dtype, origin := "", ""
	later, known := o.r.atLeast("openrlhf", 0, 9, 2)
	switch bf16, named := o.flag("bf16"), o.word("param_dtype", ""); {
	case named.Known:
		dtype, origin = dtypeName(named.Value), named.Origin
	case bf16.Value:
		dtype, origin = "bf16", bf16.Origin
	case !bf16.Known:
		for _, f := range []fact{&j.ParamDtype, &j.Precision, &j.MasterFP32} {
			f.Unknown(bf16.Origin)
		}
	case o.dotted, known && later:
		dtype, origin = "bf16", o.origin
	case known:
		dtype, origin = "fp32", o.origin+": no --bf16"
	}
	if dtype == "" {
		for _, f := range []fact{&j.ParamDtype, &j.Precision, &j.MasterFP32} {
			f.Unknown("no --bf16: OpenRLHF trains in fp32 then until 0.9.1, in bf16 since 0.9.2, and the version is " +
				"not known; give --versions openrlhf=...")
		}
		return
	}
	o.r.load.Offer(dtype, origin)
	j.ParamDtype.Offer(dtype, origin)
	j.Precision.Offer(dtype, origin)
	j.MasterFP32.Offer(dtype != "fp32",
		map[bool]string{true: "DeepSpeed keeps an fp32 copy of half-precision weights",
			false: "the weights themselves are fp32"}[dtype != "fp32"])
}

// optimizer: DeepSpeed's CPU Adam with --adam_offload, its fused Adam otherwise (utils/deepspeed/deepspeed.py).
func (o *openrlhf) optimizer() {
	j := o.r.job
	offload := o.flag("adam_offload")
	if !offload.Known {
		j.Offload.Unknown(offload.Origin)
		j.Optimizer.Unknown(offload.Origin)
		return
	}
	j.Offload.Offer(Offload{Optimizer: map[bool]string{true: "cpu", false: "none"}[offload.Value], Params: "none"},
		offload.Origin)
	switch name := o.word("optim", "adam"); {
	case name.Value == "muon":
		j.Optimizer.Offer("muon", name.Origin)
	case offload.Value:
		j.Optimizer.Offer("cpu_adam", offload.Origin)
	default:
		j.Optimizer.Offer("adamw_fused", name.Origin+": DeepSpeed's FusedAdam")
	}
}

func (o *openrlhf) adapter() {
	p := &o.r.adapter
	if four := o.flag("load_in_4bit"); four.Value {
		o.r.job.Quant.Offer(&Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: "bf16",
			Storage: "uint8"}, four.Origin)
	}
	rank := o.size("lora_rank", 0)
	if !rank.Known {
		o.r.job.Method.Unknown(rank.Origin)
		return
	}
	if p.use.Offer(rank.Value > 0, rank.Origin); rank.Value == 0 {
		return
	}
	p.r.take(rank)
	p.alpha.take(o.size("lora_alpha", 16))
	if dropout, err := pythonFloat(o.word("lora_dropout", "0").Value); err == nil && dropout >= 0 && dropout < 1 {
		p.dropout.Offer(dropout, o.word("lora_dropout", "0").Origin)
	}
	if targets := o.r.args["target_modules"]; len(targets.list) > 0 {
		p.targets.Offer(targets.list, targets.origin)
	}
	p.targets.Offer([]string{"all-linear"}, o.origin)
	if o.r.job.ParamDtype.Known { // DeepSpeed casts the adapters with the rest
		o.r.job.BaseDtype.Offer(o.r.job.ParamDtype.Value, o.r.job.ParamDtype.Origin)
	}
}

// memory: sharding, checkpointing, attention and loss. --flash_attn became --attn_implementation in 0.8.10; packing
// needs a flash kernel.
func (o *openrlhf) memory() {
	j := o.r.job
	switch stage := o.size("zero_stage", 2); {
	case !stage.Known:
		j.Sharding.Unknown(stage.Origin)
	case stage.Value == 0:
		j.Sharding.Offer("ddp", stage.Origin)
	case stage.Value <= 3:
		j.Sharding.Offer(fmt.Sprint("zero", stage.Value), stage.Origin)
	default:
		o.r.unread(fmt.Errorf("%s is %d, need a stage from 0 to 3", stage.Origin, stage.Value))
		j.Sharding.Unknown(stage.Origin + " is not a stage")
	}
	// "auto" is dropped (config_utils.py)
	j.DeepSpeed.Offer(nil, "OpenRLHF makes DeepSpeed's configuration itself; buckets have DeepSpeed's own defaults")
	for name, set := range map[string]*Setting[int]{"ds_tensor_parallel_size": &j.TP, "ring_attn_size": &j.CP} {
		degree := o.size(name, 1)
		if degree.Known && degree.Value == 0 {
			o.refuse("ZeroDivisionError: --"+name+" is 0", degree.Origin)
			degree = Setting[int]{Origin: degree.Origin + " is 0"}
		}
		set.take(degree)
	}
	checkpointing := o.flag("gradient_checkpointing")
	if checkpointing.Known {
		j.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[checkpointing.Value], checkpointing.Origin)
	}
	j.Checkpointing.Unknown(checkpointing.Origin)
	j.ActivationOffload.Offer(false, "OpenRLHF has no option for it")
	j.OptimizerInBackward.Offer(false, "DeepSpeed steps after the backward pass")
	j.FusedLoss.Offer("none", "OpenRLHF computes the loss from whole logits")
	if liger := o.flag("use_liger_kernel"); liger.Known { // AutoLigerKernelForCausalLM in openrlhf/models/actor.py
		j.LayerKernels.Offer(map[bool]string{true: "liger", false: "none"}[liger.Value], liger.Origin)
	}
	named, flash, packing := o.word("attn_implementation", ""), o.flag("flash_attn"), o.flag("packing_samples")
	since, known := o.r.atLeast("openrlhf", 0, 8, 10)
	switch {
	case named.Known:
		j.Attention.Offer(named.Value, named.Origin)
	case flash.Value:
		j.Attention.Offer("flash_attention_2", flash.Origin)
	case packing.Value:
		j.Attention.Offer("flash_attention_2", packing.Origin)
	case !flash.Known:
		j.Attention.Unknown(flash.Origin)
	case o.dotted, known && since:
		j.Attention.Offer("flash_attention_2", o.origin)
	case known:
		j.Attention.Offer("eager", o.origin+": no --flash_attn")
	default:
		j.Attention.Unknown("no --flash_attn: eager until OpenRLHF 0.8.9, flash_attention_2 since 0.8.10, and the " +
			"version is not known; give --versions openrlhf=...")
	}
	if j.CP.Or(1) > 1 && !packing.Value {
		o.refuse("AssertionError: packing_samples must be enabled when using ring attention", j.CP.Origin)
	}
}

// batch: the batch of a step is given for all ranks (DeepspeedStrategy.setup_distributed).
func (o *openrlhf) batch() {
	j := o.r.job
	micro := o.program.micro
	if o.dotted && o.program.task == "ppo" {
		micro = 1
	}
	global := o.size("train_batch_size", 128)
	j.GlobalBatch.take(global)
	if dynamic := o.flag("dynamic_batch"); dynamic.Value && o.program.task == "ppo" {
		o.dynamicBatch(dynamic.Origin)
		return
	}
	j.MicroBatch.take(o.size("micro_train_batch_size", micro))
	world, model := product(j.NNodes.Or(0), j.NProc.Or(0)), product(j.TP.Or(0), j.CP.Or(0))
	all := product(global.Value, model)
	switch each := product(j.MicroBatch.Or(0), world); {
	case all == 0 || each == 0:
		j.GradAccum.Unknown("global batch / (micro-batch x replicas), which are not all known")
	case all%each != 0:
		o.refuse(fmt.Sprintf("AssertionError: train_batch_size %d is not equal to micro_batch_per_gpu %d * "+
			"gradient_acc_step * world_size %d", all, j.MicroBatch.Value, world), global.Origin)
		j.GradAccum.Unknown("the batch sizes contradict each other")
	default:
		j.GradAccum.Offer(all/each, fmt.Sprintf("global batch %d / (micro-batch %d x %d replicas)", global.Value,
			j.MicroBatch.Value, world/model))
	}
}

// evaluation takes the micro-batches of training, where there is something to evaluate.
func (o *openrlhf) evaluation() {
	j := o.r.job
	if data := o.word("eval_dataset", ""); data.Known && o.program.task != "ppo" && j.MicroBatch.Known {
		j.EvalBatch.Offer(j.MicroBatch.Value, data.Origin+", with the micro-batch of training")
	}
	j.EvalBatch.Offer(0, "no --eval_dataset, or answers are evaluated by the inference engine")
}

func (o *openrlhf) dynamicBatch(origin string) {
	j := o.r.job
	tokens := o.size("train_max_tokens_per_gpu", 16192)
	if tokens.Known && j.SeqLen.Known && j.SeqLen.Value > 0 {
		j.MicroBatch.Offer(max(tokens.Value/j.SeqLen.Value, 1),
			fmt.Sprintf("%s: up to %d tokens (%s), so many rows of full length", origin, tokens.Value, tokens.Origin))
	}
	j.MicroBatch.Unknown(origin + ": the number of rows follows from their tokens")
	j.GradAccum.Unknown(origin + ": the number of micro-batches follows from the lengths")
}
