package oom

import "strings"

// settings says how a general remedy is applied in each framework: the exact flag or key. "" is plain PyTorch. Names are those of explain's
// key framework. A framework that is built on another one and has no row takes that one's (see builtOn); "none" says that a framework has
// no such setting, and what there is instead.
//
// The keys are those that the readers of preflight/job know from the frameworks' sources.
type settings map[string]string

func settingsTable() map[string]settings {
	return map[string]settings{
		"amp": {
			"":             `run forward and loss under torch.autocast("cuda", dtype=torch.bfloat16)`,
			"hf-trainer":   "--bf16 True (Ampere, RTX 30 or newer; older GPUs: --fp16 True)",
			"accelerate":   "accelerate launch --mixed_precision bf16",
			"deepspeed":    `"bf16": {"enabled": true} in the DeepSpeed configuration`,
			"fsdp":         "fully_shard(..., mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)); FSDP 1: mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)",
			"axolotl":      "bf16: auto",
			"llamafactory": "bf16: true",
			"torchtune":    "dtype=bf16 (the weights too)",
			"torchtitan":   "--training.mixed_precision_param bfloat16",
			"megatron":     "--bf16",
			"litgpt":       "--precision bf16-mixed, or bf16-true for the weights too",
			"lightning":    `Trainer(precision="bf16-mixed")`,
		},
		"grad-accum": {
			"":             "halve the batch of the DataLoader, call (loss / N).backward() for N batches and optimizer.step() once",
			"hf-trainer":   "--per_device_train_batch_size 1 --gradient_accumulation_steps N",
			"accelerate":   "a smaller DataLoader batch, Accelerator(gradient_accumulation_steps=N) and with accelerator.accumulate(model):",
			"deepspeed":    `"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": N`,
			"fsdp":         "(loss / N).backward() for N smaller batches, without no_sync(): that would keep whole gradients on every GPU",
			"axolotl":      "micro_batch_size: 1 and gradient_accumulation_steps: N",
			"llamafactory": "per_device_train_batch_size: 1 and gradient_accumulation_steps: N",
			"torchtune":    "batch_size=1 gradient_accumulation_steps=N",
			"torchtitan":   "--training.local_batch_size 1 with --training.global_batch_size as it is (older: --training.batch_size 1)",
			"megatron":     "--micro-batch-size 1 with --global-batch-size as it is",
			"litgpt":       "--train.micro_batch_size 1 with --train.global_batch_size as it is",
			"lightning":    "a DataLoader batch of 1 and Trainer(accumulate_grad_batches=N)",
		},
		"checkpointing": {
			"":             "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) around each layer; Hugging Face models: model.gradient_checkpointing_enable()",
			"hf-trainer":   "--gradient_checkpointing True",
			"accelerate":   "model.gradient_checkpointing_enable() before prepare, or with FSDP accelerate launch --fsdp_activation_checkpointing true",
			"deepspeed":    "Hugging Face models: model.gradient_checkpointing_enable(); others: deepspeed.checkpointing.checkpoint(layer, x) in the model (the section activation_checkpointing alone switches nothing on)",
			"fsdp":         "apply_activation_checkpointing(model, check_fn=...) of torch.distributed.algorithms._checkpoint.checkpoint_wrapper, before fully_shard",
			"axolotl":      "gradient_checkpointing: true",
			"llamafactory": "it is on unless disable_gradient_checkpointing: true is set; remove that",
			"torchtune":    "enable_activation_checkpointing=True",
			"torchtitan":   "--activation_checkpoint.mode full",
			"megatron":     "--recompute-activations (attention alone, a few percent of time); then --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
			"litgpt":       "finetune: --devices 2 or more, whose FSDP strategy checkpoints each block; there is no flag for one device",
			"lightning":    "Trainer(strategy=FSDPStrategy(activation_checkpointing_policy={Block})), or torch.utils.checkpoint in the module",
		},
		"fused-loss": {
			"":             "LigerFusedLinearCrossEntropyLoss (liger-kernel) or linear_cross_entropy (cut-cross-entropy) in place of lm_head and cross_entropy, or the loss in chunks of the sequence",
			"hf-trainer":   "--use_liger_kernel True",
			"trl":          "--use_liger_kernel True, or with TRL 1.6 and newer --loss_type chunked_nll (its default for SFT)",
			"axolotl":      "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin] and cut_cross_entropy: true",
			"llamafactory": "enable_liger_kernel: true",
			"torchtune":    "loss=torchtune.modules.loss.LinearCrossEntropyLoss (older: torchtune.modules.loss.CEWithChunkedOutputLoss)",
			"torchtitan":   "none: its loss takes whole logits; with tensor parallelism the loss is computed on shards (leave parallelism.disable_loss_parallel off)",
			"megatron":     "--cross-entropy-loss-fusion (tensor parallelism splits the vocabulary as well)",
			"litgpt":       "none: LitGPT already takes the loss in chunks",
		},
		"sharding": {
			"":             "torch.distributed.fsdp.fully_shard on each block and the model; ZeroRedundancyOptimizer for the optimizer state alone",
			"hf-trainer":   `--deepspeed FILE with "zero_optimization": {"stage": 2}, then 3; or --fsdp "full_shard auto_wrap" (transformers 5.24: --fsdp true is enough)`,
			"accelerate":   "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP, or --use_deepspeed --zero_stage 3",
			"deepspeed":    `"zero_optimization": {"stage": 2}, then {"stage": 3}`,
			"fsdp":         "fully_shard(..., reshard_after_forward=True); FSDP 1: sharding_strategy=ShardingStrategy.FULL_SHARD with an auto_wrap_policy for each block",
			"axolotl":      "deepspeed: deepspeed_configs/zero2.json, then zero3.json; or fsdp_version: 2 with a section fsdp_config",
			"llamafactory": "deepspeed: examples/deepspeed/ds_z2_config.json, then ds_z3_config.json",
			"torchtune":    "tune run --nproc_per_node N full_finetune_distributed (FSDP 2) with fsdp_reshard_after_forward=True",
			"torchtitan":   "--parallelism.data_parallel_shard_degree -1 --parallelism.data_parallel_replicate_degree 1",
			"megatron":     "--use-distributed-optimizer; then --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
			"litgpt":       "--devices N: LitGPT shards with FSDP on more than one",
			"lightning":    `Trainer(strategy="fsdp"), or strategy="deepspeed_stage_2", then "deepspeed_stage_3"`,
		},
		"optimizer-8bit": {
			"":             "bitsandbytes.optim.AdamW8bit(model.parameters(), ...); against the temporaries of torch's own AdamW alone: foreach=False or fused=True",
			"hf-trainer":   "--optim adamw_bnb_8bit",
			"deepspeed":    `pass bitsandbytes.optim.AdamW8bit to deepspeed.initialize(optimizer=...) with "zero_allow_untested_optimizer": true`,
			"fsdp":         "torchao.optim.AdamW8bit, which knows the sharded tensors of FSDP 2",
			"axolotl":      "optimizer: adamw_bnb_8bit",
			"llamafactory": "optim: adamw_bnb_8bit",
			"torchtune":    "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit (single-device recipes), or optimizer_in_bwd=True, which keeps no gradients",
			"torchtitan":   "none: it has no 8-bit optimizer; share the states instead",
			"megatron":     "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8, with --use-distributed-optimizer",
			"litgpt":       "--optimizer.class_path bitsandbytes.optim.AdamW8bit (one device)",
			"lightning":    "return bitsandbytes.optim.AdamW8bit(...) from configure_optimizers",
		},
		"lora": {
			"":             `peft: get_peft_model(model, LoraConfig(r=16, target_modules="all-linear")); with 4-bit base weights: BitsAndBytesConfig(load_in_4bit=True) at from_pretrained`,
			"trl":          "--use_peft True --lora_r 16 (and --load_in_4bit True)",
			"axolotl":      "adapter: lora, lora_r: 16, lora_alpha: 32, lora_target_linear: true (4 bit: adapter: qlora and load_in_4bit: true)",
			"llamafactory": "finetuning_type: lora, lora_rank: 16, lora_target: all (4 bit: quantization_bit: 4)",
			"torchtune":    "the recipe lora_finetune_single_device or lora_finetune_distributed",
			"torchtitan":   "none: torchtitan trains all weights",
			"megatron":     "none: Megatron-LM trains all weights; NeMo and Megatron Bridge have adapters",
			"litgpt":       "litgpt finetune_lora --lora_r 16 (4 bit: --quantize bnb.nf4)",
		},
		"offload": {
			"":             "fully_shard(..., offload_policy=CPUOffloadPolicy())",
			"hf-trainer":   `--deepspeed FILE with "offload_optimizer": {"device": "cpu"} in zero_optimization (stage 3 also "offload_param"), or --fsdp "full_shard auto_wrap offload"`,
			"accelerate":   "accelerate launch --use_deepspeed --zero_stage 2 --offload_optimizer_device cpu, or --fsdp_offload_params true",
			"deepspeed":    `"offload_optimizer": {"device": "cpu"} in zero_optimization; with stage 3 also "offload_param": {"device": "cpu"}`,
			"fsdp":         "fully_shard(..., offload_policy=CPUOffloadPolicy()); FSDP 1: cpu_offload=CPUOffload(offload_params=True)",
			"axolotl":      "deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json, or offload_params: true in fsdp_config",
			"llamafactory": "deepspeed: examples/deepspeed/ds_z3_offload_config.json",
			"torchtune":    "fsdp_cpu_offload=True (distributed recipes)",
			"torchtitan":   "--training.enable_cpu_offload",
			"megatron":     "--optimizer-cpu-offload --use-precision-aware-optimizer, with --use-distributed-optimizer",
			"litgpt":       "none: the flag does not exist; FSDPStrategy(cpu_offload=True) has to be set in the recipe",
			"lightning":    `Trainer(strategy="deepspeed_stage_2_offload"), or FSDPStrategy(cpu_offload=True)`,
		},
		"model-parallel": {
			"":             "torch.distributed.tensor.parallel.parallelize_module, or pipelines of torch.distributed.pipelining; or a GPU with more memory",
			"hf-trainer":   `from_pretrained(..., tp_plan="auto") under torchrun`,
			"accelerate":   "accelerate launch --use_parallelism_config --parallelism_config_tp_size 2",
			"deepspeed":    `"tensor_parallel": {"autotp_size": 2}, or deepspeed.pipe.PipelineModule`,
			"axolotl":      "tensor_parallel_size: 2",
			"llamafactory": "none: use ZeRO-3, or a GPU with more memory",
			"torchtune":    "tensor_parallel_dim=2 with a tensor_parallel_plan (distributed recipes)",
			"torchtitan":   "--parallelism.tensor_parallel_degree 2, or --parallelism.pipeline_parallel_degree 2",
			"megatron":     "--tensor-model-parallel-size 2 --sequence-parallel, or --pipeline-model-parallel-size 2",
			"litgpt":       "none: its recipes shard with FSDP alone; use a GPU with more memory",
			"lightning":    "Trainer(strategy=ModelParallelStrategy(tensor_parallel_size=2)) with parallelize_module in configure_model",
		},
		"shorter-seq": {
			"":             "truncate in the tokenizer: tokenizer(..., max_length=N, truncation=True)",
			"hf-trainer":   "truncate in the tokenizer (max_length=N, truncation=True); run_clm.py: --block_size N",
			"trl":          "--max_length N (before TRL 0.20 --max_seq_length N)",
			"axolotl":      "sequence_len: N",
			"llamafactory": "cutoff_len: N",
			"torchtune":    "tokenizer.max_seq_len=N",
			"torchtitan":   "--training.seq_len N",
			"megatron":     "--seq-length N",
			"litgpt":       "--train.max_seq_length N",
		},
	}
}

