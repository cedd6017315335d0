package plan

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

// A Remedy is one change to the job that lowers the peak of a GPU.
type Remedy struct {
	ID  string `json:"id"` // amp, grad-accum, checkpointing, fused-loss, sharding, optimizer-8bit, lora, offload, model-parallel, shorter-seq
	Why string `json:"why"`
	How string `json:"how"`
	// SavesBytes is how much lower the peak in question gets; NewDeviceBytes is what the device then needs at its highest stage.
	SavesBytes     int64 `json:"saves_bytes"`
	NewDeviceBytes int64 `json:"new_device_bytes"`
	// Fits says whether this change alone is enough; nil when the device is unknown.
	Fits *bool `json:"fits"`
}

// A candidate is one row of the list below. It offers changed copies of the job, mildest first; none when it does not apply.
type candidate struct {
	id, why string
	offer   func(situation) []change
}

// A change is a job and what to do to get it.
type change struct {
	job *job.Job
	how string
}

// A situation is the job as it stands and what it was estimated to need.
type situation struct {
	in    estimate.Input
	stage estimate.Stage // whose memory is to be lowered; "" for the peak of all stages
	now   int64          // what it takes
	whole int64          // what the peak of all takes
	peak  estimate.Components
}

// candidates in order of cost: what changes nothing but speed comes first, what changes the model's result or needs other hardware last.
var candidates = []candidate{
	{"amp", "16-bit activations take half the memory of fp32 ones", amp},
	{"grad-accum", "activations grow with the micro-batch; accumulation keeps the global batch", gradAccum},
	{"checkpointing", "layers keep their input alone and compute the rest again in backward, for about a third more time", checkpoint},
	{"fused-loss", "a chunked loss never holds the logits of all tokens at once", fusedLoss},
	{"sharding", "ranks that hold the same model states can share them", shardMore},
	{"optimizer-8bit", "8-bit optimizer states take a quarter of fp32 ones", eightBit},
	{"lora", "only small adapters have gradients and optimizer state", lora},
	{"offload", "optimizer states can live in host memory, for a slower step", offload},
	{"model-parallel", "each GPU holds a part of every layer", modelParallel},
	{"shorter-seq", "activations and logits grow with the sequence", shorterSequence},
}

// IDs lists the remedies that this package can price, in their order.
func IDs() []string {
	var ids []string
	for _, c := range candidates {
		ids = append(ids, c.id)
	}
	return ids
}

// Remedies lists what lowers the peak, cheapest first. Each is the estimator's answer for the job with that one change, so a
// change that shrinks something which is not alive at the peak saves nothing. Such a change, one that raises another peak above it, and one that is already on or cannot
// be made, is left out: advice that does not help would be tried first.
func Remedies(in estimate.Input) ([]Remedy, error) { return RemediesAt(in, "") }

