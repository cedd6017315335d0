package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/optim"
)

// recogniseLlamafactory: its own launcher, and its train.py under another one when the arguments have its fields.
func recogniseLlamafactory(r *reader) (family, bool) {
	f := family{framework: "llamafactory", fields: llamafactoryFields}
	if r.job.Launcher.Value == "llamafactory-cli" {
		f.origin = "llamafactory-cli starts it"
		return f, true
	}
	script := r.job.Script.Value
	slashes := "/" + filepath.ToSlash(script)
	switch {
	case strings.HasPrefix(slashes, "/-m llamafactory.") || strings.HasSuffix(slashes, "/llamafactory/launcher.py"):
		f.origin = script + " is LLaMA-Factory's"
	case strings.HasSuffix(slashes, "/train.py") || strings.HasSuffix(slashes, "/train_bash.py"):
		staged := r.mentions("stage") && r.mentions("template", "cutoff_len", "dataset_dir")
		if !staged && !r.mentions("finetuning_type") {
			return f, false
		}
		f.origin = "the arguments are LLaMA-Factory's"
	default:
		return f, false
	}
	return f, true
}

// llamafactoryFields are the fields of its arguments beside those of TrainingArguments (llamafactory/hparams, 0.8 to
// 0.9.5).
func llamafactoryFields(*reader) fieldSet {
	return fieldSet{
		wordArgument: `stage finetuning_type adapter_name_or_path model_revision cache_dir lora_rank lora_target
			additional_target
			cutoff_len flash_attn quantization_bit quantization_method quantization_type quantization_device_map
			freeze_trainable_layers
			freeze_trainable_modules freeze_extra_modules pref_loss ref_model reward_model reward_model_type badam_mode
			galore_rank apollo_rank
			dataset eval_dataset template rope_scaling mixture_of_depths infer_dtype loraplus_lr_ratio oft_rank
			oft_block_size
			tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size
			recompute_granularity
			ray_num_workers`,
		boolArgument: `pure_bf16 disable_gradient_checkpointing use_unsloth use_unsloth_gc use_reentrant_gc
			enable_liger_kernel double_quantization
			use_galore galore_layerwise use_apollo apollo_layerwise use_badam use_adam_mini use_muon neat_packing
			upcast_layernorm upcast_lmhead_output
			shift_attn pissa_init fp8 predict_with_generate train_on_prompt mask_history resize_vocab use_llama_pro
			use_kt
			freeze_vision_tower freeze_multi_modal_projector freeze_language_model create_new_adapter streaming
			use_distributed_optimizer`,
	}
}

// llamafactoryHistory are its defaults (llamafactory/hparams over the tags v0.8.3 to v0.9.5).
func llamafactoryHistory() []fieldHistory {
	return []fieldHistory{
		{"max_length", "", since("1024", "0.9.1=2048")},
		{"activation_offloading", "", since("false")},
	}
}

// readLLaMAFactory reads its arguments: a file with key=value words over it, or a command line, in fields of its own
// and those of TrainingArguments.
func (r *reader) readLLaMAFactory() {
	args, err := r.llamafactoryArguments()
	if err != nil {
		err = fmt.Errorf("arguments of LLaMA-Factory: %w", err)
		r.rejected(err, "command line")
		r.lost("the arguments of LLaMA-Factory could not be read")
		return
	}
	r.args = args
	r.llamafactoryRay()
	stage := r.word("stage", "sft", "default of LLaMA-Factory")
	task := stage.text
	if task == "pt" {
		task = "pretrain"
	}
	r.job.Task.Offer(task, stage.origin)
	r.llamafactoryNames()
	r.llamafactoryMethod()
	r.llamafactoryQuantisation()
	r.llamafactoryActivations()
	r.llamafactoryReference(stage)
	r.fallbackTo("llamafactory", "", llamafactoryHistory())
	r.llamafactoryOptimizer()
	if r.on("fp8") { // train/fp8_utils.py: ACCELERATE_MIXED_PRECISION=fp8 whatever bf16 says
		r.job.Precision.Offer("fp8", r.args["fp8"].origin)
	}
	r.llamafactoryMegatron()
	r.readSettings()
	r.llamafactoryDtypes()
}

