package job

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// accelerated reports whether the script is under Accelerator(), which takes its plugins from the variables that
// accelerate launch sets: Trainer always is, a training loop of its own when accelerate starts it.
func (r *reader) accelerated() bool {
	return r.family.huggingFace() || r.job.Launcher.Value == "accelerate"
}

// onVariable reads a variable that turns something on.
func (r *reader) onVariable(name string) bool {
	text := r.getenv(name)
	if why, unknown := shell.Unknown(text); unknown && r.open == "" { // it may decide anything
		r.open = why
	}
	on, ok := document.ParseBool(text)
	return ok && on
}

// readAccelerated reads what the environment says to Accelerator() (accelerate/utils/dataclasses.py). What the script
// itself is told (--deepspeed, --fsdp) is stronger.
func (r *reader) readAccelerated() {
	if !r.accelerated() {
		return
	}
	_, named := r.args["deepspeed"]
	switch {
	case r.onVariable("ACCELERATE_USE_DEEPSPEED") && r.deepspeed == nil && !named:
		r.acceleratedDeepSpeed()
	case r.onVariable("ACCELERATE_USE_FSDP") && r.deepspeed == nil && !r.fsdp && len(r.fsdpWords()) == 0:
		r.acceleratedFSDP()
	case r.onVariable("ACCELERATE_USE_MEGATRON_LM"):
		r.acceleratedMegatron()
	}
	if r.onVariable("ACCELERATE_USE_PARALLELISM_CONFIG") {
		r.acceleratedParallelism()
	}
	if steps := r.variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"); steps.text != "" && steps.text != "auto" &&
		!r.family.huggingFace() {
		if n := r.count(steps, &r.job.GradAccum); n > 0 {
			r.job.GradAccum.Offer(n, steps.origin)
		}
	}
}

// node makes a document's value of a variable.
func (v sourced) node(path string, value any) *document.Node {
	return &document.Node{Value: value, Path: path, Source: v.origin}
}

// acceleratedDeepSpeed is DeepSpeedPlugin: a configuration file, or one that the plugin writes itself.
func (r *reader) acceleratedDeepSpeed() {
	file := r.variable("ACCELERATE_DEEPSPEED_CONFIG_FILE")
	var doc *document.Node
	if file.text == "" || file.text == "none" {
		doc = r.generatedDeepSpeed()
	} else {
		r.refuseFields(r.variable("ACCELERATE_CONFIG_DS_FIELDS"))
		var ok bool
		if doc, ok = r.namedDeepSpeed(file); !ok {
			return
		}
	}
	r.acceleratedHalf(doc)
	r.adoptDeepSpeed(&deepspeedFile{doc: doc, file: doc.File, filled: true,
		lenient: !r.family.huggingFace() || r.ownLoop()})
}

// ownLoop: TRL's PPO makes an Accelerator of its own, past Trainer's comparisons (trl/trainer/ppo_trainer.py).
func (r *reader) ownLoop() bool { return r.family.framework == "trl" && r.family.program == "ppo" }

// refuseFields: accelerate refuses a configuration of its own that repeats what the DeepSpeed file owns
// (DeepSpeedPlugin, _deepspeed_config_checks).
func (r *reader) refuseFields(fields sourced) {
	owned := strings.Fields(`gradient_accumulation_steps gradient_clipping zero_stage offload_optimizer_device offload_param_device
		offload_param_nvme_path offload_optimizer_nvme_path zero3_save_16bit_model mixed_precision`)
	for name := range strings.SplitSeq(fields.text, ",") {
		if slices.Contains(owned, name) {
			why := fmt.Sprintf("ValueError: When using `deepspeed_config_file`, %s of accelerate's configuration "+
				"must not be given beside it", name)
			r.fail(why, fields.origin)
			r.problem(fmt.Errorf("%s: %s; say it in the DeepSpeed file instead", fields.origin, why))
		}
	}
}

