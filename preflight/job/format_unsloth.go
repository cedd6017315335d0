package job

import (
	"fmt"
	"strings"
)

// Unsloth is configured in the script alone: FastLanguageModel.from_pretrained and get_peft_model, and the
// configuration of one of TRL's trainers (unsloth/models/loader.py, llama.py, rl.py).

// unslothClasses load models; the newer ones differ in their default of load_in_16bit only.
func unslothClasses() []string {
	return []string{"FastLanguageModel", "FastModel", "FastVisionModel", "FastTextModel", "FastLlamaModel",
		"FastMistralModel", "FastQwen2Model", "FastGemmaModel"}
}

func methodsOf(classes []string, method string) []string {
	names := make([]string, len(classes))
	for i, class := range classes {
		names[i] = class + "." + method
	}
	return names
}

// unslothTargets are the modules of get_peft_model by default (unsloth/models/llama.py).
func unslothTargets() []string {
	return []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
}

func recogniseUnsloth(r *reader) (family, bool) {
	t := r.scriptText()
	if t == nil || !t.files[0].RequiresModule("unsloth") {
		return family{}, false
	}
	if loads := t.calls(methodsOf(unslothClasses(), "from_pretrained")...); len(loads) == 0 || !loads[0].sure {
		return family{}, false
	}
	f := family{framework: "unsloth", readsJSON: true, ownScript: true, fields: sourceFields,
		origin: t.files[0].Name + " imports unsloth"}
	f.program, _ = t.trainerProgram()
	if f.program == "" {
		f.program = "sft"
	}
	f.task = trlTasks()[f.program]
	return f, true
}

func (r *reader) readUnsloth() {
	j := r.job
	j.Sharding.Offer("none", "Unsloth trains on one GPU")
	if calls := r.seen().calls(methodsOf(unslothClasses(), "from_pretrained")...); len(calls) > 0 {
		r.unslothLoad(calls[0])
	}
	adapters := r.seen().calls(methodsOf(unslothClasses(), "get_peft_model")...)
	if len(adapters) > 0 && j.Method.Value != "full" {
		r.unslothAdapter(adapters[0])
	}
	r.readSourceTrainer()
	r.unslothUnknowns()
}

// unslothUnknowns are what Unsloth decides by the GPU and by its own kernels.
func (r *reader) unslothUnknowns() {
	j := r.job
	j.FusedLoss.Unknown("Unsloth computes the loss with kernels of its own")
	j.Attention.Unknown("Unsloth has its own attention; give --attention")
	const why = "Unsloth chooses the dtypes of weights by the GPU; give --precision"
	j.ParamDtype.Withhold(why)
	j.BaseDtype.Withhold(why)
	j.MasterFP32.Offer(false, "no second copy of the weights is kept")
}

// unslothLoad reads from_pretrained: 4 bits unless the call says otherwise.
func (r *reader) unslothLoad(c foundCall) {
	j := r.job
	if text, origin, given := c.argument(0, "model_name").literal(withhold("give --model", &j.Model)); given {
		j.Model.Offer(text, origin)
	}
	c.argument(1, "max_seq_length").offerNumber(&j.SeqLen)
	if hold := withhold("", &j.InferenceShare); c.keyword("fast_inference").flag(hold) {
		share := 0.5
		if e := c.keyword("gpu_memory_utilization").value(hold); e != nil {
			share, _ = e.Value.(float64)
		}
		if share > 0 && share < 1 {
			j.InferenceShare.Offer(share, c.origin()+": vLLM beside the training")
		}
	}
	given := map[string]bool{"load_in_4bit": true}
	for _, name := range []string{"load_in_4bit", "load_in_8bit", "load_in_16bit", "full_finetuning"} {
		hidden := false
		if on, said := c.keyword(name).truth(func(string) { hidden = true }); said {
			given[name] = on
		}
		if hidden {
			withhold("give --quant and --method", &j.Quant,
				&j.Method)(c.origin() + " passes " + name + ", which is decided when the script runs")
			return
		}
	}
	if dtype, _, _ := c.keyword("dtype").text(withhold("", &j.BaseDtype)); dtypeName(dtype) != "" {
		j.BaseDtype.Offer(dtypeName(dtype), c.origin())
	}
	r.unslothQuant(c, given)
	r.unslothCheckpointing(c)
}

