package job

import (
	"fmt"
	"path/filepath"
	"strings"

	"oomguard/preflight/job/shell"
)

// OpenRLHF trains with DeepSpeed: train_sft, train_dpo and others under the deepspeed launcher, train_ppo_ray on Ray.
// Up to 0.9 its options are flat (--zero_stage); since 0.10 they have dots (--ds.zero_stage). Defaults were compared in
// v0.8.0 to v0.9.10 and in the sources of August 2026.

// openrlhfPrograms are the programs of openrlhf/cli, with the defaults of micro-batch and length that differ between
// them.
type openrlhfProgram struct {
	name, task    string
	micro, length int
}

func openrlhfPrograms() []openrlhfProgram {
	return []openrlhfProgram{
		{"train_sft", "sft", 8, 2048}, {"train_dpo", "dpo", 8, 512}, {"train_kto", "kto", 8, 2048},
		{"train_kd", "kd", 8, 2048},
		{"train_rm", "rm", 1, 512}, {"train_prm", "rm", 1, 2048}, {"train_ppo_ray", "ppo", 4, 2048},
		{"train_ppo", "ppo", 4, 2048},
	}
}

// openrlhfOptions pairs the names of the two eras; the first is the one used here. A kind of "" takes a word, "flag"
// none, "list" several.
func openrlhfOptions() map[string][]string {
	return map[string][]string{
		"flag": {"bf16", "flash_attn", "adam_offload ds.adam_offload", "load_in_4bit ds.load_in_4bit",
			"packing_samples ds.packing_samples", "use_liger_kernel ds.use_liger_kernel",
			"gradient_checkpointing model.gradient_checkpointing_enable actor.gradient_checkpointing_enable",
			"pretrain_mode model.pretrain_mode_enable",
			"colocate_all_models train.colocate_all", "colocate_actor_ref train.colocate_actor_ref",
			"vllm_enable_sleep vllm.enable_sleep",
			"dynamic_batch train.dynamic_batch_enable use_dynamic_batch", "ref_offload ref.offload", "teacher_offload"},
		"": {"pretrain model.model_name_or_path actor.model_name_or_path",
			"micro_train_batch_size train.micro_batch_size", "train_batch_size train.batch_size",
			"max_len data.max_len", "prompt_max_len", "generate_max_len rollout.max_new_tokens",
			"zero_stage ds.zero_stage", "param_dtype ds.param_dtype",
			"attn_implementation ds.attn_implementation", "lora_rank ds.lora.rank", "lora_alpha ds.lora.alpha",
			"lora_dropout ds.lora.dropout",
			"ring_attn_size ds.ring_attn_size", "ds_tensor_parallel_size ds.tensor_parallel_size", "optim actor.optim",
			"ref_pretrain ref.model_name_or_path",
			"actor_num_nodes actor.num_nodes", "actor_num_gpus_per_node actor.num_gpus_per_node",
			"init_kl_coef algo.kl.init_coef",
			"advantage_estimator algo.advantage.estimator", "vllm_num_engines vllm.num_engines",
			"vllm_gpu_memory_utilization vllm.gpu_memory_utilization",
			"teacher_model", "reward_pretrain reward.model_name_or_path", "critic_pretrain critic.model_name_or_path",
			"remote_rm_url reward.remote_url",
			"train_max_tokens_per_gpu train.max_tokens_per_gpu", "eval_dataset eval.dataset", "zpg ds.zpg",
			"grad_accum_dtype ds.grad_accum_dtype"},
		"list": {"target_modules ds.lora.target_modules"},
	}
}

// openrlhfModule is the program that a script names.
func openrlhfModule(script string) (openrlhfProgram, bool) {
	name := filepath.ToSlash(strings.TrimPrefix(script, "-m "))
	for _, p := range openrlhfPrograms() {
		if name == "openrlhf.cli."+p.name || strings.HasSuffix("/"+name, "/openrlhf/cli/"+p.name+".py") {
			return p, true
		}
	}
	return openrlhfProgram{}, false
}

