package remedy

// jobRows are the remedies that change a job, in order of their rank: what changes nothing but speed comes first, what
// changes the model's result or needs other hardware last.
func jobRows() []Row {
	step := []string{"capacity", "fragmentation", "activation", "logits-loss", "single-huge-allocation", "nccl-oom",
		"cublas-alloc-failed", "hip/rocm", "mps/xpu"}
	states := []string{"capacity", "fragmentation", "optimizer-init", "model-load", "activation", "logits-loss",
		"nccl-oom", "cublas-alloc-failed", "hip/rocm"}
	inPass := []string{"activations", "logits"}
	kept := []string{"parameters", "master_weights", "gradients", "optimizer"}
	return []Row{
		{
			ID: "amp", Title: "mixed precision", Components: inPass,
			Causes: append([]string{"optimizer-init", "model-load"}, step...),
			Why:    "16-bit activations and logits take half of what 32-bit ones take",
			Price: Price{1, "none in speed on GPUs with tensor cores, mostly it is faster",
				"bf16 keeps 8 bits of precision, fp16 needs loss scaling",
				"Micikevicius et al. 2018 (Mixed Precision Training)"},
			Options: ampOptions(),
		},
		{
			ID: "fused-loss", Title: "fused or chunked loss", Components: []string{"logits"},
			Causes: []string{"logits-loss", "activation", "capacity", "single-huge-allocation"},
			Why:    "logits of batch x sequence x vocabulary exist several times over in the loss, often in 32 bits",
			Price: Price{1, "none, often it is faster; another package", "",
				"Hsu et al. 2024 (Liger Kernel), Wijmans et al. 2024 (Cut Your Losses)"},
			Options: fusedLossOptions(),
		},
		{
			ID: "grad-accum", Title: "smaller micro-batch", Components: inPass, Causes: step,
			Why: "activations grow with the micro-batch; accumulation keeps the global batch",
			Price: Price{2, "some speed, as kernels get smaller",
				"the same result for the same global batch, batch norm aside",
				"the gradient of a sum is the sum of the gradients"},
			Options: accumulationOptions(),
		},
		{
			ID: "checkpointing", Title: "activation checkpointing", Components: []string{"activations"}, Causes: step,
			Why: "recomputing activations in backward keeps one layer's instead of all",
			Price: Price{4, "about a third more compute (one more forward pass)", "the result is the same",
				"Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost)"},
			Options: checkpointingOptions(),
		},
		{
			ID: "sharding", Title: "sharing model states", Components: kept, Causes: states,
			Why: "optimizer state, gradients and weights need not be whole on every GPU",
			Price: Price{4, "needs several GPUs; ZeRO-1 and 2 cost next to nothing, ZeRO-3 and full sharding 1.5 " +
				"times the communication", "",
				"Rajbhandari et al. 2020 (ZeRO)"},
			Options: shardingOptions(),
		},
		{
			ID: "optimizer-8bit", Title: "8-bit optimizer", Components: []string{"optimizer"},
			Causes: []string{"capacity", "optimizer-init", "activation", "fragmentation"},
			Why:    "Adam's two 32-bit moments take 8 bytes a parameter, 8-bit ones 2",
			Price: Price{6, "no speed to speak of", "states are quantised in blocks, so results are close, not equal",
				"Dettmers et al. 2022 (8-bit Optimizers via Block-wise Quantization)"},
			// on the host DeepSpeed accepts its own Adam alone (zero_force_ds_cpu_optimizer); bitsandbytes works on a
			// GPU
			Conflicts: []string{"offload"},
			Options:   eightBitOptions(),
		},
		{
			ID: "offload", Title: "offloading to the host", Components: kept, Causes: states,
			Why: "host memory can hold optimizer state and weights",
			Price: Price{12, "transfers over PCIe in every step, often 1.5 times to several times slower; as much " +
				"host memory", "",
				"Ren et al. 2021 (ZeRO-Offload)"},
			Options: offloadOptions(),
		},
		{
			ID: "model-parallel", Title: "tensor parallelism", Components: kept, Causes: states,
			Why: "layers or the insides of layers can be spread over several GPUs",
			Price: Price{20, "several GPUs with fast links, communication in every layer, changes to the code", "",
				"Shoeybi et al. 2019 (Megatron-LM)"},
			Options: parallelOptions(),
		},
		{
			ID: "lora", Title: "LoRA", Components: kept,
			Causes: []string{"capacity", "optimizer-init", "activation", "model-load", "logits-loss"},
			Why:    "with adapters there are gradients and optimizer state for about 1 % of the weights",
			Price: Price{40, "another training",
				"fewer weights learn, which is enough for many fine-tunings and not for pretraining",
				"Hu et al. 2021 (LoRA), Biderman et al. 2024 (LoRA Learns Less and Forgets Less)"},
			Options: loraOptions(),
		},
		{
			ID: "shorter-seq", Title: "shorter sequences", Components: inPass,
			Causes: append(append([]string{}, step...), "optimizer-init", "model-load", "eval-generate"),
			Why:    "activations and logits grow with the sequence; this changes what the model sees, so it comes last",
			Price: Price{60, "none in speed", "long samples are cut",
				"what is cut off is not learned"},
			Options: lengthOptions(),
		},
	}
}
