package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// accelerateOptions is the parser of accelerate launch (accelerate/commands/launch.py, 0.20 to 1.15): each option is
// spelt with underscores or dashes, abbreviations are off.
func accelerateOptions() []option {
	options := []option{
		{names: []string{"-h", "--help"}, dest: "help", kind: flagOption},
		{names: []string{"-m", "--module"}, dest: "module", kind: flagOption},
		{names: []string{"-t", "--tee"}, dest: "tee"},
	}
	for kind, names := range map[optionKind]string{
		flagOption: `quiet cpu multi_gpu tpu tpu_cluster no_tpu_cluster tpu_use_sudo enable_cpu_affinity
			dynamo_use_fullgraph dynamo_use_dynamic
			dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm use_xpu
			use_mps_device ipex same_network
			no_python downcast_bf16 fp8_use_autocast_during_eval debug`,
		intOption: `num_processes num_machines num_cpu_threads_per_process machine_rank main_process_port max_restarts
			zero_stage
			gradient_accumulation_steps fsdp_min_num_params megatron_lm_tp_degree megatron_lm_pp_degree
			megatron_lm_num_micro_batches
			megatron_lm_decoder_last_pipeline_num_layers megatron_lm_recompute_num_layers
			megatron_lm_expert_model_parallel_size
			megatron_lm_context_parallel_size megatron_lm_expert_tensor_parallel_size fp8_margin fp8_interval
			fp8_amax_history_len
			parallelism_config_dp_replicate_size parallelism_config_dp_shard_size parallelism_config_tp_size
			parallelism_config_cp_size
			parallelism_config_sp_size`,
		floatOption: `monitor_interval gradient_clipping megatron_lm_gradient_clipping megatron_lm_attention_dropout megatron_lm_hidden_dropout`,
		textOption: `config_file mixed_precision dynamo_backend dynamo_mode gpu_ids main_process_ip log_dir role
			rdzv_backend rdzv_conf vm env
			main_training_function deepspeed_config_file offload_optimizer_device offload_param_device
			offload_optimizer_nvme_path
			offload_param_nvme_path zero3_init_flag zero3_save_16bit_model deepspeed_hostfile deepspeed_exclusion_filter
			deepspeed_inclusion_filter deepspeed_multinode_launcher deepspeed_moe_layer_cls_names fsdp_version
			fsdp_offload_params
			fsdp_sharding_strategy fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap
			fsdp_backward_prefetch
			fsdp_backward_prefetch_policy fsdp_state_dict_type fsdp_forward_prefetch fsdp_use_orig_params
			fsdp_cpu_ram_efficient_loading
			fsdp_sync_module_states fsdp_activation_checkpointing fsdp_activation_checkpointing_offload
			megatron_lm_use_custom_fsdp
			megatron_lm_no_load_optim megatron_lm_eod_mask_loss megatron_lm_overlap_cpu_optimizer_d2h_h2d
			megatron_lm_no_save_optim
			megatron_lm_optimizer_cpu_offload megatron_lm_use_precision_aware_optimizer megatron_lm_sequence_parallelism
			megatron_lm_recompute_activations megatron_lm_use_distributed_optimizer megatron_lm_recompute_granularity
			megatron_lm_recompute_method megatron_lm_attention_backend megatron_lm_attention_softmax_in_fp32
			megatron_lm_calculate_per_token_loss
			megatron_lm_use_rotary_position_embeddings fp8_backend fp8_format fp8_amax_compute_algo
			fp8_override_linear_precision fp8_opt_level
			fp8_enable_fsdp_float8_all_gather fp8_pad_inner_dim aws_access_key_id aws_secret_access_key mpirun_hostfile
			mpirun_ccl
			parallelism_config_cp_backend parallelism_config_cp_comm_strategy parallelism_config_sp_backend
			parallelism_config_sp_seq_length
			parallelism_config_sp_seq_length_is_variable parallelism_config_sp_attn_implementation`,
	} {
		for name := range strings.FieldsSeq(names) {
			o := option{names: []string{"--" + name}, dest: name, kind: kind}
			if dashed := strings.ReplaceAll(name, "_", "-"); dashed != name {
				o.names = append(o.names, "--"+dashed)
			}
			options = append(options, o)
		}
	}
	return options
}

