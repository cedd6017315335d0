package job

import (
	"slices"
	"strings"
)

// adapter reads LoRA, QLoRA and the quantisation below them (axolotl/loaders/model.py, _set_quantization_config).
func (a *axolotl) adapter() {
	p, r := &a.r.adapter, a.r
	kind := a.word("", "adapter")
	four, eight := a.on("load_in_4bit"), a.on("load_in_8bit")
	switch kind.Value {
	case "":
		p.use.Offer(false, "no adapter")
		if n := a.find("load_in_4bit", "load_in_8bit"); four || eight {
			r.contradiction(n, "load_in_8bit and load_in_4bit are not supported without an adapter, and axolotl "+
				"refuses to start; add adapter: qlora, or train unquantised weights")
		}
		if n := a.find("unfrozen_parameters"); n != nil {
			a.job.Method.Offer("freeze", n.Origin()+": only the parameters that it names are trained")
		}
		return
	case "lora", "qlora":
		p.use.Offer(true, kind.Origin)
	default:
		p.use.Offer(false, kind.Origin)
		a.job.Method.Offer("adapter", kind.Origin)
		return
	}
	if kind.Value == "qlora" && !four {
		r.contradiction(a.find("adapter"),
			"adapter: qlora requires load_in_4bit: true, and axolotl refuses to start without it; add it")
	}
	r.resumedAdapter(a.word("", "lora_model_dir").Value)
	if s := a.fraction(0, "lora_dropout"); s.Known {
		p.dropout.Offer(s.Value, s.Origin)
	}
	if targets := a.words("lora_target_modules"); len(targets.Value) > 0 {
		p.targets.Offer(targets.Value, targets.Origin)
	} else if n := a.find("lora_target_linear"); n != nil && r.nodeBool(n, false) {
		p.targets.Offer([]string{"all-linear"}, n.Origin())
	}
	if save := a.words("lora_modules_to_save"); len(save.Value) > 0 {
		p.save.Offer(save.Value, save.Origin)
	}
	switch {
	case four:
		q := &Quant{Method: "bnb", Bits: 4, Type: a.word("nf4", "bnb_config_kwargs.bnb_4bit_quant_type").Value,
			Double:       a.flag(true, "bnb_config_kwargs.bnb_4bit_use_double_quant").Value,
			ComputeDtype: r.load.Or(""), Storage: "bf16"}
		if s := a.word("", "bnb_config_kwargs.bnb_4bit_quant_storage"); s.Value != "" {
			q.Storage = s.Value
		}
		a.job.Quant.Offer(q, a.find("load_in_4bit").Origin())
	case eight:
		a.job.Quant.Offer(&Quant{Method: "bnb", Bits: 8, Type: "int8"}, a.find("load_in_8bit").Origin())
	}
}

// parallel reads the sizes of parallelism.
func (a *axolotl) parallel() {
	j := a.job
	for _, size := range []struct {
		set   *Setting[int]
		paths []string
	}{{&j.CP, []string{"context_parallel_size", "sequence_parallel_degree"}}, {&j.TP, []string{"tensor_parallel_size"}},
		{&j.EP, []string{"expert_parallel_size"}}} {
		if a.find(size.paths...) != nil {
			size.set.take(a.size(1, size.paths...))
		}
	}
}

// fsdp: words in fsdp, or a section fsdp_config alone; its keys with or without the prefix fsdp_. Version 1 unless
// fsdp_version says something else (utils/schemas/validation.py, utils/trainer.py setup_fsdp_envs).
func (a *axolotl) fsdp() {
	r, j := a.r, a.job
	words := strings.Fields(strings.ToLower(strings.Join(a.words("fsdp").Value, " ")))
	section := a.find("fsdp_config")
	if len(words) == 0 && section == nil {
		return
	}
	at := a.find("fsdp", "fsdp_config")
	if n := a.find("deepspeed"); n != nil && n.Value != false {
		r.contradiction(at, "deepspeed and fsdp cannot be used together, and axolotl refuses to start; remove one")
		return
	}
	key := func(name string) []string { return []string{"fsdp_config." + name, "fsdp_config.fsdp_" + name} }
	version := a.number(1, append([]string{"fsdp_version"}, key("version")...)...)
	j.FSDPVersion.take(version)
	r.fsdp = true
	strategy, origin := "fsdp-full", at.Origin()
	for _, word := range append(words, strings.ToLower(a.word("", key("sharding_strategy")...).Value)) {
		if s := fsdpStrategies()[word]; s != "" {
			strategy = s
		}
	}
	if n := a.find(key("reshard_after_forward")...); n != nil && version.Value == 2 && !r.nodeBool(n, true) {
		strategy, origin = "fsdp-grad", n.Origin()
	}
	if n := a.find("dp_replicate_size"); n != nil && a.size(1, "dp_replicate_size").Value > 1 {
		strategy, origin = "fsdp-hybrid", n.Origin()
	}
	r.fsdp = strategy != "ddp"
	j.Sharding.Offer(strategy, origin)
	offload := Offload{Optimizer: "none", Params: "none"}
	if a.on(key("offload_params")...) || slices.Contains(words, "offload") {
		offload = Offload{Optimizer: "cpu", Params: "cpu"}
	}
	j.Offload.Offer(offload, at.Origin())
	switch policy := a.word("", key("auto_wrap_policy")...); {
	case strings.HasPrefix(strings.ToUpper(policy.Value), "SIZE"):
		j.FSDPWrap.Offer("size", policy.Origin)
	case policy.Value != "" || slices.Contains(words, "auto_wrap"):
		j.FSDPWrap.Offer("layers", at.Origin())
	default:
		j.FSDPWrap.Offer("whole", at.Origin()+" without auto_wrap_policy")
	}
	if n := a.find(key("activation_checkpointing")...); n != nil && r.nodeBool(n, false) {
		r.fsdpCheckpointing = true
		j.Checkpointing.replace(Setting[string]{})
		j.Checkpointing.Offer("full", n.Origin())
	}
}

