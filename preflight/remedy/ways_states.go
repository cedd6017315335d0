package remedy

// How the remedies for weights, gradients and optimizer state are written; see ways_pass.go.

func shardingOptions() []Option {
	const trainer, own = `--deepspeed FILE with "zero_optimization": {"stage": {stage}}`,
		`"zero_optimization": {"stage": {stage}}`
	return []Option{
		{"zero1", shardBy("zero1"), []way{
			in("hf-trainer", trainer), in("deepspeed", own),
			in("nanotron", "optimizer.zero_stage: 1"),
			in("", "torch.distributed.optim.ZeroRedundancyOptimizer for the optimizer state alone"),
			in("accelerate", "accelerate launch --use_deepspeed --zero_stage {stage}"),
			in("axolotl", "deepspeed: deepspeed_configs/zero1.json"),
		}},
		{"dist-optim", shardBy("dist-optim"), []way{
			in("megatron", "--use-distributed-optimizer"),
			in("verl", "actor_rollout_ref.actor.megatron.use_distributed_optimizer=True (strategy megatron)"),
		}},
		{"zero2", shardBy("zero2"), []way{
			in("hf-trainer", trainer), in("deepspeed", own),
			in("accelerate", "accelerate launch --use_deepspeed --zero_stage {stage}"),
			in("axolotl", "deepspeed: deepspeed_configs/zero2.json"),
			in("llamafactory", "deepspeed: examples/deepspeed/ds_z2_config.json"),
			in("lightning", `Trainer(strategy="deepspeed_stage_2")`),
			in("openrlhf", "--ds.zero_stage {stage}").since("0.10"),
			in("openrlhf", "--zero_stage {stage}").before("0.10"),
			in("open-instruct", "accelerate launch --use_deepspeed --zero_stage {stage}"),
		}},
		{"fsdp-full", shardBy("fsdp-full"), []way{
			in("", "torch.distributed.fsdp.fully_shard on each block and the model"),
			in("hf-trainer", `--fsdp "full_shard auto_wrap" (transformers 5.24: --fsdp true is enough)`),
			in("accelerate", "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy "+
				"TRANSFORMER_BASED_WRAP"),
			in("fsdp", "fully_shard(..., reshard_after_forward=True); FSDP 1: "+
				"sharding_strategy=ShardingStrategy.FULL_SHARD with an auto_wrap_policy for each block"),
			in("axolotl", "fsdp_version: 2 with a section fsdp_config"),
			in("torchtune", "tune run --nproc_per_node N full_finetune_distributed (FSDP 2) with "+
				"fsdp_reshard_after_forward=True"),
			in("torchtitan", "--parallelism.data_parallel_shard_degree -1 "+
				"--parallelism.data_parallel_replicate_degree 1"),
			in("megatron", "--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy "+
				"optim_grads_params"),
			in("litgpt", "--devices N: LitGPT shards with FSDP on more than one"),
			in("lightning", `Trainer(strategy="fsdp")`),
			in("verl", "actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 "+
				"actor_rollout_ref.actor.fsdp_config.reshard_after_forward=True"),
		}},
		{"zero3", shardBy("zero3"), []way{
			in("hf-trainer", trainer), in("deepspeed", own),
			in("accelerate", "accelerate launch --use_deepspeed --zero_stage {stage}"),
			in("axolotl", "deepspeed: deepspeed_configs/zero3.json"),
			in("llamafactory", "deepspeed: examples/deepspeed/ds_z3_config.json"),
			in("lightning", `Trainer(strategy="deepspeed_stage_3")`),
			in("openrlhf", "--ds.zero_stage {stage}").since("0.10"),
			in("openrlhf", "--zero_stage {stage}").before("0.10"),
			in("open-instruct", "accelerate launch --use_deepspeed --zero_stage {stage}"),
		}},
	}
}