func recogniseOpenRLHF(r *reader) (family, bool) {
	p, ok := openrlhfModule(r.job.Script.Value)
	return family{framework: "openrlhf", program: p.name, origin: p.name + " is a program of OpenRLHF"}, ok
}

// openrlhf is one reading of OpenRLHF's arguments.
type openrlhf struct {
	r       *reader
	program openrlhfProgram
	dotted  bool // options of 0.10 and later
	origin  string
}

func (r *reader) readOpenRLHF() {
	o := &openrlhf{r: r, origin: "default of " + r.installed("openrlhf")}
	o.program, _ = openrlhfModule(r.job.Script.Value)
	o.parse()
	if o.program.name == "train_ppo_ray" {
		o.workers()
	}
	j := r.job
	j.Model.take(o.word("pretrain", ""))
	o.task()
	o.sequence()
	o.precision()
	o.optimizer()
	o.adapter()
	o.memory()
	o.batch()
	o.evaluation()
}

// parse reads the words with argparse's abbreviations, and gives every option its flat name.
func (o *openrlhf) parse() {
	kinds := map[string]argumentKind{}
	flat := map[string]string{}
	for kind, options := range openrlhfOptions() {
		for _, names := range options {
			spellings := strings.Fields(names)
			for _, name := range spellings {
				kinds[name] = map[string]argumentKind{"": wordArgument, "flag": boolArgument,
					"list": listArgument}[kind]
				flat[name] = spellings[0]
			}
		}
	}
	o.r.kinds = kinds
	words := o.r.job.ScriptArgs
	for _, word := range words {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		o.dotted = o.dotted || strings.HasPrefix(word, "--") && strings.Contains(name, ".")
	}
	if ten, known := o.r.atLeast("openrlhf", 0, 10); known && ten {
		o.dotted = true
	}
	o.r.args = map[string]argument{}
	for name, a := range parseArguments(words,
		&grammar{options: kinds, abbreviations: true,
			origin: func(option string) string { return "command line " + option }}) {
		o.r.args[flat[name]] = a
	}
}

// word is an option's value, or the default of OpenRLHF.
func (o *openrlhf) word(name, fallback string) Setting[string] {
	if a := o.r.args[name]; a.text != "" {
		return Setting[string]{Value: a.text, Known: true, Origin: a.origin}
	}
	if why := o.r.openWords(); why != "" {
		return Setting[string]{Origin: "not seen, but " + why}
	}
	if fallback == "" {
		return Setting[string]{Origin: "--" + name + " is not given"}
	}
	return Setting[string]{Value: fallback, Known: true, Origin: o.origin}
}

// size is a whole number, or the default of OpenRLHF.
func (o *openrlhf) size(name string, fallback int) Setting[int] {
	a, given := o.r.args[name]
	if why := o.r.openWords(); !given && why != "" {
		return Setting[int]{Origin: "not seen, but " + why}
	}
	if !given {
		return Setting[int]{Value: fallback, Known: true, Origin: o.origin}
	}
	if why, unknown := shell.Unknown(a.text); unknown {
		return Setting[int]{Origin: why}
	}
	n, err := pythonInt(a.text)
	if err != nil || n < 0 || n > 1<<40 {
		o.r.fail(fmt.Sprintf("error: argument --%s: invalid int value: '%s'", name, a.text), a.origin)
		return Setting[int]{Origin: a.origin + " is not a whole number"}
	}
	return Setting[int]{Value: n, Known: true, Origin: a.origin}
}

func (o *openrlhf) flag(name string) Setting[bool] {
	if a, given := o.r.args[name]; given {
		return Setting[bool]{Value: true, Known: true, Origin: a.origin}
	}
	if why := o.r.openWords(); why != "" {
		return Setting[bool]{Origin: "not seen, but " + why}
	}
	return Setting[bool]{Known: true, Origin: o.origin}
}

// workers: Ray starts the actor's processes.
func (o *openrlhf) workers() {
	o.r.job.Launcher.become(Setting[string]{Value: "ray", Known: true,
		Origin: "OpenRLHF starts its workers through Ray"})
	o.r.startsProcesses(o.size("actor_num_gpus_per_node", 8), o.size("actor_num_nodes", 1))
}

