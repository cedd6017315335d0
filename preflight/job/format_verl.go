package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
)

// verl: reinforcement learning on Ray (verl.trainer.main_ppo) and supervised fine-tuning under torchrun, configured by
// Hydra overrides key=value on top of the package's own YAML files. Keys and defaults: verl/trainer/config of January
// 2026 (0.7).

// verlPrograms are the modules that train, and their tasks; "" is decided by the advantage estimator.
func verlPrograms() map[string]string {
	return map[string]string{"main_ppo": "", "fsdp_sft_trainer": "sft", "sft_trainer": "sft", "sft_trainer_ray": "sft"}
}

// verlProgram is the training program that a script names: -m verl.trainer.main_ppo or verl/trainer/main_ppo.py.
// Recipes have programs of their own, with the same settings.
func verlProgram(script string, arguments []string) string {
	name := strings.ReplaceAll(strings.TrimSuffix(filepath.ToSlash(strings.TrimPrefix(script, "-m ")), ".py"), "/", ".")
	_, program, found := strings.Cut("."+name, ".verl.trainer.")
	if _, known := verlPrograms()[program]; found && known {
		return program
	}
	actor := func(word string) bool { return strings.HasPrefix(strings.TrimLeft(word, "+"), "actor_rollout_ref.") }
	if slices.ContainsFunc(arguments, actor) {
		return "main_ppo"
	}
	return ""
}

func recogniseVerl(r *reader) (family, bool) {
	program := verlProgram(r.job.Script.Value, r.job.ScriptArgs)
	if program == "" {
		return family{}, false
	}
	return family{framework: "verl", task: verlPrograms()[program], origin: program + " is a program of verl",
		program: program}, true
}

func (r *reader) readVerl() {
	doc := r.verlConfig()
	if doc == nil {
		r.lost("verl's configuration could not be read")
		return
	}
	c := &configuration{r: r, doc: doc, fallback: "default of " + r.installed("verl")}
	r.job.OptimizerInBackward.Offer(false, "verl steps after the backward pass")
	if r.family.task == "sft" {
		r.readVerlSFT(c)
		return
	}
	r.job.EvalBatch.Offer(0, "verl evaluates with the inference engine")
	v := &verl{r: r, c: c}
	v.processes()
	v.task()
	v.model()
	v.batch()
	v.precision()
	v.sharding()
	v.inference()
}

// verlConfig lays the overrides over the file of --config-path and --config-name, when it is not one of verl's own; nil
// when that fails.
func (r *reader) verlConfig() *document.Node {
	var folder, name string
	var overrides []string
	words := r.job.ScriptArgs
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		option, value, attached := strings.Cut(word, "=")
		if !strings.HasPrefix(word, "-") {
			overrides = append(overrides, word)
			continue
		}
		if !attached && len(words) > 0 && !strings.Contains(words[0], "=") { // overrides are no values
			value, words = words[0], words[1:]
		}
		switch option {
		case "--config-path", "-cp", "--config-dir", "-cd":
			folder = value
		case "--config-name", "-cn":
			name = value
		}
	}
	doc := &document.Node{Value: map[string]*document.Node{}}
	if folder != "" && name != "" {
		file := filepath.Join(folder, strings.TrimSuffix(name, ".yaml")+".yaml")
		if packaged := verlPackaged(folder, name); packaged && !exists(r.path(folder), filepath.Base(file)) {
			// verl's own file, beside the program: its settings are the defaults that are read here
		} else if _, err := os.Stat(r.path(file)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			if doc = r.loadDocument(file); doc == nil {
				return nil
			}
		} else {
			r.unread(fmt.Errorf("%s: no such file; its settings are not known. Hydra looks for a relative "+
				"--config-path beside the script", file))
			return nil
		}
	}
	if strings.Contains(name, "megatron") {
		overrides = append([]string{"actor_rollout_ref.actor.strategy=megatron"}, overrides...)
	}
	for _, word := range overrides {
		if err := document.Override(doc, word); err != nil {
			r.unread(err)
		}
	}
	document.Interpolate(doc, r.lookupEnv)
	return doc
}

