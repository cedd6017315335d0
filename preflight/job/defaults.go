package job

import (
	"fmt"
	"slices"
	"strings"
)

// trainerDefaults fills what nobody said with the defaults of Hugging Face's Trainer, where it is behind the script.
func (r *reader) trainerDefaults() {
	if !r.family.huggingFace() {
		return
	}
	j := r.job
	origin := "default of " + r.installed("transformers")
	j.MicroBatch.Offer(trainerMicroBatch, origin)
	j.GradAccum.Offer(trainerGradAccum, origin)
	if r.on("auto_find_batch_size") && !j.MicroBatch.own() {
		j.MicroBatch.Origin += " (the first try: --auto_find_batch_size shrinks it after an out-of-memory error)"
	}
	r.defaultOptimizer()
	r.defaultAttention()
	r.evaluation(origin)
	r.compilation(origin)
	for _, offer := range []struct {
		key   string
		set   *Setting[string]
		value string
	}{{"checkpointing", &j.Checkpointing, "none"}, {"fused_loss", &j.FusedLoss, "none"},
		{"layer_kernels", &j.LayerKernels, "none"}} {
		itself := offer.key == "checkpointing" && r.checkpointsItself()
		if offer.set.Origin == "" && r.silence(offer.key) == "" && !itself {
			offer.set.Offer(offer.value, origin)
		}
	}
	r.defaultLoad()
	r.defaultPrecision()
}

// compilation: a backend or a mode alone turns torch_compile on, too (training_args.py).
func (r *reader) compilation(origin string) {
	set := &r.job.Compile
	if on, given := r.boolean("torch_compile"); on ||
		given && r.args["torch_compile_backend"].text == "" && r.args["torch_compile_mode"].text == "" {
		set.Offer(on, r.args["torch_compile"].origin)
	}
	for _, name := range []string{"torch_compile_backend", "torch_compile_mode"} {
		if a := r.args[name]; a.text != "" {
			set.Offer(true, a.origin)
		}
	}
	set.Offer(false, origin)
}

// evaluation: Trainer evaluates when do_eval or a strategy says so, with 8 rows unless told otherwise.
func (r *reader) evaluation(origin string) {
	set := &r.job.EvalBatch
	r.job.EvalGenerates.Offer(false, origin)
	if asked := r.evaluationAsked(); asked != "" {
		r.job.Evaluation.Offer(true, asked)
	}
	if !r.job.Evaluation.Or(false) {
		set.Offer(0, "neither do_eval nor an eval_strategy")
		return
	}
	r.integer("per_device_eval_batch_size", set)
	if r.family.framework == "axolotl" {
		set.Offer(r.job.MicroBatch.Value, "axolotl evaluates with micro_batch_size")
	}
	if set.Origin == "" {
		set.Offer(trainerEvalBatch, origin)
	}
}

// evaluationAsked is where do_eval or a strategy asks for evaluation; "" when neither does.
func (r *reader) evaluationAsked() string {
	for _, name := range []string{"eval_strategy", "evaluation_strategy"} {
		if a := r.args[name]; a.text != "" && a.text != "no" && a.text != "false" {
			return a.origin
		} else if a.text != "" {
			break
		}
	}
	if r.on("do_eval") {
		return r.args["do_eval"].origin
	}
	return ""
}

// defaultOptimizer: adamw_torch, and its fused implementation since transformers 4.54 with torch 2.8
// (training_args.py, default_optim).
func (r *reader) defaultOptimizer() {
	const fusedSince = "fused since torch 2.8 with transformers 4.54"
	if r.job.Optimizer.Origin != "" { // known, or unknown for a reason
		return
	}
	newTorch, torchKnown := r.atLeast("torch", 2, 8)
	newTrainer, trainerKnown := r.atLeast("transformers", 4, 54)
	switch {
	case torchKnown && !newTorch, trainerKnown && !newTrainer:
		r.job.Optimizer.Offer("adamw", "default of "+r.installed("transformers")+" with "+r.installed("torch"))
	case torchKnown && trainerKnown:
		r.job.Optimizer.Offer("adamw_fused", "default of "+r.installed("transformers")+" with "+r.installed("torch"))
	default:
		r.job.Optimizer.Offer("adamw", "default of transformers: AdamW, "+fusedSince+
			"; the versions are not known, so the larger one is taken")
	}
}