// accelerateIdle are options of which no setting depends.
func accelerateIdle() []string {
	return []string{"machine_rank", "log_dir", "role", "rdzv_backend", "rdzv_conf", "tee", "max_restarts",
		"monitor_interval", "num_cpu_threads_per_process",
		"num_processes", "num_machines"}
}

// An acceleration is one accelerate launch: its options over its configuration file.
type acceleration struct {
	r      *reader
	line   *commandLine
	config *document.Node     // nil: no file
	below  map[string]sourced // what the sections of the file say, by the option's name
}

// readAccelerate reads accelerate launch: how many processes start, and what it hands to Accelerator() and Trainer in
// variables.
func (r *reader) readAccelerate(prog string, args []string) {
	if prog == "accelerate" || prog == "accelerate_cli.py" {
		if len(args) == 0 || args[0] != "launch" {
			r.blocked = "accelerate starts a training only with launch"
			return
		}
		args = args[1:]
	}
	p := &argparser{prog: "accelerate launch", options: accelerateOptions(), wholeNames: true}
	line, err := p.parse(args)
	switch {
	case err != nil:
		r.refused(err)
		return
	case line.flag("help"):
		r.blocked = "accelerate launch only prints its help"
		return
	case len(line.rest) == 0:
		r.refused(fmt.Errorf("accelerate launch: error: the following arguments are required: training_script"))
		return
	}
	a := &acceleration{r: r, line: line, below: map[string]sourced{}}
	if a.readConfig() {
		a.launch()
	}
}

// refused ends a job whose launcher does not take its command line.
func (r *reader) refused(err error) {
	r.objects("command line", err)
	r.blocked = "the launcher refuses its command line"
}

// objects records that a launcher ends with an error, although the rest of the job can be read.
func (r *reader) objects(origin string, err error) {
	r.fail(err.Error(), origin)
	r.problem(fmt.Errorf("the launcher refuses to start: %w", err))
}

// typed reports whether an option is on the command line.
func (a *acceleration) typed(name string) bool { return a.line.values[name].text != "" }

// value is what an option ends up with: the command line, then the section of the file; the zero value for the option's
// default.
func (a *acceleration) value(name string) sourced {
	if given, ok := a.line.values[name]; ok {
		return given
	}
	return a.below[name]
}

// top is a top-level key of the file, below the option of its name.
func (a *acceleration) top(name string) sourced {
	if given, ok := a.line.values[name]; ok {
		return given
	}
	if n := a.config.Get(name); n != nil && n.Value != nil {
		if text, err := n.Text(); err == nil {
			return sourced{text, n.Origin()}
		}
	}
	return sourced{}
}

// kind decides how processes start: DEEPSPEED, FSDP, MEGATRON_LM, MULTI_GPU, or "" for one simple process. An option
// that names a kind keeps the file's distributed_type out.
func (a *acceleration) kind() (kind, origin string) {
	for _, option := range []struct{ name, kind string }{
		{"cpu", ""}, {"use_deepspeed", "DEEPSPEED"}, {"use_fsdp", "FSDP"}, {"use_megatron_lm", "MEGATRON_LM"},
		{"multi_gpu", "MULTI_GPU"}, {"tpu", "XLA"},
	} {
		if a.typed(option.name) {
			return option.kind, a.line.values[option.name].origin
		}
	}
	n := a.config.Get("distributed_type")
	word := ""
	if n != nil {
		word, _ = n.Value.(string) // an unquoted NO is a boolean in YAML, and means the same
		origin = n.Origin()
	}
	switch {
	case strings.HasPrefix(word, "MULTI_") && word != "MULTI_CPU":
		return "MULTI_GPU", origin
	case word == "NO" || word == "MULTI_CPU":
		return "", origin
	}
	return word, origin
}

