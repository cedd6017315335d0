package remedy

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job"
	"oomguard/preflight/optim"
)

// The changes of the options: what a job can still do, from mild to strong, as functions of the case. Each edits a
// copy.

func set[T any](v T) job.Setting[T] {
	return job.Setting[T]{Value: v, Known: true, Origin: "remedy"}
}

// settings is the case's job; of one that is not known nothing is known.
func (c Case) settings() *job.Job {
	if c.Job == nil {
		return &job.Job{}
	}
	return c.Job
}

// worldSize is the number of ranks; 1 where it is not known.
func (c Case) worldSize() int {
	j := c.settings()
	return j.WorldSize.Or(j.NNodes.Or(1) * j.NProc.Or(max(c.GPUs, 1)))
}

// one is a single change.
func one(do string, apply func(*job.Job)) []edit { return []edit{{do: do, apply: apply}} }

// only narrows changes to the cases in which the words of an option work.
func only(holds func(Case) bool, edits func(Case) []edit) func(Case) []edit {
	return func(c Case) []edit {
		if c.Job != nil && !holds(c) {
			return nil
		}
		return edits(c)
	}
}

func oneProcess(c Case) bool       { return c.worldSize() == 1 }
func belowZeRO3(c Case) bool       { return sharedBy(c.Job) != "zero3" }
func severalProcesses(c Case) bool { return c.worldSize() > 1 }

// ofTask: the job's task is one of these, or not known.
func ofTask(tasks ...string) func(Case) bool {
	return func(c Case) bool { return slices.Contains(tasks, c.Job.Task.Or(tasks[0])) }
}

// single tells whether the job works in 32 bits.
func single(j *job.Job) bool {
	return slices.Contains([]string{"fp32", "tf32"}, j.Precision.Or("fp32")) && j.ParamDtype.Or("fp32") == "fp32"
}

func half(c Case, do string, weights string, master, cast bool) []edit {
	if !single(c.settings()) {
		return nil
	}
	return one(do, func(j *job.Job) {
		j.Precision, j.ParamDtype, j.MasterFP32, j.Autocast = set("bf16"), set(weights), set(master), set(cast)
	})
}

func autocast(c Case) []edit {
	return half(c, "forward and loss in bfloat16; keep the weights in fp32", "fp32", false, true)
}

func halfWithMaster(c Case) []edit {
	return half(c, "weights in bfloat16, with an fp32 copy for the optimizer", "bf16", true, false)
}

func halfWeights(c Case) []edit {
	return half(c, "weights and optimizer in bfloat16", "bf16", false, false)
}

func accumulate(c Case) []edit {
	j := c.settings()
	if !j.MicroBatch.Known {
		return []edit{{do: "a smaller micro-batch, with as many more accumulation steps"}}
	}
	batch, accum := j.MicroBatch.Value, j.GradAccum.Or(1)
	var list []edit
	for b := batch / 2; b >= 1; b /= 2 {
		steps := accum * ((batch + b - 1) / b)
		list = append(list, edit{fmt.Sprintf("micro-batch %d and %d accumulation steps instead of %d and %d", b, steps,
			batch, accum),
			map[string]int{"micro_batch": b, "grad_accum": steps},
			func(j *job.Job) { j.MicroBatch, j.GradAccum = set(b), set(steps) }})
	}
	return list
}

func checkpointAttention(c Case) []edit {
	if c.settings().Checkpointing.Or("none") != "none" {
		return nil
	}
	return one("recompute attention alone", func(j *job.Job) { j.Checkpointing = set("selective") })
}

func checkpointLayers(c Case) []edit {
	if now := c.settings().Checkpointing.Or("none"); now != "none" && !strings.HasPrefix(now, "selective") {
		return nil
	}
	return one("recompute each layer in backward", func(j *job.Job) { j.Checkpointing = set("full") })
}

// lossOf is a loss of one kind; a chunked one does not keep the logits of all tokens at once.
func lossOf(kind string) func(Case) []edit {
	return func(c Case) []edit {
		if c.settings().FusedLoss.Or("none") != "none" {
			return nil
		}
		return one(fusedLosses()[kind], func(j *job.Job) { j.FusedLoss = set(kind) })
	}
}

func fusedLosses() map[string]string {
	return map[string]string{
		"chunked": "compute the loss in chunks of tokens", "cut-ce": "cut cross entropy",
		"liger-flce":   "Liger's fused linear cross entropy",
		"native-fused": "fused vocabulary-parallel cross entropy",
	}
}

