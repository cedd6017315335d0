package oom

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Situation is a pattern that people meet when memory does not do what they expected. Several may hold at once, beside
// the one cause.
type Situation struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Evidence []string `json:"evidence"`
	Do       string   `json:"do"`
}

// situation is one row of the table: find returns the evidence, none when it does not hold.
type situation struct {
	id, title string
	find      func(q *inquest) []string
	do        func(q *inquest) string
}

// situations recognises what holds, in the order of the table. Only a shortage of device memory has situations.
func (q *inquest) situations(cause Cause) []Situation {
	list := []Situation{}
	if !slices.Contains(deviceCauses(), cause) {
		return list
	}
	for _, s := range situationTable() {
		if evidence := s.find(q); len(evidence) > 0 {
			list = append(list, Situation{ID: s.id, Title: s.title, Evidence: evidence, Do: s.do(q)})
		}
	}
	return list
}

// deviceCauses are those for which memory on the device was short.
func deviceCauses() []Cause {
	return []Cause{Capacity, FragmentationCause, OtherProcess, ModelLoad, OptimizerInit, Activation, LogitsLoss,
		EvalGenerate, LeakGrowth, SingleHugeAllocation,
		NCCLOOM, CublasAllocFailed, CudaContextOOM, HIPROCm}
}

func fixed(s string) func(*inquest) string { return func(*inquest) string { return s } }

func situationTable() []situation {
	return []situation{
		{"estimate-off", "the estimate is far from what was measured", (*inquest).estimateOff,
			(*inquest).estimateOffDo},
		{"optimizer-jump", "memory jumps at the first optimizer step", (*inquest).optimizerJump, fixed(
			"Adam makes two states a parameter at its first step, so a run that survives the first backward pass " +
				"may still die there or in the second forward pass. " +
				"Share the states (ZeRO-1 or FSDP), make them smaller (8-bit optimizer) or train fewer parameters " +
				"(LoRA); a smaller batch helps only where activations are alive too")},
		{"dies-after-steps", "it ran for some steps and died then", (*inquest).afterSteps, (*inquest).afterStepsDo},
		{"reserved-unused", "much more is reserved than allocated", (*inquest).reservedUnused, fixed(
			"the cache is in pieces. Change the allocator's setting first (see alloc-conf), then make shapes " +
				"repeat: pad to a few fixed lengths, drop the last short batch, " +
				"free caches between training and evaluation; a smaller job also ends it, but pays for memory that " +
				"nobody uses")},
		{"amp-no-savings", "mixed precision saves less than expected", (*inquest).ampWithoutSavings, (*inquest).ampDo},
		{"gradients-kept", "gradients are not cleared between steps",
			func(q *inquest) []string { return some(q.facts.Run.gradientsKept()) }, fixed(
				"call optimizer.zero_grad(set_to_none=True) right after optimizer.step() (set_to_none is the default " +
					"since torch 2.0): then the forward pass runs without the gradients beside it. " +
					"With accumulation, clear once per optimizer step; where a trainer owns the loop, " +
					"remove your own " +
					"backward or step calls")},
		{"try-small-first", "this batch was never tried smaller", (*inquest).neverSmall, (*inquest).neverSmallDo},
		{"other-processes", "other processes use this GPU", (*inquest).othersThere, fixed(
			"end them or choose another GPU before changing the job: nvidia-smi lists them, oomguard gpus too. " +
				"Left-over ranks of an earlier run, notebooks and desktop sessions are the usual ones; " +
				"in shared clusters ask for the whole GPU")},
	}
}

func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// suspects says what usually makes an estimate wrong in the stage in which it departs first.
var suspects = map[string]string{
	"model-load": "the data type of the weights (fp32 where 16 bits were expected), a second copy of the " +
		"checkpoint on the GPU, or sharding that is not in effect yet",
	"optimizer-init": "another optimizer or other state types than understood (fp32 states, a master copy), or " +
		"sharding of the states that is not in effect",
	"forward": "longer sequences than understood, attention that builds the whole score matrix (eager), or " +
		"checkpointing that is not in effect",
	"backward":       "checkpointing that is not in effect, or gradients in another type than understood",
	"optimizer-step": "temporaries of the optimizer (foreach makes a copy of everything) or of gradient clipping",
	"eval":           "a larger evaluation batch, or outputs that are kept on the GPU",
}

// estimateOff finds the first stage, in the order in which a run meets them, whose measurement is far from the
// prediction.
func (q *inquest) estimateOff() []string {
	stage, predicted, measured := q.farOff()
	if stage == "" {
		return nil
	}
	list := []string{fmt.Sprintf("in %s %s were predicted and %s measured (%+.0f %%)", stage, size(predicted),
		size(measured), 100*float64(predicted-measured)/float64(measured))}
	if unsure := q.facts.Run.Unsure; len(unsure) > 0 {
		list = append(list, "the estimate had to assume: "+strings.Join(unsure, "; "))
	}
	return list
}