// namedDeepSpeed reads the file, and puts in what the plugin puts in.
func (r *reader) namedDeepSpeed(file sourced) (*document.Node, bool) {
	doc, problems, err := r.deepspeedText(file.text)
	r.unread(problems...)
	if err == nil {
		if _, ok := doc.Value.(map[string]*document.Node); !ok {
			err = doc.Wrong("an object with DeepSpeed's settings")
		}
	}
	if err != nil {
		r.unusable(fmt.Errorf("DeepSpeed configuration (%s): %w", file.origin, err))
		r.lostDeepSpeed()
		return nil, false
	}
	fields := doc.Value.(map[string]*document.Node)
	if fields["zero_optimization"] == nil {
		r.contradiction(doc, "ValueError: Please specify the ZeRO optimization config in the DeepSpeed config")
	}
	if fields["gradient_accumulation_steps"] == nil {
		added := sourced{origin: doc.File + " names none, for which accelerate puts 1"}
		fields["gradient_accumulation_steps"] = added.node("gradient_accumulation_steps", "1")
	}
	for path, variable := range map[string]string{
		"gradient_accumulation_steps":                "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
		"zero_optimization.stage":                    "ACCELERATE_DEEPSPEED_ZERO_STAGE",
		"zero_optimization.offload_optimizer.device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
		"zero_optimization.offload_param.device":     "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
	} {
		n := doc.At(path)
		value := r.variable(variable)
		switch {
		case !n.Auto():
		case value.text != "":
			*n = *value.node(path, value.text)
		case path == "zero_optimization.stage":
			*n = *sourced{origin: "default of accelerate's DeepSpeed plugin"}.node(path, "2")
		case strings.HasSuffix(path, ".device"):
			*n = *sourced{origin: "default of accelerate's DeepSpeed plugin"}.node(path, "none")
		}
	}
	return doc, true
}

// generatedDeepSpeed is the configuration that the plugin writes when there is no file: stage 2 unless told otherwise,
// and DeepSpeed's own bucket sizes.
func (r *reader) generatedDeepSpeed() *document.Node {
	value := func(name, fallback string) *document.Node {
		v := r.variable("ACCELERATE_" + name)
		// with another number Trainer ends
		if _, open := shell.Unknown(v.text); v.text == "" || open && name == "GRADIENT_ACCUMULATION_STEPS" {
			v = sourced{fallback, "default of accelerate's DeepSpeed plugin"}
		}
		return v.node(strings.ToLower(name), v.text)
	}
	object := func(path string, fields map[string]*document.Node) *document.Node {
		return &document.Node{Value: fields, Path: path, Source: "accelerate's DeepSpeed plugin"}
	}
	device := func(name string) *document.Node {
		n := value(name, "none")
		return &document.Node{Value: map[string]*document.Node{"device": n}, Source: n.Source}
	}
	auto := func(path string) *document.Node {
		return &document.Node{Value: "auto", Path: path, Source: "accelerate's DeepSpeed plugin"}
	}
	doc := object("", map[string]*document.Node{
		"train_batch_size":               auto("train_batch_size"),
		"train_micro_batch_size_per_gpu": auto("train_micro_batch_size_per_gpu"),
		"gradient_accumulation_steps":    value("GRADIENT_ACCUMULATION_STEPS", "auto"),
		"zero_optimization": object("zero_optimization", map[string]*document.Node{
			"stage":             value("DEEPSPEED_ZERO_STAGE", "2"),
			"offload_optimizer": device("DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"),
			"offload_param":     device("DEEPSPEED_OFFLOAD_PARAM_DEVICE"),
		}),
	})
	doc.File = "accelerate's DeepSpeed plugin"
	return doc
}

// acceleratedHalf puts accelerate's mixed precision into the configuration (DeepSpeedPlugin.set_mixed_precision).
func (r *reader) acceleratedHalf(doc *document.Node) {
	mixed, origin := r.autocast()
	for _, dtype := range []string{"bf16", "fp16"} { // what Trainer takes by default is stronger than the variable, too
		if r.asked(dtype) {
			if mixed, origin = dtype, r.args[dtype].origin; origin == "" {
				origin = r.fallbacks[dtype].origin
			}
		}
	}
	said := sourced{mixed, origin}
	fields, _ := doc.Value.(map[string]*document.Node)
	for _, dtype := range []string{"fp16", "bf16"} {
		on := mixed == dtype || dtype == "bf16" && mixed == "fp8"
		section := fields[dtype]
		if section == nil && on {
			section = &document.Node{Path: dtype, Source: origin,
				Value: map[string]*document.Node{"enabled": said.node(dtype+".enabled", true)}}
			fields[dtype] = section
		}
		enabled := section.Get("enabled")
		if enabled.Auto() {
			if origin == "" {
				said.origin = enabled.Origin() + " (no mixed precision asked for)"
			}
			*enabled = *said.node(dtype+".enabled", on)
		}
		if enabled != nil && !on && mixed != "" && r.nodeBool(enabled, false) {
			r.contradiction(enabled, "%s is enabled, but accelerate's mixed precision is %s (%s), and it refuses to "+
				"start when they differ; change one of them", dtype, mixed, origin)
		}
	}
}

