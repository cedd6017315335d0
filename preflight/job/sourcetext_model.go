package job

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// modelClasses are the ends of class names whose from_pretrained loads weights.
func isModelClass(name string) bool {
	if python.EndsIn(name, "PeftModel", "PeftModelForCausalLM", "AutoPeftModelForCausalLM", "AutoPeftModel") {
		return false
	}
	return strings.Contains(name, "ForCausalLM") || strings.Contains(name, "ForConditionalGeneration") ||
		strings.Contains(name, "ForSequenceClassification") ||
		strings.Contains(name, "ForSeq2Seq") || strings.Contains(name, "ForMaskedLM") ||
		strings.Contains(name, "ForTokenClassification") ||
		strings.Contains(name, "ForQuestionAnswering") || strings.Contains(name, "ForImage") ||
		strings.Contains(name, "ForVision") ||
		strings.HasSuffix(name, "LMHeadModel") || strings.HasSuffix(name, "LMHeadModelWithValueHead") ||
		python.EndsIn(name, "AutoModel")
}

// usesModelConfig: TRL's own programs, whose adapters and quantisation ModelConfig decides. A user's script that
// imports its trainers decides them itself.
func (r *reader) usesModelConfig() bool { return r.family.framework == "trl" && !r.family.ownScript }

// parsesItself: a script that makes its configuration in code, or takes its options by a parser of its own, is not one
// of TRL's programs even if it has the name of one.
func (r *reader) parsesItself() bool {
	t := r.scriptText()
	return t != nil && !t.parsesFields() && len(t.trainerCalls("Config", "Arguments")) > 0
}

// loadsItself: a script that calls from_pretrained gets transformers' default dtype, not that of TRL's trainers.
func (r *reader) loadsItself() bool {
	if plainly, _ := r.trlLoadsPlainly(); plainly && r.family.program == "kto" {
		return true
	}
	return r.family.ownScript && r.seen() != nil && len(r.seen().modelCalls("from_pretrained")) > 0
}

// modelCalls are the calls that load a model's weights.
func (t *sourceText) modelCalls(method string) []foundCall {
	var found []foundCall
	for _, c := range t.calls(method) {
		base, _, _ := cutLast(c.file.Qualified(c.Callee))
		if c.Receiver == nil && isModelClass(base) {
			found = append(found, c)
		}
	}
	return found
}

// trained picks the call that loads the model which is trained: the only one, or the only one whose result goes where
// models are trained.
func (t *sourceText) trained(calls []foundCall) (foundCall, bool) {
	if len(calls) == 1 {
		return calls[0], true
	}
	var named []foundCall
	for _, c := range calls {
		for _, a := range c.file.Assignments {
			if a.Value != nil && a.Value.Kind == python.Invoke && innermost(a.Value.Call) == c.Call &&
				c.file.trains(a.Target) {
				named = append(named, c)
				break
			}
		}
	}
	if len(named) == 1 {
		return named[0], true
	}
	return foundCall{}, false
}

// trains reports whether what a name stands for is trained: a trainer takes it as its model, an optimizer takes its
// parameters, it is wrapped for training, or adapters are put on it.
func (f *sourceFile) trains(name string) bool {
	is := func(e *python.Expr) bool { return e != nil && e.Kind == python.Name && e.Text == name }
	for _, c := range f.Calls {
		_, last, _ := cutLast(f.Qualified(c.Callee))
		switch {
		case strings.HasSuffix(last, "Trainer") && is(c.Written(0, "model")):
			return true
		case containsWord("get_peft_model prepare_model_for_kbit_training DistributedDataParallel "+
			"FullyShardedDataParallel fully_shard initialize prepare", last):
			if slices.ContainsFunc(c.Given(), is) {
				return true
			}
		case c.Callee == name+".gradient_checkpointing_enable" || c.Callee == name+".train":
			return true
		}
	}
	return slices.ContainsFunc(f.text.optimizerCalls(), func(c foundCall) bool {
		return c.file == f && slices.ContainsFunc(c.Given(), func(e *python.Expr) bool {
			return e.Kind == python.Invoke && e.Call.Callee == name+".parameters"
		})
	})
}

// innermost is the call at the start of a chain: f in f(...).to(...).train().
func innermost(c *python.Call) *python.Call {
	for c.Receiver != nil && c.Receiver.Kind == python.Invoke {
		c = c.Receiver.Call
	}
	return c
}