// RemediesAt is Remedies for the peak of one stage, where a run has died; a stage that the estimate does not have counts as "", the
// peak of all.
func RemediesAt(in estimate.Input, stage estimate.Stage) ([]Remedy, error) {
	now, err := estimate.Run(in)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	s := situation{in: in, stage: stage}
	s.now, s.peak = s.need(now)
	s.whole = now.PerGPU.DeviceBytes
	var out []Remedy
	for _, c := range candidates {
		if r, ok := s.try(c); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// need is what the stage takes, and its parts.
func (s situation) need(e *estimate.Estimate) (int64, estimate.Components) {
	for _, m := range e.Stages {
		if m.Stage == s.stage {
			return m.DeviceBytes, m.Components
		}
	}
	return e.PerGPU.DeviceBytes, e.PerGPU.Components
}

// try takes the mildest of a candidate's changes that fits, or the strongest when none does.
func (s situation) try(c candidate) (Remedy, bool) {
	var best Remedy
	found := false
	for _, ch := range c.offer(s) {
		in := s.in
		in.Job = ch.job
		e, err := estimate.Run(in)
		if err != nil { // the change contradicts the job
			continue
		}
		need, _ := s.need(e)
		saves := s.now - need
		if saves <= 0 || e.PerGPU.DeviceBytes > s.whole || found && saves <= best.SavesBytes {
			continue
		}
		best = Remedy{ID: c.id, Why: c.why, How: ch.how, SavesBytes: saves, NewDeviceBytes: e.PerGPU.DeviceBytes, Fits: e.Fits}
		found = true
		if e.Fits != nil && *e.Fits {
			break
		}
	}
	return best, found
}

// with is a copy of the job after edit.
func (s situation) with(how string, edit func(*job.Job)) change {
	j := *s.in.Job
	edit(&j)
	return change{job: &j, how: how}
}

func set[T any](v T) job.Setting[T] {
	return job.Setting[T]{Value: v, Known: true, Origin: "remedy"}
}

func amp(s situation) []change {
	j := s.in.Job
	if p := j.Precision.Or("fp32"); p != "fp32" && p != "tf32" || j.ParamDtype.Or("fp32") != "fp32" {
		return nil
	}
	return []change{s.with("run forward and loss under torch.autocast with bfloat16 (Trainer: bf16=True); keep weights in fp32", func(j *job.Job) {
		j.Precision, j.ParamDtype, j.MasterFP32, j.Autocast = set("bf16"), set("fp32"), set(false), set(true)
	})}
}

func gradAccum(s situation) []change {
	batch, accum := s.in.Job.MicroBatch.Or(1), s.in.Job.GradAccum.Or(1)
	var out []change
	for b := batch / 2; b >= 1; b /= 2 {
		steps := accum * ((batch + b - 1) / b)
		out = append(out, s.with(fmt.Sprintf("micro-batch %d and %d accumulation steps instead of %d and %d", b, steps, batch, accum), func(j *job.Job) {
			j.MicroBatch, j.GradAccum = set(b), set(steps)
		}))
	}
	return out
}

func checkpoint(s situation) []change {
	if c := s.in.Job.Checkpointing.Or("none"); c != "none" && !strings.HasPrefix(c, "selective") {
		return nil
	}
	return []change{s.with("model.gradient_checkpointing_enable() (Trainer: gradient_checkpointing=True)", func(j *job.Job) {
		j.Checkpointing = set("full")
	})}
}

func fusedLoss(s situation) []change {
	if s.in.Job.FusedLoss.Or("none") != "none" {
		return nil
	}
	return []change{
		s.with("compute the loss in chunks of tokens (TRL: loss_type=\"chunked_nll\")", func(j *job.Job) { j.FusedLoss = set("chunked") }),
		s.with("Liger's fused linear cross entropy (Trainer: use_liger_kernel=True)", func(j *job.Job) {
			j.FusedLoss = set("liger-flce")
			if slices.Contains([]string{"hf-trainer", "trl", "llamafactory"}, j.Framework.Or("")) { // one switch for the layers' kernels too
				j.LayerKernels = set("liger")
			}
		}),
	}
}

// nextShardings are the steps up from each way of sharing model states.
var nextShardings = map[string][]string{
	"none": {"zero1", "zero2", "fsdp-full"}, "dp": {"zero1", "zero2", "fsdp-full"}, "ddp": {"zero1", "zero2", "fsdp-full"},
	"zero1": {"zero2", "zero3"}, "zero2": {"zero3"}, "fsdp-grad": {"fsdp-full"}, "fsdp-hybrid": {"fsdp-full"}, "dist-optim": {"fsdp-full"},
}

func worldSize(s situation) int {
	j := s.in.Job
	return j.WorldSize.Or(j.NNodes.Or(1) * j.NProc.Or(max(s.in.Hardware.Count, 1)))
}

func shardMore(s situation) []change {
	if worldSize(s) < 2 {
		return nil
	}
	var out []change
	for _, next := range nextShardings[s.in.Job.Sharding.Or("ddp")] {
		out = append(out, s.with("share model states by "+next, func(j *job.Job) {
			j.Sharding = set(next)
			if j.DeepSpeed.Or(nil) != nil {
				ds := *j.DeepSpeed.Value
				j.DeepSpeed = set(&ds)
			}
		}))
	}
	return out
}

func eightBit(s situation) []change {
	plain := []string{"adamw", "adam", "adamw_fused", "adamw_foreach", "adamw_loop", "paged_adamw"}
	if !slices.Contains(plain, s.in.Job.Optimizer.Or("adamw")) {
		return nil
	}
	return []change{s.with("bitsandbytes' 8-bit AdamW (Trainer: optim=\"adamw_bnb_8bit\")", func(j *job.Job) { j.Optimizer = set("adamw_8bit") })}
}

func lora(s situation) []change {
	if s.in.Job.Method.Or("full") != "full" {
		return nil
	}
	var out []change
	for _, targets := range [][]string{nil, {"all-linear"}} { // PEFT's default for the model, where it has one
		out = append(out, s.with("train LoRA adapters of rank 16 on the frozen 16-bit model (PEFT)", func(j *job.Job) {
			j.Method, j.LoRA = set("lora"), set(&job.LoRA{R: 16, Alpha: 32, Targets: targets})
			j.BaseDtype, j.Precision, j.ParamDtype, j.MasterFP32 = set("bf16"), set("bf16"), job.Setting[string]{}, set(false)
			j.Autocast = job.Setting[bool]{}
		}))
	}
	return out
}

func offload(s situation) []change {
	j := s.in.Job
	current := j.Offload.Or(job.Offload{})
	if current.Optimizer == "cpu" || current.Optimizer == "nvme" {
		return nil
	}
	sharding, how := j.Sharding.Or("none"), "offload optimizer states to the host"
	if !strings.HasPrefix(sharding, "zero") && !strings.HasPrefix(sharding, "fsdp") {
		sharding, how = "zero2", "DeepSpeed ZeRO-2 with offload_optimizer to the host"
	}
	out := []change{s.with(how, func(j *job.Job) {
		j.Sharding, j.Offload = set(sharding), set(job.Offload{Optimizer: "cpu", Params: current.Params})
	})}
	if sharding == "zero3" || strings.HasPrefix(sharding, "fsdp") {
		out = append(out, s.with("offload optimizer states and weights to the host", func(j *job.Job) {
			j.Offload = set(job.Offload{Optimizer: "cpu", Params: "cpu"})
		}))
	}
	return out
}

func modelParallel(s situation) []change {
	tp, world := s.in.Job.TP.Or(1), worldSize(s)
	var out []change
	for degree := 2 * tp; degree <= world && degree <= 8; degree *= 2 { // beyond one node's NVLink it is too slow
		if heads := heads(s); heads > 0 && heads%degree != 0 || world%degree != 0 {
			break
		}
		out = append(out, s.with(fmt.Sprintf("tensor parallelism over %d GPUs (Megatron, torchtitan or Transformers' tp_plan)", degree), func(j *job.Job) {
			j.TP, j.WorldSize = set(degree), set(world)
		}))
	}
	return out
}

func heads(s situation) int {
	if a := architecture(s.in); a != nil {
		return int(a.Heads)
	}
	return 0
}

func shorterSequence(s situation) []change {
	const shortest = 256 // below it, training changes its nature
	var out []change
	for n := s.in.Job.SeqLen.Or(0) / 2; n >= shortest; n /= 2 {
		out = append(out, s.with(fmt.Sprintf("sequences of %d tokens", n), func(j *job.Job) { j.SeqLen = set(n) }))
	}
	return out
}
