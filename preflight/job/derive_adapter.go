package job

import (
	"cmp"
	"slices"
	"strings"
)

// deriveAdapter decides method, lora and quant, which depend on each other.
func (r *reader) deriveAdapter() {
	j := r.job
	p := &r.adapter
	r.quantOfModel()
	named := firstKnown(p.use.named("use_peft"), p.r.named("r"), p.alpha.named("alpha"), p.targets.named("targets"))
	method := "lora"
	if q := j.Quant; q.Known && q.Value != nil {
		method = map[bool]string{true: "qlora", false: "lora8bit"}[q.Value.Bits <= 4]
	}
	r.ownMethod(method)
	quantised := ""
	if !j.Quant.Known && !r.family.foreign {
		quantised = r.silence("quant")
	}
	switch {
	case p.lost != "":
		for _, f := range []fact{&j.Method, &j.LoRA, &j.ParamDtype, &j.BaseDtype} {
			f.Unknown(p.lost)
		}
	case p.use.Known && !p.use.Value:
		j.Method.Offer("full", p.use.Origin)
	case (j.Quant.withheld || quantised != "") && (p.use.Known || named.Known && !r.usesModelConfig()):
		j.Method.Unknown("adapters are trained (" + named.Origin +
			"), and whether on quantised weights is not known: " + cmp.Or(quantised, j.Quant.Origin))
	case p.use.Known, named.Known && !r.usesModelConfig():
		j.Method.Offer(method, named.Origin)
	case r.usesModelConfig():
		why := "no --use_peft"
		if named.Known {
			why += ", without which " + named.Origin + " has no effect"
		}
		j.Method.Offer("full", why)
	case r.blocked != "":
		j.Method.Unknown(r.blocked)
	case method != "lora":
		j.Method.Unknown("quantised weights are trained through adapters, and none are named; give --method")
	case r.family.foreign:
	case r.methodUndecided() != "":
		j.Method.Unknown(r.methodUndecided() + "; give --method")
	case !r.family.huggingFace() && j.Method.Origin != "": // named, but not known
	case r.namesAdapters() != "":
		j.Method.Unknown(r.namesAdapters() + ": the script may train adapters of its own; give --method")
	default:
		j.Method.Offer("full", "no adapter named")
	}
	adapted := j.Method.Known && slices.Contains([]string{"lora", "qlora", "lora8bit"}, j.Method.Value)
	if adapted && j.Method.Value == "qlora" {
		j.Quant.Offer(&Quant{Method: "bnb", Bits: 4, Type: "nf4", Storage: "uint8"},
			"assumed for "+j.Method.Origin+": nf4 without nested scales")
	}
	if r.blocked == "" && r.methodUndecided() == "" && quantised == "" {
		j.Quant.Offer(nil, "no quantisation named")
	}
	switch {
	case adapted:
		r.offerLoRA()
		r.ownAdapter()
	case j.Method.Known:
		if j.Method.own() {
			j.LoRA.become(Setting[*LoRA]{})
		}
		j.LoRA.Offer(nil, "no LoRA adapters: method "+j.Method.Value)
	}
}