func (r *reader) unslothQuant(c foundCall, given map[string]bool) {
	j := r.job
	origin := c.origin()
	if c.keyword("load_in_4bit").value(immaterial) == nil { // known by now
		origin += ": load_in_4bit is on by default in Unsloth"
	}
	several := 0
	for _, name := range []string{"load_in_4bit", "load_in_8bit", "load_in_16bit"} {
		if given[name] {
			several++
		}
	}
	switch {
	case given["full_finetuning"]: // it switches the quantised loads off
		j.Method.Offer("full", c.origin())
		j.Quant.Offer(nil, c.origin()+": full_finetuning")
	case several > 1:
		r.fail("RuntimeError: Unsloth: Can only load in 4bit or 8bit or 16bit, not a combination", origin)
		r.problem(fmt.Errorf("%s: only one of 4 bits (the default), 8 bits and 16 bits can be asked for; set "+
			"load_in_4bit=False", c.origin()))
	case given["load_in_8bit"]:
		j.Quant.Offer(&Quant{Method: "bnb", Bits: 8, Type: "int8"}, c.origin())
	case given["load_in_4bit"]: // unsloth/models/llama.py: nf4 with nested scales
		dtype, _, _ := c.keyword("dtype").text(immaterial) // BaseDtype is withheld
		j.Quant.Offer(&Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: dtypeName(dtype)}, origin)
	default:
		j.Quant.Offer(nil, c.origin())
	}
}

// unslothAdapter reads get_peft_model: rank 16, alpha 16 and the seven projections by default.
func (r *reader) unslothAdapter(c foundCall) {
	const origin = "default of Unsloth's get_peft_model"
	p := &r.adapter
	p.use.Offer(true, c.origin())
	r.loraInSource(c, 0)
	p.r.Offer(16, origin)
	p.alpha.Offer(16, origin)
	p.dropout.Offer(0, origin)
	p.targets.Offer(unslothTargets(), origin)
	r.unslothCheckpointing(c)
}

// unslothCheckpointing: "unsloth", the default, also moves the kept activations to the host.
func (r *reader) unslothCheckpointing(c foundCall) {
	hidden := false
	text, _, ok := c.keyword("use_gradient_checkpointing").text(func(string) { hidden = true })
	switch {
	case hidden:
		r.job.Checkpointing.Withhold(c.origin() + " decides use_gradient_checkpointing when the script runs")
	case !ok && strings.HasSuffix(c.Callee, "from_pretrained"): // get_peft_model decides, if it is called
		return
	case !ok:
		r.job.Checkpointing.Offer("unsloth", "default of Unsloth's get_peft_model")
	case strings.EqualFold(text, "unsloth"):
		r.job.Checkpointing.Offer("unsloth", c.origin())
	case text == "true" || text == "false":
		r.job.Checkpointing.Offer(map[string]string{"true": "full", "false": "none"}[text], c.origin())
	default:
		r.job.Checkpointing.Withhold(c.origin() + " decides use_gradient_checkpointing when the script runs")
	}
}

// unslothDefaults: Unsloth rewrites TRL's configurations, defaults included (unsloth/models/rl.py). TrainingArguments
// stays what it is.
func (r *reader) unslothDefaults() {
	j := r.job
	if r.seen() != nil && r.seen().onlyTrainingArguments() {
		origin := "default of " + r.installed("transformers")
		j.MicroBatch.Offer(trainerMicroBatch, origin)
		j.GradAccum.Offer(trainerGradAccum, origin)
		r.defaultOptimizer()
	}
	const origin = "default of the configurations as Unsloth rewrites them"
	j.MicroBatch.Offer(4, origin)
	j.GradAccum.Offer(2, origin)
	j.Optimizer.Offer("adamw_8bit", origin)
	j.Checkpointing.Offer("unsloth", "default of Unsloth's from_pretrained")
	j.SeqLen.Offer(2048, "default of Unsloth's from_pretrained")
	j.Packing.Offer(false, "default of trl")
	j.ActivationOffload.Offer(false, "nothing names it")
	j.Precision.Unknown("Unsloth takes bf16 where the GPU has it; give --precision")
	r.trlReference()
	r.trlInference()
}