// verlPackaged reports whether a configuration is one that verl brings along: Hydra looks for a relative --config-path
// beside the program, in verl/trainer.
func verlPackaged(folder, name string) bool {
	names := []string{"ppo_trainer", "ppo_megatron_trainer", "sft_trainer", "sft_trainer_engine"}
	return filepath.Clean(folder) == "config" && slices.Contains(names, strings.TrimSuffix(name, ".yaml"))
}

// verl reads a configuration of main_ppo. The actor is the model that is trained.
type verl struct {
	r *reader
	c *configuration
}

const verlActor = "actor_rollout_ref.actor."

// processes: Ray starts a worker on every GPU that the configuration names.
func (v *verl) processes() {
	j := v.r.job
	j.Launcher.become(Setting[string]{Value: "ray", Known: true, Origin: "verl starts its workers through Ray"})
	v.r.startsProcesses(v.c.size(8, "trainer.n_gpus_per_node"), v.c.size(1, "trainer.nnodes"))
}

func (v *verl) task() {
	j := v.r.job
	estimator := v.c.word("gae", "algorithm.adv_estimator")
	if !estimator.Known {
		j.Task.Unknown(estimator.Origin)
		return
	}
	task := estimator.Value
	switch {
	case task == "gae":
		task = "ppo"
	case strings.HasPrefix(task, "grpo"):
		task = "grpo"
	}
	origin := estimator.Origin
	critic := v.c.flag(estimator.Value == "gae", "critic.enable")
	const critics, rewards = "critic.model.path", "reward_model.model.path"
	if reward := v.c.flag(false, "reward_model.enable"); reward.Value &&
		!v.c.flag(false, "reward_model.enable_resource_pool").Value {
		v.r.hold("reward", v.c.word("", rewards), false,
			v.c.flag(false, "reward_model.model.fsdp_config.param_offload").Value)
	}
	v.r.holdsNoOther("neither a reward model nor a critic")
	if critic.Value {
		v.r.hold("critic", v.c.word("", critics), true, v.c.flag(false, "critic.model.fsdp_config.param_offload").Value)
		origin += "; a critic is trained beside the actor on the same GPUs"
	}
	j.Task.Offer(task, origin)
}

// model: the actor's weights, adapters, and the reference that its output is compared with (trainer/ppo/utils.py).
func (v *verl) model() {
	j, c, p := v.r.job, v.c, &v.r.adapter
	r := v.r
	r.verlModel(c, "actor_rollout_ref.model.path")
	const model = "actor_rollout_ref.model."
	rank := c.number(0, model+"lora_rank", model+"lora.rank")
	existing := c.word("", model+"lora_adapter_path")
	r.verlAdapter(rank, existing, c, model)
	kl := []Setting[bool]{c.flag(false, verlActor+"use_kl_loss"), c.flag(false, "algorithm.use_kl_in_reward")}
	switch used := slices.IndexFunc(kl, func(s Setting[bool]) bool { return s.Value }); {
	case !kl[0].Known || !kl[1].Known:
		j.RefModel.Unknown("whether a KL divergence is computed could not be read")
	case used < 0:
		j.RefModel.Offer(false, "no KL divergence from a reference: "+kl[0].Origin)
	case p.use.Or(false):
		j.RefModel.Offer(false, "the model with its adapters switched off is the reference ("+p.use.Origin+")")
	default:
		j.RefModel.Offer(true, kl[used].Origin)
	}
}

// verlModel offers the model; verl's own default is a folder of its authors.
func (r *reader) verlModel(c *configuration, paths ...string) {
	name := c.word("", paths...)
	if name.Or("") == "" {
		r.job.Model.Unknown(paths[0] + " is not given")
		return
	}
	r.job.Model.take(name)
}