// task, and the models that are held beside the one that is trained.
func (o *openrlhf) task() {
	j := o.r.job
	task, origin := o.program.task, o.r.family.origin
	if pretrain := o.flag("pretrain_mode"); pretrain.Value {
		task, origin = "pretrain", pretrain.Origin
	}
	switch task {
	case "ppo":
		estimator := o.word("advantage_estimator", "gae")
		if estimator.Value == "group_norm" || estimator.Value == "dr_grpo" {
			task = "grpo"
		} else if estimator.Value != "gae" {
			task = estimator.Value
		}
		origin = estimator.Origin
		o.reference()
	case "dpo", "kto":
		j.RefModel.Offer(true, task+" compares with a second copy of the model, also below adapters")
	case "kd":
		o.r.hold("teacher", o.word("teacher_model", ""), false,
			o.flag("teacher_offload").Value && o.size("zero_stage", 2).Value == 3)
		j.RefModel.Offer(true, "distillation holds the teacher beside the model")
	default:
		j.RefModel.Offer(false, task+" has no reference model")
	}
	if j.Task.Unknown(origin); task != "" {
		j.Task.Offer(task, origin)
	}
	o.inference()
}

func (o *openrlhf) sequence() {
	j := o.r.job
	prompt, answer := o.size("prompt_max_len", 1024), o.size("generate_max_len", 1024)
	if _, given := o.r.args["max_len"]; !given && o.program.task == "ppo" && !o.dotted {
		if prompt.Known && answer.Known {
			j.SeqLen.Offer(prompt.Value+answer.Value,
				fmt.Sprintf("prompt %d (%s) + answer %d (%s)", prompt.Value, prompt.Origin, answer.Value,
					answer.Origin))
		}
		j.SeqLen.Unknown(prompt.Origin)
	}
	j.SeqLen.take(o.size("max_len", o.program.length))
	packing := o.flag("packing_samples")
	j.Packing.take(packing)
}

// precision: --bf16 until 0.9.1, --param_dtype with the default bf16 since 0.9.2. DeepSpeed keeps an fp32 copy of
// half-precision weights; without a half precision it makes the weights fp32.
func (o *openrlhf) precision() {
	j := o.r.job
	dtype, origin := "", ""
	later, known := o.r.atLeast("openrlhf", 0, 9, 2)
	switch bf16, named := o.flag("bf16"), o.word("param_dtype", ""); {
	case named.Known:
		dtype, origin = dtypeName(named.Value), named.Origin
	case bf16.Value:
		dtype, origin = "bf16", bf16.Origin
	case !bf16.Known:
		for _, f := range []fact{&j.ParamDtype, &j.Precision, &j.MasterFP32} {
			f.Unknown(bf16.Origin)
		}
	case o.dotted, known && later:
		dtype, origin = "bf16", o.origin
	case known:
		dtype, origin = "fp32", o.origin+": no --bf16"
	}
	if dtype == "" {
		for _, f := range []fact{&j.ParamDtype, &j.Precision, &j.MasterFP32} {
			f.Unknown("no --bf16: OpenRLHF trains in fp32 then until 0.9.1, in bf16 since 0.9.2, and the version is " +
				"not known; give --versions openrlhf=...")
		}
		return
	}
	o.r.load.Offer(dtype, origin)
	j.ParamDtype.Offer(dtype, origin)
	j.Precision.Offer(dtype, origin)
	j.MasterFP32.Offer(dtype != "fp32",
		map[bool]string{true: "DeepSpeed keeps an fp32 copy of half-precision weights",
			false: "the weights themselves are fp32"}[dtype != "fp32"])
}

