package optim

const (
	torchAdam = "torch/optim/adam.py: zeros_like(param) twice; foreach makes one list more"
	bnb       = "bitsandbytes/optim/optimizer.py: blocks of 256, fp32 below 4096 elements; one kernel a tensor"
	bnb32     = "bitsandbytes/optim/optimizer.py: optim_bits 32 is fp32 whatever the weights are; one kernel a tensor"
	paged     = "; tensors of 1e5 elements and more in managed memory, which may move to the host"
	torchao   = "torchao/optim/adam.py: blocks of 256 under Trainer; the compiled step is estimated"
	galore    = "galore_torch: galore_projector.py, adamw.py"
	schedule  = "schedulefree: a second sequence z, and exp_avg_sq for Adam"
)

// The known optimizers: to add one, add a row. Nearly all were run (preflight/estimate/lab/optimizers.py,
// TestRealOptimizers).
var optimizers = []Optimizer{
	{
		Name: "adamw", Title: "AdamW of PyTorch in the implementation that it chooses itself",
		words: words{
			Trainer: "adamw_torch adamw_torch_xla", Class: "torch.optim.AdamW torch.optim.Adam", Axolotl: "adopt_adamw",
			DeepSpeed: "adam adamw", Megatron: "adam", Nanotron: "adamw",
		},
		forms: forms{Fused: "adamw_fused", Loop: "adamw_loop", EightBit: "adamw_8bit", Host: "cpu_adam"},
		state: adamState, step: lists(1), EmptyStep: 8, source: torchAdam,
	},
	{
		Name: "adam", Title: "Adam of PyTorch, which adds the weight decay to the gradient",
		forms: forms{Fused: "adamw_fused", EightBit: "adamw_8bit", Host: "cpu_adam"},
		state: adamState, step: lists(1), EmptyStep: 12, source: torchAdam,
	},
	{
		Name: "adamw_foreach", Title: "AdamW of PyTorch, all tensors at once",
		forms: forms{Fused: "adamw_fused", Loop: "adamw_loop", EightBit: "adamw_8bit", Host: "cpu_adam"},
		state: adamState, step: onlyLists(1), EmptyStep: 8, source: torchAdam,
	},
	{
		Name: "adamw_fused", Title: "AdamW in one kernel, of PyTorch, Apex or DeepSpeed",
		words: words{
			Trainer: "adamw_torch_fused adamw_torch_npu_fused adamw_apex_fused",
			Class:   "deepspeed.ops.adam.FusedAdam apex.optimizers.FusedAdam",
		},
		forms: forms{EightBit: "adamw_8bit", Host: "cpu_adam"},
		state: adamState, step: none, source: "torch/optim/adam.py: fused kernel, no intermediate",
	},
	{
		Name: "adamw_loop", Title: "AdamW, one tensor after the other",
		words: words{Trainer: "adamw_hf", Class: "transformers.AdamW"}, // which was transformers' own, before 4.57
		forms: forms{Fused: "adamw_fused", EightBit: "adamw_8bit", Host: "cpu_adam"},
		state: adamState, step: one(2), EmptyStep: 8,
		source: "torch/optim/adam.py: the root and the denominator of one tensor",
	},
	{
		Name: "adamw_anyprecision", Title: "AdamW of torchdistx",
		words: words{Trainer: "adamw_anyprecision"},
		state: fixed(8), step: one(2), Rough: true, source: "torchdistx: fp32 moments by Trainer's default",
	},
	{
		Name: "adamw_8bit", Title: "bitsandbytes' 8-bit AdamW",
		words: words{
			Trainer: "adamw_bnb_8bit adamw_8bit", Class: "bitsandbytes.optim.AdamW8bit bitsandbytes.optim.Adam8bit",
		},
		state: blockState(2), step: none, embeddings32: 8, source: bnb,
	},
	{
		Name: "adamw_bnb", Title: "bitsandbytes' AdamW with fp32 states",
		words: words{
			Class: "bitsandbytes.optim.AdamW bitsandbytes.optim.AdamW32bit bitsandbytes.optim.Adam " +
				"bitsandbytes.optim.Adam32bit",
		},
		forms: forms{EightBit: "adamw_8bit"},
		state: fixed(8), step: none, source: bnb32,
	},
	{
		Name: "paged_adamw", Title: "bitsandbytes' AdamW with paged fp32 states",
		words: words{
			Trainer: "paged_adamw_32bit",
			Class: `bitsandbytes.optim.PagedAdamW bitsandbytes.optim.PagedAdamW32bit
				bitsandbytes.optim.PagedAdam bitsandbytes.optim.PagedAdam32bit`,
		},
		forms: forms{EightBit: "adamw_8bit"},
		state: fixed(8), step: none, Paged: true, source: bnb32 + paged,
	},
	{
		Name: "paged_adamw_8bit", Title: "bitsandbytes' 8-bit AdamW with paged states",
		words: words{
			Trainer: "paged_adamw_8bit", Class: "bitsandbytes.optim.PagedAdamW8bit bitsandbytes.optim.PagedAdam8bit",
		},
		state: blockState(2), step: none, embeddings32: 8, Paged: true, source: bnb + paged,
	},
	{
		Name: "adamw_torch_8bit", Title: "torchao's AdamW with 8-bit states",
		words: words{
			Trainer: "adamw_torch_8bit", Axolotl: "ao_adamw_8bit ao_adamw_fp8",
			Class: "torchao.optim.AdamW8bit torchao.optim.Adam8bit torchao.optim.AdamWFp8 torchao.optim.AdamFp8",
		},
		state: torchaoState(8), step: one(2), Rough: true, source: torchao,
	},
	{
		Name: "adamw_4bit", Title: "torchao's AdamW with 4-bit states",
		words: words{
			Trainer: "adamw_torch_4bit", Axolotl: "ao_adamw_4bit",
			Class: "torchao.optim.AdamW4bit torchao.optim.Adam4bit",
		},
		state: torchaoState(4), step: one(2), Rough: true, source: torchao,
	},
	{
		Name: "cpu_adam", Title: "DeepSpeed's Adam on the host",
		words: words{Class: "deepspeed.ops.adam.DeepSpeedCPUAdam torchao.optim.CPUOffloadOptimizer"},
		state: adamState, step: none, OnHost: true, source: "DeepSpeedCPUAdam: updates on the host",
	},
	{
		Name: "lamb", Title: "LAMB of Apex or DeepSpeed",
		words: words{DeepSpeed: "lamb", Class: "apex.optimizers.FusedLAMB deepspeed.ops.lamb.FusedLamb"},
		state: adamState, step: one(2), Rough: true, source: "You et al. 2020: Adam's moments",
	},
	{
		Name: "stable_adamw", Title: "StableAdamW of optimi",
		words: words{Trainer: "stable_adamw", Class: "optimi.StableAdamW"},
		state: kahanState, step: lists(1), Rough: true,
		source: "optimi/stableadamw.py: a compensation for 16-bit weights",
	},
	{
		Name: "adamw_optimi", Title: "AdamW of optimi, one tensor after the other",
		words: words{Axolotl: "optimi_adamw", Class: "optimi.AdamW"},
		state: kahanState, step: one(1),
		source: "optimi/adamw.py: a compensation for 16-bit weights; foreach is off in axolotl",
	},
	{
		Name: "grokadamw", Title: "GrokAdamW",
		words: words{Trainer: "grokadamw", Class: "grokadamw.GrokAdamW"},
		state: noState, step: one(6), Rough: true,
		source: "grokadamw.py: states live on the host; one tensor's three visit",
	},
	{
		Name: "schedule_free_adamw", Title: "schedule-free AdamW",
		words: words{Trainer: "schedule_free_adamw", Class: "schedulefree.AdamWScheduleFree"},
		state: adamState, step: lists(1), Rough: true, source: schedule,
	},
	{
		Name: "schedule_free_radam", Title: "schedule-free RAdam",
		words: words{Trainer: "schedule_free_radam", Class: "schedulefree.RAdamScheduleFree"},
		state: adamState, step: lists(1), Rough: true, source: schedule,
	},
	{
		Name: "schedule_free_sgd", Title: "schedule-free SGD",
		words: words{Trainer: "schedule_free_sgd", Class: "schedulefree.SGDScheduleFree"},
		state: oneState, step: none, Rough: true, source: schedule,
	},
	{
		Name: "adafactor", Title: "Adafactor of transformers",
		words: words{Trainer: "adafactor", Class: "transformers.Adafactor"},
		state: factoredState, step: oneWide(8, 16), Rough: true,
		source: "transformers/optimization.py: fp32 row and column means",
	},
	{
		Name: "adafactor_torch", Title: "Adafactor of PyTorch",
		words: words{Class: "torch.optim.Adafactor"},
		state: factoredOwnWidth, step: one(1), Rough: true,
		source: "torch/optim/_adafactor.py: row and column means of the gradient's dtype",
	},
	{
		Name: "lion", Title: "bitsandbytes' Lion",
		words: words{
			Trainer: "lion_32bit", Class: "bitsandbytes.optim.Lion bitsandbytes.optim.Lion32bit " +
				"deepspeed.ops.lion.FusedLion", DeepSpeed: "lion",
		},
		forms: forms{EightBit: "lion_8bit"},
		state: fixed(4), step: none, source: bnb32,
	},
	{
		Name: "lion_pytorch", Title: "Lion of lion-pytorch, one tensor after the other",
		words: words{Axolotl: "lion_pytorch", Class: "lion_pytorch.Lion", Megatron: "lion"},
		forms: forms{EightBit: "lion_8bit"},
		state: oneState, step: one(2), source: "lion_pytorch/lion_pytorch.py: exp_avg of the parameter's dtype; its " +
			"copy and the update",
	},
	{
		Name: "lion_8bit", Title: "bitsandbytes' 8-bit Lion",
		words: words{Trainer: "lion_8bit", Class: "bitsandbytes.optim.Lion8bit"},
		state: blockState(1), step: none, embeddings32: 4, source: bnb,
	},
	{
		Name: "paged_lion", Title: "bitsandbytes' Lion with paged states",
		words: words{Trainer: "paged_lion_32bit",
			Class: "bitsandbytes.optim.PagedLion bitsandbytes.optim.PagedLion32bit"},
		forms: forms{EightBit: "paged_lion_8bit"},
		state: fixed(4), step: none, Paged: true, source: bnb32 + paged,
	},
	{
		Name: "paged_lion_8bit", Title: "bitsandbytes' 8-bit Lion with paged states",
		words: words{Trainer: "paged_lion_8bit", Class: "bitsandbytes.optim.PagedLion8bit"},
		state: blockState(1), step: none, embeddings32: 4, Paged: true, source: bnb + paged,
	},
	{
		Name: "ademamix", Title: "bitsandbytes' AdEMAMix",
		words: words{Trainer: "ademamix", Class: "bitsandbytes.optim.AdEMAMix bitsandbytes.optim.AdEMAMix32bit"},
		forms: forms{EightBit: "ademamix_8bit"},
		state: fixed(12), step: none, source: "bitsandbytes/optim/ademamix.py: two fp32 averages and the squares",
	},
	{
		Name: "ademamix_8bit", Title: "bitsandbytes' 8-bit AdEMAMix",
		words: words{Trainer: "ademamix_8bit", Class: "bitsandbytes.optim.AdEMAMix8bit"},
		state: blockState(3), step: none, embeddings32: 12, source: bnb,
	},
	{
		Name: "paged_ademamix", Title: "bitsandbytes' AdEMAMix with paged states",
		words: words{
			Trainer: "paged_ademamix_32bit",
			Class:   "bitsandbytes.optim.PagedAdEMAMix bitsandbytes.optim.PagedAdEMAMix32bit",
		},
		forms: forms{EightBit: "paged_ademamix_8bit"},
		state: fixed(12), step: none, Paged: true, source: bnb32 + paged,
	},
	{
		Name: "paged_ademamix_8bit", Title: "bitsandbytes' 8-bit AdEMAMix with paged states",
		words: words{Trainer: "paged_ademamix_8bit", Class: "bitsandbytes.optim.PagedAdEMAMix8bit"},
		state: blockState(3), step: none, embeddings32: 12, Paged: true, source: bnb + paged,
	},
	{
		Name: "sgd", Title: "SGD",
		words: words{Trainer: "sgd", Class: "torch.optim.SGD", Megatron: "sgd", Nanotron: "sgd"},
		forms: forms{Momentum: "sgd_momentum"},
		state: noState, step: none, source: "torch/optim/sgd.py: no state without momentum",
	},
	{
		Name: "sgd_momentum", Title: "SGD with a momentum",
		state: oneState, step: none, source: "torch/optim/sgd.py: momentum_buffer of the parameter's dtype",
	},
	{
		Name: "nadam", Title: "NAdam of PyTorch",
		words: words{Class: "torch.optim.NAdam"},
		state: adamState, step: lists(1), source: "torch/optim/nadam.py: exp_avg, exp_avg_sq",
	},
	{
		Name: "radam", Title: "RAdam of PyTorch",
		words: words{Class: "torch.optim.RAdam"},
		state: adamState, step: lists(1), source: "torch/optim/radam.py: exp_avg, exp_avg_sq",
	},
	{
		Name: "adamax", Title: "Adamax of PyTorch",
		words: words{Class: "torch.optim.Adamax"},
		state: adamState, step: lists(1), source: "torch/optim/adamax.py: exp_avg, exp_inf",
	},
	{
		Name: "adadelta", Title: "Adadelta of PyTorch",
		words: words{Class: "torch.optim.Adadelta"},
		state: adamState, step: lists(2), source: "torch/optim/adadelta.py: square_avg, acc_delta",
	},
	{
		Name: "asgd", Title: "averaged SGD of PyTorch",
		words: words{Class: "torch.optim.ASGD"},
		state: oneState, step: lists(1), source: "torch/optim/asgd.py: ax",
	},
	{
		Name: "adagrad", Title: "Adagrad of PyTorch",
		words: words{Trainer: "adagrad", Class: "torch.optim.Adagrad", DeepSpeed: "adagrad"},
		state: oneState, step: lists(2), source: "torch/optim/adagrad.py: one sum; two lists in a step",
	},
	{
		Name: "rmsprop", Title: "RMSprop of PyTorch",
		words: words{Trainer: "rmsprop", Class: "torch.optim.RMSprop"},
		forms: forms{EightBit: "rmsprop_8bit"},
		state: oneState, step: lists(1), source: "torch/optim/rmsprop.py: square_avg",
	},
	{
		Name: "rmsprop_bnb", Title: "bitsandbytes' RMSprop",
		words: words{
			Trainer: "rmsprop_bnb rmsprop_bnb_32bit",
			Class:   "bitsandbytes.optim.RMSprop bitsandbytes.optim.RMSprop32bit",
		},
		forms: forms{EightBit: "rmsprop_8bit"},
		state: fixed(4), step: none, source: bnb32,
	},
	{
		Name: "rmsprop_8bit", Title: "bitsandbytes' 8-bit RMSprop",
		words: words{Trainer: "rmsprop_bnb_8bit", Class: "bitsandbytes.optim.RMSprop8bit"},
		state: blockState(1), step: none, embeddings32: 4, source: bnb,
	},
	{
		Name: "muon", Title: "Muon for hidden matrices, AdamW for all else",
		words: words{
			Axolotl: "muon", Class: "torch.optim.Muon", DeepSpeed: "muon", Megatron: "muon dist_muon adaptive_muon",
			LLaMAFactory: "use_muon",
		},
		state: muonState, step: muonTemporaries, Rough: true,
		source: "torch/optim/_muon.py for hidden matrices, AdamW for all else",
	},
	{
		Name: "galore_adamw", Title: "AdamW on GaLore's projections",
		words: words{Trainer: "galore_adamw", Class: "galore_torch.GaLoreAdamW", LLaMAFactory: "use_galore"},
		state: galoreState, step: galoreTemporaries, Projects: true, Rough: true, source: galore,
	},
	{
		Name: "galore_adamw_8bit", Title: "8-bit AdamW on GaLore's projections",
		words: words{Trainer: "galore_adamw_8bit", Axolotl: "q_galore_adamw8bit",
			Class: "galore_torch.GaLoreAdamW8bit"},
		state: galore8bitState, step: galoreTemporaries, Projects: true, Rough: true, source: galore + "; " + bnb,
	},
	{
		Name: "galore_adafactor", Title: "Adafactor on GaLore's projections",
		words: words{Trainer: "galore_adafactor", Class: "galore_torch.GaLoreAdafactor"},
		state: galoreFactoredState, step: galoreFactoredTemporaries, Projects: true, Rough: true, source: galore,
	},
	{
		Name: "apollo_adamw", Title: "APOLLO: AdamW scaled by random projections",
		words: words{Trainer: "apollo_adamw", Class: "apollo_torch.APOLLOAdamW", LLaMAFactory: "use_apollo"},
		state: apolloState, step: lowRank(lowRankStep, one(2)), Projects: true, Rough: true,
		source: "apollo_torch: apollo.py, random_projector.py",
	},
	{
		Name: "lomo", Title: "LOMO",
		words: words{Trainer: "lomo", Class: "lomo_optim.Lomo"},
		state: noState, step: oneWide(0, 6), InBackward: 2, Rough: true,
		source: "lomo_optim/lomo.py: fp32 copies of a 16-bit weight and its gradient",
	},
	{
		Name: "adalomo", Title: "AdaLOMO",
		words: words{Trainer: "adalomo", Class: "lomo_optim.AdaLomo"},
		state: factoredState, step: oneWide(8, 10), InBackward: 2, Rough: true, source: "lomo_optim/adalomo.py",
	},
}
