package job

import (
	"slices"
	"strings"
)

// A stranger is what strange found, for the words and kinds of options that were known then.
type stranger struct {
	words, kinds int
	framework    string
	option       string
}

// strange finds an option among the command's words of which nobody here has heard. It may say in other words what
// seems to be missing. A job with many contradictions asks often, so the answer is kept as long as it can be no other.
func (r *reader) strange() string {
	now := stranger{words: len(r.words), kinds: len(r.kinds), framework: r.family.framework}
	if found := r.stranger; found != nil && found.words == now.words && found.kinds == now.kinds &&
		found.framework == now.framework {
		return found.option
	}
	now.option = r.findStrange()
	r.stranger = &now
	return now.option
}

func (r *reader) findStrange() string {
	var known map[string]bool
	for _, word := range r.words {
		given, _, _ := strings.Cut(word, "=")
		if !strings.HasPrefix(given, "--") || given == "--" || strings.Contains(given, ".") {
			continue
		}
		if known == nil {
			known = r.knownOptions()
		}
		if name := plainName(given); !known[name] && !abbreviates(name, known) && !r.mentioned(name) {
			return given
		}
	}
	return ""
}

// abbreviates reports whether a name is the beginning of a known one, or negates one.
func abbreviates(name string, known map[string]bool) bool {
	if positive, negated := strings.CutPrefix(name, "no_"); negated && known[positive] {
		return true
	}
	for option := range known {
		if strings.HasPrefix(option, name) {
			return true
		}
	}
	return false
}

// knownOptions are the names of all options of which something is known here.
func (r *reader) knownOptions() map[string]bool {
	known := optionSet(strings.Join([]string{otherTrainingFields, scriptFields, launchFields, fileFields, scriptFlags,
		megatronFlags, megatronValues, megatronLists}, " "))
	for name := range r.argumentKinds() {
		known[name] = true
	}
	for name := range r.kinds {
		known[name] = true
	}
	for _, o := range slices.Concat(torchrunOptions(), accelerateOptions(), deepspeedOptions(), fabricOptions()) {
		for _, name := range o.names {
			known[plainName(name)] = true
		}
	}
	return known
}

// mentioned reports whether the script's own text has an option.
func (r *reader) mentioned(name string) bool {
	t := r.sourceText()
	return t != nil && slices.ContainsFunc(t.files, func(f *sourceFile) bool {
		return strings.Contains(f.raw, name) || strings.Contains(f.raw, strings.ReplaceAll(name, "_", "-"))
	})
}

// scriptFields are options of which no setting depends, by the names that they have in the examples of transformers and
// TRL, in scripts that follow them, and in Megatron-LM.
const scriptFields = `dataset_name dataset_config_name dataset_config dataset_text_field dataset_train_split
	dataset_test_split dataset_num_proc dataset_path
	dataset_dir dataset datasets dataset_mixer_list train_file train_files validation_file validation_files test_file
	validation_split_percentage max_train_samples max_eval_samples max_predict_samples max_samples
	preprocessing_num_workers tokenizer_name
	tokenizer_name_or_path tokenizer config_name token task_name source_lang target_lang source_prefix text_column
	summary_column
	max_source_length max_target_length val_max_target_length num_beams image_column_name label_column_name train_dir
	validation_dir
	audio_column_name train_split_name eval_split_name data_path data_file data_files data_dir eval_data_path
	conversation_template conv_style
	version output_path save_path exp_name experiment_name wandb_project wandb_entity wandb_run_name wandb_name
	checkpointing_steps
	num_warmup_steps max_train_steps num_workers epochs num_epochs lr min_lr seed local_rank local_world_size input_key
	output_key eval_dataset
	reward_funcs system_prompt temperature top_p top_k lora_task_type lora_dropout gradient_clipping train_iters
	train_samples lr_decay_style
	lr_decay_iters lr_decay_samples lr_warmup_iters lr_warmup_fraction lr_warmup_samples lr_wsd_decay_style split save
	load save_interval
	eval_interval eval_iters log_interval exit_interval exit_duration_in_mins tokenizer_model vocab_file merge_file
	clip_grad weight_decay
	adam_beta1 adam_beta2 adam_eps init_method_std tensorboard_dir tensorboard_queue_size wandb_exp_name wandb_save_dir
	distributed_backend
	distributed_timeout_minutes data_cache_path data_impl dataloader_type manual_gc_interval ckpt_format norm_epsilon
	rotary_base rotary_percent`

// scriptFlags are those that take no value.
const scriptFlags = `streaming dataset_streaming overwrite_cache keep_linebreaks use_fast_tokenizer use_slow_tokenizer
	use_auth_token trust_remote_code
	low_cpu_mem_usage pad_to_max_length ignore_pad_token_for_loss lazy_preprocess with_tracking do_sample
	apply_chat_template
	ignore_bias_buffers sanity_check no_remove_unused_columns log_throughput log_params_norm log_num_zeros_in_grad
	log_timers_to_tensorboard
	log_validation_ppl_to_tensorboard log_memory_to_tensorboard no_load_optim no_load_rng no_save_optim no_save_rng
	finetune mock_data
	no_create_attention_mask_in_dataloader no_mmap_bin_files use_checkpoint_args use_mcore_models manual_gc async_save
	use_dist_ckpt
	use_rotary_position_embeddings no_rope_fusion attention_softmax_in_fp32 apply_layernorm_1p no_bias_gelu_fusion
	no_bias_swiglu_fusion
	no_masked_softmax_fusion no_bias_dropout_fusion no_gradient_accumulation_fusion
	no_async_tensor_model_parallel_allreduce
	check_for_nan_in_loss_and_grad line_by_line`

// fileFields are options that name files of settings, or settings of few frameworks.
const fileFields = `config config_file config_path config_dir quantize precision devices num_nodes data out_dir
	logger_name zero_stage max_seq_length batch_size loss_type beta
	max_completion_length max_prompt_length num_generations model_type config_overrides stage template tokenizer_type`
