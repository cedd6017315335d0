package estimate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// A taskRule is what a way of training adds to plain training with a loss over every token.
type taskRule struct {
	// of the micro-batch for one sample: 2 where a chosen and a rejected answer stand side by side; 0 means 1
	rows       int64
	reference  bool // answers are compared with those of a frozen reference model
	classifies bool // one number a sequence instead of logits
	critic     bool // a frozen reward model and a trained value model
	generates  bool // the model writes answers while it is trained
	note       string
}

// taskRules are those of TRL's trainers (trl/trainer: dpo, kto, reward, grpo, ppo), which other programs follow.
var taskRules = map[string]taskRule{
	"dpo":  {rows: 2, reference: true, note: "DPO concatenates the chosen and the rejected answer"},
	"rm":   {rows: 2, classifies: true, note: "a reward model reads the chosen and the rejected answer together"},
	"kto":  {reference: true},
	"grpo": {reference: true, generates: true},
	"ppo":  {reference: true, critic: true, generates: true},
}

func (s *scenario) task() taskRule { return taskRules[s.job.Task.Or("")] }

func (s *scenario) rowsPerSample() int64 { return max(s.task().rows, 1) }

// settleTask applies what the task changes about batch and model.
func (s *scenario) settleTask() error {
	rule := s.task()
	if rule.rows > 1 {
		s.batch *= rule.rows
		s.notes.assume(fmt.Sprintf("%d sequences per sample", rule.rows), rule.note, false)
	}
	if rule.generates {
		s.notes.assume("no cache of keys and values while answers are generated",
			"their number and length are not known", true)
	}
	if generatesWithoutPadding(s) {
		s.notes.assume("every answer is as long as is allowed",
			"how long they get is not known before the run, and their padding is taken out", true)
	}
	return nil
}

// rewarding is the model with one number a sequence instead of an output projection (AutoModelForSequenceClassification
// with num_labels=1).
func rewarding(a *model.Architecture) *model.Architecture {
	last := len(a.Units) - 1
	if last < 0 || !a.Causal {
		return a
	}
	copied := *a
	copied.Tied, copied.TiedHead, copied.Causal, copied.LogitsWidth = false, nil, false, 1
	copied.Units = slices.Clone(a.Units)
	copied.Units[last].Tensors = append(slices.DeleteFunc(slices.Clone(a.Units[last].Tensors),
		func(t model.Tensor) bool {
			return t.Role == model.Head || t.Role == model.Bias && t.Part == model.PartHead
		}), model.Tensor{Module: "score", Path: "score", Role: model.Head, Part: model.PartScore,
		Shape: []int64{1, a.Hidden}})
	return &copied
}

// holdsReference says whether a frozen copy of the model is there to compare with. Adapters make one unnecessary,
// because they can be switched off; log-probabilities that were computed before make it so too, which the job's
// ref_model says.
func (s *scenario) holdsReference() bool {
	set := s.job.RefModel
	switch {
	case set.Known:
		return set.Value
	case !s.task().reference:
		return false
	case s.adapters():
		s.notes.assume("no reference model", "the adapters are switched off for it", false)
		return false
	}
	s.notes.assume("a reference model of the same size", "ref_model is unknown: "+reason(set), true)
	return true
}

