package job

import "fmt"

// What verl shards, recomputes and moves to the host, and what its inference engine takes.

func (v *verl) sharding() {
	j, c := v.r.job, v.c
	if v.megatron() {
		v.megatronParallel()
		return
	}
	strategy := c.word("fsdp", verlActor+"strategy")
	config := verlActor + "fsdp_config."
	v.r.verlFSDP(strategy, c.flag(true, config+"reshard_after_forward"), c.number(-1, config+"fsdp_size"))
	offload := Offload{Optimizer: "none", Params: "none"}
	params, optimizer, policy := c.flag(false, config+"param_offload"), c.flag(false, config+"optimizer_offload"),
		c.flag(false, config+"offload_policy")
	origin := optimizer.Origin
	if optimizer.Value || policy.Value {
		offload.Optimizer = "cpu"
	}
	if params.Value || policy.Value {
		offload.Params = "cpu"
		origin += ", " + params.Origin
	}
	// update_actor loads both (workers/fsdp_workers.py); the policy is FSDP's own offloading
	offload.Idle = !policy.Value
	v.r.offerOffload(offload, origin, params, optimizer, policy)
	j.CP.take(c.size(1, verlActor+"ulysses_sequence_parallel_size", config+"ulysses_sequence_parallel_size"))
	const model = "actor_rollout_ref.model."
	v.r.verlCheckpointing(c.flag(true, model+"enable_gradient_checkpointing"))
	j.ActivationOffload.take(c.flag(false, model+"enable_activation_offload"))
	if attention := c.word("flash_attention_2", model+"override_config.attn_implementation"); attention.Known {
		j.Attention.Offer(attention.Value, attention.Origin)
	}
	fused, kind := c.flag(false, model+"use_fused_kernels"), c.word("torch", model+"fused_kernel_options.impl_backend")
	switch {
	case !fused.Known:
		j.FusedLoss.Unknown(fused.Origin)
	case fused.Value:
		j.FusedLoss.Offer(map[bool]string{true: "triton-ce", false: "chunked"}[kind.Value == "triton"], fused.Origin)
	default:
		j.FusedLoss.Offer("none", fused.Origin+
			"; Liger's kernels leave whole logits too, from which verl computes the loss")
	}
	// _apply_liger_kernel_to_instance in verl/workers/fsdp_workers.py
	if liger := c.flag(false, model+"use_liger"); liger.Known {
		j.LayerKernels.Offer(map[bool]string{true: "liger", false: "none"}[liger.Value], liger.Origin)
	}
}

// offerOffload offers what is offloaded when all that decides it is known.
func (r *reader) offerOffload(offload Offload, origin string, decided ...Setting[bool]) {
	for _, d := range decided {
		if !d.Known {
			r.job.Offload.Unknown(d.Origin)
			return
		}
	}
	if offload.Idle && (offload.Optimizer != "none" || offload.Params != "none") {
		origin += "; back on the GPU while the model is trained"
	}
	r.job.Offload.Offer(offload, origin)
}

// verlFSDP: fsdp is FSDP1. A size of the sharding group below all ranks is hybrid sharding (workers/sharding_manager).
func (r *reader) verlFSDP(strategy Setting[string], reshard Setting[bool], size Setting[int]) {
	j := r.job
	version := map[string]int{"fsdp": 1, "fsdp2": 2}[strategy.Value]
	if version == 0 {
		j.Sharding.Unknown(fmt.Sprintf("%s: strategy %q is not read yet", strategy.Origin, strategy.Value))
		return
	}
	world := product(j.NNodes.Or(0), j.NProc.Or(0))
	switch {
	case size.Value == 1:
		j.Sharding.Offer("ddp", size.Origin)
	case size.Value > 1 && (world == 0 || size.Value < world):
		j.Sharding.Offer("fsdp-hybrid", size.Origin)
	case reshard.Known:
		j.Sharding.Offer(map[bool]string{true: "fsdp-full", false: "fsdp-grad"}[reshard.Value], strategy.Origin)
	default:
		j.Sharding.Unknown(reshard.Origin)
	}
	j.FSDPVersion.Offer(version, strategy.Origin)
	j.FSDPWrap.Offer("layers", "verl wraps each layer")
}

func (r *reader) verlCheckpointing(on Setting[bool]) {
	if on.Known {
		r.job.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[on.Value], on.Origin)
	}
	r.job.Checkpointing.Unknown(on.Origin)
}

// megatronParallel reads the actor's Megatron engine.
func (v *verl) megatronParallel() {
	j, c := v.r.job, v.c
	const engine = verlActor + "megatron."
	j.TP.take(c.size(1, engine+"tensor_model_parallel_size"))
	j.PP.take(c.size(1, engine+"pipeline_model_parallel_size"))
	j.CP.take(c.size(1, engine+"context_parallel_size"))
	j.EP.take(c.size(1, engine+"expert_model_parallel_size"))
	if distributed := c.flag(true, engine+"use_distributed_optimizer"); distributed.Known {
		j.Sharding.Offer(map[bool]string{true: "dist-optim", false: "ddp"}[distributed.Value], distributed.Origin)
	}
	offload := Offload{Optimizer: "none", Params: "none"}
	params, optimizer := c.flag(false, engine+"param_offload"), c.flag(false, engine+"optimizer_offload")
	if optimizer.Value {
		offload.Optimizer = "cpu"
	}
	if params.Value {
		offload.Params = "cpu"
	}
	offload.Idle = true
	v.r.offerOffload(offload, optimizer.Origin, params, optimizer)
	granularity := c.word("", engine+"override_transformer_config.recompute_granularity")
	switch {
	case !granularity.Known:
		j.Checkpointing.Unknown(granularity.Origin)
	case granularity.Value == "":
		j.Checkpointing.Offer("none", granularity.Origin)
	default:
		j.Checkpointing.Offer(granularity.Value, granularity.Origin)
	}
	j.ActivationOffload.Offer(false, c.fallback)
	j.Attention.take(c.word("flash", engine+"override_transformer_config.attention_backend"))
	j.FusedLoss.Offer("native-fused", "verl computes a vocabulary-parallel loss with Megatron")
}