// verlAdapter reads LoRA: rank 0 and no adapter to begin with mean full training.
func (r *reader) verlAdapter(rank Setting[int], existing Setting[string], c *configuration, section string) {
	p := &r.adapter
	if !rank.Known {
		r.job.Method.Unknown(rank.Origin)
		return
	}
	if rank.Value <= 0 && existing.Or("") == "" {
		p.use.Offer(false, rank.Origin)
		return
	}
	if existing.Or("") != "" {
		p.use.Offer(true, existing.Origin)
		if folder := r.path(existing.Value); exists(folder, adapterFile) {
			r.readAdapterFolder(folder)
		}
	} else {
		p.use.Offer(true, rank.Origin)
	}
	if rank.Value > 0 {
		p.r.Offer(rank.Value, rank.Origin)
	}
	p.alpha.take(c.number(16, section+"lora_alpha", section+"lora.alpha"))
	if targets := c.words(section+"target_modules", section+"lora.target_modules"); len(targets.Value) > 0 {
		p.targets.Offer(targets.Value, targets.Origin)
	} else {
		p.targets.Offer([]string{"all-linear"}, c.fallback)
	}
}

// batch: a mini-batch counts prompts, each with n answers, over all replicas; the micro-batch counts sequences on one
// GPU.
func (v *verl) batch() {
	j, c := v.r.job, v.c
	prompt, answer := c.size(512, "data.max_prompt_length"), c.size(512, "data.max_response_length")
	if prompt.Known && answer.Known {
		j.SeqLen.Offer(prompt.Value+answer.Value,
			fmt.Sprintf("prompt %d (%s) + response %d (%s)", prompt.Value, prompt.Origin, answer.Value, answer.Origin))
	}
	j.SeqLen.Unknown("data.max_prompt_length + data.max_response_length")
	j.Packing.Offer(false, "rows are padded, or their padding is taken out")
	mini, n := c.size(256, verlActor+"ppo_mini_batch_size"), c.size(1, "actor_rollout_ref.rollout.n")
	sequence := c.size(1, verlActor+"ulysses_sequence_parallel_size",
		verlActor+"fsdp_config.ulysses_sequence_parallel_size")
	world := product(j.NNodes.Or(0), j.NProc.Or(0))
	global := product(mini.Value, n.Value)
	if global > 0 {
		j.GlobalBatch.Offer(global, fmt.Sprintf("ppo_mini_batch_size %d (%s) x rollout.n %d (%s)", mini.Value,
			mini.Origin, n.Value, n.Origin))
	}
	if train := c.size(1024, "data.train_batch_size"); train.Known && mini.Known && train.Value < mini.Value {
		v.refuse(fmt.Sprintf("ValueError: train_batch_size (%d) must be >= actor.ppo_mini_batch_size (%d)", train.Value,
			mini.Value), mini.Origin)
	} else if real := product(train.Value, n.Value); real > 0 && world > 0 && real%world != 0 {
		v.refuse(fmt.Sprintf("AssertionError: real_train_batch_size (%d) must be divisible by minimal possible "+
			"batch size (%d)", real, world), train.Origin)
	}
	if c.flag(false, verlActor+"use_dynamic_bsz").Value {
		v.dynamicBatch(sequence)
		return
	}
	micro := c.size(0, verlActor+"ppo_micro_batch_size_per_gpu")
	if old := c.size(0, verlActor+"ppo_micro_batch_size"); micro.Value == 0 && old.Value > 0 && world > 0 {
		micro = Setting[int]{Value: old.Value * sequence.Or(1) / world, Known: true,
			Origin: old.Origin + " over all GPUs"}
	}
	if micro.Known && micro.Value == 0 {
		v.refuse("AssertionError: [actor] Please set at least one of 'actor.ppo_micro_batch_size' or "+
			"'actor.ppo_micro_batch_size_per_gpu'", micro.Origin)
		j.MicroBatch.Unknown("ppo_micro_batch_size_per_gpu is not given")
		return
	}
	j.MicroBatch.take(micro)
	model := sequence.Or(1) // ranks that share their rows
	if v.megatron() {
		const engine = verlActor + "megatron."
		model = 1
		for _, degree := range []string{"tensor_model_parallel_size", "pipeline_model_parallel_size",
			"context_parallel_size"} {
			model *= c.size(1, engine+degree).Or(1)
		}
	}
	v.accumulation(global, world, model, micro)
}