func eightBitOptions() []Option {
	return []Option{
		{"bitsandbytes", eightBit("adamw_8bit"), []way{
			in("", "bitsandbytes.optim.AdamW8bit(model.parameters(), ...); against the temporaries of torch's own "+
				"AdamW alone: foreach=False or fused=True"),
			in("hf-trainer", "--optim adamw_bnb_8bit"),
			in("deepspeed", `pass bitsandbytes.optim.AdamW8bit to deepspeed.initialize(optimizer=...) with "zero_allow_untested_optimizer": true`),
			in("fsdp", "torchao.optim.AdamW8bit, which knows the sharded tensors of FSDP 2"),
			in("axolotl", "optimizer: adamw_bnb_8bit"),
			in("llamafactory", "optim: adamw_bnb_8bit"),
			in("lightning", "return bitsandbytes.optim.AdamW8bit(...) from configure_optimizers"),
			in("verl", "actor_rollout_ref.actor.optim.optimizer_impl=bitsandbytes.optim "+
				"actor_rollout_ref.actor.optim.optimizer=AdamW8bit"),
			// two fp8 moments take as much as two 8-bit ones
			in("megatron", "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8, with "+
				"--use-distributed-optimizer"),
		}},
		{"bitsandbytes on one device", only(oneProcess, eightBit("adamw_8bit")), []way{
			in("litgpt", "--optimizer.class_path bitsandbytes.optim.AdamW8bit (one device)"),
		}},
		{"paged on one device", only(oneProcess, eightBit("paged_adamw_8bit")), []way{
			in("torchtune", "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit (single-device recipes)"),
		}},
		{"paged for preferences", only(ofTask("dpo"), eightBit("paged_adamw_8bit")), []way{
			in("open-instruct", "--dpo_use_paged_optimizer --use_8bit_optimizer (DPO; not in dpo.py)"),
		}},
		{"in backward", inBackward, []way{
			in("torchtune", "optimizer_in_bwd=True, which keeps no gradients"),
		}},
	}
}

func loraOptions() []Option {
	return []Option{{"lora", adapters, []way{
		in("", `peft: get_peft_model(model, LoraConfig(r=16, target_modules="all-linear")); with 4-bit base weights: BitsAndBytesConfig(load_in_4bit=True) at from_pretrained`),
		in("trl", "--use_peft True --lora_r 16 (and --load_in_4bit True)"),
		in("unsloth", "FastLanguageModel.get_peft_model(model, r=16) (4 bit: load_in_4bit=True at from_pretrained)"),
		in("axolotl", "adapter: lora, lora_r: 16, lora_alpha: 32, lora_target_linear: true (4 bit: adapter: qlora "+
			"and load_in_4bit: true)"),
		in("llamafactory", "finetuning_type: lora, lora_rank: 16, lora_target: all (4 bit: quantization_bit: 4)"),
		in("torchtune", "the recipe lora_finetune_single_device or lora_finetune_distributed"),
		in("litgpt", "litgpt finetune_lora --lora_r 16 (4 bit: --quantize bnb.nf4)"),
		in("open-instruct", "--use_lora --lora_rank 16 (4 bit: --use_qlora)"),
		in("verl", "actor_rollout_ref.model.lora_rank=16 actor_rollout_ref.model.target_modules=all-linear "+
			"(fine-tuning: model.lora_rank=16)"),
		in("openrlhf", "--ds.lora.rank 16 (4 bit: --ds.load_in_4bit)").since("0.10"),
		in("openrlhf", "--lora_rank 16 (4 bit: --load_in_4bit)").before("0.10"),
	}}}
}