// llamafactoryRay reads how many workers USE_RAY starts, each with a GPU of its own, and packed onto as few nodes as
// hold them.
func (r *reader) llamafactoryRay() {
	if r.job.Launcher.Value != "llamafactory-cli" || !r.enabled("USE_RAY") || r.enabled("USE_MCA") ||
		r.enabled("USE_MEGATRON_BRIDGE") {
		return
	}
	said := r.word("ray_num_workers", "1", "default of LLaMA-Factory")
	workers, err := strconv.Atoi(said.text)
	switch {
	case err != nil || workers < 1:
	case workers == 1 || workers <= r.visibleGPUs():
		r.job.NNodes.Offer(1, said.origin+": Ray packs its workers onto one node with a GPU for each")
		r.job.NProc.Offer(workers, said.origin)
	default:
		r.job.WorldSize.Offer(workers, said.origin)
	}
}

// llamafactoryMegatron reads the settings that Megatron takes in the same file (USE_MCA: mcore_adapter's
// TrainingArguments). The dtypes are Megatron's own: weights in the compute dtype, and the optimizer with an fp32 copy
// of them.
func (r *reader) llamafactoryMegatron() {
	if !r.enabled("USE_MCA") && !r.enabled("USE_MEGATRON_BRIDGE") {
		return
	}
	j := r.job
	r.integer("tensor_model_parallel_size", &j.TP)
	r.integer("pipeline_model_parallel_size", &j.PP)
	r.integer("context_parallel_size", &j.CP)
	r.integer("expert_model_parallel_size", &j.EP)
	if r.on("use_distributed_optimizer") {
		j.Sharding.Offer("dist-optim", r.args["use_distributed_optimizer"].origin)
	}
	switch granularity := r.args["recompute_granularity"]; granularity.text {
	case "":
	case "full", "selective":
		j.Checkpointing.Offer(granularity.text, granularity.origin)
	}
	if compute := r.llamafactoryCompute(); compute != "" {
		const origin = "Megatron keeps weights in the compute dtype"
		j.Precision.Offer(compute, origin)
		j.ParamDtype.Offer(compute, origin)
		j.MasterFP32.Offer(true, "Megatron's optimizer keeps an fp32 copy of half-precision weights")
	}
}

// llamafactoryArguments reads a file, with OmegaConf's overrides, or the command line (hparams/parser.py, read_args).
func (r *reader) llamafactoryArguments() (map[string]argument, error) {
	words := r.job.ScriptArgs
	if len(words) == 0 || !isArgumentFile(words[0]) {
		return parseArguments(words, r.grammarOf(true, "command line")), nil
	}
	doc, problems, err := r.loadFile(words[0])
	r.unread(problems...)
	if err != nil {
		return nil, err
	}
	if doc.Value == nil {
		doc.Value = map[string]*document.Node{}
	}
	for _, word := range words[1:] {
		if err := document.Override(doc, word); err != nil {
			return nil, err
		}
	}
	document.Interpolate(doc, r.lookupEnv)
	return fileArguments(doc, r.argumentKinds())
}

// word is an argument, or the framework's default for it.
func (r *reader) word(name, fallback, origin string) argument {
	if a := r.args[name]; a.text != "" {
		return a
	}
	return argument{text: fallback, list: []string{fallback}, origin: origin}
}

// llamafactoryNames gives fields the names that the rest of the family has for them.
func (r *reader) llamafactoryNames() {
	for own, common := range map[string]string{"cutoff_len": "max_length", "lora_rank": "lora_r",
		"enable_liger_kernel": "use_liger_kernel",
		"lora_target":         "lora_target_modules", "additional_target": "lora_modules_to_save"} {
		if a, given := r.args[own]; given {
			r.args[common] = a
		}
	}
	for _, name := range []string{"lora_target_modules", "lora_modules_to_save"} {
		if a, given := r.args[name]; given {
			a.list = splitList(strings.Join(a.list, ","))
			if slices.Equal(a.list, []string{"all"}) {
				a.list = []string{"all-linear"}
			}
			r.args[name] = a
		}
	}
	if stage := r.args["stage"].text; stage != "" && stage != "sft" && stage != "pt" && r.on("use_liger_kernel") {
		a := r.args["use_liger_kernel"]
		delete(r.args, "use_liger_kernel")
		r.job.FusedLoss.Offer("none", a.origin+": Liger keeps whole logits in the stage "+stage)
		r.job.LayerKernels.Offer("liger", a.origin)
	}
}