// launch decides the processes and hands the settings on.
func (a *acceleration) launch() {
	r := a.r
	kind, origin := a.kind()
	if kind == "XLA" || kind == "TPU" {
		r.blocked = "accelerate launch on TPUs is not read yet"
		return
	}
	if gpus := a.top("gpu_ids"); gpus.text != "" && gpus.text != "all" {
		r.setenvFrom(visibleDevices, gpus.text, gpus.origin)
	}
	if why := a.line.open; why != "" { // any of its options may stand there
		r.open = why
		if !a.typed("num_machines") || !a.typed("num_processes") {
			r.job.NNodes.Withhold(why)
			r.job.NProc.Withhold(why)
		}
	}
	for _, o := range accelerateOptions() {
		if why, unknown := shell.Unknown(a.line.values[o.dest].text); unknown &&
			!strings.HasPrefix(o.dest, "main_process_") && !slices.Contains(accelerateIdle(), o.dest) {
			r.open = why
		}
	}
	a.export(a.processes(kind, origin))
	words := a.line.rest[1:]
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	switch script := a.line.rest[0]; {
	case a.line.flag("module") && a.line.flag("no_python"):
		r.objects("command line", fmt.Errorf("ValueError: --module and --no_python cannot be used together"))
		r.setScript("-m "+script, words)
	case a.line.flag("module"):
		r.setScript("-m "+script, words)
	case a.line.flag("no_python") && isPython(script):
		r.readPython(words)
	default:
		r.setScript(script, words)
	}
	if len(a.line.passed) > 0 {
		r.note("after options of accelerate launch that are not known here: " + strings.Join(a.line.passed, " "))
	}
}

// processes offers nnodes and nproc. num_processes counts all machines; without a distributed type one process starts,
// whatever it says. It returns the kind, which without a configuration follows from the GPUs that are there.
func (a *acceleration) processes(kind, origin string) string {
	r, j := a.r, a.r.job
	total, machines := a.top("num_processes"), a.top("num_machines")
	gpus := r.visibleGPUs()
	if total.text == "" && a.config == nil && gpus >= 0 {
		total = sourced{fmt.Sprint(gpus), "default of accelerate launch: all visible GPUs"}
	}
	if machines.text == "" {
		machines = sourced{"1", "default of accelerate launch"}
	}
	if n := a.config.Get("distributed_type"); total.text == "" && n != nil && n.Value == "NO" {
		total = sourced{"1", "default of accelerate launch for distributed_type NO"}
	}
	nodes, all := Setting[int]{}, Setting[int]{}
	n, p := r.count(machines, &nodes), 0
	if total.text != "0" {
		p = r.count(total, &all)
	}
	switch {
	case (total.text == "" || total.text == "-1") && a.config != nil && a.line.open == "":
		r.objects(a.config.File, fmt.Errorf("%s: ValueError: You need to manually pass in `--num_processes` using "+
			"this config yaml", a.config.File))
		total = sourced{}
	case a.typed("multi_gpu") && a.typed("num_processes") && p == 1:
		r.objects(total.origin, fmt.Errorf("ValueError: You need to use at least 2 processes to use `--multi_gpu`"))
	}
	if kind == "" && a.config == nil && !a.typed("cpu") && (p > 1 || p == 0 && total.text != "0") &&
		(gpus > 1 || gpus < 0) {
		kind = "MULTI_GPU"
	}
	switch {
	case kind == "":
		if origin == "" {
			origin = "accelerate launch starts one process where it sees fewer than two GPUs"
			if p == 1 {
				origin = total.origin
			}
		}
		j.OneProcess = a.value("mpirun_hostfile").text == "" // Trainer takes all GPUs that it sees
		j.NNodes.Offer(1, origin)
		j.NProc.Offer(1, origin+": one process")
	case n > 0 && p > 0:
		j.NNodes.Offer(n, machines.origin)
		j.NProc.Offer(max(p/n, 1), total.origin)
		if p%n != 0 || p < n {
			r.unread(fmt.Errorf("%s: %d processes over %d machines: each starts %d", total.origin, p, n, p/n))
		}
	default:
		j.NNodes.Unknown(nodes.Origin)
		j.NProc.Unknown(all.Origin)
		if n > 0 {
			j.NNodes.Offer(n, machines.origin)
		}
		j.NProc.Unknown("accelerate launch starts one process for each visible GPU, and their number is not known; " +
			"give --nproc")
	}
	return kind
}