// acceleratedFSDP is FullyShardedDataParallelPlugin.
func (r *reader) acceleratedFSDP() {
	j := r.job
	version := r.variable("FSDP_VERSION")
	switch version.text {
	case "":
		j.FSDPVersion.Offer(1, "default of accelerate")
	case "1", "2":
		j.FSDPVersion.Offer(int(version.text[0]-'0'), version.origin)
	default:
		if why, unknown := shell.Unknown(version.text); unknown {
			j.FSDPVersion.Withhold(why)
		} else {
			r.wrongVariable(version, "1 or 2", &j.FSDPVersion)
		}
	}
	r.fsdp = true
	r.acceleratedStrategy()
	offload := Offload{Optimizer: "none", Params: "none"}
	if v := r.variable("FSDP_OFFLOAD_PARAMS"); r.truthOf(v, &j.Offload) {
		offload = Offload{Optimizer: "cpu", Params: "cpu"}
		j.Offload.Offer(offload, v.origin)
	}
	j.Offload.Offer(offload, "accelerate keeps parameters on the GPU")
	r.acceleratedUnits()
	r.stateDictWord(r.variable("FSDP_STATE_DICT_TYPE"))
	if v := r.variable("FSDP_ACTIVATION_CHECKPOINTING"); r.truthOf(v, &j.Checkpointing) {
		word := "full"
		if away := r.variable("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD"); r.truthOf(away, &j.Checkpointing) {
			word = "offload"
		}
		j.Checkpointing.Offer(word, v.origin)
		r.fsdpCheckpointing = true
	}
}