func ligerEverywhere(c Case) []edit {
	if c.settings().FusedLoss.Or("none") != "none" {
		return nil
	}
	return one(fusedLosses()["liger-flce"],
		func(j *job.Job) { j.FusedLoss, j.LayerKernels = set("liger-flce"), set("liger") })
}

// shardBy is one way of sharing model states, where it shares more than the job does now.
func shardBy(target string) func(Case) []edit {
	return func(c Case) []edit {
		if c.worldSize() < 2 || !slices.Contains(stepsUp()[c.settings().Sharding.Or("ddp")], target) {
			return nil
		}
		e := edit{do: "share model states by " + target, values: map[string]int{},
			apply: func(j *job.Job) { shardJob(j, target) }}
		if _, err := fmt.Sscanf(target, "zero%d", new(int)); err == nil {
			e.values["stage"] = int(target[len(target)-1] - '0')
		}
		return []edit{e}
	}
}

func shardJob(j *job.Job, target string) {
	j.Sharding = set(target)
	if j.DeepSpeed.Or(nil) != nil {
		ds := *j.DeepSpeed.Value
		j.DeepSpeed = set(&ds)
	}
}

// stepsUp are the ways that share more than a job does now.
func stepsUp() map[string][]string {
	all := []string{"zero1", "zero2", "zero3", "dist-optim", "fsdp-full"}
	return map[string][]string{
		"none": all, "dp": all, "ddp": all, "zero1": {"zero2", "zero3"}, "zero2": {"zero3"},
		"fsdp-grad": {"fsdp-full"}, "fsdp-hybrid": {"fsdp-full"}, "dist-optim": {"fsdp-full"},
	}
}

// plainAdam tells whether 8-bit AdamW replaces that optimizer.
func plainAdam(name string) bool {
	o, known := optim.Find(name, optim.Ours)
	return known && o.Has(optim.EightBit) && o.In(optim.EightBit).Name == "adamw_8bit"
}

func eightBits() []string { return []string{"adamw_8bit", "paged_adamw_8bit"} }

func onHost(device string) bool { return device == "cpu" || device == "nvme" }

// onHostInStep tells whether the optimizer's states stay on the host while the weights are updated.
func onHostInStep(j *job.Job) bool {
	now := j.Offload.Or(job.Offload{})
	return onHost(now.Optimizer) && !now.Idle
}

func eightBit(name string) func(Case) []edit {
	return func(c Case) []edit {
		j := c.settings()
		if !plainAdam(j.Optimizer.Or("adamw")) || onHostInStep(j) {
			return nil
		}
		return one("8-bit AdamW", func(j *job.Job) { j.Optimizer = set(name) })
	}
}

func adapters(c Case) []edit {
	if c.settings().Method.Or("full") != "full" {
		return nil
	}
	var list []edit
	for _, targets := range [][]string{nil, {"all-linear"}} { // PEFT's default for the model, where it has one
		list = append(list, edit{do: "train LoRA adapters of rank 16 on the frozen 16-bit model",
			apply: func(j *job.Job) {
				j.Method, j.LoRA = set("lora"), set(&job.LoRA{R: 16, Alpha: 32, Targets: targets})
				j.BaseDtype, j.Precision, j.ParamDtype, j.MasterFP32 = set("bf16"), set("bf16"), job.Setting[string]{},
					set(false)
				j.Autocast = job.Setting[bool]{}
			}})
	}
	return list
}

// movable tells whether something is left to move to the host, and whether an optimizer of the job's kind works there.
func movable(j *job.Job) bool { return !slices.Contains(eightBits(), j.Optimizer.Or("adamw")) }

// quantised tells whether the frozen weights are kept in fewer bits.
func quantised(j *job.Job) bool { return j.Quant.Or(nil) != nil }

// sharedBy is how the model states are shared; not at all where nobody says.
func sharedBy(j *job.Job) string { return j.Sharding.Or("none") }