// builtOn is whose settings a framework takes where it has no row of its own; "" is plain PyTorch.
func builtOn(framework string) string {
	return map[string]string{"trl": "hf-trainer", "unsloth": "trl", "open-instruct": "accelerate", "axolotl": "hf-trainer", "llamafactory": "hf-trainer"}[framework]
}

// frameworkTitles are the names that people know.
func frameworkTitle(name string) string {
	titles := map[string]string{
		"": "plain PyTorch", "hf-trainer": "Hugging Face Trainer", "trl": "TRL", "accelerate": "Accelerate", "deepspeed": "DeepSpeed", "fsdp": "FSDP", "axolotl": "axolotl",
		"llamafactory": "LLaMA-Factory", "torchtune": "torchtune", "torchtitan": "torchtitan", "megatron": "Megatron-LM", "litgpt": "LitGPT", "lightning": "Lightning", "unsloth": "Unsloth",
	}
	if t := titles[name]; t != "" {
		return t
	}
	return name
}

// setting finds the row of a framework or of what it is built on.
func (s settings) setting(framework string) (title, text string) {
	for name := framework; name != ""; name = builtOn(name) {
		if text := s[name]; text != "" {
			return frameworkTitle(name), text
		}
	}
	return frameworkTitle(""), s[""]
}

// apply says how a remedy is applied in the framework that was recognised, and in the engine beneath it; without one, in those that
// most people use.
func (q *inquest) apply(id string) string {
	table, framework := settingsTable()[id], q.framework()
	var parts []string
	add := func(name string) {
		title, text := table.setting(name)
		if rest, none := strings.CutPrefix(text, "none: "); none {
			text = "no setting for it (" + rest + ")"
		}
		if part := title + ": " + text; text != "" && !strings.Contains(strings.Join(parts, "\n"), part) {
			parts = append(parts, part)
		}
	}
	if framework == "" {
		for _, name := range []string{"hf-trainer", "deepspeed", ""} {
			add(name)
		}
		return strings.Join(parts, "; ")
	}
	add(framework)
	if e := q.engine(); e != "" && table[e] != "" {
		add(e)
	}
	return strings.Join(parts, "; ")
}