// addReference adds the other models of preference and reinforcement learning. Frozen ones are whole on every rank
// unless ZeRO-3 or FSDP splits them, and have the dtype in which the policy was loaded (TRL prepares them like the
// policy).
func (r *rank) addReference(l *layout) {
	own, frozen := *l, int64(0)
	if !r.namesReference() && r.holdsReference() {
		frozen++
		r.notes.assume("the reference model's weights are among the parameters",
			"it is as large as the policy and is never trained", false)
	}
	one := r.precision.param * count(r.base, nil)
	if r.adapters() {
		one = r.frozenBytes()
	}
	if r.sharding == "zero3" || r.sharding == "fsdp-full" || r.sharding == "fsdp-hybrid" {
		one = ceilDiv(one, r.shards)
	}
	if r.offload.Params == "cpu" || r.offload.Params == "nvme" {
		one = 0
	}
	l.params += frozen * one
	if given := r.in.Options.SecondModelBytes; given >= 0 {
		l.params += given
		return
	}
	if r.task().critic && !r.job.SecondModels.Known {
		r.leaveOut(NotCounted{What: "reward model and value model",
			Why: "not counted: PPO has both, and nothing tells their sizes", Give: giveSecondModels})
	}
	for _, m := range r.job.SecondModels.Or(nil) {
		r.addSecond(l, own, one, m)
	}
}

// namesReference says that the frozen model to compare with has a name, and a size, of its own.
func (s *scenario) namesReference() bool {
	return slices.ContainsFunc(s.job.SecondModels.Or(nil),
		func(m job.SecondModel) bool { return m.Role == "teacher" || m.Role == "reference" })
}

// giveSecondModels is what to do about models without a size.
const giveSecondModels = "--second-models SIZE"

// addSecond adds a model beside the trained one: by its size in parameters what the trained one takes in own, or what a
// frozen copy of that takes.
func (r *rank) addSecond(l *layout, own layout, frozen int64, m job.SecondModel) {
	size, name := m.Params, strings.TrimSpace(m.Role+" "+m.Name)
	if m.Role == "teacher" {
		r.notes.assume("the teacher's logits are not counted",
			"how the losses of distillation hold them differs by program", true)
	}
	if m.Idle {
		r.notes.assume("the "+name+" is in host memory while the model is trained", reason(r.job.SecondModels), false)
		return
	}
	if size <= 0 || size > maxParameters {
		r.leaveOut(NotCounted{What: name,
			Why: "not counted: its size is not known (" +
				cmp.Or(m.Origin, r.job.SecondModels.Origin, "nothing names it") + ")", Give: giveSecondModels})
		return
	}
	scaled := func(bytes int64) int64 { return int64(float64(bytes) * float64(size) / float64(r.arch.Parameters())) }
	if m.Trained && !r.adapters() {
		l.params, l.master, l.grads = l.params+scaled(own.params), l.master+scaled(own.master),
			l.grads+scaled(own.grads)
		l.optimizer, l.persistent = l.optimizer+scaled(own.optimizer), l.persistent+scaled(own.persistent)
	} else {
		l.params += scaled(frozen)
	}
	r.notes.assume(fmt.Sprintf("the %s is among the parameters", name),
		fmt.Sprintf("%d parameters: %s", size, reason(r.job.SecondModels)), false)
}

// inferenceBytes is what an inference engine in the training processes keeps for itself: vLLM's gpu_memory_utilization
// of the whole GPU.
func (s *scenario) inferenceBytes() int64 {
	share, origin := s.in.Options.InferenceShare, "the option for the inference engine's share"
	if share <= 0 {
		share, origin = s.job.InferenceShare.Or(0), s.job.InferenceShare.Origin
	}
	switch {
	case share <= 0 || share > 1:
		if s.task().generates && !s.job.InferenceShare.Known {
			s.notes.assume("no inference engine on the training GPUs",
				"inference_share is unknown: "+reason(s.job.InferenceShare), true)
		}
		return 0
	case s.in.Hardware.Kind != "cuda" || s.in.Hardware.TotalBytes <= 0:
		s.notes.assume(fmt.Sprintf("the inference engine's %.0f %% of the GPU are not counted", 100*share),
			"the GPU's size is unknown; give --gpu", true)
		return 0
	}
	bytes := int64(share * float64(s.in.Hardware.TotalBytes))
	s.notes.assume(fmt.Sprintf("an inference engine keeps %.2f GiB of the GPU, counted in context", float64(bytes)/gib),
		origin, false)
	return bytes
}
