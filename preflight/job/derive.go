package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// derive computes what follows from other settings.
func (r *reader) derive() {
	r.deriveWorld()
	r.deriveSharding()
	r.deriveAdapter()
	r.deriveWeights()
	if r.framework.refusals != nil {
		r.refuse(r.framework.refusals())
	}
	if r.family.huggingFace() {
		r.refuse(trainerRefusals())
	}
	if r.blocked == "" {
		r.deriveParallelism()
		r.deriveRest()
	}
	r.deriveGlobalBatch()
	r.resolveDeepSpeed()
}

func (r *reader) deriveWorld() {
	j := r.job
	if len(j.Argv) == 0 {
		j.NNodes.Offer(1, "assumed: one node, no command given")
		if s := j.Sharding; s.Known && s.Value != "none" && r.src.GPUs > 0 {
			j.NProc.Offer(r.src.GPUs, "assumed: one process for each GPU, no command given")
		}
		j.NProc.Offer(1, "assumed: one process, no command given")
	}
	if r.ownRanks() {
		j.WorldSize.become(Setting[int]{})
	}
	switch world := product(j.NNodes.Value, j.NProc.Value); {
	case j.NNodes.Known && j.NProc.Known && world == 0:
		j.WorldSize.Unknown("nnodes x nproc is too large to be real")
	case j.NNodes.Known && j.NProc.Known:
		j.WorldSize.Offer(world, fmt.Sprintf("nnodes %d x nproc %d", j.NNodes.Value, j.NProc.Value))
	case !j.NNodes.Known && j.NNodes.Origin != "":
		j.WorldSize.Unknown("nnodes: " + j.NNodes.Origin)
	case !j.NProc.Known && j.NProc.Origin != "":
		j.WorldSize.Unknown("nproc: " + j.NProc.Origin)
	}
}

// ranks is the number of processes as far as it is known yet; 0 when it is not.
func (r *reader) ranks() int {
	if r.job.WorldSize.Known && !r.ownRanks() {
		return r.job.WorldSize.Value
	}
	return product(r.job.NNodes.Or(0), r.job.NProc.Or(0))
}

// product multiplies positive numbers; 0 when one is missing or the result is beyond anything real, so that nothing
// overflows.
func product(factors ...int) int {
	const limit = 1 << 50
	p := 1
	for _, f := range factors {
		if f <= 0 || p > limit/f {
			return 0
		}
		p *= f
	}
	return p
}

// deriveSharding decides what several processes do when neither DeepSpeed nor FSDP was named.
func (r *reader) deriveSharding() {
	j := r.job
	if j.Sharding.Known || r.fsdp || r.shardingLost != "" || r.blocked != "" || r.family.framework == "deepspeed" {
		return
	}
	if r.family.foreign && !r.meshFromLauncher() {
		return
	}
	one := j.WorldSize.Known && j.WorldSize.Value == 1
	// DataParallel is for GPUs
	hf := r.family.huggingFace() && !r.on("use_cpu") && !r.on("no_cuda") && !r.onVariable("ACCELERATE_USE_CPU")
	switch {
	case !hf && j.Sharding.Origin != "": // the framework's reader says why it is not known
	case !j.WorldSize.Known:
		j.Sharding.Unknown("the number of processes is not known; give --sharding")
	case hf && (j.Launcher.Value == "python" || j.OneProcess) && one && r.visibleGPUs() > 1:
		j.Sharding.Offer("dp", fmt.Sprintf("Trainer in one process uses DataParallel over all %d visible GPUs",
			r.visibleGPUs()))
	case hf && (j.Launcher.Value == "python" || j.OneProcess) && one && r.visibleGPUs() < 0:
		j.Sharding.Unknown("Trainer in one process uses DataParallel when several GPUs are visible, and their " +
			"number is not known; give --sharding")
	case one:
		j.Sharding.Offer("none", "one process")
	case r.meshFromLauncher():
		j.Sharding.Offer("ddp", j.Launcher.Value+" names no engine, and wraps the model in DDP")
	case hf:
		j.Sharding.Offer("ddp", "Trainer with several processes and neither --deepspeed nor --fsdp")
	case r.family.ownScript && r.source != nil && len(r.source.calls("Accelerator")) == 0:
		j.Sharding.Unknown("nothing in " + r.source.files[0].Name +
			" says how several processes share the training; give --sharding")
	default:
		j.Sharding.Offer("ddp", "assumed: several processes, no sharding named")
	}
}

// deriveParallelism fills the sizes that nothing names.
func (r *reader) deriveParallelism() {
	j := r.job
	origin := "nothing names one"
	if r.meshFromLauncher() {
		origin = j.Launcher.Value + " names none"
	}
	for key, size := range map[string]*Setting[int]{"tp": &j.TP, "pp": &j.PP, "cp": &j.CP, "ep": &j.EP} {
		if size.Origin == "" && (r.meshFromLauncher() || r.silence(key) == "") { // otherwise it is named, but not known
			size.Offer(1, origin)
		}
	}
	if r.shardingLost == "" && j.Offload.Origin == "" && (r.meshFromLauncher() || r.silence("offload") == "") {
		j.Offload.Offer(Offload{Optimizer: "none", Params: "none"}, origin)
	}
	if j.Sharding.Known && !strings.HasPrefix(j.Sharding.Value, "fsdp") {
		j.FSDPVersion.Unknown("FSDP is not used")
		j.FSDPWrap.Unknown("FSDP is not used")
	}
}

