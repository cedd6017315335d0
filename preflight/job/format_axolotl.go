package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
)

// recogniseAxolotl: its module, and its old script when the file has its keys.
func recogniseAxolotl(r *reader) (family, bool) {
	script := filepath.ToSlash(r.job.Script.Value)
	f := family{framework: "axolotl", origin: script + " is axolotl's"}
	switch {
	case script == "-m axolotl.cli.train", strings.HasSuffix("/"+script, "/axolotl/cli/train.py"):
		return f, true
	case strings.HasSuffix("/"+script, "/scripts/finetune.py"), strings.HasSuffix("/"+script, "/scripts/train.py"):
		return f, r.mentions("base_model") && r.mentions("datasets", "pretraining_dataset")
	}
	return f, false
}

// axolotl is a configuration that is being read.
type axolotl struct {
	*configuration
	job *Job
}

// readAxolotlYAML reads axolotl's configuration into the arguments of Trainer that it makes of it
// (axolotl/utils/schemas, 0.5 to 0.18).
func (r *reader) readAxolotlYAML() {
	doc := r.axolotlDocument()
	if doc == nil {
		for _, word := range r.job.ScriptArgs {
			if isArgumentFile(word) && !r.hasFile(word) && r.src.Place != Elsewhere {
				r.fail(word+": no such file", "command line")
			}
		}
		r.lost("axolotl's configuration could not be read")
		return
	}
	r.args = map[string]argument{}
	a := &axolotl{&configuration{r: r, doc: doc, fallback: "default of " + r.installed("axolotl"), opens: true}, r.job}
	a.names()
	a.batch()
	a.task()
	a.precision()
	a.optimizer()
	a.activations()
	a.attention()
	a.adapter()
	a.loss()
	a.parallel()
	if n := a.find("deepspeed"); n != nil && n.Value != false {
		a.argument("deepspeed", n)
	}
	a.fsdp()
	r.fallbackTo("axolotl", "", []fieldHistory{{"optim", "", since("adamw_hf", "0.8=adamw_torch_fused")}})
	r.readSettings()
	a.dtypes()
	r.own = a
}

// axolotlDocument reads the file with the options of the command line over it: click's --micro-batch-size 2 and
// --no-sample-packing, or fire's --deepspeed x.json behind another launcher. nil when there is none; the reason is
// recorded.
func (r *reader) axolotlDocument() *document.Node {
	words := slices.Clone(r.job.ScriptArgs)
	i := slices.IndexFunc(words, isArgumentFile)
	if i < 0 || i > 0 && strings.HasPrefix(words[0], "-") && i != 1 {
		r.unread(fmt.Errorf("axolotl needs its YAML configuration as the first argument, and %q has none; name it",
			strings.Join(words, " ")))
		return nil
	}
	file := words[i]
	words = slices.Delete(words, i, i+1)
	doc := r.loadDocument(file)
	if doc == nil {
		return nil
	}
	if _, ok := doc.Value.(map[string]*document.Node); !ok {
		r.unread(doc.Wrong("an object with axolotl's keys"))
		return nil
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if !strings.HasPrefix(word, "--") {
			continue
		}
		option, value, attached := strings.Cut(word, "=")
		key := strings.ReplaceAll(strings.TrimPrefix(option, "--"), "-", "_")
		switch {
		case attached:
		case len(words) > 0 && !isOption(words[0]):
			value, words = words[0], words[1:]
		case strings.HasPrefix(key, "no_"):
			key, value = strings.TrimPrefix(key, "no_"), "false"
		default:
			value = "true"
		}
		if err := document.Set(doc, key, value, "command line "+option); err != nil {
			r.unread(err)
		}
	}
	return doc
}

// argument makes a key an argument of Trainer.
func (a *axolotl) argument(name string, n *document.Node) {
	arg, err := nodeArgument(n)
	if err != nil {
		a.r.unread(err)
		return
	}
	a.r.args[name] = arg
}