// export sets the variables by which accelerate launch hands its settings on (accelerate/utils/launch.py).
func (a *acceleration) export(kind string) {
	hand := func(variable string, v sourced) {
		if v.text != "" {
			a.r.setenvFrom(variable, v.text, v.origin)
		}
	}
	on := func(variable string) { a.r.setenvFrom(variable, "true", "accelerate launch") }
	mixed := a.top("mixed_precision")
	if mixed.text == "" && a.config.Get("fp16") != nil && a.r.nodeBool(a.config.Get("fp16"), false) {
		mixed = sourced{"fp16", a.config.Get("fp16").Origin()}
	}
	if mixed.text == "" || mixed.text == "false" { // an unquoted no, on which accelerate fails
		mixed = sourced{"no", "default of accelerate launch"}
	}
	hand("ACCELERATE_MIXED_PRECISION", sourced{strings.ToLower(mixed.text), mixed.origin})
	if cpu := a.top("use_cpu"); a.typed("cpu") || cpu.text == "true" {
		on("ACCELERATE_USE_CPU")
	}
	switch kind {
	case "DEEPSPEED":
		on("ACCELERATE_USE_DEEPSPEED")
		for _, name := range []string{"zero_stage", "offload_optimizer_device", "offload_param_device",
			"zero3_init_flag", "config_file"} {
			option := strings.Replace(name, "config_file", "deepspeed_config_file", 1)
			hand("ACCELERATE_DEEPSPEED_"+strings.ToUpper(name), a.value(option))
		}
		hand("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", a.value("gradient_accumulation_steps"))
		hand("ACCELERATE_GRADIENT_CLIPPING", a.value("gradient_clipping"))
		hand("ACCELERATE_CONFIG_DS_FIELDS", a.deepspeedFields())
	case "FSDP":
		on("ACCELERATE_USE_FSDP")
	case "MEGATRON_LM":
		on("ACCELERATE_USE_MEGATRON_LM")
	}
	parallel := a.line.flag("use_parallelism_config") ||
		kind != "" && !a.paradigmTyped() && a.config.Get("parallelism_config") != nil
	if parallel {
		on("ACCELERATE_USE_PARALLELISM_CONFIG")
	}
	for _, o := range accelerateOptions() {
		if strings.HasPrefix(o.dest, "fsdp_") && kind == "FSDP" ||
			strings.HasPrefix(o.dest, "megatron_lm_") && kind == "MEGATRON_LM" ||
			strings.HasPrefix(o.dest, "parallelism_config_") && parallel {
			hand(strings.ToUpper(o.dest), a.value(o.dest))
		}
	}
}

func (a *acceleration) paradigmTyped() bool {
	return slices.ContainsFunc([]string{"multi_gpu", "tpu", "tpu_cluster", "use_deepspeed", "use_fsdp",
		"use_megatron_lm"}, a.typed)
}

// deepspeedFields lists what the configuration file itself decides, which must not stand beside a DeepSpeed file.
func (a *acceleration) deepspeedFields() sourced {
	section := a.config.Get("deepspeed_config")
	if section == nil {
		section = &document.Node{}
	}
	fields, _ := section.Value.(map[string]*document.Node)
	names := slices.Sorted(maps.Keys(fields))
	if a.config.Get("mixed_precision") != nil && a.config.Get("mixed_precision").Value != nil &&
		!a.typed("mixed_precision") {
		names = append(names, "mixed_precision")
	}
	if len(names) == 0 {
		return sourced{}
	}
	return sourced{strings.Join(names, ","), a.config.File}
}