func (r *reader) deriveGlobalBatch() {
	j := r.job
	for _, part := range []struct {
		name  string
		value Setting[int]
	}{{"micro_batch", j.MicroBatch}, {"grad_accum", j.GradAccum}, {"world_size", j.WorldSize}, {"tp", j.TP},
		{"pp", j.PP}, {"cp", j.CP}} {
		if !part.value.Known {
			j.GlobalBatch.Unknown(part.name + " is not known")
			return
		}
	}
	model := product(j.TP.Value, j.PP.Value, j.CP.Value)
	if model == 0 || j.WorldSize.Value%model != 0 {
		j.GlobalBatch.Unknown("the sizes contradict each other")
		r.problem(fmt.Errorf("tp %d x pp %d x cp %d does not divide the %d processes; change one of them (--tp, "+
			"--pp, --cp, --nproc, --nnodes)",
			j.TP.Value, j.PP.Value, j.CP.Value, j.WorldSize.Value))
		return
	}
	replicas := j.WorldSize.Value / model
	if j.Sharding.Value == "dp" && r.visibleGPUs() > 1 {
		replicas = r.visibleGPUs()
	}
	global := product(j.MicroBatch.Value, j.GradAccum.Value, replicas)
	if global == 0 {
		j.GlobalBatch.Unknown("micro-batch x accumulation x replicas is too large to be real")
		return
	}
	j.GlobalBatch.Offer(global,
		fmt.Sprintf("micro-batch %d x accumulation %d x %d replicas", j.MicroBatch.Value, j.GradAccum.Value, replicas))
}

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

// deriveReentrant: accelerate's and LLaMA-Factory's FSDP 2 checkpoint without reentrance; axolotl and LLaMA-Factory
// otherwise with it; Trainer with it until transformers 5 (huggingface/transformers#43203), TRL until 0.27
// (huggingface/trl#4811).
func (r *reader) deriveReentrant() {
	j, framework := r.job, r.family.framework
	late, transformersKnown := r.atLeast("transformers", 5)
	lateTRL, trlKnown := r.atLeast("trl", 0, 27)
	switch {
	case j.Checkpointing.Value == "none" && j.Checkpointing.Known:
		j.Reentrant.Offer(false, "nothing is checkpointed")
	case r.fsdpCheckpointing:
		j.Reentrant.Offer(false, "FSDP's own checkpointing")
	case framework == "llamafactory":
		if on, given := r.boolean("use_reentrant_gc"); given && j.FSDPVersion.Or(0) != 2 {
			j.Reentrant.Offer(on, r.args["use_reentrant_gc"].origin)
		}
		j.Reentrant.Offer(j.FSDPVersion.Or(0) != 2, "default of LLaMA-Factory, which switches it off under FSDP 2")
	case framework == "axolotl":
		j.Reentrant.Offer(true, "default of axolotl")
	case framework == "trl" && lateTRL:
		j.Reentrant.Offer(false, "default of "+r.installed("trl"))
	case r.family.huggingFace() && transformersKnown && (late || framework != "trl" || trlKnown):
		j.Reentrant.Offer(!late, "default of "+r.installed("transformers"))
	case r.family.huggingFace():
		j.Reentrant.Unknown("transformers 5 and trl 0.27 changed the default, and their versions are not known; " +
			"give --versions or --checkpointing-reentrant")
	default:
		j.Reentrant.Unknown("nothing names it; give --checkpointing-reentrant")
	}
}

// deriveRest fills what has one value unless something names another.
func (r *reader) deriveRest() {
	j := r.job
	if r.family.foreign { // its silence says nothing
		r.deriveEvaluation()
		r.deriveSecondModels()
		return
	}
	j.WillFail.Offer("", "nothing found")
	switch task := j.Task.Value; {
	case task == "dpo" || task == "kto" || task == "grpo" || task == "ppo":
		j.RefModel.Unknown("the script decides whether " + task + " holds a second model, and it cannot be read here")
	case r.family.huggingFace(), len(j.Argv) == 0:
		j.RefModel.Offer(false, "nothing names a reference model")
	case j.RefModel.Origin != "" || r.silence("ref_model") != "": // named, but not known
	case r.family.ownScript && r.source != nil && r.hasNames("ref_", "reference", "teacher"):
		j.RefModel.Unknown("the script has a reference or a teacher in its names")
	default:
		j.RefModel.Offer(false, "assumed: nothing names a reference model")
	}
	r.deriveReentrant()
	r.deriveSecondModels()
	r.deriveEngine()
	if j.OptimizerInBackward.Origin == "" {
		j.OptimizerInBackward.Offer(false, "nothing names it")
	}
	if j.ActivationOffload.Origin == "" && r.silence("activation_offload") == "" {
		j.ActivationOffload.Offer(false, "nothing names it")
	}
	if task := j.Task.Value; task != "grpo" && task != "ppo" && j.InferenceShare.Origin == "" {
		j.InferenceShare.Offer(0, "nothing names an inference engine")
	}
	if j.Method.Known && j.Method.Value != "freeze" {
		j.TrainableLayers.Unknown("no layers are frozen as a whole: method " + j.Method.Value)
	}
}