// offloadOptimizer: ZeRO can keep the optimizer states alone on the host; a job without sharding takes stage 2.
func offloadOptimizer(c Case) []edit {
	j := c.settings()
	now, sharding, how := j.Offload.Or(job.Offload{}), sharedBy(j), "offload optimizer states to the host"
	if onHost(now.Optimizer) || !movable(j) || strings.HasPrefix(sharding, "fsdp") || sharding == "dist-optim" {
		return nil
	}
	stage := 2
	if _, err := fmt.Sscanf(sharding, "zero%d", &stage); err != nil {
		sharding, how = "zero2", "DeepSpeed ZeRO-2 with optimizer states on the host"
	}
	return []edit{{how, map[string]int{"stage": stage}, func(j *job.Job) {
		j.Sharding, j.Offload = set(sharding), set(job.Offload{Optimizer: "cpu", Params: now.Params})
	}}}
}

// offloadDistributed is Megatron's: the distributed optimizer's states.
func offloadDistributed(c Case) []edit {
	now := c.settings().Offload.Or(job.Offload{})
	if onHost(now.Optimizer) {
		return nil
	}
	return one("offload optimizer states to the host", func(j *job.Job) {
		if !strings.HasPrefix(j.Sharding.Or("none"), "fsdp") {
			j.Sharding = set("dist-optim")
		}
		j.Offload = set(job.Offload{Optimizer: "cpu", Params: now.Params})
	})
}

// offloadZeRO3 moves the weights too. A job that is not sharded, or less, takes stage 3 where its framework has it.
func offloadZeRO3(c Case) []edit {
	j := c.settings()
	if now := j.Offload.Or(job.Offload{}); onHost(now.Optimizer) && onHost(now.Params) || !movable(j) ||
		strings.HasPrefix(sharedBy(j), "fsdp") || sharedBy(j) == "dist-optim" ||
		quantised(j) && sharedBy(j) != "zero3" {
		return nil
	}
	return one("ZeRO-3 with optimizer states and weights on the host", func(j *job.Job) {
		shardJob(j, "zero3")
		j.Offload = set(job.Offload{Optimizer: "cpu", Params: "cpu"})
	})
}

// offloadFSDP moves everything: FSDP cannot leave the weights behind. One process, or a quantised model, that is not
// sharded yet stays so: trainers refuse FSDP there, and it shards quantised weights only in a storage type that the
// load has to name.
func offloadFSDP(c Case) []edit {
	j := c.settings()
	now, sharded := j.Offload.Or(job.Offload{}), strings.HasPrefix(sharedBy(j), "fsdp")
	if onHost(now.Params) && !now.Idle || strings.HasPrefix(sharedBy(j), "zero") || sharedBy(j) == "dist-optim" {
		return nil
	}
	if !sharded && c.Job != nil && (c.worldSize() < 2 || quantised(j)) {
		return nil
	}
	return one("FSDP with optimizer states and weights on the host", func(j *job.Job) {
		if !strings.HasPrefix(sharedBy(j), "fsdp") {
			j.Sharding = set("fsdp-full")
		}
		j.Offload = set(job.Offload{Optimizer: "cpu", Params: "cpu"})
	})
}

func inBackward(c Case) []edit {
	j := c.settings()
	if j.OptimizerInBackward.Or(false) || j.GradAccum.Or(1) > 1 {
		return nil
	}
	return one("update each weight in backward, so that no gradients are kept",
		func(j *job.Job) { j.OptimizerInBackward = set(true) })
}

// splitTensors: beyond one node's NVLink it is too slow.
func splitTensors(c Case) []edit {
	tp, world := c.settings().TP.Or(1), c.worldSize()
	var list []edit
	for degree := 2 * tp; degree <= world && degree <= 8; degree *= 2 {
		if heads := c.heads(); heads > 0 && heads%degree != 0 || world%degree != 0 {
			break
		}
		list = append(list, edit{fmt.Sprintf("tensor parallelism over %d GPUs", degree), map[string]int{"tp": degree},
			func(j *job.Job) {
				j.TP, j.WorldSize = set(degree), set(world)
			}})
	}
	return list
}

// heads are the attention heads of the model; 0: not known.
func (c Case) heads() int {
	if c.Architecture == nil {
		return 0
	}
	return int(c.Architecture.Heads)
}

func shorten(c Case) []edit {
	const shortest = 256 // below it, training changes its nature
	length := c.settings().SeqLen
	if !length.Known {
		return []edit{{do: "shorter sequences"}}
	}
	var list []edit
	for n := length.Value / 2; n >= shortest; n /= 2 {
		list = append(list, edit{fmt.Sprintf("sequences of %d tokens", n), map[string]int{"seq_len": n},
			func(j *job.Job) { j.SeqLen = set(n) }})
	}
	return list
}