// optimizer: DeepSpeed's CPU Adam with --adam_offload, its fused Adam otherwise (utils/deepspeed/deepspeed.py).
func (o *openrlhf) optimizer() {
	j := o.r.job
	offload := o.flag("adam_offload")
	if !offload.Known {
		j.Offload.Unknown(offload.Origin)
		j.Optimizer.Unknown(offload.Origin)
		return
	}
	j.Offload.Offer(Offload{Optimizer: map[bool]string{true: "cpu", false: "none"}[offload.Value], Params: "none"},
		offload.Origin)
	switch name := o.word("optim", "adam"); {
	case name.Value == "muon":
		j.Optimizer.Offer("muon", name.Origin)
	case offload.Value:
		j.Optimizer.Offer("cpu_adam", offload.Origin)
	default:
		j.Optimizer.Offer("adamw_fused", name.Origin+": DeepSpeed's FusedAdam")
	}
}

func (o *openrlhf) adapter() {
	p := &o.r.adapter
	if four := o.flag("load_in_4bit"); four.Value {
		o.r.job.Quant.Offer(&Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: "bf16",
			Storage: "uint8"}, four.Origin)
	}
	rank := o.size("lora_rank", 0)
	if !rank.Known {
		o.r.job.Method.Unknown(rank.Origin)
		return
	}
	if p.use.Offer(rank.Value > 0, rank.Origin); rank.Value == 0 {
		return
	}
	p.r.take(rank)
	p.alpha.take(o.size("lora_alpha", 16))
	if dropout, err := pythonFloat(o.word("lora_dropout", "0").Value); err == nil && dropout >= 0 && dropout < 1 {
		p.dropout.Offer(dropout, o.word("lora_dropout", "0").Origin)
	}
	if targets := o.r.args["target_modules"]; len(targets.list) > 0 {
		p.targets.Offer(targets.list, targets.origin)
	}
	p.targets.Offer([]string{"all-linear"}, o.origin)
	if o.r.job.ParamDtype.Known { // DeepSpeed casts the adapters with the rest
		o.r.job.BaseDtype.Offer(o.r.job.ParamDtype.Value, o.r.job.ParamDtype.Origin)
	}
}

// memory: sharding, checkpointing, attention and loss. --flash_attn became --attn_implementation in 0.8.10; packing
// needs a flash kernel.
func (o *openrlhf) memory() {
	j := o.r.job
	switch stage := o.size("zero_stage", 2); {
	case !stage.Known:
		j.Sharding.Unknown(stage.Origin)
	case stage.Value == 0:
		j.Sharding.Offer("ddp", stage.Origin)
	case stage.Value <= 3:
		j.Sharding.Offer(fmt.Sprint("zero", stage.Value), stage.Origin)
	default:
		o.r.unread(fmt.Errorf("%s is %d, need a stage from 0 to 3", stage.Origin, stage.Value))
		j.Sharding.Unknown(stage.Origin + " is not a stage")
	}
	// "auto" is dropped (config_utils.py)
	j.DeepSpeed.Offer(nil, "OpenRLHF makes DeepSpeed's configuration itself; buckets have DeepSpeed's own defaults")
	for name, set := range map[string]*Setting[int]{"ds_tensor_parallel_size": &j.TP, "ring_attn_size": &j.CP} {
		degree := o.size(name, 1)
		if degree.Known && degree.Value == 0 {
			o.refuse("ZeroDivisionError: --"+name+" is 0", degree.Origin)
			degree = Setting[int]{Origin: degree.Origin + " is 0"}
		}
		set.take(degree)
	}
	checkpointing := o.flag("gradient_checkpointing")
	if checkpointing.Known {
		j.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[checkpointing.Value], checkpointing.Origin)
	}
	j.Checkpointing.Unknown(checkpointing.Origin)
	j.ActivationOffload.Offer(false, "OpenRLHF has no option for it")
	j.OptimizerInBackward.Offer(false, "DeepSpeed steps after the backward pass")
	j.FusedLoss.Offer("none", "OpenRLHF computes the loss from whole logits")
	if liger := o.flag("use_liger_kernel"); liger.Known { // AutoLigerKernelForCausalLM in openrlhf/models/actor.py
		j.LayerKernels.Offer(map[bool]string{true: "liger", false: "none"}[liger.Value], liger.Origin)
	}
	named, flash, packing := o.word("attn_implementation", ""), o.flag("flash_attn"), o.flag("packing_samples")
	since, known := o.r.atLeast("openrlhf", 0, 8, 10)
	switch {
	case named.Known:
		j.Attention.Offer(named.Value, named.Origin)
	case flash.Value:
		j.Attention.Offer("flash_attention_2", flash.Origin)
	case packing.Value:
		j.Attention.Offer("flash_attention_2", packing.Origin)
	case !flash.Known:
		j.Attention.Unknown(flash.Origin)
	case o.dotted, known && since:
		j.Attention.Offer("flash_attention_2", o.origin)
	case known:
		j.Attention.Offer("eager", o.origin+": no --flash_attn")
	default:
		j.Attention.Unknown("no --flash_attn: eager until OpenRLHF 0.8.9, flash_attention_2 since 0.8.10, and the " +
			"version is not known; give --versions openrlhf=...")
	}
	if j.CP.Or(1) > 1 && !packing.Value {
		o.refuse("AssertionError: packing_samples must be enabled when using ring attention", j.CP.Origin)
	}
}

