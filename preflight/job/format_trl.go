package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
)

// trlExamples maps examples that have another name than the program whose arguments they take.
func trlExamples() map[string]string {
	return map[string]string{"reward_modeling": "reward", "prm": "reward", "ppo/ppo_tldr": "ppo", "gspo": "grpo",
		"sft_vlm": "sft", "dpo_vlm": "dpo", "mpo_vlm": "dpo", "grpo_vlm": "grpo",
		"gspo_vlm": "grpo", "rloo_vlm": "rloo"}
}

// trlProgram is the program of TRL that a script is, by its place: "sft" for trl/scripts/sft.py; "" for others. sure is
// false for examples/scripts/sft.py, which other projects have too.
func trlProgram(script string) (program string, sure bool) {
	slashes := "/" + filepath.ToSlash(script)
	for name := range trlTasks() {
		switch {
		case slashes == "/-m trl.scripts."+name, strings.HasSuffix(slashes, "/trl/scripts/"+name+".py"):
			return name, true
		case strings.HasSuffix(slashes, "/examples/scripts/"+name+".py"),
			strings.HasSuffix(slashes, "/examples/scripts/"+name+"/"+name+".py"):
			return name, false
		}
	}
	for name, program := range trlExamples() {
		if strings.HasSuffix(slashes, "/examples/scripts/"+name+".py") {
			return program, false
		}
	}
	return "", false
}

// recogniseTRL: its own programs by their place, and a script that has their name and imports trl.
func recogniseTRL(r *reader) (family, bool) {
	script := r.job.Script.Value
	program, sure := trlProgram(script)
	f := family{framework: "trl", fields: trlFields}
	t := r.scriptText()
	switch {
	case sure:
		f.origin = program + " is a script of TRL"
	case t == nil:
		if _, all := r.argumentNames(f); program == "" || !all {
			return f, false
		}
		f.origin = program + " is an example of TRL"
	default:
		base := strings.TrimSuffix(filepath.Base(script), ".py")
		_, known := trlTasks()[base]
		if does, _ := t.trainerProgram(); !known || trlTasks()[does] != trlTasks()[base] || r.parsesItself() {
			return f, false
		}
		program, f.origin = base, script+" imports trl"
	}
	f.program, f.task = program, trlTasks()[program]
	return f, true
}

// readTRL reads a script of TRL: its command line over the YAML file of --config.
func (r *reader) readTRL() {
	command := r.job.ScriptArgs
	file, words := trlConfigWord(command)
	r.job.ScriptArgs = words
	r.args = r.collectArguments(true)
	r.job.ScriptArgs = command
	if file != "" {
		if err := r.readTRLConfig(file); err != nil {
			err = fmt.Errorf("--config of TRL: %w", err)
			r.rejected(err, "command line --config")
			r.lost("the file of --config could not be read")
			r.args = nil
			return
		}
	}
	r.dropRemovedTRL()
	r.dropUnusedTRL()
	r.fallbackTo("trl", r.family.program, trlHistory())
	if r.asked("fp16") {
		delete(r.fallbacks, "bf16") // bf16 is on unless fp16 is
	}
	if r.on("use_liger_kernel") {
		delete(r.fallbacks, "loss_type")
		delete(r.unsaid, "loss_type")
	}
	if filepath.Base(r.job.Script.Value) == "sft_vlm.py" { // it sets max_length to None itself
		delete(r.args, "max_length")
		delete(r.fallbacks, "max_length")
		r.unsaid["max_length"] = "sft_vlm.py does not cut its rows; give --seq-len"
	}
	r.readSettings()
}

// trlConfigWord takes --config FILE off a command line. TrlParser looks for the word --config itself: --config=FILE
// stays an unknown argument (trl/scripts/utils.py, parse_args_and_config).
func trlConfigWord(words []string) (file string, rest []string) {
	i := slices.Index(words, "--config")
	if i < 0 || i+1 == len(words) {
		return "", words
	}
	return words[i+1], slices.Concat(words[:i], words[i+2:])
}

