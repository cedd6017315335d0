package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

// What a word that nobody can see does to the settings, in one place:
//
// A part of a value that is not known (--lr $LR) makes the setting unknown that its option names, and what follows from
// that one.
//
// A word that may stand for any number of words ($ARGS, filled where nobody can see) may hold any option. Settings that
// nothing else gives on the command line are then unknown, and neither a default nor a file stands in for them
// (withholdOpen). Those that one option of the command gives keep their values, although argparse would take a later
// one: people add options that way, and seldom repeat them.
//
// A variable that is set nowhere is empty where the command runs in this environment. Elsewhere it may be set; it is
// taken for empty where it stands as a whole unquoted word that is neither the value of an option nor among those of a
// launcher ($EXTRA_ARGS), and is not known otherwise (settleWords).
//
// As long as a word on which a setting depends may be another one, a contradiction is not certain, and is a warning
// (uncertain).

// settleText is a text of a script, such as a file that it writes, where variables are set nowhere.
func (r *reader) settleText(text string) string {
	if r.src.Place != Here {
		return text
	}
	text, _, unset := shell.Empty(text)
	if len(unset) > 0 {
		r.doubt(unset[0] + "; it is taken for empty")
	}
	return text
}

// doubt records why no contradiction is certain.
func (r *reader) doubt(why string) {
	if r.uncertain == "" {
		r.uncertain = why
	}
}

// idle reports whether a word is the value of an option of which no setting depends.
func idle(words []string, i int) bool {
	given, _, attached := strings.Cut(words[i], "=")
	if !attached && i > 0 {
		given = words[i-1]
	}
	name := plainName(given)
	keys, known := touched()[name]
	return strings.HasPrefix(given, "-") && (attached || !slices.Contains(strings.Fields(trainingFlags), name)) &&
		(known && keys == "" || slices.Contains(strings.Fields(otherTrainingFields+" "+scriptFields+" "+launchFields),
			name))
}

// launchFields are options of launchers of which no setting depends.
const launchFields = `rdzv_backend rdzv_endpoint rdzv_id rdzv_conf node_rank machine_rank master_addr master_port
	main_process_ip main_process_port
	log_dir role tee redirects max_restarts monitor_interval num_cpu_threads_per_process local_addr`

// openWords says why the script may be told more than can be seen: a word of which nothing is known stands among its
// arguments.
func (r *reader) openWords() string {
	if r.open != "" {
		return r.open
	}
	for i, word := range r.job.ScriptArgs {
		if shell.Whole(word) && !r.valueAt(r.job.ScriptArgs, i) {
			why, _ := shell.Unknown(word)
			return why
		}
	}
	return ""
}

// valueAt reports whether a word is the value of the option in front of it. Of an option that is not known, a word is
// the value unless its name says that it holds options.
func (r *reader) valueAt(words []string, i int) bool {
	if i == 0 || !isOption(words[i-1]) || strings.Contains(words[i-1], "=") {
		return false
	}
	takes, known := takesValue(words[i-1])
	if kind, mine := r.kinds[plainName(words[i-1])]; mine {
		takes, known = kind != boolArgument && kind != listArgument, true
	}
	return takes || !known && !holdsOptions(words[i])
}

// takesValue reports whether an option takes a word, where its name means the same everywhere.
func takesValue(option string) (takes, known bool) {
	name := plainName(option)
	fields := trainingFields()
	switch {
	case slices.Contains(strings.Fields(fields[wordArgument]), name),
		slices.Contains(strings.Fields(fields[truthArgument]), name):
		return true, true
	case slices.Contains(strings.Fields(fields[boolArgument]), name),
		slices.Contains(strings.Fields(fields[listArgument]), name),
		slices.Contains(strings.Fields(trainingFlags+" "+scriptFlags), strings.TrimPrefix(name, "no_")),
		slices.Contains(strings.Fields(scriptFlags), name):
		return false, true
	case slices.Contains(strings.Fields(otherTrainingFields), name):
		return true, true
	}
	for _, o := range torchrunOptions() {
		if slices.Contains(o.names, option) {
			return o.kind != flagOption, true
		}
	}
	return false, false
}