// dtypes: Trainer trains the weights in the dtype in which they are loaded. Embeddings and head become fp32 first and
// half again only for adapters, flash attention and cut_cross_entropy (axolotl/loaders/model.py).
func (a *axolotl) dtypes() {
	j := a.job
	half := a.r.load.Known && a.r.load.Value != "fp32"
	attention := j.Attention.Or("")
	casts := strings.HasPrefix(attention, "flash") || attention == "flex_attention" || attention == "xformers" ||
		j.FusedLoss.Value == "cut-ce"
	if half && !a.r.adapter.use.Value && !casts && !a.r.fsdp && a.r.deepspeed == nil {
		a.r.load.Origin += " (embeddings and head stay in fp32 with this attention)"
	}
}

// axolotlDefaults fills what nobody said.
func (r *reader) axolotlDefaults() {
	if axolotlOf(r) == nil {
		return
	}
	r.applyFallbacks()
	r.trainerDefaults()
}

// axolotlRefusals are checks of its schema (axolotl/utils/schemas/validation.py and config.py, 0.8 to 0.18).
func axolotlRefusals() []refusal {
	key := func(field string, test func(a *axolotl) bool) func(*reader) bool {
		return func(r *reader) bool {
			return axolotlOf(r) != nil && axolotlOf(r).find(field) != nil && test(axolotlOf(r))
		}
	}
	is := func(a *axolotl, path, value string) bool { return a.word("", path).Value == value }
	version2 := func(a *axolotl) bool { return a.job.FSDPVersion.Value == 2 }
	return []refusal{
		{"sample_packing", "ValueError: `sample_packing: true` does not work with RLHF training", "drop sample_packing",
			key("rl", func(a *axolotl) bool { return a.on("sample_packing") })},
		{"load_in_8bit", "ValueError: Can't load qlora in 8bit", "drop load_in_8bit",
			key("load_in_8bit", func(a *axolotl) bool { return a.on("load_in_8bit") && is(a, "adapter", "qlora") })},
		{"gptq", "ValueError: Can't load qlora if gptq", "use adapter: lora",
			key("gptq", func(a *axolotl) bool { return a.on("gptq") && is(a, "adapter", "qlora") })},
		{"base_model", "ValueError: either datasets or pretraining_dataset is required", "add datasets",
			key("base_model", func(a *axolotl) bool { return a.find("datasets", "pretraining_dataset") == nil })},
		{"cut_cross_entropy", "ValueError: Cut Cross Entropy requires fp16/bf16 training for backward pass",
			"set bf16: true",
			key("cut_cross_entropy", func(a *axolotl) bool {
				off := func(path string) bool { n := a.find(path); return n == nil || n.Value == false }
				return a.job.FusedLoss.Value == "cut-ce" && off("bf16") && off("fp16")
			})},
		{"optimizer", "ValueError: Muon optimizer is currently incompatible with DeepSpeed", "drop one of them",
			key("optimizer", func(a *axolotl) bool { return is(a, "optimizer", "muon") && a.r.deepspeed != nil })},
		{"optimizer", "ValueError: Muon optimizer is only compatible with FSDP2", "set fsdp_version: 2",
			key("optimizer", func(a *axolotl) bool { return is(a, "optimizer", "muon") && a.r.fsdp && !version2(a) })},
		{"optimizer", "ValueError: FSDP2 not compatible with 8-bit AdamW of bitsandbytes", "use adamw_torch_8bit",
			key("optimizer", func(a *axolotl) bool {
				return a.r.fsdp && version2(a) &&
					(is(a, "optimizer", "adamw_8bit") || is(a, "optimizer", "adamw_bnb_8bit"))
			})},
		{"optimizer", "ValueError: FSDP Offload not compatible with 8-bit optimizers",
			"use another optimizer, or no offload",
			key("optimizer", func(a *axolotl) bool {
				return a.r.fsdp && !version2(a) && strings.Contains(a.word("", "optimizer").Value, "8bit") &&
					a.job.Offload.Value.Params == "cpu"
			})},
		{"max_memory", "ValueError: max_memory and gpu_memory_limit are mutually exclusive", "keep one of them",
			key("max_memory", func(a *axolotl) bool { return a.find("gpu_memory_limit") != nil })},
		{"lora_mlp_kernel", "ValueError: lora_mlp_kernel, lora_qkv_kernel, and lora_o_kernel are not compatible " +
			"with 8-bit LoRA", "drop the kernels",
			func(r *reader) bool {
				a := axolotlOf(r)
				return a != nil && a.on("load_in_8bit") && is(a, "adapter", "lora") &&
					(a.on("lora_mlp_kernel") || a.on("lora_qkv_kernel") || a.on("lora_o_kernel"))
			}},
	}
}
