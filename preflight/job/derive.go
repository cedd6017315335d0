package job

import (
	"fmt"
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
	case r.family.ownScript && r.seen() != nil && len(r.seen().calls("Accelerator")) == 0:
		j.Sharding.Unknown("nothing in " + r.seen().files[0].Name +
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
	case r.family.ownScript && r.seen() != nil && r.hasNames("ref_", "reference", "teacher"):
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