// at is a key of the configuration; nil when it is absent, or when another framework trains.
func (a *axolotl) At(path string) *document.Node {
	if a == nil {
		return nil
	}
	return a.find(path)
}

// on reports whether a key is true.
func (a *axolotl) on(paths ...string) bool { return a.flag(false, paths...).Value }

// truth sets a boolean argument of Trainer.
func (a *axolotl) truth(name string, value bool, origin string) {
	a.r.args[name] = argument{text: fmt.Sprint(value), origin: origin}
}

// names copies keys that only have another name, or the same one.
func (a *axolotl) names() {
	for _, pair := range [][2]string{{"base_model", "model_name_or_path"}, {"revision_of_model", "model_revision"},
		{"sequence_len", "max_length"}, {"optim_args", "optim_args"},
		{"optim_target_modules", "optim_target_modules"}, {"auto_find_batch_size", "auto_find_batch_size"},
		{"gradient_checkpointing_kwargs", "gradient_checkpointing_kwargs"},
		{"torch_compile", "torch_compile"}, {"eval_strategy", "eval_strategy"}, {"save_strategy", "save_strategy"},
		{"load_best_model_at_end", "load_best_model_at_end"},
		{"eval_batch_size", "per_device_eval_batch_size"}, {"lora_r", "lora_r"}, {"lora_alpha", "lora_alpha"},
		{"peft_use_dora", "use_dora"}, {"peft_use_rslora", "use_rslora"},
		{"learning_rate", "learning_rate"}, {"weight_decay", "weight_decay"}, {"max_grad_norm", "max_grad_norm"},
		{"adam_beta1", "adam_beta1"}, {"adam_beta2", "adam_beta2"},
		{"adam_epsilon", "adam_epsilon"}} {
		if n := a.find(pair[0]); n != nil {
			a.argument(pair[1], n)
		}
	}
	if a.find("sequence_len") == nil {
		a.r.fallbackTo("axolotl", "", []fieldHistory{{"max_length", "", since("512")}})
	}
	a.job.Packing.take(a.flag(false, "sample_packing"))
	if n := a.find("val_set_size", "test_datasets"); n != nil {
		if share, err := n.Float(); err != nil || share > 0 {
			a.truth("do_eval", true, n.Origin())
		}
	}
}

// batch: gradient_accumulation_steps, or batch_size as what one GPU handles in a step (utils/config, normalize_config).
func (a *axolotl) batch() {
	micro := a.size(1, "micro_batch_size")
	a.job.MicroBatch.take(micro)
	total, accum := a.find("batch_size"), a.find("gradient_accumulation_steps")
	switch given := a.find("micro_batch_size"); {
	case total != nil && accum != nil:
		a.r.contradiction(total, "batch_size and gradient_accumulation_steps are both given, and axolotl takes only "+
			"one of them; remove one")
	case total == nil && accum == nil || total == nil && given == nil || accum == nil && given == nil:
		a.r.contradiction(a.doc, "axolotl needs two of micro_batch_size, gradient_accumulation_steps and "+
			"batch_size; add one")
	}
	steps := a.size(1, "gradient_accumulation_steps")
	if whole := a.size(1, "batch_size"); total != nil && whole.Known && micro.Known {
		steps = Setting[int]{Value: max(whole.Value/micro.Value, 1), Known: true,
			Origin: whole.Origin + " / micro_batch_size"}
	}
	a.job.GradAccum.take(steps)
	for name, s := range map[string]Setting[int]{"per_device_train_batch_size": micro,
		"gradient_accumulation_steps": steps} {
		if s.Known {
			a.r.args[name] = argument{text: fmt.Sprint(s.Value), origin: s.Origin}
		}
	}
}