// accumulation: model is the number of ranks that work on the same rows.
func (v *verl) accumulation(global, world, model int, micro Setting[int]) {
	accum := &v.r.job.GradAccum
	replicas := world / max(model, 1)
	switch {
	case global == 0 || replicas == 0 || !micro.Known:
		accum.Unknown("mini-batch / replicas / micro-batch, which are not all known")
	case global/replicas == 0 || global/replicas%micro.Value != 0:
		v.refuse(fmt.Sprintf("AssertionError: normalized ppo_mini_batch_size %d should be divisible by "+
			"ppo_micro_batch_size_per_gpu %d", global/replicas, micro.Value), micro.Origin)
		accum.Unknown("the batch sizes contradict each other")
	default:
		accum.Offer(global/replicas/micro.Value,
			fmt.Sprintf("%d sequences / %d replicas / micro-batch %d", global, replicas, micro.Value))
	}
}

// dynamicBatch: sequences are put together up to a number of tokens, so that their number varies; as many as fit at
// full length count.
func (v *verl) dynamicBatch(sequence Setting[int]) {
	j := v.r.job
	tokens := v.c.size(16384, verlActor+"ppo_max_token_len_per_gpu")
	if !tokens.Known || !j.SeqLen.Known {
		j.MicroBatch.Unknown("use_dynamic_bsz: the number of sequences follows from tokens, which are not known")
		return
	}
	all := tokens.Value * sequence.Or(1)
	if all < j.SeqLen.Value {
		v.refuse(fmt.Sprintf("AssertionError: max_token_len must be greater than the sequence length: %d < %d", all,
			j.SeqLen.Value), tokens.Origin)
	}
	j.MicroBatch.Offer(max(all/j.SeqLen.Value, 1),
		fmt.Sprintf("use_dynamic_bsz: up to %d tokens (%s), so many rows of full length", all, tokens.Origin))
	j.GradAccum.Unknown("use_dynamic_bsz: the number of micro-batches follows from the lengths")
}

// refuse records an assertion of verl that fails before training.
func (v *verl) refuse(why, origin string) {
	v.r.fail(why, origin)
	v.r.problem(fmt.Errorf("%s: verl would end at start: %s; correct one of the settings", origin, why))
}

func (v *verl) precision() {
	j, c := v.r.job, v.c
	if v.megatron() {
		dtype := c.word("bfloat16", verlActor+"megatron.dtype")
		v.r.offerDtype(&j.ParamDtype, dtype)
		v.r.offerDtype(&j.Precision, dtype)
		j.MasterFP32.Offer(true, "Megatron keeps an fp32 copy of half-precision weights")
		v.r.optimizerClass(map[string]string{"adam": "AdamW",
			"sgd": "SGD"}[c.word("adam", verlActor+"optim.optimizer").Value], c.below(verlActor+"optim"), true,
			c.fallback)
		return
	}
	v.r.offerDtype(&j.ParamDtype, c.word("fp32", verlActor+"fsdp_config.model_dtype"))
	v.r.load.take(j.ParamDtype)
	v.r.offerDtype(&j.Precision, c.word("bfloat16", verlActor+"fsdp_config.mixed_precision.param_dtype",
		verlActor+"fsdp_config.dtype"))
	j.MasterFP32.Offer(false, "FSDP keeps no second copy of the weights")
	module, class := c.word("torch.optim", verlActor+"optim.optimizer_impl"),
		c.word("AdamW", verlActor+"optim.optimizer")
	v.r.optimizerClass(module.Value+"."+class.Value, c.below(verlActor+"optim.override_optimizer_config"), false,
		class.Origin)
}

// offerDtype turns PyTorch's name of a dtype into the vocabulary.
func (r *reader) offerDtype(set *Setting[string], word Setting[string]) {
	dtype := dtypeName(word.Value)
	if word.Known && dtype == "" {
		r.unread(fmt.Errorf("%s: %q is not a dtype, need bfloat16, float16 or float32", word.Origin, word.Value))
	}
	if dtype != "" {
		set.Offer(dtype, word.Origin)
	}
	set.Unknown(word.Origin)
}

func (v *verl) megatron() bool {
	return v.c.word("fsdp", verlActor+"strategy").Value == "megatron"
}