// trainingFlags are those of otherTrainingFields that take no value, or none but true and false.
const trainingFlags = `overwrite_output_dir do_predict eval_on_start prediction_loss_only log_on_each_node
	logging_first_step logging_nan_inf_filter
	save_safetensors save_on_each_node use_mps_device use_ipex jit_mode_eval dataloader_drop_last dataloader_pin_memory
	dataloader_persistent_workers disable_tqdm remove_unused_columns greater_is_better ignore_data_skip group_by_length
	skip_memory_metrics
	use_legacy_prediction_loop push_to_hub hub_private_repo hub_always_push include_inputs_for_metrics full_determinism
	include_tokens_per_second include_num_input_tokens_seen batch_eval_metrics eval_use_gather_object
	average_tokens_across_devices
	enable_jit_checkpoint eval_do_concat_batches use_cache restore_callback_states_from_checkpoint`

// holdsOptions judges a variable by its name: EXTRA_ARGS and TRAIN_OPTIONS hold options, DATA_PATH does not.
func holdsOptions(word string) bool {
	name := strings.ToUpper(shell.Plain(word))
	return slices.ContainsFunc([]string{"ARG", "OPT", "FLAG", "PARAM", "EXTRA", "CONF", "CMD", "$@", "$*"},
		func(part string) bool { return strings.Contains(name, part) })
}

// withholdOpen keeps defaults away from what an open word may hold, and takes back those that a reader has given
// already.
func (r *reader) withholdOpen() {
	j, why := r.job, r.openWords()
	if why == "" {
		if r.model != "" { // its configuration may say these
			for _, f := range []fact{&j.Quant, &j.Method, &j.LoRA, &j.Attention, &j.ParamDtype, &j.BaseDtype,
				&j.Autocast} {
				f.Withhold(r.model)
			}
			r.load.Withhold(r.model)
		}
		return
	}
	why = "not seen, but " + why
	said := []string{"launcher", "outer", "framework", "world_size", "script", "will_fail"}
	if !r.starts { // a launcher starts the processes, and its words were seen
		said = append(said, "nnodes", "nproc")
	}
	joint := strings.Fields("sharding fsdp_version fsdp_wrap offload precision param_dtype base_dtype autocast " +
		"master_fp32 ref_model second_models")
	r.job.eachFact(func(key string, f fact) {
		n := f.named(key)
		switch {
		case slices.Contains(said, key), key == "model_params" && j.Model.Known: // the model was given
		case !n.Known:
			f.Withhold(why)
		case !given(n.Origin), slices.Contains(joint, key) && strings.Contains(n.Origin, "command line"):
			f.drop(why) // a default, or what several options decide together
		}
	})
	r.load.Withhold(why)
	r.adapter.lost = why
}

// given reports whether one option of the command, or a flag of ours, gives a value: neither a default nor a file,
// which options change.
func given(origin string) bool {
	return strings.Contains(origin, "flag --") ||
		strings.Contains(origin, "command line") && !strings.Contains(origin, "default") &&
			!strings.HasPrefix(origin, "no ")
}