// task: rl names the method of reinforcement learning; a pretraining_dataset is trained on whole.
func (a *axolotl) task() {
	task := &a.job.Task
	rl := a.word("", "rl")
	if rl.Value != "" {
		word := map[string]string{"dpo": "dpo", "ipo": "dpo", "orpo": "dpo", "simpo": "dpo", "kto": "kto",
			"grpo": "grpo", "gdpo": "grpo"}[rl.Value]
		if word == "" {
			task.Unknown(rl.Origin + ": rl " + rl.Value + " is not known here")
			return
		}
		task.Offer(word, rl.Origin)
		a.reference(rl)
		return
	}
	a.job.RefModel.Offer(false, "no rl: nothing is compared with a reference model")
	if n := a.find("reward_model", "process_reward_model"); n != nil && a.r.nodeBool(n, false) {
		task.Offer("rm", n.Origin())
		kind := map[string]string{"reward_model": "SEQ_CLS", "process_reward_model": "TOKEN_CLS"}[n.Path]
		a.r.adapter.kind.Offer(kind, n.Origin()) // of the model's class (loaders/adapter.py: _get_peft_task_type)
	}
	if n := a.find("pretraining_dataset"); n != nil {
		task.Offer("pretrain", n.Origin())
	}
	task.Offer("sft", "neither rl nor pretraining_dataset")
}

// reference: without adapters the model is loaded once more, except where the loss needs none (axolotl/train.py,
// setup_reference_model).
func (a *axolotl) reference(rl Setting[string]) {
	ref := &a.job.RefModel
	beta := a.find("trl.beta", "rl_beta")
	switch {
	case rl.Value == "orpo" || rl.Value == "simpo":
		ref.Offer(false, rl.Origin+": "+rl.Value+" has no reference model")
	case a.find("adapter") != nil && !a.on("rl_adapter_ref_model"):
		ref.Offer(false, a.find("adapter").Origin()+": the model with its adapters switched off is the reference")
	case a.on("precompute_ref_log_probs"):
		ref.Offer(false, a.find("precompute_ref_log_probs").Origin())
	case a.job.Task.Value != "grpo":
		ref.Offer(true, rl.Origin+": "+rl.Value+" compares with a second copy of the model")
	case beta == nil:
		ref.Unknown("trl.beta is not given, and its default depends on the version of trl; give it")
	default:
		value, err := beta.Float()
		if err != nil {
			a.r.unread(err)
		}
		ref.Offer(value != 0, beta.Origin())
	}
}

// precision: bf16 is "auto", which is true on every GPU that can (utils/config, resolve_dtype). The weights are loaded
// in that dtype too.
func (a *axolotl) precision() {
	bf16, fp16 := a.find("bf16"), a.find("fp16")
	onFP16 := fp16 != nil && a.r.nodeBool(fp16, false)
	onBF16 := bf16 == nil || bf16.Value == "auto" || bf16.Value == "full" || a.r.nodeBool(bf16, false)
	origin := a.fallback + ": bf16 auto, on where the GPU can"
	if bf16 != nil {
		origin = bf16.Origin()
	}
	if onFP16 && (bf16 == nil || bf16.Value == "auto") {
		onBF16 = false
	}
	load := &a.r.load
	switch n := a.find("bfloat16", "float16"); {
	case onBF16:
		a.truth("bf16", true, origin)
		load.Offer("bf16", origin)
	case a.on("bfloat16"):
		load.Offer("bf16", n.Origin()+" (no mixed precision)")
	case onFP16:
		a.truth("fp16", true, fp16.Origin())
		load.Offer("fp16", fp16.Origin())
	case a.on("load_in_8bit"):
		load.Offer("fp16", a.find("load_in_8bit").Origin())
	case a.on("float16"):
		load.Offer("fp16", n.Origin()+" (no mixed precision)")
	default:
		load.Offer("fp32", "neither bf16 nor fp16 is on")
	}
	if n := a.find("fp8"); n != nil && a.r.nodeBool(n, false) {
		a.job.Precision.Offer("fp8", n.Origin())
	}
}

// optimizer: Trainer's names and axolotl's own (utils/schemas/enums.py, CustomSupportedOptimizers).
func (a *axolotl) optimizer() {
	if n := a.find("optimizer"); n != nil {
		a.argument("optim", n)
	}
}

