package remedy

// How the remedies for what lives in forward and backward are written. The keys are those that the readers of
// preflight/job know from the frameworks' sources; TestRemedyKeys tries them there.

func ampOptions() []Option {
	return []Option{
		{"autocast", autocast, []way{
			in("", `run forward and loss under torch.autocast("cuda", dtype=torch.bfloat16)`),
			in("hf-trainer", "--bf16 True (Ampere, RTX 30 or newer; older GPUs: --fp16 True)"),
			in("accelerate", "accelerate launch --mixed_precision bf16"),
			in("fsdp", "fully_shard(..., mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, "+
				"reduce_dtype=torch.float32)); "+
				"FSDP 1: mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"),
			in("axolotl", "bf16: auto"),
			in("llamafactory", "bf16: true"),
			in("torchtitan", "--training.mixed_precision_param bfloat16"),
			in("litgpt", "--precision bf16-mixed"),
			in("lightning", `Trainer(precision="bf16-mixed")`),
			in("open-instruct", "accelerate launch --mixed_precision bf16"),
			in("verl", "actor_rollout_ref.actor.fsdp_config.dtype=bfloat16"),
		}},
		{"with master weights", halfWithMaster, []way{
			in("deepspeed", `"bf16": {"enabled": true} in the DeepSpeed configuration`),
			in("megatron", "--bf16"),
			in("nanotron", "model.dtype: bfloat16 with optimizer.accumulate_grad_in_fp32: true"),
			in("openrlhf", "--ds.param_dtype bf16").since("0.10"),
			in("openrlhf", "--bf16").before("0.10"),
		}},
		{"weights too", halfWeights, []way{
			in("torchtune", "dtype=bf16 (the weights too)"),
			in("litgpt", "--precision bf16-true (the weights too)"),
		}},
	}
}

func accumulationOptions() []Option {
	return []Option{{"accumulation", accumulate, []way{
		in("", "a DataLoader batch of {micro_batch}, (loss / {grad_accum}).backward() for {grad_accum} batches and "+
			"optimizer.step() once"),
		in("hf-trainer", "--per_device_train_batch_size {micro_batch} --gradient_accumulation_steps {grad_accum}"),
		in("accelerate", "a DataLoader batch of {micro_batch}, "+
			"Accelerator(gradient_accumulation_steps={grad_accum}) and with accelerator.accumulate(model):"),
		in("deepspeed", `"train_micro_batch_size_per_gpu": {micro_batch}, "gradient_accumulation_steps": {grad_accum}`),
		in("fsdp", "(loss / {grad_accum}).backward() for {grad_accum} smaller batches, without no_sync(): that "+
			"would keep whole gradients on every GPU"),
		in("axolotl", "micro_batch_size: {micro_batch} and gradient_accumulation_steps: {grad_accum}"),
		in("llamafactory", "per_device_train_batch_size: {micro_batch} and gradient_accumulation_steps: {grad_accum}"),
		in("torchtune", "batch_size={micro_batch} gradient_accumulation_steps={grad_accum}"),
		in("torchtitan", "--training.local_batch_size {micro_batch} with --training.global_batch_size as it is "+
			"(older: --training.batch_size {micro_batch})"),
		in("megatron", "--micro-batch-size {micro_batch} with --global-batch-size as it is"),
		in("litgpt", "--train.micro_batch_size {micro_batch} with --train.global_batch_size as it is"),
		in("lightning", "a DataLoader batch of {micro_batch} and Trainer(accumulate_grad_batches={grad_accum})"),
		in("nanotron", "tokens.micro_batch_size: {micro_batch} and "+
			"tokens.batch_accumulation_per_replica: {grad_accum}"),
		in("open-instruct", "--per_device_train_batch_size {micro_batch} --gradient_accumulation_steps {grad_accum}"),
		in("verl", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro_batch} (fine-tuning: "+
			"data.micro_batch_size_per_gpu={micro_batch})"),
		in("openrlhf", "--train.micro_batch_size {micro_batch} with --train.batch_size as it is").since("0.10"),
		in("openrlhf", "--micro_train_batch_size {micro_batch} with --train_batch_size as it is").before("0.10"),
	}}}
}

