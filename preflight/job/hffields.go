package job

import "strings"

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