// activations: gradient_checkpointing is off by default, and has words for offloading; since 0.12 activation_offloading
// is a key of its own.
func (a *axolotl) activations() {
	j := a.job
	n := a.find("gradient_checkpointing")
	offloading := a.find("activation_offloading")
	word := ""
	if n != nil {
		word, _ = n.Value.(string)
	}
	switch {
	case word == "unsloth":
		j.Checkpointing.Offer("unsloth", n.Origin())
	case word == "offload" || word == "offload_disk":
		j.Checkpointing.Offer("offload", n.Origin())
		j.ActivationOffload.Offer(true, n.Origin())
	case n != nil:
		on := a.r.nodeBool(n, false)
		if s := a.find("selective_checkpointing"); on && s != nil && s.Value != false {
			j.Checkpointing.Offer("selective", s.Origin())
		}
		a.truth("gradient_checkpointing", on, n.Origin())
	default:
		j.Checkpointing.Offer("none", a.fallback)
	}
	if offloading != nil && offloading.Value != false {
		if n == nil || n.Value == false {
			a.r.contradiction(offloading, "activation_offloading requires gradient_checkpointing, and axolotl "+
				"refuses to start; set gradient_checkpointing: true")
		}
		j.ActivationOffload.Offer(true, offloading.Origin())
	}
	j.ActivationOffload.Offer(false, a.fallback)
}

// attention: one key since 0.12, booleans before it.
func (a *axolotl) attention() {
	own := a.find("attn_implementation")
	if own != nil {
		a.argument("attn_implementation", own)
	}
	for _, legacy := range [][2]string{{"xformers_attention", "xformers"}, {"sage_attention", "sage"},
		{"flex_attention", "flex_attention"}, {"flash_attention", "flash_attention_2"},
		{"sdp_attention", "sdpa"}, {"eager_attention", "eager"}} {
		n := a.find(legacy[0])
		if n == nil || !a.r.nodeBool(n, false) {
			continue
		}
		if newer, known := a.r.atLeast("axolotl", 0, 18); own != nil && known && newer {
			a.r.contradiction(n, "attn_implementation cannot be combined with %s, and axolotl refuses to start; "+
				"keep attn_implementation", legacy[0])
		}
		a.job.Attention.Offer(legacy[1], n.Origin())
	}
}

// loss: losses without whole logits come from plugins; keys of a plugin that is not listed have no effect.
func (a *axolotl) loss() {
	plugins := strings.Join(a.words("plugins").Value, " ")
	set := &a.job.FusedLoss
	if strings.Contains(plugins, "CutCrossEntropyPlugin") {
		if s := a.flag(true, "cut_cross_entropy"); s.Value {
			set.Offer("cut-ce", s.Origin+": on once its plugin is listed")
		}
	}
	if n := a.find("liger_fused_linear_cross_entropy"); n != nil && a.r.nodeBool(n, false) {
		if strings.Contains(plugins, "LigerPlugin") {
			set.Offer("liger-flce", n.Origin())
		} else {
			set.Offer("none", n.Origin()+" has no effect: plugins does not list axolotl.integrations.liger.LigerPlugin")
		}
	}
	if strings.Contains(plugins, "LigerPlugin") { // integrations/liger/plugin.py hands these keys on one by one
		on := func(names ...string) bool {
			n := a.find(names...)
			return n != nil && a.r.nodeBool(n, false)
		}
		kernels := ligerKernels(on("liger_rope"), on("liger_rms_norm"), on("liger_glu_activation", "liger_swiglu"))
		a.job.LayerKernels.Offer(kernels, "the keys liger_rope, liger_rms_norm and liger_glu_activation")
	}
	if n := a.find("chunked_cross_entropy"); n != nil && a.r.nodeBool(n, false) {
		set.Offer("chunked", n.Origin())
	}
	set.Offer("none", "no plugin with a fused loss is on")
}

// axolotlOf is what was kept of the configuration; nil: another framework reads the script.
func axolotlOf(r *reader) *axolotl {
	own, _ := r.own.(*axolotl)
	return own
}