// defaultLoad resolves the dtype of from_pretrained: fp32 in transformers 4, the checkpoint's own in 5; TRL's trainers
// load in fp32 since 0.27. (0.26 means to load the checkpoint's own, but never passes it on: trl/trainer/utils.py,
// create_model_from_path.)
func (r *reader) defaultLoad() {
	assumed := " (if the script itself passes none)"
	if r.family.origin != "" && r.family.framework == "trl" || r.family.packs || r.family.ownScript {
		assumed = ""
	}
	trl27, trlKnown := r.atLeast("trl", 0, 27)
	five, known := r.atLeast("transformers", 5)
	isTRL := r.family.framework == "trl" && trlKnown && !r.loadsItself()
	switch {
	case isTRL && trl27:
		r.load.Offer("fp32", "default of "+r.installed("trl"))
	case known && five:
		r.load.Offer(autoDtype, "default of "+r.installed("transformers")+assumed)
	case known:
		r.load.Offer("fp32", "default of "+r.installed("transformers")+assumed)
	case r.job.Architecture != nil && r.job.Architecture.Dtype == "fp32":
		r.load.Offer("fp32", r.job.Architecture.Source+", and the default of older versions of transformers too")
	default:
		r.load.Unknown("no dtype given: transformers 4 loads fp32, transformers 5 the checkpoint's own dtype, and " +
			"the version is not known; give --versions transformers=... or --precision")
	}
}

// resolveAuto replaces "auto" by the checkpoint's dtype.
func (r *reader) resolveAuto() {
	if !r.load.Known || r.load.Value != autoDtype {
		return
	}
	origin := r.load.Origin
	r.load = Setting[string]{}
	switch a := r.job.Architecture; {
	case a == nil:
		r.load.Unknown("the checkpoint's own dtype (" + origin +
			"), and the model's config is not known; give --precision")
	case a.Dtype == "":
		r.load.Unknown("the checkpoint's own dtype (" + origin + "), which " + a.Source +
			" does not name; give --precision")
	default:
		r.load.Offer(a.Dtype, origin+": dtype in "+a.Source)
	}
}

// defaultPrecision: without autocast a model computes in the dtype of its weights.
func (r *reader) defaultPrecision() {
	r.resolveAuto()
	j := r.job
	if r.shardingLost != "" {
		return
	}
	j.MasterFP32.Offer(false, "Trainer keeps no second copy of the weights")
	if j.Precision.Known {
		return
	}
	switch {
	case r.unsaid["bf16"] != "":
		j.Precision.Unknown(r.unsaid["bf16"])
	case r.load.Known:
		j.Precision.Offer(r.load.Value,
			"no mixed precision asked for: computes in the dtype of the weights, "+r.load.Origin)
	default:
		j.Precision.Unknown(r.load.Origin)
	}
}

// explainUnknowns gives every setting that is still unknown a reason, and the flag that would settle it.
func (r *reader) explainUnknowns() {
	j := r.job
	base := "not given, and the script decides"
	switch {
	case r.blocked != "":
		base = r.blocked
	case len(j.Argv) == 0:
		base = "not given"
	case r.family.foreign:
		base = r.family.origin
	}
	keys := Keys()
	j.eachFact(func(key string, f fact) {
		reason := base
		if why := j.WillFail.Value; why != "" && (key == "nproc" || key == "nnodes") {
			f.Unknown(why) // the launcher refuses what it is given
		}
		if given := r.givenAs(key); given != "" {
			reason = given + ": " + reason
			if !r.family.foreign && r.blocked == "" {
				reason = given
			}
		}
		// Names that a person does not give as one flag.
		flag := map[string]string{"param_dtype": "precision", "base_dtype": "precision", "master_fp32": "precision",
			"autocast": "precision", "model_params": "params", "lora": "lora-r"}[key]
		if i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == key }); i >= 0 {
			flag = keys[i].Flag
		}
		if flag != "" && !strings.Contains(reason, "give ") {
			reason += fmt.Sprintf("; give --%s", flag)
		}
		f.Unknown(reason)
	})
}