// acceleratedStrategy: version 1 has strategies, by name or number; version 2 reshards or does not. Version 1 never
// gets to read reshard_after_forward, because accelerate launch always passes a strategy.
func (r *reader) acceleratedStrategy() {
	set := &r.job.Sharding
	if !r.job.FSDPVersion.Known {
		set.Unknown("FSDP's version is not known: " + r.job.FSDPVersion.Origin)
		return
	}
	if r.job.FSDPVersion.Value == 2 {
		v := r.variable("FSDP_RESHARD_AFTER_FORWARD")
		if _, ok := document.ParseBool(v.text); v.text != "" && !ok {
			r.wrongVariable(v, "true or false with FSDP version 2", set)
			return
		}
		switch replicas := r.variable("PARALLELISM_CONFIG_DP_REPLICATE_SIZE"); {
		case v.text != "" && !r.truthOf(v, set):
			set.Offer("fsdp-grad", v.origin)
		case replicas.text != "" && replicas.text != "1" && r.onVariable("ACCELERATE_USE_PARALLELISM_CONFIG"):
			set.Offer("fsdp-hybrid", replicas.origin)
		case v.text == "":
			set.Offer("fsdp-full", "default of accelerate for FSDP version 2")
		default:
			set.Offer("fsdp-full", v.origin)
		}
		return
	}
	v := r.variable("FSDP_SHARDING_STRATEGY")
	if v.text == "" {
		v = sourced{"FULL_SHARD", "default of accelerate for FSDP"}
	}
	// torch.distributed.fsdp.ShardingStrategy counts from 1.
	names := []string{"", "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"}
	name := strings.ToLower(v.text)
	if n, err := pythonInt(name); err == nil && n >= 1 && n < len(names) {
		name = names[n]
	}
	strategy := fsdpStrategies()[name]
	if strategy == "" {
		r.wrongVariable(v, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2 or its number", set)
		return
	}
	set.Offer(strategy, v.origin)
	r.fsdp = strategy != "ddp"
}

// acceleratedUnits decides what is gathered at once; without a policy the whole model is one unit.
func (r *reader) acceleratedUnits() {
	set := &r.job.FSDPWrap
	v := r.variable("FSDP_AUTO_WRAP_POLICY")
	switch strings.ToUpper(v.text) {
	case "":
		set.Offer("whole", "default of accelerate: NO_WRAP")
	case "NO_WRAP":
		set.Offer("whole", v.origin)
	case "TRANSFORMER_BASED_WRAP":
		set.Offer("layers", v.origin)
	case "SIZE_BASED_WRAP":
		set.Offer("size", v.origin)
	default:
		r.wrongVariable(v, "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP", set)
	}
}

// truthOf reads a variable that is true or false; what is neither is recorded, what is not known is handed to set.
func (r *reader) truthOf(v sourced, set fact) bool {
	if v.text == "" {
		return false
	}
	on, ok := document.ParseBool(v.text)
	if !ok {
		r.wrongVariable(v, "true or false", set)
	}
	return ok && on
}

// wrongVariable is a value with which Accelerator() fails, or one that is not known.
func (r *reader) wrongVariable(v sourced, need string, set fact) {
	if why, unknown := shell.Unknown(v.text); unknown {
		set.Withhold(why)
		return
	}
	err := fmt.Errorf("%s is %q, need %s", v.origin, v.text, need)
	r.problem(err)
	r.fail(err.Error(), v.origin)
	set.Unknown(err.Error())
}

// acceleratedMegatron is MegatronLMPlugin.
func (r *reader) acceleratedMegatron() {
	j := r.job
	for _, size := range []struct {
		name string
		set  *Setting[int]
	}{
		{"TP_DEGREE", &j.TP}, {"PP_DEGREE", &j.PP}, {"CONTEXT_PARALLEL_SIZE", &j.CP},
		{"EXPERT_MODEL_PARALLEL_SIZE", &j.EP},
		{"NUM_MICRO_BATCHES", &j.GradAccum},
	} {
		v := r.variable("MEGATRON_LM_" + size.name)
		if n := r.count(v, size.set); n > 0 {
			size.set.Offer(n, v.origin)
		}
	}
	if v := r.variable("MEGATRON_LM_SEQUENCE_PARALLELISM"); v.text != "" {
		j.SequenceParallel.Offer(r.truthOf(v, &j.SequenceParallel), v.origin)
	}
	sharding := sourced{"ddp", "Megatron-LM without its distributed optimizer"}
	if v := r.variable("MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER"); r.truthOf(v, &j.Sharding) {
		sharding = sourced{"dist-optim", v.origin}
	}
	j.Sharding.Offer(sharding.text, sharding.origin)
	granularity := r.variable("MEGATRON_LM_RECOMPUTE_GRANULARITY")
	switch v := r.variable("MEGATRON_LM_RECOMPUTE_ACTIVATIONS"); {
	case granularity.text != "":
		j.Checkpointing.Offer(granularity.text, granularity.origin)
	case r.truthOf(v, &j.Checkpointing):
		j.Checkpointing.Offer("selective", v.origin)
	}
	if mixed, origin := r.autocast(); mixed != "" {
		j.ParamDtype.Offer(mixed, origin)
		j.MasterFP32.Offer(true, "Megatron-LM keeps an fp32 copy of half-precision weights")
	}
}

// acceleratedParallelism is ParallelismConfig: a mesh of replicas x shards x context or sequence x tensor parallel
// ranks.
func (r *reader) acceleratedParallelism() {
	j := r.job
	size := func(name string, set *Setting[int]) (int, string) {
		v := r.variable("PARALLELISM_CONFIG_" + name)
		return max(r.count(v, set), 1), v.origin
	}
	replicas, _ := size("DP_REPLICATE_SIZE", &Setting[int]{})
	shards, where := size("DP_SHARD_SIZE", &Setting[int]{})
	tp, tpOrigin := size("TP_SIZE", &j.TP)
	cp, cpOrigin := size("CP_SIZE", &j.CP)
	sp, spOrigin := size("SP_SIZE", &j.CP)
	if tp > 1 {
		j.TP.Offer(tp, tpOrigin)
	}
	if cp > 1 {
		j.CP.Offer(cp, cpOrigin)
	}
	if sp > 1 {
		j.CP.Offer(sp, spOrigin+": sequence parallel")
	}
	refuse := func(origin, format string, values ...any) {
		why := fmt.Sprintf("ValueError: "+format, values...)
		r.fail(why, origin)
		r.problem(fmt.Errorf("%s: %s; change the sizes", origin, why))
	}
	world := r.ranks()
	switch total := product(replicas, shards, tp, cp); {
	case cp > 1 && sp > 1:
		refuse(cpOrigin, "cp_size %d and sp_size %d exclude each other", cp, sp)
	case cp > 1 && j.FSDPVersion.Known && j.FSDPVersion.Value == 1:
		refuse(cpOrigin, "Using cp_size>1 requires FSDP2, but the FSDP plugin is version 1")
	case cp > 1 && !r.fsdp && r.deepspeed == nil:
		refuse(cpOrigin, "cp_size > 1 needs FSDP, which shards the model across the same ranks")
	case (tp > 1 || cp > 1) && replicas > 1 && shards == 1:
		refuse(where, "tensor or context parallelism cannot be used with pure data parallelism (dp_replicate_size "+
			"%d, dp_shard_size 1)", replicas)
	case sp == 1 && total > 1 && world > 0 && total != world:
		refuse(where, "ParallelismConfig total_size (%d) does not match num_processes (%d)", total, world)
	}
}