// modelInSource reads which model the script loads, and how.
func (r *reader) modelInSource() {
	calls := r.seen().modelCalls("from_pretrained")
	if len(calls) == 0 {
		r.newModelInSource()
		return
	}
	c, ok := r.seen().trained(calls)
	if !ok {
		r.job.Model.Unknown(fmt.Sprintf("%s and %s load models, and which one is trained is not known; give --model",
			calls[0].origin(), calls[1].origin()))
		return
	}
	text, origin, ok := c.argument(0, "pretrained_model_name_or_path").literal(immaterial) // unknown below
	if ok {
		r.sourceArgument("model_name_or_path", text, origin)
	} else if _, given := r.args["model_name_or_path"]; !given {
		r.job.Model.Unknown(c.origin() + " loads a model whose name is decided when the script runs; give --model")
	}
	r.loadInSource(c)
}

func isLiteral(e *python.Expr) bool { return e != nil && e.Kind == python.Literal }

// loadInSource reads the arguments of from_pretrained.
func (r *reader) loadInSource(c foundCall) {
	for _, name := range []string{"revision", "cache_dir"} {
		set := map[string]*Setting[string]{"revision": &r.revision, "cache_dir": &r.cacheDir}[name]
		if text, _, given := c.keyword(name).literal(immaterial); given { // where the files are, not what they say
			set.Offer(text, c.origin())
		}
	}
	for _, name := range []string{"dtype", "torch_dtype"} {
		hold := func(why string) {
			// else the script turns the command line's word into a dtype
			if r.args["dtype"].text == "" && r.args["torch_dtype"].text == "" {
				r.load.Withhold(why + "; give --precision")
			}
		}
		text, origin, given := c.keyword(name).text(hold)
		switch dtype := dtypeName(text); {
		case !given:
		case text == autoDtype || dtype != "":
			r.load.Offer(map[bool]string{true: autoDtype, false: dtype}[text == autoDtype], origin)
		default:
			hold(c.why(name, c.keyword(name).value(immaterial)))
		}
	}
	r.castInSource(c)
	if c.keyword("attn_implementation").value(immaterial) == nil &&
		c.keyword("use_flash_attention_2").flag(withhold("", &r.job.Attention)) {
		r.job.Attention.Offer("flash_attention_2", c.origin())
	}
	attention := func(string) {
		r.job.Attention.Withhold(c.origin() + " passes attn_implementation, which is decided when the script runs")
	}
	if text, origin, given := c.keyword("attn_implementation").literal(attention); given {
		r.job.Attention.Offer(text, origin)
	}
	r.quantInSource(c)
}

// castInSource reads .to(torch.bfloat16), .bfloat16() and .half() behind from_pretrained.
func (r *reader) castInSource(c foundCall) {
	casts := map[string]string{".bfloat16": "bf16", ".half": "fp16", ".float": "fp32"}
	for _, f := range r.seen().files {
		for _, each := range f.Calls {
			if each.Receiver == nil || each.Receiver.Kind != python.Invoke || innermost(each) != c.Call {
				continue
			}
			if dtype := casts[each.Callee]; dtype != "" {
				r.load.replace(Setting[string]{Value: dtype, Known: true, Origin: f.at(each.Line)})
			}
			for position := range 2 {
				cast := foundCall{each, f, true}.argument(position, "dtype")
				// most casts name a device
				if text, _, given := cast.text(immaterial); given && each.Callee == ".to" && dtypeName(text) != "" {
					r.load.replace(Setting[string]{Value: dtypeName(text), Known: true, Origin: f.at(each.Line)})
				}
			}
		}
	}
}

// newModelInSource: a model that starts from random weights is described by a configuration.
func (r *reader) newModelInSource() {
	if calls := r.seen().modelCalls("from_config"); len(calls) == 1 {
		c := calls[0]
		config := c.argument(0, "config").value(immaterial) // no default stands in its place
		if config != nil && config.Kind == python.Invoke &&
			strings.HasSuffix(config.Call.Callee, "onfig.from_pretrained") {
			made := foundCall{config.Call, c.file, true}
			if name, _, given := made.argument(0, "pretrained_model_name_or_path").literal(immaterial); given {
				r.sourceArgument("model_name_or_path", name, c.origin())
			}
		}
		r.load.Unknown(c.origin() + " makes the model from a configuration; give --precision")
	}
}