// touched maps options of Trainer's scripts to the settings that they decide, where those are few.
func touched() map[string]string {
	const (
		precision = "precision param_dtype base_dtype autocast master_fp32"
		adapter   = "method lora quant param_dtype base_dtype"
		loss      = "fused_loss layer_kernels"
	)
	return map[string]string{
		"bf16": precision, "fp16": precision, "bf16_full_eval": "eval_batch", "fp16_full_eval": "eval_batch",
		"torch_dtype": precision, "dtype": precision, "tf32": "",
		"use_peft": adapter, "load_in_4bit": adapter, "load_in_8bit": adapter, "bnb_4bit_quant_type": "quant",
		"bnb_4bit_quant_storage": "quant",
		"use_bnb_nested_quant":   "quant", "lora_r": "lora", "lora_alpha": "lora", "lora_dropout": "lora",
		"lora_target_modules":  "lora",
		"lora_modules_to_save": "lora", "use_rslora": "lora", "use_dora": "lora",
		"gradient_checkpointing":          "checkpointing checkpointing_reentrant",
		"activation_checkpointing":        "checkpointing checkpointing_reentrant",
		"gradient_checkpointing_kwargs":   "checkpointing checkpointing_reentrant",
		"activation_checkpointing_kwargs": "checkpointing checkpointing_reentrant",
		"optim":                           "optimizer optimizer_in_backward", "optim_args": "optimizer",
		"optim_target_modules":        "optimizer",
		"adafactor":                   "optimizer",
		"per_device_train_batch_size": "micro_batch", "per_gpu_train_batch_size": "micro_batch",
		"auto_find_batch_size":        "micro_batch",
		"gradient_accumulation_steps": "grad_accum", "per_device_eval_batch_size": "eval_batch",
		"eval_strategy":       "eval_batch",
		"evaluation_strategy": "eval_batch", "do_eval": "eval_batch", "do_train": "", "save_strategy": "",
		"load_best_model_at_end": "", "save_only_model": "",
		"block_size": "seq_len", "max_seq_length": "seq_len", "max_length": "seq_len", "model_max_length": "seq_len",
		"max_seq_len": "seq_len",
		"seq_len":     "seq_len", "seq_length": "seq_len", "cutoff_len": "seq_len", "packing": "packing",
		"attn_implementation": "attention", "use_flash_attention_2": "attention", "flash_attention_2": "attention",
		"torch_compile": "compile", "torch_compile_backend": "compile", "torch_compile_mode": "compile",
		"activation_offloading": "activation_offload",
		"use_liger_kernel":      loss, "use_liger": loss, "liger_kernel_config": loss,
		"model_name_or_path": "model model_params",
		"model_revision":     "model_params", "cache_dir": "", "output_dir": "", "learning_rate": "",
		"weight_decay":  "",
		"max_grad_norm": "",
		"adam_beta1":    "", "adam_beta2": "", "adam_epsilon": "", "ddp_find_unused_parameters": "",
		"ddp_broadcast_buffers": "", "ddp_static_graph": "",
	}
}

// withholdValues makes the settings unknown that arguments decide whose values nobody knows. An argument of which it is
// not said here what it decides may decide anything.
func (r *reader) withholdValues() {
	settings := map[string]fact{}
	r.job.eachFact(func(key string, f fact) { settings[key] = f })
	for _, name := range slices.Sorted(maps.Keys(r.args)) {
		why, unknown := shell.Unknown(r.args[name].text + strings.Join(r.args[name].list, " "))
		if !unknown {
			continue
		}
		keys, few := touched()[name]
		if !few && r.open == "" {
			r.open = why
		}
		if name == "model_name_or_path" { // other options decide more than it does
			r.model = why
		}
		for key := range strings.FieldsSeq(keys) {
			settings[key].Withhold(why)
			if key == "param_dtype" {
				r.load.Withhold(why)
			}
		}
	}
}

// tellUnread names the settings that are not known because of a word of a script that is not.
func (r *reader) tellUnread() {
	slices.Sort(r.gaps)
	for _, why := range slices.Compact(r.gaps) {
		var keys []string
		r.job.eachFact(func(key string, f fact) {
			if n := f.named(key); !n.Known && strings.Contains(n.Origin, why) {
				keys = append(keys, key)
			}
		})
		const most = 6
		switch {
		case len(keys) > most:
			r.unread(fmt.Errorf("%s; %d settings are not known for it, %s among them", why, len(keys),
				strings.Join(keys[:most], ", ")))
		case len(keys) > 0:
			r.unread(fmt.Errorf("%s; not known for it: %s", why, strings.Join(keys, ", ")))
		}
	}
}
