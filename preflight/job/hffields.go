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

// A removedField is an argument that a release dropped: HfArgumentParser then refuses it as unknown.
type removedField struct{ name, since, instead string }

// removedTrainingFields are the fields that TrainingArguments lost (compared field by field: transformers 4.40, 4.46,
// 4.53, 4.57, 5.0, 5.2, 5.12, 5.18).
func removedTrainingFields() []removedField {
	fields := []removedField{
		{"evaluation_strategy", "4.53", "--eval_strategy"},
		{"adafactor", "5.0", "--optim adafactor"},
		{"per_gpu_train_batch_size", "5.0", "--per_device_train_batch_size"},
		{"per_gpu_eval_batch_size", "5.0", "--per_device_eval_batch_size"},
		{"fsdp_min_num_params", "5.0", "min_num_params in --fsdp_config"},
		{"fsdp_transformer_layer_cls_to_wrap", "5.0", "transformer_layer_cls_to_wrap in --fsdp_config"},
		{"no_cuda", "5.0", "--use_cpu"},
		{"group_by_length", "5.2", "--train_sampling_strategy group_by_length"},
	}
	for name := range strings.FieldsSeq(`fp16_backend fp16_opt_level half_precision_backend include_inputs_for_metrics
		include_tokens_per_second
		jit_mode_eval mp_parameters overwrite_output_dir past_index push_to_hub_token ray_scope save_safetensors
		torchdynamo tpu_metrics_debug tpu_num_cores use_legacy_prediction_loop use_mps_device`) {
		fields = append(fields, removedField{name: name, since: "5.0"})
	}
	return fields
}

// argumentKinds are the options of the script that is read: everybody's and those of its own framework.
func (r *reader) argumentKinds() map[string]argumentKind {
	kinds := map[string]argumentKind{}
	switch {
	case r.family.foreign:
		universalFields().addTo(kinds)
		return kinds
	case r.family.only != nil:
		r.family.only().addTo(kinds)
		return kinds
	}
	trainingFields().addTo(kinds)
	if r.family.fields != nil {
		r.family.fields(r).addTo(kinds)
	}
	return kinds
}