func checkpointingOptions() []Option {
	return []Option{
		{"attention", checkpointAttention, []way{
			in("megatron", "--recompute-activations (attention alone, a few percent of time)"),
		}},
		{"full", checkpointLayers, []way{
			in("", "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) around each layer; Hugging "+
				"Face models: model.gradient_checkpointing_enable()"),
			in("hf-trainer", "--gradient_checkpointing True"),
			in("accelerate", "model.gradient_checkpointing_enable() before prepare, or with FSDP accelerate launch "+
				"--fsdp_activation_checkpointing true"),
			in("deepspeed", "Hugging Face models: model.gradient_checkpointing_enable(); others: "+
				"deepspeed.checkpointing.checkpoint(layer, x) in the model "+
				"(the section activation_checkpointing alone switches nothing on)"),
			in("fsdp", "apply_activation_checkpointing(model, check_fn=...) of "+
				"torch.distributed.algorithms._checkpoint.checkpoint_wrapper, before fully_shard"),
			in("unsloth", `FastLanguageModel.get_peft_model(..., use_gradient_checkpointing="unsloth")`),
			in("axolotl", "gradient_checkpointing: true"),
			in("llamafactory", "it is on unless disable_gradient_checkpointing: true is set; remove that"),
			in("torchtune", "enable_activation_checkpointing=True"),
			in("torchtitan", "--activation_checkpoint.mode full"),
			in("megatron", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
			in("lightning", "Trainer(strategy=FSDPStrategy(activation_checkpointing_policy={Block})), or "+
				"torch.utils.checkpoint in the module"),
			in("nanotron", "parallelism.recompute_layer: true"),
			in("open-instruct", "--gradient_checkpointing"),
			in("verl", "actor_rollout_ref.model.enable_gradient_checkpointing=True (fine-tuning: "+
				"model.enable_gradient_checkpointing=True)"),
			in("openrlhf", "--model.gradient_checkpointing_enable "+
				"(PPO: --actor.gradient_checkpointing_enable)").since("0.10"),
			in("openrlhf", "--gradient_checkpointing").before("0.10"),
		}},
		{"by FSDP", only(severalProcesses, checkpointLayers), []way{
			in("litgpt", "finetune: --devices 2 or more, whose FSDP strategy checkpoints each block; there is no "+
				"flag for one device"),
		}},
	}
}

func fusedLossOptions() []Option {
	return []Option{
		{"chunked", lossOf("chunked"), []way{
			in("", "the loss in chunks of the sequence"),
			in("torchtune", "loss=torchtune.modules.loss.LinearCrossEntropyLoss (older: "+
				"torchtune.modules.loss.CEWithChunkedOutputLoss)"),
		}},
		{"chunked in fine-tuning", only(ofTask("sft"), lossOf("chunked")), []way{
			in("trl", "--loss_type chunked_nll").since("1.6"),
		}},
		{"chunked in reinforcement learning", only(ofTask("ppo", "grpo"), lossOf("chunked")), []way{
			in("verl", "actor_rollout_ref.model.use_fused_kernels=True"),
		}},
		{"cut", lossOf("cut-ce"), []way{
			in("", "linear_cross_entropy (cut-cross-entropy) in place of lm_head and cross_entropy"),
			in("axolotl", "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin] and "+
				"cut_cross_entropy: true"),
		}},
		{"liger loss", lossOf("liger-flce"), []way{
			in("", "LigerFusedLinearCrossEntropyLoss (liger-kernel) in place of lm_head and cross_entropy"),
		}},
		{"liger", ligerEverywhere, []way{ // one switch, for the layers' kernels too
			in("hf-trainer", "--use_liger_kernel True"),
			in("trl", "--use_liger_kernel True"),
			in("llamafactory", "enable_liger_kernel: true"),
			in("open-instruct", "--use_liger_kernel"),
		}},
		{"vocabulary-parallel", lossOf("native-fused"), []way{
			in("megatron", "--cross-entropy-loss-fusion (tensor parallelism splits the vocabulary as well)"),
		}},
	}
}

func lengthOptions() []Option {
	return []Option{{"length", shorten, []way{
		in("", "truncate in the tokenizer: tokenizer(..., max_length={seq_len}, truncation=True)"),
		in("hf-trainer", "truncate in the tokenizer (max_length={seq_len}, truncation=True); run_clm.py: "+
			"--block_size {seq_len}"),
		in("trl", "--max_length {seq_len}").since("0.20"),
		in("trl", "--max_seq_length {seq_len}").before("0.20"),
		in("unsloth", "FastLanguageModel.from_pretrained(max_seq_length={seq_len})"),
		in("axolotl", "sequence_len: {seq_len}"),
		in("llamafactory", "cutoff_len: {seq_len}"),
		in("torchtune", "tokenizer.max_seq_len={seq_len}"),
		in("torchtitan", "--training.seq_len {seq_len}"),
		in("megatron", "--seq-length {seq_len}"),
		in("litgpt", "--train.max_seq_length {seq_len}"),
		in("nanotron", "tokens.sequence_length: {seq_len}"),
		in("open-instruct", "--max_seq_length {seq_len} (GRPO: --pack_length {seq_len})"),
		in("verl", "data.max_prompt_length and data.max_response_length, together {seq_len} (fine-tuning: "+
			"data.max_length={seq_len})"),
		in("openrlhf", "--data.max_len {seq_len}").since("0.10"),
		in("openrlhf", "--max_len {seq_len}").before("0.10"),
	}}}
}