// batch: the batch of a step is given for all ranks (DeepspeedStrategy.setup_distributed).
func (o *openrlhf) batch() {
	j := o.r.job
	micro := o.program.micro
	if o.dotted && o.program.task == "ppo" {
		micro = 1
	}
	global := o.size("train_batch_size", 128)
	j.GlobalBatch.take(global)
	if dynamic := o.flag("dynamic_batch"); dynamic.Value && o.program.task == "ppo" {
		o.dynamicBatch(dynamic.Origin)
		return
	}
	j.MicroBatch.take(o.size("micro_train_batch_size", micro))
	world, model := product(j.NNodes.Or(0), j.NProc.Or(0)), product(j.TP.Or(0), j.CP.Or(0))
	all := product(global.Value, model)
	switch each := product(j.MicroBatch.Or(0), world); {
	case all == 0 || each == 0:
		j.GradAccum.Unknown("global batch / (micro-batch x replicas), which are not all known")
	case all%each != 0:
		o.refuse(fmt.Sprintf("AssertionError: train_batch_size %d is not equal to micro_batch_per_gpu %d * "+
			"gradient_acc_step * world_size %d", all, j.MicroBatch.Value, world), global.Origin)
		j.GradAccum.Unknown("the batch sizes contradict each other")
	default:
		j.GradAccum.Offer(all/each, fmt.Sprintf("global batch %d / (micro-batch %d x %d replicas)", global.Value,
			j.MicroBatch.Value, world/model))
	}
}

// evaluation takes the micro-batches of training, where there is something to evaluate.
func (o *openrlhf) evaluation() {
	j := o.r.job
	if data := o.word("eval_dataset", ""); data.Known && o.program.task != "ppo" && j.MicroBatch.Known {
		j.EvalBatch.Offer(j.MicroBatch.Value, data.Origin+", with the micro-batch of training")
	}
	j.EvalBatch.Offer(0, "no --eval_dataset, or answers are evaluated by the inference engine")
}

func (o *openrlhf) dynamicBatch(origin string) {
	j := o.r.job
	tokens := o.size("train_max_tokens_per_gpu", 16192)
	if tokens.Known && j.SeqLen.Known && j.SeqLen.Value > 0 {
		j.MicroBatch.Offer(max(tokens.Value/j.SeqLen.Value, 1),
			fmt.Sprintf("%s: up to %d tokens (%s), so many rows of full length", origin, tokens.Value, tokens.Origin))
	}
	j.MicroBatch.Unknown(origin + ": the number of rows follows from their tokens")
	j.GradAccum.Unknown(origin + ": the number of micro-batches follows from the lengths")
}

// refuse records an assertion that fails before training.
func (o *openrlhf) refuse(why, origin string) {
	o.r.fail(why, origin)
	o.r.problem(fmt.Errorf("%s: OpenRLHF would end at start: %s; correct one of the options", origin, why))
}