// offerLoRA completes an adapter with the defaults of TRL's ModelConfig (trl/trainer/model_config.py) or of PEFT's
// LoraConfig.
func (r *reader) offerLoRA() {
	p := &r.adapter
	fallback := "defaults of PEFT"
	rank, alpha, dropout := 8, 8, 0.0
	if r.usesModelConfig() {
		fallback, rank, alpha, dropout = "defaults of TRL's ModelConfig", 16, 32, 0.05
	}
	r.defaultTargets()
	saved := p.saved()
	for _, part := range []Named{p.r.named("r"), p.alpha.named("alpha"), p.dropout.named("dropout"),
		p.targets.named("targets")} {
		// a default would stand in for it
		if !part.Known && (strings.Contains(part.Origin, "is not known") ||
			strings.Contains(part.Origin, "could not be read")) {
			r.job.LoRA.Withhold(part.Origin)
		}
	}
	var origins []string
	for _, part := range []Named{p.r.named("r"), p.alpha.named("alpha"), p.dropout.named("dropout"),
		p.targets.named("targets"), saved.named("modules_to_save")} {
		origin := part.Origin
		if !part.Known {
			origin = fallback
		}
		if !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	r.job.LoRA.Offer(&LoRA{R: p.r.Or(rank), Alpha: p.alpha.Or(alpha), Dropout: p.dropout.Or(dropout),
		Targets:       p.targets.Or(nil),
		ModulesToSave: saved.Or(nil), DoRA: p.dora, RSLoRA: p.rslora, Bias: p.bias, RankPattern: p.ranks},
		strings.Join(origins, ", "))
}

// deriveWeights decides the dtypes of trained and of frozen weights.
func (r *reader) deriveWeights() {
	j := r.job
	r.resolveAuto()
	if !j.Method.Known {
		r.deriveAutocast()
		return
	}
	weights := &j.BaseDtype // what is loaded is frozen below adapters, and trained otherwise
	if j.Method.Value == "full" {
		weights = &j.ParamDtype
		j.BaseDtype.Unknown("nothing is frozen")
	} else {
		r.adapterDtype()
		r.quantComputeDtype()
	}
	if d := r.deepspeed; d != nil && d.half != "" && !d.open {
		weights.Offer(d.half, d.origin+": DeepSpeed casts the whole model, frozen weights too")
	}
	if r.load.Known {
		weights.Offer(r.load.Value, r.load.Origin)
	}
	weights.Unknown(r.load.Origin)
	r.deriveAutocast()
}

// trlCasts reports whether TRL's trainers cast the adapters of a model that bitsandbytes holds: all of them since 0.26
// (DPO: 0.29), before that those of 4-bit models where bf16 is on (trl/models/utils.py, prepare_peft_model;
// peft_module_casting_to_bf16).
func (r *reader) trlCasts() bool {
	q := r.job.Quant.Value
	if r.family.framework != "trl" || q == nil || q.Method != "bnb" && q.Method != "bitsandbytes" {
		return false
	}
	since := 26
	if r.family.program == "dpo" {
		since = 29
	}
	all, known := r.atLeast("trl", 0, since)
	return !known || all || q.Bits == 4 && r.job.Precision.Value == "bf16"
}

// adapterDtype: PEFT keeps adapters in fp32 over half-precision weights since 0.12 (autocast_adapter_dtype).
func (r *reader) adapterDtype() {
	j := r.job
	casts, known := r.atLeast("peft", 0, 12)
	switch {
	case r.trlCasts():
		j.ParamDtype.Offer("bf16", "TRL casts the adapters of quantised models to bf16")
	case known && !casts && j.Quant.Value != nil && j.Quant.Value.integers():
		j.ParamDtype.Offer("fp32", r.installed("peft")+
			" gives adapters the dtype of the weights they adapt only where that is a floating-point one")
	case known && !casts && r.load.Known:
		j.ParamDtype.Offer(r.load.Value, r.installed("peft")+" gives adapters the dtype of the weights they adapt")
	case known && !casts:
		j.ParamDtype.Unknown(r.load.Origin)
	case r.family.huggingFace(), r.family.framework == "open-instruct":
		j.ParamDtype.Offer("fp32", "PEFT keeps adapters in fp32 (since 0.12)")
	}
}

// quantComputeDtype completes a quantisation whose compute dtype nobody named: TRL passes the dtype of loading,
// bitsandbytes otherwise follows the input, which is the compute precision.
func (r *reader) quantComputeDtype() {
	j := r.job
	q := j.Quant.Value
	// Unsloth computes in the dtype of loading
	if q == nil || q.ComputeDtype != "" || q.Method != "bnb" || r.family.framework == "unsloth" {
		return
	}
	compute := j.Precision.Or("")
	if r.family.framework == "trl" {
		compute = r.load.Or("")
	}
	q.ComputeDtype = compute
}

// ownAdapter puts what own flags say of an adapter over what the job says of it, known or not.
func (r *reader) ownAdapter() {
	p, set := &r.adapter, &r.job.LoRA
	parts := p.ownParts()
	if len(parts) == 0 {
		return
	}
	if set.withheld || !set.Known || set.Value == nil {
		set.become(Setting[*LoRA]{})
		r.offerLoRA()
		return
	}
	l := *set.Value
	var origins []string
	for _, part := range parts {
		origins = append(origins, part.Origin)
		switch part.Key {
		case "r":
			l.R = p.r.Value
		case "alpha":
			l.Alpha = p.alpha.Value
		case "dropout":
			l.Dropout = p.dropout.Value
		case "targets":
			l.Targets = p.targets.Value
		}
	}
	if !strings.Contains(set.Origin, ownFlag) {
		origins = append(origins, set.Origin)
		set.become(Setting[*LoRA]{Value: &l, Known: true, Origin: strings.Join(origins, ", ")})
	}
}