func offloadOptions() []Option {
	const fsdp1 = "; FSDP 1: cpu_offload=CPUOffload(offload_params=True)"
	return []Option{
		{"optimizer", offloadOptimizer, []way{
			in("", `deepspeed.initialize(model=model, config=FILE) with "offload_optimizer": {"device": "cpu"} in zero_optimization, stage {stage}`),
			in("hf-trainer", `--deepspeed FILE with "offload_optimizer": {"device": "cpu"} in zero_optimization, stage {stage}`),
			in("accelerate", "accelerate launch --use_deepspeed --zero_stage {stage} --offload_optimizer_device cpu"),
			in("deepspeed", `"offload_optimizer": {"device": "cpu"} in zero_optimization, stage {stage}`),
			in("open-instruct", "accelerate launch --use_deepspeed --zero_stage {stage} "+
				"--offload_optimizer_device cpu"),
			in("openrlhf", "--ds.adam_offload").since("0.10"),
			in("openrlhf", "--adam_offload").before("0.10"),
		}},
		{"optimizer by ZeRO-2", only(belowZeRO3, offloadOptimizer), []way{
			in("llamafactory", "deepspeed: examples/deepspeed/ds_z2_offload_config.json"),
			in("lightning", `Trainer(strategy="deepspeed_stage_2_offload")`),
		}},
		{"distributed optimizer", offloadDistributed, []way{
			in("megatron", "--optimizer-cpu-offload --use-precision-aware-optimizer, with --use-distributed-optimizer"),
		}},
		{"everything by ZeRO-3", offloadZeRO3, []way{
			in("hf-trainer", `--deepspeed FILE with "offload_optimizer": {"device": "cpu"} and "offload_param": {"device": "cpu"} in zero_optimization, stage 3`),
			in("accelerate", "accelerate launch --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu "+
				"--offload_param_device cpu"),
			in("open-instruct", "accelerate launch --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu "+
				"--offload_param_device cpu"),
			in("deepspeed", `"offload_optimizer": {"device": "cpu"} and "offload_param": {"device": "cpu"} in zero_optimization, stage 3`),
			in("axolotl", "deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json"),
			in("llamafactory", "deepspeed: examples/deepspeed/ds_z3_offload_config.json"),
			in("lightning", `Trainer(strategy="deepspeed_stage_3_offload")`),
		}},
		{"everything by FSDP", offloadFSDP, []way{
			in("", "fully_shard(..., offload_policy=CPUOffloadPolicy())"),
			in("hf-trainer", `--fsdp "full_shard auto_wrap offload"`),
			in("accelerate", "accelerate launch --use_fsdp --fsdp_offload_params true"),
			in("fsdp", "fully_shard(..., offload_policy=CPUOffloadPolicy())"+fsdp1),
			in("axolotl", "offload_params: true in fsdp_config"),
			in("torchtune", "fsdp_cpu_offload=True (distributed recipes)"),
			in("torchtitan", "--training.enable_cpu_offload"),
			in("lightning", "FSDPStrategy(cpu_offload=True)"),
			in("verl", "actor_rollout_ref.actor.strategy=fsdp2 "+
				"actor_rollout_ref.actor.fsdp_config.offload_policy=True"),
		}},
	}
}

func parallelOptions() []Option {
	return []Option{{"tensor", splitTensors, []way{
		in("", "torch.distributed.tensor.parallel.parallelize_module, or pipelines of torch.distributed.pipelining; "+
			"or a GPU with more memory"),
		in("hf-trainer", `from_pretrained(..., tp_plan="auto") under torchrun`),
		in("accelerate", "accelerate launch --use_parallelism_config --parallelism_config_tp_size {tp}"),
		in("deepspeed", `"tensor_parallel": {"autotp_size": {tp}}, or deepspeed.pipe.PipelineModule`),
		in("axolotl", "tensor_parallel_size: {tp}"),
		in("torchtune", "tensor_parallel_dim={tp} with a tensor_parallel_plan (distributed recipes)"),
		in("torchtitan", "--parallelism.tensor_parallel_degree {tp}, or --parallelism.pipeline_parallel_degree {tp}"),
		in("megatron", "--tensor-model-parallel-size {tp} --sequence-parallel, or --pipeline-model-parallel-size {tp}"),
		in("lightning", "Trainer(strategy=ModelParallelStrategy(tensor_parallel_size={tp})) with parallelize_module "+
			"in configure_model"),
		in("nanotron", "parallelism.tp: {tp}, with parallelism.dp so much smaller"),
		in("openrlhf", "--ds.tensor_parallel_size {tp}").since("0.10"),
		in("openrlhf", "--ds_tensor_parallel_size {tp}").before("0.10"),
	}}}
}