// llamafactoryMethod: finetuning_type is lora unless something else is named; alpha is twice the rank.
func (r *reader) llamafactoryMethod() {
	p := &r.adapter
	kind := r.word("finetuning_type", "lora", "default of LLaMA-Factory")
	const origin = "default of LLaMA-Factory"
	if kind.text != "lora" {
		p.use.Offer(false, kind.origin)
		r.job.Method.Offer(kind.text, kind.origin)
		return
	}
	p.use.Offer(true, kind.origin)
	if !r.on("create_new_adapter") {
		r.resumedAdapter(r.args["adapter_name_or_path"].text)
	}
	r.integer("lora_r", &p.r)
	p.r.Offer(8, origin)
	r.integer("lora_alpha", &p.alpha)
	p.alpha.Offer(product(2, p.r.Value), "twice lora_rank: "+origin)
	if a := r.args["lora_target_modules"]; len(a.list) > 0 {
		p.targets.Offer(a.list, a.origin)
	}
	p.targets.Offer([]string{"all-linear"}, origin)
	if _, given := r.args["lora_dropout"]; !given {
		p.dropout.Offer(0, origin)
	}
}

// llamafactoryQuantisation: quantization_bit alone is bitsandbytes' nf4 with quantised scales, stored and computed in
// the compute dtype (model/model_utils/quantization.py).
func (r *reader) llamafactoryQuantisation() {
	a, given := r.args["quantization_bit"]
	if !given {
		return
	}
	bits, err := pythonInt(a.text)
	if err != nil || bits < 2 || bits > 8 {
		r.wrongArgument(a, "2, 3, 4, 5, 6 or 8")
		return
	}
	method := r.word("quantization_method", "bnb", "")
	compute := r.llamafactoryCompute()
	q := &Quant{Method: strings.Replace(method.text, "bitsandbytes", "bnb", 1), Bits: bits, ComputeDtype: compute}
	if q.Method == "bnb" && bits == 4 {
		q.Type = r.word("quantization_type", "nf4", "").text
		double, said := r.boolean("double_quantization")
		q.Double = double || !said
		q.Storage = compute
	} else if q.Method == "bnb" {
		q.Type, q.ComputeDtype = "int8", ""
	}
	r.job.Quant.Offer(q, a.origin)
}

// llamafactoryCompute is the dtype in which the weights are loaded; "" when it is that of the checkpoint.
func (r *reader) llamafactoryCompute() string {
	switch {
	case r.on("bf16"), r.on("pure_bf16"):
		return "bf16"
	case r.on("fp16"):
		return "fp16"
	}
	return ""
}

// llamafactoryActivations: checkpointing is on unless it is disabled (model/model_utils/checkpointing.py); flash_attn
// has words of its own (model/model_utils/attention.py); rows are packed in the stage pt unless told otherwise.
func (r *reader) llamafactoryActivations() {
	j := r.job
	for _, name := range []string{"use_unsloth_gc", "use_unsloth"} {
		if r.on(name) && !r.on("disable_gradient_checkpointing") {
			j.Checkpointing.Offer("unsloth", r.args[name].origin)
		}
	}
	if r.on("disable_gradient_checkpointing") {
		if r.on("gradient_checkpointing") {
			j.Checkpointing.Offer("full", r.args["gradient_checkpointing"].origin+
				": Trainer's own switch, which stays on")
		}
		j.Checkpointing.Offer("none", r.args["disable_gradient_checkpointing"].origin)
	}
	j.Checkpointing.Offer("full", "LLaMA-Factory checkpoints unless disable_gradient_checkpointing is set")
	if a := r.args["flash_attn"]; a.text != "" {
		switch word := map[string]string{"disabled": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2",
			"fa3": "flash_attention_3", "auto": "auto"}[a.text]; word {
		case "":
			r.wrongArgument(a, "auto, disabled, sdpa, fa2 or fa3")
		case "auto":
		default:
			j.Attention.Offer(word, a.origin)
		}
	}
	if on, given := r.boolean("packing"); given {
		j.Packing.Offer(on, r.args["packing"].origin)
	} else if r.on("neat_packing") {
		j.Packing.Offer(true, r.args["neat_packing"].origin)
	}
	j.Packing.Offer(r.args["stage"].text == "pt", "default of LLaMA-Factory: only the stage pt packs")
}

