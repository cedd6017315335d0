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
	owned := strings.Fields(`gradient_accumulation_steps gradient_clipping zero_stage offload_optimizer_device
		offload_param_device
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
