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

// refuse records an assertion that fails before training.
func (o *openrlhf) refuse(why, origin string) {
	o.r.fail(why, origin)
	o.r.problem(fmt.Errorf("%s: OpenRLHF would end at start: %s; correct one of the options", origin, why))
}