// llamafactoryOptimizer: switches that replace Trainer's optimizer (train/trainer_utils.py, create_custom_optimizer).
func (r *reader) llamafactoryOptimizer() {
	j := r.job
	for _, name := range optim.Words(optim.LLaMAFactory) {
		if r.on(name) {
			r.offerOptimizer(name, r.args[name].origin, optim.LLaMAFactory)
		}
	}
	for _, name := range []string{"galore_layerwise", "apollo_layerwise"} {
		if r.on(name) && r.on("use_"+strings.TrimSuffix(name, "_layerwise")) {
			j.OptimizerInBackward.Offer(true, r.args[name].origin)
		}
	}
	for name, what := range map[string]string{"use_badam": "BAdam holds the states of one block at a time",
		"use_adam_mini": "Adam-mini keeps one second moment for a whole block"} {
		if r.on(name) {
			j.Optimizer.Unknown(r.args[name].origin + ": " + what +
				", which is not estimated; give the nearest with --optimizer")
		}
	}
	if layers, given := r.args["freeze_trainable_layers"]; given && r.job.Method.Value == "freeze" {
		if n, err := pythonInt(layers.text); err == nil {
			r.job.TrainableLayers.Offer(n, layers.origin)
		}
	}
	if r.job.Method.Value == "freeze" {
		r.job.TrainableLayers.Offer(2, "default of LLaMA-Factory: the last two layers")
	}
}

// llamafactoryDtypes: weights are loaded in the compute dtype, and what is trained becomes fp32, except with pure_bf16,
// BAdam, and unquantised weights under ZeRO-3 (model/adapter.py, init_adapter).
func (r *reader) llamafactoryDtypes() {
	j := r.job
	compute := r.llamafactoryCompute()
	if compute == "" {
		r.load.Offer(autoDtype, "LLaMA-Factory loads the checkpoint's own dtype when neither bf16 nor fp16 is on")
	} else {
		r.load.Offer(compute, "LLaMA-Factory loads the weights in the compute dtype")
	}
	if r.on("pure_bf16") {
		j.Precision.Offer("bf16", r.args["pure_bf16"].origin)
		j.MasterFP32.Offer(false, r.args["pure_bf16"].origin)
	}
	switch {
	case r.on("pure_bf16"), r.on("use_badam"):
		name := map[bool]string{true: "pure_bf16", false: "use_badam"}[r.on("pure_bf16")]
		if compute != "" {
			j.ParamDtype.Offer(compute, r.args[name].origin)
		}
	case !j.Sharding.Known || j.Sharding.Value != "zero3" || j.Quant.Value != nil:
		j.ParamDtype.Offer("fp32", "LLaMA-Factory turns what is trained into fp32 (no pure_bf16)")
	}
}

// llamafactoryDefaults fills what nobody said. Gemma 2 gets flash-attn where it is installed, and eager attention
// otherwise (model/model_utils/attention.py).
func (r *reader) llamafactoryDefaults() {
	if r.args == nil { // they could not be read
		return
	}
	r.applyFallbacks()
	if a := r.job.Architecture; a != nil && a.Facts.FactoryFlash && !r.job.Attention.Known {
		if r.versions["flash-attn"] != "" {
			r.job.Attention.Offer("flash_attention_2", "LLaMA-Factory for "+a.Type+" with "+r.installed("flash-attn"))
		}
		r.job.Attention.Withhold("LLaMA-Factory gives " + a.Type +
			" flash_attention_2 where flash-attn is installed, and eager attention otherwise; give --attention")
	}
	r.trainerDefaults()
}
