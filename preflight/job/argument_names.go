package job

import (
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// The names of all options of published programs. A script that is not here is one of them only if every argument is an
// option of theirs: a single word of another parser says that another program reads the rest, too.

// trainerOnly are options that no parser has but one that TrainingArguments, or TRL's configurations on top of it,
// make.
const trainerOnly = `eval_strategy evaluation_strategy save_strategy fsdp fsdp_config gradient_checkpointing_kwargs
	use_peft
	lora_target_modules use_flash_attention_2 max_prompt_length`

// exampleNames are the options of transformers' examples/pytorch beside TrainingArguments (all of 4.40 to 5.12), with
// and without Trainer.
const exampleNames = `model_type config_overrides config_name tokenizer_name use_fast_tokenizer use_slow_tokenizer token
	use_auth_token trust_remote_code
	low_cpu_mem_usage ignore_mismatched_sizes image_processor_name feature_extractor_name resize_position_embeddings
	freeze_feature_encoder
	freeze_feature_extractor freeze_encoder forced_decoder_ids suppress_tokens apply_spec_augment attention_mask
	attention_dropout
	activation_dropout feat_proj_dropout feat_quantizer_dropout hidden_dropout final_dropout mask_time_prob
	mask_time_length mask_feature_prob
	mask_feature_length layerdrop ctc_loss_reduction ctc_zero_infinity add_adapter do_lower_case mask_patch_size
	patch_size encoder_stride
	image_size num_channels freeze_vision_model freeze_text_model mask_ratio norm_pix_loss attn_implementation
	dataset_name dataset_config_name train_file validation_file test_file max_train_samples max_eval_samples
	max_predict_samples streaming
	overwrite_cache validation_split_percentage preprocessing_num_workers keep_linebreaks no_keep_linebreaks
	mlm_probability line_by_line
	pad_to_max_length plm_probability max_span_length task_name text_column_name text_column_names text_column_delimiter
	label_column_name
	remove_splits remove_columns metric_name do_regression is_regression shuffle_train_dataset shuffle_seed
	version_2_with_negative
	null_score_diff_threshold doc_stride n_best_size max_answer_length max_question_length summary_column source_prefix
	source_lang target_lang
	max_source_length max_target_length val_max_target_length num_beams ignore_pad_token_for_loss forced_bos_token lang
	language train_language
	train_dir validation_dir train_val_split image_column_name caption_column image_column data_dir audio_column_name
	max_length_seconds
	train_split_name eval_split_name max_duration_in_seconds min_duration_in_seconds preprocessing_only task
	chars_to_ignore eval_metrics
	unk_token pad_token word_delimiter_token phoneme_language return_entity_level_metrics label_all_tokens fim_rate
	fim_spm_rate
	fim_prefix_token fim_middle_token fim_suffix_token truncate_or_pad answer_column context_column question_column
	do_reduce_labels reduce_labels
	image_square_size base_learning_rate mask_type sortish_sampler predict_with_generate generation_max_length
	generation_num_beams
	generation_config target_language image_interpolation
	with_tracking checkpointing_steps max_train_steps num_warmup_steps debug beam_search_type
	tensor_parallel_size pipeline_parallel_size n_train n_val`

// trlNames are the options of TRL's ScriptArguments, ModelConfig and configurations of trainers, and of
// alignment-handbook, which took them over.
const trlNames = `dataset_train_split dataset_test_split dataset_streaming dataset_config datasets dataset_mixture
	gradient_checkpointing_use_reentrant ignore_bias_buffers
	model_revision lora_task_type lora_target_parameters bnb_4bit_compute_dtype dataset_text_field dataset_kwargs
	dataset_num_proc dataset_batch_size
	eos_token padding_free pad_to_multiple_of assistant_only_loss completion_only_loss chat_template_path
	shuffle_dataset model_init_kwargs
	eval_packing packing_strategy num_of_sequences chars_per_token use_liger neftune_noise_alpha loss_type loss_weights
	label_smoothing ref_model_init_kwargs
	disable_dropout truncation_mode label_pad_token_id padding_value is_encoder_decoder max_completion_length
	max_target_length
	precompute_ref_log_probs precompute_ref_batch_size reference_free force_use_ref_model f_divergence_type
	f_alpha_divergence_coef rpo_alpha
	ld_alpha use_weighting discopop_tau sync_ref_model ref_model_mixup_alpha ref_model_sync_steps generate_during_eval
	use_logits_to_keep beta
	base_model_attribute_name model_adapter_name ref_adapter_name use_num_logits_to_keep desirable_weight
	undesirable_weight
	num_generations num_generations_eval generation_batch_size steps_per_generation temperature top_p top_k min_p
	repetition_penalty
	generation_kwargs chat_template_kwargs cache_implementation use_transformers_paged num_iterations epsilon
	epsilon_high delta
	importance_sampling_level reward_weights scale_rewards mask_truncated_completions top_entropy_quantile
	log_completions
	num_completions_to_print wandb_log_unique_prompts use_vllm vllm_mode vllm_server_base_url vllm_server_host
	vllm_server_port
	vllm_server_timeout vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_guided_decoding_regex vllm_model_impl
	vllm_max_model_length
	vllm_enable_sleep_mode vllm_device vllm_dtype vllm_enable_prefix_caching use_liger_loss reward_model_name_or_path
	reward_funcs
	num_ppo_epochs whiten_rewards kl_coef kl_estimator cliprange vf_coef cliprange_value gamma lam exp_name
	reward_model_path sft_model_path
	total_episodes local_rollout_forward_batch_size num_sample_generations response_length stop_token stop_token_id
	missing_eos_penalty
	ds3_gather_for_generation num_mini_batches rloo_k normalize_reward reward_clip_range normalize_advantage
	token_level_kl
	teacher_model_name_or_path teacher_model_init_kwargs lmbda seq_kd max_new_tokens center_rewards_coefficient
	train_on_last_step_only
	step_separator sanity_check config trust_remote_code cpo_alpha simpo_gamma
	dataset_mixer dataset_splits dataset_configs text_column chat_template auto_insert_empty_system_msg truncation_side
	tokenizer_name_or_path model_code_revision preprocessing_num_workers dataset_prompt_column system_prompt benchmarks
	callbacks wandb_entity
	wandb_project hub_model_revision`

// argumentNames lists the options that a script is given by their fields' names, and reports whether all of them are
// options of Hugging Face's and TRL's programs.
func (r *reader) argumentNames(f family) (names []string, all bool) {
	known := r.publishedNames(f)
	words := r.job.ScriptArgs
	all = true
	if len(words) > 0 && isArgumentFile(words[0]) {
		names, all = r.fieldNames(words[0], known)
		words = words[1:]
	}
	for i, word := range words {
		if _, open := shell.Unknown(word); open || !isOption(word) || i > 0 && word == "--" {
			continue
		}
		option, _, _ := strings.Cut(word, "=")
		name := publishedName(option, known)
		all = all && name != ""
		names = append(names, name)
	}
	return names, all
}

// publishedName is the name that a word spells, in full, with no_ in front, or in short; "" when there is none.
func publishedName(option string, known map[string]argumentKind) string {
	given, long := strings.CutPrefix(option, "--")
	plain := strings.ReplaceAll(given, "-", "_")
	for _, name := range []string{plain, strings.TrimPrefix(plain, "no_")} {
		if _, ok := known[name]; ok && long {
			return name
		}
	}
	if strings.Contains(given, "-") && strings.Contains(given, "_") || !long || plain == "" {
		return ""
	}
	first := "" // of the names that begin so
	for name := range known {
		if strings.HasPrefix(name, plain) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// fieldNames are argumentNames of a file of arguments. One that cannot be read here says nothing against the script.
func (r *reader) fieldNames(file string, known map[string]argumentKind) (names []string, all bool) {
	doc, _, err := r.loadFile(file)
	if err != nil {
		return nil, true
	}
	fields, ok := doc.Value.(map[string]*document.Node)
	for name := range fields {
		if _, ours := known[name]; !ours {
			ok = false
		}
		names = append(names, name)
	}
	return names, ok || doc.Value == nil
}

// publishedNames are the options of those programs.
func (r *reader) publishedNames(f family) map[string]argumentKind {
	known := map[string]argumentKind{}
	lists := []string{otherTrainingFields, exampleNames, trlNames}
	for _, removed := range removedTrainingFields() {
		lists = append(lists, removed.name)
	}
	for _, list := range lists {
		for name := range strings.FieldsSeq(list) {
			known[name] = boolArgument // so that --no_name is one, too
		}
	}
	trainingFields().addTo(known)
	trlFields(r).addTo(known)
	if f.fields != nil {
		f.fields(r).addTo(known)
	}
	return known
}
