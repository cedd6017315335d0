package job

import "strings"

type argumentKind int

const (
	wordArgument  argumentKind = iota
	boolArgument               // bare, or with a truth word
	truthArgument              // Optional[bool] whose default is None: argparse demands a truth word
	listArgument               // takes every word up to the next option
)

// A fieldSet lists options by the name of their field, blank-separated, for each kind.
type fieldSet map[argumentKind]string

func (f fieldSet) addTo(kinds map[string]argumentKind) {
	for kind, names := range f {
		for name := range strings.FieldsSeq(names) {
			kinds[name] = kind
		}
	}
}

// trainingFields are the options that this reader understands, of Hugging Face's TrainingArguments, the example scripts
// and TRL's ModelConfig and SFTConfig, whose names most scripts share. Options that are not here belong to the script.
func trainingFields() fieldSet {
	return fieldSet{
		wordArgument: `model_name_or_path model_revision cache_dir output_dir per_device_train_batch_size
			per_gpu_train_batch_size gradient_accumulation_steps
			optim optim_args deepspeed deepspeed_config fsdp fsdp_config torch_dtype dtype attn_implementation
			block_size max_seq_length max_length model_max_length max_seq_len seq_len seq_length cutoff_len lora_r
			lora_alpha lora_dropout
			bnb_4bit_quant_type bnb_4bit_quant_storage eval_strategy evaluation_strategy save_strategy
			per_device_eval_batch_size
			gradient_checkpointing_kwargs activation_checkpointing_kwargs accelerator_config liger_kernel_config
			fsdp_min_num_params
			fsdp_transformer_layer_cls_to_wrap device_map torch_compile_backend torch_compile_mode
			learning_rate weight_decay max_grad_norm adam_beta1 adam_beta2 adam_epsilon`,
		boolArgument: `bf16 fp16 bf16_full_eval fp16_full_eval gradient_checkpointing activation_checkpointing adafactor
			use_peft use_rslora use_dora
			load_in_4bit load_in_8bit use_bnb_nested_quant packing use_liger_kernel use_liger auto_find_batch_size
			do_train do_eval
			activation_offloading torch_compile use_flash_attention_2 flash_attention_2 load_best_model_at_end
			save_only_model use_cpu no_cuda
			predict_with_generate`,
		truthArgument: `tf32 ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph`,
		listArgument:  `lora_target_modules lora_modules_to_save optim_target_modules`,
	}
}

// otherTrainingFields are the fields of TrainingArguments (transformers 4.5x and 5) that this reader does not use. They
// count when argparse decides whether an abbreviation is unique.
const otherTrainingFields = `overwrite_output_dir do_predict eval_steps eval_delay eval_accumulation_steps eval_on_start
	per_gpu_eval_batch_size prediction_loss_only torch_empty_cache_steps num_train_epochs max_steps lr_scheduler_type
	lr_scheduler_kwargs warmup_ratio
	warmup_steps log_level log_level_replica log_on_each_node logging_dir logging_strategy logging_first_step
	logging_steps
	logging_nan_inf_filter save_steps save_total_limit save_safetensors save_on_each_node
	restore_callback_states_from_checkpoint use_mps_device use_ipex seed data_seed jit_mode_eval fp16_opt_level
	fp16_backend half_precision_backend local_rank ddp_backend ddp_bucket_cap_mb ddp_timeout tpu_num_cores
	tpu_metrics_debug debug dataloader_drop_last dataloader_num_workers dataloader_prefetch_factor dataloader_pin_memory
	dataloader_persistent_workers past_index run_name disable_tqdm remove_unused_columns label_names
	metric_for_best_model greater_is_better ignore_data_skip
	parallelism_config label_smoothing_factor group_by_length train_sampling_strategy length_column_name report_to
	project trackio_space_id skip_memory_metrics use_legacy_prediction_loop push_to_hub resume_from_checkpoint
	hub_model_id hub_strategy
	hub_token hub_private_repo hub_always_push hub_revision include_inputs_for_metrics include_for_metrics
	mp_parameters full_determinism torchdynamo ray_scope include_tokens_per_second
	include_num_input_tokens_seen neftune_noise_alpha batch_eval_metrics eval_use_gather_object
	average_tokens_across_devices enable_jit_checkpoint eval_do_concat_batches use_cache`

// universalFields are the options that mean the same wherever they are spelled so: Hugging Face coined them, and
// whoever takes the name takes the meaning.
func universalFields() fieldSet {
	return fieldSet{wordArgument: "model_name_or_path model_revision cache_dir per_device_train_batch_size " +
		"gradient_accumulation_steps deepspeed deepspeed_config " +
		"per_device_eval_batch_size eval_strategy evaluation_strategy"}
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