func (q *inquest) farOff() (stage string, predicted, measured int64) {
	if q.facts.Run == nil {
		return "", 0, 0
	}
	for _, stage := range []string{"model-load", "forward", "backward", "optimizer-init", "optimizer-step", "eval"} {
		p, m := q.facts.Run.Predicted[stage], q.facts.PeaksByStage[stage]
		// the stage in which it died was cut short: its peak is a lower bound
		if p <= 0 || m <= 0 || stage == q.stage && p > m {
			continue
		}
		if off := max(p-m, m-p); off >= farOffBytes && float64(off) >= farOffShare*float64(m) {
			return stage, p, m
		}
	}
	return "", 0, 0
}

func (q *inquest) estimateOffDo() string {
	stage, predicted, measured := q.farOff()
	what := "likely: " + suspects[stage]
	if predicted > measured {
		what = "the run needs less there than predicted: a setting that saves memory was not understood, or it " +
			"trains less (fewer layers, adapters)"
	}
	return what + ". Look at oomguard explain for settings that are unknown or wrong and give them as flags; until " +
		"the two agree, trust the measurement, not what the remedies are said to save"
}

// optimizerJump: it died in the first step, or in what follows it, with the state as a large part.
func (q *inquest) optimizerJump() []string {
	r := q.facts.Run
	if q.stage == "optimizer-init" {
		list := []string{"it died in the first optimizer step"}
		if r != nil && r.Predicted["optimizer-init"] > 0 && r.Predicted["model-load"] > 0 {
			list = append(list, fmt.Sprintf("predicted: %s after loading, %s in the first optimizer step",
				size(r.Predicted["model-load"]), size(r.Predicted["optimizer-init"])))
		}
		return list
	}
	if r == nil || r.Steps != 1 || r.OptimizerBytes <= 0 {
		return nil
	}
	var highest int64
	for _, p := range r.Course {
		highest = max(highest, p.PeakBytes)
	}
	if float64(r.OptimizerBytes) < jumpShare*float64(highest) {
		return nil
	}
	return []string{fmt.Sprintf("it died right after the first optimizer step, which had added %s of optimizer "+
		"state (exact) to %s of weights", size(r.OptimizerBytes), size(r.ParamBytes))}
}

// afterSteps: whole steps had gone well before.
func (q *inquest) afterSteps() []string {
	if k, ok := q.facts.Run.leak(); ok {
		return []string{fmt.Sprintf("what was still allocated after a step grew from %s (step %d) to %s (step %d), "+
			"%s a step", size(k.firstBytes), k.firstStep,
			size(k.lastBytes), k.lastStep, size((k.lastBytes-k.firstBytes)/int64(max(1, k.lastStep-k.firstStep))))}
	}
	if word, first, last, ok := q.growth(); ok {
		return []string{fmt.Sprintf("the log's own figure %q rose steadily from %g to %g", strings.Trim(word, "| :"),
			first, last)}
	}
	r := q.facts.Run
	if r == nil || r.Steps < 2 {
		return nil
	}
	list := []string{fmt.Sprintf("%d optimizer steps went well", r.Steps)}
	if len(r.Course) >= settlingSteps+2 {
		if first, last, ok := r.heldRange(); ok {
			list = append(list, fmt.Sprintf("what is held after a step stayed the same (%s and %s): nothing leaks, "+
				"this step needed more than the others", size(first), size(last)))
		}
		if before, last := r.highest(); last > before && before > 0 {
			list = append(list, fmt.Sprintf("the highest peak of the steps before was %s, that of the last one %s "+
				"before it failed", size(before), size(last)))
		}
	}
	return list
}

// heldRange is what was held after the first settled step and after the last one.
func (r *RunFacts) heldRange() (first, last int64, ok bool) {
	for _, p := range r.Course {
		if p.Step < settlingSteps || p.HeldBytes < 0 {
			continue
		}
		if !ok {
			first = p.HeldBytes
		}
		last, ok = p.HeldBytes, true
	}
	return first, last, ok
}

func (q *inquest) afterStepsDo() string {
	_, grows := q.facts.Run.leak()
	_, _, _, printed := q.growth()
	switch {
	case grows || printed:
		return "something is kept from step to step: losses or outputs appended with their graph (use loss.item() " +
			"or .detach()), metrics on the GPU, hooks and caches that grow. " +
			"Take torch.cuda.memory._dump_snapshot() at two steps and compare them with oomguard postmortem; a " +
			"smaller batch only dies later"
	case q.stage == "eval":
		return "evaluation began: see eval-accumulation"
	}
	return "look at the batch that died: cap the length of samples (max_length with truncation), group by length or " +
		"use a token budget a batch, and test the longest sample first; " +
		"evaluation, saving and generation that begin at this step count too"
}

func (q *inquest) reservedUnused() []string {
	if !q.holes(plainHolesShare) && !q.asyncHoles() {
		return nil
	}
	m := q.msg
	if m.ReservedUnallocatedBytes < 0 {
		return []string{fmt.Sprintf("%s of %s were neither free nor allocated",
			size(m.TotalBytes-m.FreeBytes-m.AllocatedBytes), size(m.TotalBytes))}
	}
	list := []string{fmt.Sprintf("%s reserved and not allocated beside %s allocated; %s were asked for, %s were free",
		size(m.ReservedUnallocatedBytes), size(m.AllocatedBytes),
		size(m.TriedBytes), size(m.FreeBytes))}
	if m.PrivatePoolBytes > 0 {
		list = append(list, size(m.PrivatePoolBytes)+
			" of it belong to CUDA graph pools, which no setting of the allocator joins")
	}
	return list
}