// inference: the engine that makes the answers lives in the same processes. While the model is trained its memory is
// free, unless free_cache_engine is off.
func (v *verl) inference() {
	share := &v.r.job.InferenceShare
	part, freed := v.c.fraction(0.5, "actor_rollout_ref.rollout.gpu_memory_utilization"),
		v.c.flag(true, "actor_rollout_ref.rollout.free_cache_engine")
	name := v.c.word("vllm", "actor_rollout_ref.rollout.name")
	switch {
	case name.Value == "hf":
		share.Offer(0, name.Origin)
	case !part.Known || !freed.Known:
		share.Unknown(part.Origin)
	case freed.Value:
		share.Offer(0, fmt.Sprintf("%s takes %g of the GPU for the answers and frees it for training "+
			"(free_cache_engine: %s)", name.Value, part.Value, freed.Origin))
	default:
		share.Offer(part.Value, part.Origin)
	}
}

// readVerlSFT reads the two fine-tuning programs: fsdp_sft_trainer (model.*) and sft_trainer, built on engines
// (engine.*).
func (r *reader) readVerlSFT(c *configuration) {
	j := r.job
	engine := r.family.program != "fsdp_sft_trainer"
	model, config, strategy := "model.", "model.fsdp_config.", c.word("fsdp2", "model.strategy")
	if engine {
		config, strategy = "engine.", c.word("fsdp", "engine.strategy")
	}
	if r.family.program == "sft_trainer_ray" {
		j.Launcher.become(Setting[string]{Value: "ray", Known: true, Origin: "verl starts its workers through Ray"})
		r.startsProcesses(c.size(1, "trainer.n_gpus_per_node"), c.size(1, "trainer.nnodes"))
	}
	r.verlModel(c, "model.partial_pretrain", "model.path")
	r.verlAdapter(c.number(0, model+"lora_rank"), c.word("", model+"lora_adapter_path"), c, model)
	j.SeqLen.take(c.size(1024, "data.max_length"))
	j.Packing.Offer(false, "rows are padded, or their padding is taken out")
	r.offerDtype(&j.ParamDtype, c.word("fp32", config+"model_dtype"))
	r.load.take(j.ParamDtype)
	r.offerDtype(&j.Precision, c.word("bfloat16", config+"dtype"))
	j.MasterFP32.Offer(false, "FSDP keeps no second copy of the weights")
	r.optimizerClass(c.word("torch.optim", "optim.optimizer_impl").Value+"."+c.word("AdamW", "optim.optimizer").Value,
		c.below("optim.override_optimizer_config"), false, c.fallback)
	r.verlFSDP(strategy, c.flag(true, config+"reshard_after_forward"), c.number(-1, config+"fsdp_size"))
	offload := Offload{Optimizer: "none", Params: "none"}
	if engine && c.flag(false, config+"optimizer_offload").Value {
		offload.Optimizer = "cpu"
	}
	params := c.flag(false, config+"param_offload", config+"offload_params")
	if params.Value && (engine || c.flag(false, config+"cpu_offload").Value) {
		offload = Offload{Optimizer: map[bool]string{true: offload.Optimizer, false: "cpu"}[engine], Params: "cpu"}
	}
	offload.Idle = engine
	r.offerOffload(offload, params.Origin, params)
	j.CP.take(c.size(1, "ulysses_sequence_parallel_size", config+"ulysses_sequence_parallel_size"))
	r.verlCheckpointing(c.flag(true, model+"enable_gradient_checkpointing"))
	j.ActivationOffload.take(c.flag(false, model+"enable_activation_offload"))
	j.Attention.Offer("flash_attention_2", "verl loads its models with flash_attention_2")
	j.FusedLoss.Offer("none", "verl computes the loss from whole logits")
	j.RefModel.Offer(false, "fine-tuning has no reference model")
	j.InferenceShare.Offer(0, "fine-tuning has no inference engine")
	r.verlSFTBatch(c, engine)
}

func (r *reader) verlSFTBatch(c *configuration, engine bool) {
	j := r.job
	micro, global := c.size(4, "data.micro_batch_size_per_gpu"), c.size(256, "data.train_batch_size")
	v := &verl{r: r, c: c}
	if engine && c.flag(true, "data.use_dynamic_bsz").Value {
		tokens := c.size(8192, "data.max_token_len_per_gpu")
		if tokens.Known && j.SeqLen.Known {
			all := tokens.Value * j.CP.Or(1)
			j.MicroBatch.Offer(max(all/j.SeqLen.Value, 1),
				fmt.Sprintf("use_dynamic_bsz: up to %d tokens (%s), so many rows of full length", all, tokens.Origin))
		}
		j.MicroBatch.Unknown("use_dynamic_bsz: the number of sequences follows from tokens, which are not known")
		j.GradAccum.Unknown("use_dynamic_bsz: the number of micro-batches follows from the lengths")
		j.GlobalBatch.take(global)
		return
	}
	j.MicroBatch.take(micro)
	j.GlobalBatch.take(global)
	if global.Known {
		v.accumulation(global.Value, product(j.NNodes.Or(0), j.NProc.Or(0)), j.CP.Or(1), micro)
	}
}