// quantInSource reads quantization_config=BitsAndBytesConfig(...) and the older load_in_4bit=True.
func (r *reader) quantInSource(c foundCall) {
	j := r.job
	for _, bits := range []struct {
		name  string
		quant Quant
	}{{"load_in_4bit", Quant{Method: "bnb", Bits: 4, Type: "fp4", ComputeDtype: "fp32", Storage: "uint8"}},
		{"load_in_8bit", Quant{Method: "bnb", Bits: 8, Type: "int8"}}} {
		hold := func(string) {
			j.Quant.Withhold(c.origin() + " passes " + bits.name + ", which is decided when the script runs")
			j.Method.Withhold(c.origin() + " passes " + bits.name +
				", which is decided when the script runs; give --method")
		}
		if c.keyword(bits.name).flag(hold) {
			j.Quant.Offer(&bits.quant, c.origin())
		}
	}
	var hidden *python.Expr
	config := present(c.keyword("quantization_config").found.Open(func(why *python.Expr) { hidden = why }))
	if config == nil {
		config = hidden
	}
	switch {
	case config == nil:
	case config.Kind == python.Invoke && python.EndsIn(config.Call.Callee, "BitsAndBytesConfig"):
		r.bitsAndBytes(foundCall{config.Call, c.file, true})
	case config.Kind == python.Invoke && python.EndsIn(config.Call.Callee, "GPTQConfig", "AwqConfig"):
		j.Quant.Unknown(c.file.at(config.Line) + ": " + config.Call.Callee + " is not read; give --quant")
	default:
		why := c.why("quantization_config", config) + "; give --quant"
		j.Quant.Withhold(why)
		j.Method.Withhold(why)
	}
}

// bitsAndBytes reads one BitsAndBytesConfig; its defaults are fp4, fp32 and uint8
// (transformers/utils/quantization_config.py).
func (r *reader) bitsAndBytes(c foundCall) {
	hidden := false
	hide := func(string) { hidden = true }
	four, eight := c.keyword("load_in_4bit").flag(hide), c.keyword("load_in_8bit").flag(hide)
	if hidden {
		r.job.Quant.Withhold(c.origin() + ": whether weights are quantised is decided when the script runs")
		r.job.Method.Withhold(c.origin() +
			": whether weights are quantised is decided when the script runs; give --method")
		return
	}
	switch {
	case eight:
		r.job.Quant.Offer(&Quant{Method: "bnb", Bits: 8, Type: "int8"}, c.origin())
		return
	case !four:
		return
	}
	q := &Quant{Method: "bnb", Bits: 4, Type: "fp4", ComputeDtype: "fp32", Storage: "uint8"}
	hold := withhold("give --quant", &r.job.Quant)
	if text, _, given := c.keyword("bnb_4bit_quant_type").literal(hold); given {
		q.Type = text
	}
	q.Double = c.keyword("bnb_4bit_use_double_quant").flag(hold)
	hideDtype := func(string) { q.ComputeDtype = "" } // unknown, which the estimate tells
	if text, _, given := c.keyword("bnb_4bit_compute_dtype").text(hideDtype); given {
		q.ComputeDtype = dtypeName(text)
	}
	if text, _, given := c.keyword("bnb_4bit_quant_storage").text(hold); given {
		q.Storage = storageName(text)
	}
	r.job.Quant.Offer(q, c.origin())
}

// checkpointingInSource: a call in the script turns checkpointing on, whatever the arguments say.
func (r *reader) checkpointingInSource() {
	for _, c := range r.seen().calls("gradient_checkpointing_enable") {
		r.reentrantInSource(c, c.argument(0, "gradient_checkpointing_kwargs"))
		if c.sure {
			r.job.Checkpointing.Offer("full", c.origin())
		} else {
			r.job.Checkpointing.Withhold(c.origin() +
				" turns it on under a condition that is decided when the script runs")
		}
	}
	for _, c := range r.seen().calls("prepare_model_for_kbit_training", "prepare_model_for_int8_training") {
		r.reentrantInSource(c, c.keyword("gradient_checkpointing_kwargs"))
		hold := withhold("", &r.job.Checkpointing)
		// on by default (peft/utils/other.py)
		if on, given := c.argument(1, "use_gradient_checkpointing").truth(hold); (on || !given) && c.sure {
			r.job.Checkpointing.Offer("full", c.origin()+": on by default")
		}
	}
}

// reentrantInSource reads {"use_reentrant": False}.
func (r *reader) reentrantInSource(c foundCall, given asked) {
	hold := withhold("", &r.job.Reentrant)
	options := given.value(hold)
	if options == nil {
		return
	}
	if n, whole := c.file.node(options, "gradient_checkpointing_kwargs", c.Place); !whole {
		hold(c.why("gradient_checkpointing_kwargs", options))
	} else if n.Get("use_reentrant") != nil {
		r.job.Reentrant.Offer(r.nodeBool(n.Get("use_reentrant"), true), c.origin())
	}
}