// readTRLConfig reads the YAML file: its fields replace the parser's defaults, and env is exported.
func (r *reader) readTRLConfig(file string) error {
	data, err := r.readFile(file)
	if err != nil {
		return err
	}
	doc, problems, err := document.YAML(data, file)
	r.unread(problems...)
	if err != nil {
		return err
	}
	args, err := fileArguments(doc, r.argumentKinds())
	if err != nil {
		return err
	}
	for name, a := range args {
		if _, given := r.args[name]; !given {
			r.args[name] = a
		}
	}
	if env := doc.Get("env"); env != nil {
		variables, _ := env.Value.(map[string]*document.Node)
		for name, value := range variables {
			if text, err := value.Text(); err == nil {
				r.setenv(name, text)
			}
		}
	}
	return nil
}

// dropRemovedTRL takes out arguments that the installed version no longer knows. It ignores them or refuses to start:
// the scripts passed over unknown words from 0.18 (sft) or 0.22 until 1.0, and over unknown fields of the file since
// then.
func (r *reader) dropRemovedTRL() {
	removed := trlRemoved()
	for _, field := range slices.Concat(removed[""], removed[r.family.program]) {
		a, given := r.args[field.name]
		if gone, known := r.atLeast("trl", numbers(field.since)...); !given || !known || !gone {
			continue
		}
		delete(r.args, field.name)
		remedy := "leave it out"
		if field.instead != "" {
			remedy = "write " + field.instead
		}
		why := fmt.Sprintf("%s: %s has no argument %s; %s", a.origin, r.installed("trl"), field.name, remedy)
		if r.trlIgnores(a) {
			r.unread(fmt.Errorf("%s (it is ignored without a word)", why))
		} else {
			r.fail("ValueError: Some specified arguments are not used: --"+field.name, a.origin)
			r.problem(fmt.Errorf("%s", why))
		}
	}
}

func (r *reader) trlIgnores(a argument) bool {
	since := []int{0, 22}
	if r.family.program == "sft" {
		since = []int{0, 18}
	}
	lenient, _ := r.atLeast("trl", since...)
	strict, _ := r.atLeast("trl", 1, 0)
	return lenient && (!strict || a.node != nil)
}

// trlDefaults fills what nobody said, for TRL and for Trainer below it.
func (r *reader) trlDefaults() {
	if r.args == nil { // they could not be read
		return
	}
	r.applyFallbacks()
	r.trlLengths()
	r.trlReference()
	r.trlSecondModels()
	r.trlInference()
	r.checkGenerations()
	r.trainerDefaults()
}

// trlLengths: a row of GRPO and RLOO is a prompt and a completion.
func (r *reader) trlLengths() {
	if r.job.Task.Value != "grpo" {
		return
	}
	prompt, completion := r.number("max_prompt_length"), r.number("max_completion_length")
	switch {
	case r.unsaid["max_prompt_length"] != "":
		r.job.SeqLen.Unknown("prompt and completion; max_prompt_length: " + r.unsaid["max_prompt_length"])
	case r.unsaid["max_completion_length"] != "":
		r.job.SeqLen.Unknown("prompt and completion; max_completion_length: " + r.unsaid["max_completion_length"])
	case prompt > 0 && completion > 0:
		r.job.SeqLen.Offer(prompt+completion,
			fmt.Sprintf("max_prompt_length %d + max_completion_length %d", prompt, completion))
	default:
		r.job.SeqLen.Unknown(fmt.Sprintf("completions have up to %d tokens, and nothing limits the prompts of the "+
			"data; give --seq-len", completion))
	}
}

// trlReference decides whether a second copy of the model is held (trl/trainer: dpo, kto, grpo, rloo, ppo).
func (r *reader) trlReference() {
	ref := &r.job.RefModel
	beta := r.args["beta"]
	plainly, origin := r.trlLoadsPlainly()
	switch task := r.job.Task.Value; {
	case task == "kto" && plainly:
		ref.Offer(true, origin+", and a second one as reference, adapters or not")
	case task == "kto" && r.adapter.use.Or(false) && r.versions["trl"] == "" && r.usesModelConfig():
		ref.Unknown("TRL's kto script loaded a reference model beside adapters until 1.8, and the version is not " +
			"known; give --versions trl=...")
	case r.family.program == "orpo" || r.family.program == "cpo":
		ref.Offer(false, r.family.program+" has no reference model")
	case task == "sft" || task == "rm" || task == "":
		ref.Offer(false, "nothing names a reference model")
	case task == "kd":
		ref.Offer(true, "distillation holds the teacher beside the model")
	case r.adapter.use.Or(false):
		ref.Offer(false, "the model with its adapters switched off is the reference ("+r.adapter.use.Origin+")")
	case r.on("precompute_ref_log_probs"):
		ref.Offer(false, r.args["precompute_ref_log_probs"].origin)
	case task == "grpo" && beta.text == "":
		ref.Unknown(r.unsaid["beta"])
	case task == "grpo" && isZero(beta.text):
		ref.Offer(false, "beta is 0, so that nothing is compared with a reference: "+beta.origin)
	case task == "grpo":
		ref.Offer(true, "beta is "+beta.text+": "+beta.origin)
	default:
		ref.Offer(true, task+" compares with a second copy of the model")
	}
}

