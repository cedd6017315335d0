package job

import "slices"

// llamafactoryRefusals are the checks of hparams/parser.py and hparams/finetuning_args.py (0.9.3 to 0.9.5).
func llamafactoryRefusals() []refusal {
	is := func(field, value string) func(*reader) bool {
		return func(r *reader) bool { return r.args[field].text == value }
	}
	both := func(tests ...func(*reader) bool) func(*reader) bool {
		return func(r *reader) bool {
			return !slices.ContainsFunc(tests, func(test func(*reader) bool) bool { return !test(r) })
		}
	}
	on := func(field string) func(*reader) bool { return func(r *reader) bool { return r.on(field) } }
	given := func(field string) func(*reader) bool {
		return func(r *reader) bool { return r.args[field].text != "" }
	}
	lora := func(r *reader) bool { return r.adapter.use.Value }
	full := func(r *reader) bool {
		return r.adapter.use.Known && !r.adapter.use.Value && r.job.Method.Value != "oft"
	}
	zero3 := func(r *reader) bool { return r.job.Sharding.Value == "zero3" }
	several := func(r *reader) bool { return r.job.WorldSize.Value > 1 }
	replaced := func(r *reader) bool { return r.on("use_galore") || r.on("use_apollo") || r.on("use_badam") }
	list := []refusal{
		{"quantization_bit", "ValueError: Quantization is only compatible with the LoRA or OFT method.",
			"use finetuning_type lora, or drop quantization_bit", both(given("quantization_bit"), full)},
		{"quantization_device_map", "ValueError: Cannot use device map for quantized models in training.",
			"drop quantization_device_map", is("quantization_device_map", "auto")},
		{"adapter_name_or_path", "ValueError: Adapter is only valid for the LoRA method.", "use finetuning_type lora",
			both(given("adapter_name_or_path"), full)},
		{"pure_bf16", "ValueError: `pure_bf16` is incompatible with DeepSpeed ZeRO-3.",
			"drop pure_bf16 (bf16: true), or use ZeRO-2", both(on("pure_bf16"), zero3)},
		{"use_unsloth", "ValueError: Unsloth is incompatible with DeepSpeed ZeRO-3.", "drop one of them",
			both(on("use_unsloth"), zero3)},
		{"pissa_init", "ValueError: Please use scripts/pissa_init.py to initialize PiSSA in DeepSpeed ZeRO-3.",
			"prepare the weights with that script", both(on("pissa_init"), zero3)},
		{"pissa_init", "ValueError: Please use scripts/pissa_init.py to initialize PiSSA for a quantized model.",
			"prepare the weights with that script", both(on("pissa_init"), given("quantization_bit"))},
		{"predict_with_generate", "ValueError: `predict_with_generate` is incompatible with DeepSpeed ZeRO-3.",
			"drop one of them", both(on("predict_with_generate"), zero3)},
		{"use_galore", "ValueError: Cannot use LoRA with GaLore, APOLLO or BAdam together.", "use finetuning_type full",
			both(replaced, lora)},
		{"galore_layerwise", "ValueError: Distributed training does not support layer-wise GaLore.",
			"set galore_layerwise to false", both(on("use_galore"), on("galore_layerwise"), several)},
		{"apollo_layerwise", "ValueError: Distributed training does not support layer-wise APOLLO.",
			"set apollo_layerwise to false", both(on("use_apollo"), on("apollo_layerwise"), several)},
		{"use_badam", "ValueError: Layer-wise BAdam only supports DeepSpeed ZeRO-3 training.", "use ZeRO-3",
			func(r *reader) bool { return r.on("use_badam") && several(r) && !zero3(r) }},
		{"deepspeed", "ValueError: GaLore and APOLLO are incompatible with DeepSpeed yet.", "drop one of them",
			func(r *reader) bool { return r.deepspeed != nil && (r.on("use_galore") || r.on("use_apollo")) }},
		{"deepspeed", "ValueError: Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training.", "set FORCE_TORCHRUN=1",
			func(r *reader) bool {
				return r.deepspeed != nil && r.job.WorldSize.Value == 1 && !r.enabled("FORCE_TORCHRUN") &&
					(r.job.Launcher.Value == "python" || r.job.Launcher.Value == "llamafactory-cli")
			}},
		{"stage", "ValueError: Please launch distributed training with `llamafactory-cli` or `torchrun`.",
			"start it with llamafactory-cli train",
			func(r *reader) bool { return r.job.Launcher.Value == "python" && r.visibleGPUs() > 1 }},
		{"fp8", "ValueError: FP8 training is not compatible with quantization.", "drop one of them",
			both(on("fp8"), given("quantization_bit"))},
		{"neat_packing", "ValueError: `neat_packing` cannot be set as True except SFT.", "use the stage sft",
			func(r *reader) bool { return r.on("neat_packing") && r.job.Task.Value != "sft" }},
		{"stage", "ValueError: `reward_model` is necessary for PPO training.", "name a reward_model",
			func(r *reader) bool { return r.job.Task.Value == "ppo" && r.args["reward_model"].text == "" }},
		{"load_best_model_at_end", "ValueError: RM and PPO stages do not support `load_best_model_at_end`.", "drop it",
			func(r *reader) bool {
				return r.on("load_best_model_at_end") && (r.job.Task.Value == "rm" || r.job.Task.Value == "ppo")
			}},
		{"use_llama_pro", "ValueError: `use_llama_pro` is only valid for Freeze or LoRA training.", "drop it",
			both(on("use_llama_pro"), is("finetuning_type", "full"))},
	}
	for _, field := range []string{"use_dora", "use_rslora", "pissa_init"} {
		list = append(list, refusal{field, "ValueError: `" + field + "` is only valid for LoRA training.",
			"use finetuning_type lora", both(on(field), full)})
	}
	return list
}