// ampWithoutSavings: it is on, and either it does not show, or what it makes smaller is a small part.
func (q *inquest) ampWithoutSavings() []string {
	r := q.facts.Run
	if r == nil || r.AMP == nil {
		return nil
	}
	a := r.AMP
	apart := a.WithoutBytes - a.WithBytes
	switch {
	case apart > a.WithBytes/10 && a.MeasuredBytes > a.WithBytes+apart/2:
		return []string{fmt.Sprintf("the peak of %s is %s: nearer to the %s of fp32 than to the %s of mixed "+
			"precision, as predicted", a.Stage, size(a.MeasuredBytes),
			size(a.WithoutBytes), size(a.WithBytes))}
	case apart <= 0:
		return []string{fmt.Sprintf("mixed precision is predicted to need %s in %s, fp32 %s: autocast keeps 16-bit "+
			"copies of the weights for each pass, and the batch is too small to make up for them",
			size(a.WithBytes), a.Stage, size(a.WithoutBytes))}
	case a.Bytes > 0 && float64(a.TouchedBytes) < ampShare*float64(a.Bytes):
		return []string{fmt.Sprintf("mixed precision makes activations and logits smaller, and those are %s of %s "+
			"(predicted); weights, gradients and optimizer state stay in fp32", size(a.TouchedBytes), size(a.Bytes))}
	}
	return nil
}

func (q *inquest) ampDo() string {
	if a := q.facts.Run.AMP; a.MeasuredBytes > a.WithBytes+(a.WithoutBytes-a.WithBytes)/2 &&
		a.WithoutBytes > a.WithBytes {
		return "mixed precision does not seem to be in effect: the model's forward pass and the loss must run " +
			"inside autocast (also inside checkpointed blocks and custom functions), " +
			"and nothing in between may cast back to fp32"
	}
	return "for weights, gradients and optimizer state other means are needed: sharding, an 8-bit optimizer, LoRA, " +
		"or weights in bf16 throughout (which changes how small updates are rounded)"
}

// neverSmall: it died before a step was complete, with more than one sample in a micro-batch.
func (q *inquest) neverSmall() []string {
	r := q.facts.Run
	if r == nil || r.Steps > 0 || q.stage == "model-load" {
		return nil
	}
	if s := r.Smaller; s != nil {
		return []string{fmt.Sprintf("run %s did %d tokens a forward pass and ended well with a peak of %s; this one "+
			"did %d", s.ID, s.Tokens, size(s.PeakBytes), s.Here)}
	}
	if r.Job.MicroBatch < 2 {
		return nil
	}
	return []string{fmt.Sprintf("it died before its first step was complete, with a micro-batch of %d, and no "+
		"smaller run of this job is recorded", r.Job.MicroBatch)}
}

func (q *inquest) neverSmallDo() string {
	if s := q.facts.Run.Smaller; s != nil {
		return fmt.Sprintf("the smaller size works: go up from %d tokens a forward pass in small steps, and keep "+
			"the global batch by accumulation", s.Tokens)
	}
	return "run a few steps with micro-batch 1 first, keeping the global batch by accumulation. When that fits, " +
		"double it until 10 to 20 % are left free; when it does not, no batch size helps, and weights and states " +
		"must shrink"
}

// othersThere: the message or the driver name processes that are not the run's.
func (q *inquest) othersThere() []string {
	var list []string
	if q.msg != nil && listedBytes(*q.msg) >= strangerBytes {
		list = append(list, "the message lists "+listProcesses(q.msg.OtherProcesses))
	}
	r := q.facts.Run
	if r.strangerTotal() >= strangerBytes {
		list = append(list, "NVML saw "+describeStrangers(r.Strangers))
	}
	if r != nil && r.HeldBeforeBytes >= strangerBytes {
		list = append(list, fmt.Sprintf("%s of %s were in use before the command started", size(r.HeldBeforeBytes),
			size(r.GPUBytes)))
	}
	if len(list) == 0 && q.otherProcess() {
		list = append(list, fmt.Sprintf("%s of %s are held outside this process", size(q.outside),
			size(q.msg.TotalBytes)))
	}
	return list
}

func describeStrangers(list []Stranger) string {
	const most = 6
	list = slices.Clone(list)
	sort.SliceStable(list, func(i, j int) bool { return list[i].Bytes > list[j].Bytes })
	var parts []string
	for i, s := range list {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(list)-most))
			break
		}
		name := s.Name
		if name != "" {
			name = " (" + name + ")"
		}
		parts = append(parts, fmt.Sprintf("process %d%s %s", s.PID, name, size(s.Bytes)))
	}
	return strings.Join(parts, ", ")
}