// trlSecondModels: GKD's teacher; PPO's reward model, and the value model that is trained, both from reward_model_path
// (trl/scripts, examples/scripts/ppo).
func (r *reader) trlSecondModels() {
	named := func(name, fallback string) Setting[string] {
		if a := r.args[name]; a.text != "" {
			return Setting[string]{Value: a.text, Known: true, Origin: a.origin}
		}
		return Setting[string]{Value: fallback, Known: fallback != "", Origin: "default of " + r.installed("trl")}
	}
	switch r.job.Task.Value {
	case "kd":
		r.hold("teacher", named("teacher_model_name_or_path", ""), false, false)
	case "ppo":
		reward := named("reward_model_path", "EleutherAI/pythia-160m")
		r.hold("reward", reward, false, false)
		r.hold("critic", reward, true, false)
	}
}

// trlInference: vLLM in the training processes takes its share of each GPU.
func (r *reader) trlInference() {
	share := &r.job.InferenceShare
	mode := r.args["vllm_mode"]
	switch {
	case r.job.Task.Value != "grpo" || !r.on("use_vllm"):
		share.Offer(0, "no inference engine beside the training")
	case mode.text == "":
		share.Unknown("vllm_mode: " + r.unsaid["vllm_mode"])
	case mode.text != "colocate":
		share.Offer(0, "vLLM runs as a server on GPUs of its own: "+mode.origin)
	default:
		a := r.args["vllm_gpu_memory_utilization"]
		if value, err := pythonFloat(a.text); err == nil && value > 0 && value < 1 {
			share.Offer(value, a.origin+" (vllm_mode colocate: "+mode.origin+")")
		} else if why := r.unsaid["vllm_gpu_memory_utilization"]; why != "" {
			share.Unknown(why)
		} else {
			r.wrongArgument(a, "a share of the GPU between 0 and 1")
		}
	}
}

// checkGenerations: a batch of completions must hold whole groups (trl/trainer/grpo_config.py, __post_init__). Up to
// 0.16 one micro-batch of all ranks had to, later one of all accumulation steps.
func (r *reader) checkGenerations() {
	group := r.number("num_generations")
	micro, accum, world := r.job.MicroBatch.Or(0), r.job.GradAccum.Or(trainerGradAccum),
		product(r.job.NNodes.Or(0), r.job.NProc.Or(0))
	if r.job.Task.Value != "grpo" || group == 0 || micro == 0 || world == 0 {
		return
	}
	if steps := r.number("steps_per_generation"); steps > 0 {
		accum = steps
	}
	if whole, known := r.atLeast("trl", 0, 17); !known || !whole {
		accum = 1
	}
	batch := product(micro, accum, world)
	if n := r.number("generation_batch_size"); n > 0 {
		batch = n
	}
	if _, known := r.atLeast("trl", 0, 17); known && batch > 0 && batch%group != 0 {
		origin := r.args["num_generations"].origin
		r.fail(fmt.Sprintf("ValueError: generation_batch_size (%d) must be divisible by num_generations (%d)", batch,
			group), origin)
		r.problem(fmt.Errorf("%s: num_generations %d does not divide the %d completions of a step (micro-batch %d x "+
			"%d steps x %d processes); change one of them",
			origin, group, batch, micro, accum, world))
	}
}

// isZero reports whether a number is written as zero.
func isZero(text string) bool {
	value, err := pythonFloat(text)
	return err == nil && value == 0
}
