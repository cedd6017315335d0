package job

import (
	"path/filepath"
	"strings"
)

// trlFields are the options of TRL's configurations beside those of TrainingArguments and ModelConfig.
func trlFields(r *reader) fieldSet {
	f := fieldSet{
		wordArgument: `max_prompt_length max_completion_length num_generations beta vllm_mode
			vllm_gpu_memory_utilization loss_type packing_strategy
			generation_batch_size steps_per_generation num_generations_eval teacher_model_name_or_path response_length
			dataset_name dataset_config lora_task_type model_revision model_init_kwargs reward_model_path
			sft_model_path`,
		boolArgument: `padding_free precompute_ref_log_probs reference_free force_use_ref_model use_liger_loss use_vllm
			vllm_enable_sleep_mode eval_packing
			sync_ref_model trust_remote_code`,
		listArgument: `reward_funcs lora_target_parameters`,
	}
	// BaseConfig's bf16 is Optional[bool] with the default None since 0.19 (trl/trainer/sft_config.py and its
	// siblings).
	if newer, known := r.atLeast("trl", 0, 19); known && newer {
		f[truthArgument] = "bf16"
	}
	return f
}

// trlHistory are the defaults of TRL's configurations, compared release by release over the tags v0.11 to v1.9 of
// trl/trainer/*_config.py.
func trlHistory() []fieldHistory {
	return []fieldHistory{
		{"bf16", "sft dpo kto grpo reward rm ppo orpo cpo gkd", since("false", "0.19=true")},
		{"bf16", "rloo", since("false", "0.22=true")},
		{"gradient_checkpointing", "", since("false", "0.22=true")},
		{"learning_rate", "sft", since("5e-5", "0.12=2e-5")},
		{"learning_rate", "dpo", since("5e-5", "0.12=1e-6")},
		{"learning_rate", "kto", since("5e-7", "0.12=1e-6")},
		{"learning_rate", "grpo rloo", since("1e-6")},
		{"learning_rate", "reward", since("5e-5", "0.24=1e-4")},
		{"packing", "", since("false")},
		{"activation_offloading", "", since("false")},
		{"max_length", "sft gkd", since("1024")}, // before 0.15 the tokenizer's longest, at most 1024
		{"max_length", "dpo kto reward rm orpo cpo", since("512", "0.14=1024")},
		{"loss_type", "sft", since("nll", "1.6=chunked_nll")},
		{"per_device_train_batch_size", "grpo", since("1", "0.15=8")},
		{"beta", "grpo", since("0.04", "0.19=0")},
		{"beta", "rloo", since("0.05")},
		{"num_generations", "grpo", since("8")},
		{"num_generations", "rloo", since("2")},
		{"max_prompt_length", "grpo", since("512", "0.26=")},
		{"max_prompt_length", "rloo", since("512", "0.27=")},
		{"max_completion_length", "grpo rloo", since("256", "1.10=512")},
		{"vllm_mode", "grpo rloo", since("server", "1.0=colocate")},
		{"vllm_gpu_memory_utilization", "grpo rloo", since("0.9", "0.18=0.3")},
	}
}

// trlRemoved are fields that a task's configuration lost.
func trlRemoved() map[string][]removedField {
	return map[string][]removedField{
		"sft":  {{"max_seq_length", "0.20", "--max_length"}, {"use_liger", "0.18", "--use_liger_kernel"}},
		"dpo":  {{"max_prompt_length", "0.29", "--max_length"}, {"use_liger_loss", "0.28", "--use_liger_kernel"}},
		"grpo": {{"max_prompt_length", "0.28", ""}, {"use_liger_loss", "0.28", "--use_liger_kernel"}},
		"rloo": {{"max_prompt_length", "0.29", ""}},
		"kto":  {{"max_prompt_length", "1.8", "--max_length"}, {"use_liger_loss", "1.8", "--use_liger_kernel"}},
		"":     {{"torch_dtype", "0.27", "--dtype"}},
	}
}

// trlLoadsPlainly reports whether a program of TRL hands nothing of ModelConfig but the name to from_pretrained: kto
// until 1.8 (its example still does), which loads the reference model itself too, and trl/scripts/reward.py from its
// first release 0.24 until 1.5.
func (r *reader) trlLoadsPlainly() (plainly bool, origin string) {
	if r.family.framework != "trl" || r.family.ownScript {
		return false, ""
	}
	script := "/" + filepath.ToSlash(r.job.Script.Value)
	example := strings.Contains(script, "/examples/scripts/")
	if !example && !strings.Contains(script, "/trl/scripts/") && isFile(r.path(r.job.Script.Value)) {
		return false, "" // a changed copy
	}
	until := map[string][]int{"kto": {1, 8}, "reward": {1, 5}}[r.family.program]
	switch {
	case until == nil, example && r.family.program == "reward":
		return false, ""
	case example:
		return true, "TRL's example " + filepath.Base(r.job.Script.Value) + " loads the model by its name alone"
	}
	later, known := r.atLeast("trl", until...)
	return known && !later, r.installed("trl") + "'s " + r.family.program + " script loads the model by its name alone"
}
