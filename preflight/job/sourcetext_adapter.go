package job

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// Adapters that a script makes itself.

// adapterInSource reads the adapter that the script gives to its trainer or wraps the model in.
func (r *reader) adapterInSource() {
	for _, c := range r.seen().trainerCalls("Trainer") {
		if r.adapterOf(c.keyword("peft_config")) {
			return
		}
	}
	for _, name := range []string{"get_peft_model", "add_adapter"} {
		for _, c := range r.seen().calls(name) {
			position := map[string]int{"get_peft_model": 1, "add_adapter": 0}[name]
			if python.EndsIn(c.Callee, "FastLanguageModel.get_peft_model", "FastModel.get_peft_model",
				"FastVisionModel.get_peft_model") {
				continue
			}
			config := c.argument(position, map[string]string{"get_peft_model": "peft_config",
				"add_adapter": "adapter_config"}[name])
			if !c.sure {
				why := c.origin() + " adds adapters under a condition that is decided when the script runs; give " +
					"--method"
				r.job.Method.Withhold(why)
				r.job.LoRA.Withhold(why)
				return
			}
			if r.adapterOf(config) {
				return
			}
		}
	}
	for _, c := range r.seen().calls("PeftModel.from_pretrained", "AutoPeftModelForCausalLM.from_pretrained") {
		position := map[bool]int{true: 0, false: 1}[strings.Contains(c.Callee, "AutoPeft")]
		// the base model is loaded elsewhere
		if name, _, given := c.argument(position, "model_id").literal(immaterial); given {
			r.sourceArgument("model_name_or_path", name, c.origin())
		}
	}
}

// adapterOf reads the configuration that a call is given, and reports whether it is given one.
func (r *reader) adapterOf(config asked) bool {
	made := config.found.Open(func(why *python.Expr) { r.adapterConfig(config.call, why) })
	if made != nil {
		r.adapterConfig(config.call, made)
	}
	return made != nil || r.job.Method.withheld
}

// adapterConfig reads LoraConfig(...) as one call.
func (r *reader) adapterConfig(user foundCall, config *python.Expr) {
	p := &r.adapter
	hidden := func() {
		why := fmt.Sprintf("%s passes an adapter's configuration that is decided when the script runs (%s); give "+
			"--method", user.origin(), config)
		r.job.Method.Withhold(why)
		r.job.LoRA.Withhold(why)
	}
	made, file := r.seen().returned(user.file, config)
	switch {
	case isLiteral(made) && made.Value == nil:
		return
	case made.Kind != python.Invoke:
		hidden()
		return
	}
	c := foundCall{made.Call, file, true}
	switch class := c.className(); {
	case slices.Contains([]string{"LoraConfig", "AdaLoraConfig"}, class):
	case slices.Contains([]string{"OFTConfig", "BOFTConfig", "HRAConfig"}, class):
		r.job.Method.Offer("oft", c.origin())
		return
	case strings.HasSuffix(class, "Config"):
		r.job.Method.Offer("adapter", c.origin())
		return
	default:
		hidden()
		return
	}
	p.use.Offer(true, c.origin())
	r.loraInSource(c, map[string]int{"LoraConfig": 8}[c.className()])
}

// returned follows x, y = f() into a function of the script's own that returns in one place. What else it is given it
// returns as it is.
func (t *sourceText) returned(from *sourceFile, e *python.Expr) (*python.Expr, *sourceFile) {
	part, isPart := e.Value.(int64)
	if e.Kind != python.Unknown || !isPart || len(e.Items) != 1 || e.Items[0].Kind != python.Invoke {
		return e, from
	}
	called := e.Items[0].Call.Callee
	for _, f := range t.files {
		name, inside := strings.CutPrefix(from.Qualified(called), f.module+".")
		if f == from {
			name, inside = called, true
		}
		fn := f.Function(name)
		if !inside || fn == nil || fn.Scope != "" || len(fn.Returns) != 1 || fn.Returns[0].Kind != python.List ||
			int(part) >= len(fn.Returns[0].Items) {
			continue
		}
		end := python.Place{Line: math.MaxInt, Scope: fn.Name}
		return f.scope.Resolve(fn.Returns[0].Items[part], end), f
	}
	return e, from
}

// loraInSource reads LoRA's keywords, which get_peft_model of Unsloth shares with LoraConfig.
func (r *reader) loraInSource(c foundCall, rank int) {
	p := &r.adapter
	hold := withhold("give --lora-r and its kin", &r.job.LoRA)
	for _, number := range []struct {
		name string
		set  *Setting[int]
	}{{"r", &p.r}, {"init_r", &p.r}, {"lora_alpha", &p.alpha}} {
		if n, origin, given := c.keyword(number.name).number(hold); given {
			number.set.Offer(n, origin)
		}
	}
	if rank > 0 {
		p.r.Offer(rank, "default of PEFT")
	}
	if text, origin, given := c.keyword("lora_dropout").text(hold); given {
		if dropout, err := pythonFloat(text); err == nil && dropout >= 0 && dropout < 1 {
			p.dropout.Offer(dropout, origin)
		} else {
			hold(c.origin() + " passes a lora_dropout that is no share")
		}
	}
	for _, list := range []struct {
		name string
		set  *Setting[[]string]
	}{{"target_modules", &p.targets}, {"modules_to_save", &p.save}} {
		e := c.keyword(list.name).value(hold)
		if e == nil {
			continue
		}
		if names, ok := c.texts(e); ok {
			list.set.Offer(names, c.file.from(e.Line, e))
		} else {
			hold(c.why(list.name, e))
		}
	}
	if text, origin, given := c.keyword("task_type").text(hold); given { // "SEQ_CLS" or TaskType.SEQ_CLS
		_, word, _ := cutLast(text)
		p.kind.Offer(word, origin)
	}
	dora, rslora := c.keyword("use_dora").flag(hold), c.keyword("use_rslora").flag(hold)
	p.dora, p.rslora = p.dora || dora, p.rslora || rslora
	if bias, _, given := c.keyword("bias").literal(hold); given && bias != "none" {
		p.bias = bias
	}
}

// texts are a list's literal texts, or one text as a list.
func (c foundCall) texts(e *python.Expr) ([]string, bool) {
	if text, ok := literalString(e); ok {
		return []string{text}, true
	}
	if e.Kind != python.List {
		return nil, false
	}
	names := make([]string, len(e.Items))
	for i, item := range e.Items {
		text, ok := literalString(c.resolve(item))
		if !ok {
			return nil, false
		}
		names[i] = text
	}
	return names, true
}

// namesAdapters is the word of the command line that asks a script of the user's for adapters which are not PEFT's:
// --lora_dim 128; "" when there is none.
func (r *reader) namesAdapters() string {
	if !r.family.ownScript || r.seen() == nil || !r.seen().mentions("lora") {
		return ""
	}
	words := r.job.ScriptArgs
	for i, word := range words {
		option, value, attached := strings.Cut(word, "=")
		if !strings.HasPrefix(option, "--") || !strings.Contains(strings.ToLower(option), "lora") {
			continue
		}
		if !attached && i+1 < len(words) && !isOption(words[i+1]) {
			value = words[i+1]
		}
		if on, isTruth := document.ParseBool(value); value != "0" && value != "0.0" &&
			!strings.EqualFold(value, "none") && (!isTruth || on) {
			return "command line " + option
		}
	}
	return ""
}
