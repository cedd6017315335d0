package oom

import (
	"fmt"

	"oomguard/preflight/remedy"
)

// RunFacts is what a run folder tells beside the text: what was measured inside the rank that died, what the driver saw
// on its GPU, what had been predicted, and the job's settings. Zero values mean unknown.
type RunFacts struct {
	// Memory is "cuda" (PyTorch's allocator) or "rss" (resident host memory, where there is no GPU); the sizes below
	// are of this kind.
	Memory string
	Steps  int           // optimizer steps that the rank completed
	Course []CoursePoint // step by step, in order
	// Exact sizes after the first optimizer step.
	ParamBytes, GradBytes, OptimizerBytes int64
	Turnover                              Turnover

	// Strangers are processes that are not the run's on the rank's GPU, at their highest; HeldBeforeBytes was in use
	// there before the command started, GPUBytes is its size.
	Strangers       []Stranger
	HeldBeforeBytes int64
	GPUBytes        int64

	// Predicted are allocated bytes by stage. Unsure lists what the estimate had to assume.
	Predicted map[string]int64
	Unsure    []string
	// Parts are the predicted components of PartsStage: the stage in which it died, or that of the highest peak.
	Parts      map[string]int64
	PartsStage string
	Job        JobFacts
	Setup      remedy.Case // the job's part of what the remedies are asked about
	AMP        *AMPFacts
	Smaller    *SmallerRun
}

// CoursePoint is one optimizer step, or several neighbours of a long run.
type CoursePoint struct {
	Step      int
	PeakBytes int64
	HeldBytes int64 // still allocated after the step; Unknown
}

// Turnover says what becomes of the gradients between two steps; see the monitor's type of the same name.
type Turnover struct {
	FirstForwardBytes, LaterForwardBytes int64
	LaterForwards                        int
	AfterStepBytes, AfterClearBytes      int64
	Steps, Cleared                       int
}

// Stranger is a process of somebody else.
type Stranger struct {
	PID   int
	Name  string
	Bytes int64 // Unknown where the driver does not say
}

// JobFacts are settings of the job by the vocabulary of explain; "" and 0 unknown.
type JobFacts struct {
	Framework, Sharding string
	MicroBatch          int
}

// AMPFacts compare, at the stage of the highest peak of forward and backward, what automatic mixed precision should
// have given. The predictions are for the job as it is and for the same job in fp32; TouchedBytes are the parts that
// autocast makes smaller (activations and logits), all allocated bytes.
type AMPFacts struct {
	Stage                                        string
	MeasuredBytes                                int64
	WithBytes, WithoutBytes, TouchedBytes, Bytes int64 // Bytes: predicted at the peak of the job, all stages
}

// SmallerRun is an earlier run of the same kind with fewer tokens in a forward pass that ended well.
type SmallerRun struct {
	ID             string
	Tokens, Here   int64 // of a forward pass then and now
	PeakBytes      int64 // of a GPU then
	PredictedBytes int64
}

// Thresholds of the judgements over a run folder.
const (
	// A leak shows in what is held after each step: the least of every quarter of the run must lie above that of the
	// quarter before by a leakPart of the whole rise, and that be this share of the first value and this many bytes:
	// the caching allocator and cuBLAS settle within a few steps. Resident memory of runs that leak nothing was seen to
	// move by 50 MiB between quarters.
	leakShare      = 0.05
	leakPart       = 10
	rssScatter     = 64 << 20
	leakBytes      = 64 << 20
	leakLeastSteps = 8
	settlingSteps  = 2
	// An estimate is far off beyond this share of the measurement: the published error of stages is below 12 % for 9 of
	// 10 jobs, twice that is no scatter. Smaller absolute differences than farOffBytes do not decide whether a job
	// fits.
	farOffShare = 0.25
	farOffBytes = 256 << 20
	// Gradients count as kept when most of their exact size is found where they should be gone.
	keptShare = 0.7
	// AMP cannot save much where the parts that it touches are less than this share of the peak.
	ampShare = 0.3
	// The optimizer's state is worth a word from this share of the highest peak on.
	jumpShare = 0.15
)

// strangerTotal is what strangers hold according to the driver.
func (r *RunFacts) strangerTotal() int64 {
	if r == nil {
		return 0
	}
	var sum int64
	for _, s := range r.Strangers {
		sum += max(0, s.Bytes)
	}
	return sum
}

// kept is memory that grew from step to step: what was held after a step early and late in the run.
type kept struct {
	firstStep, lastStep   int
	firstBytes, lastBytes int64
}

// leak tells whether what is held after each step rose through the whole run.
func (r *RunFacts) leak() (kept, bool) {
	if r == nil {
		return kept{}, false
	}
	var held []CoursePoint
	for _, p := range r.Course {
		if p.Step >= settlingSteps && p.HeldBytes >= 0 {
			held = append(held, p)
		}
	}
	n := len(held)
	if n < leakLeastSteps {
		return kept{}, false
	}
	k := kept{held[0].Step, held[n-1].Step, held[0].HeldBytes, held[n-1].HeldBytes}
	rise := k.lastBytes - k.firstBytes
	if rise < leakBytes || float64(rise) < leakShare*float64(k.firstBytes) {
		return k, false
	}
	least, enough := leastHeld(held[:n/4]), rise/leakPart
	if r.Memory == "rss" { // the host's allocator gives memory back late: its scatter is larger
		enough = max(enough, rssScatter)
	}
	for q := 1; q < 4; q++ {
		next := leastHeld(held[q*n/4 : (q+1)*n/4])
		if next < least+enough {
			return k, false
		}
		least = next
	}
	return k, true
}

func leastHeld(points []CoursePoint) int64 {
	least := points[0].HeldBytes
	for _, p := range points {
		least = min(least, p.HeldBytes)
	}
	return least
}

// highest is the highest peak of the course before the last step, and of the last step.
func (r *RunFacts) highest() (before, last int64) {
	for i, p := range r.Course {
		if i == len(r.Course)-1 {
			last = p.PeakBytes
		} else {
			before = max(before, p.PeakBytes)
		}
	}
	return before, last
}

// gradientsKept tells in words where gradients were found that should have been gone; "" nowhere.
func (r *RunFacts) gradientsKept() string {
	if r == nil || r.GradBytes <= 0 {
		return ""
	}
	t, enough := r.Turnover, int64(keptShare*float64(r.GradBytes))
	extra := t.LaterForwardBytes - t.FirstForwardBytes - r.OptimizerBytes
	switch {
	case t.Cleared > 0 && t.AfterStepBytes > 0 && t.AfterStepBytes-t.AfterClearBytes < r.GradBytes-enough:
		return fmt.Sprintf("zero_grad was called after the step, and %s of the %s stayed allocated: it filled them "+
			"with zeros",
			size(max(0, r.GradBytes-(t.AfterStepBytes-t.AfterClearBytes))), size(r.GradBytes))
	case t.Cleared == 0 && t.Steps >= 2 && t.LaterForwards >= 2 && t.FirstForwardBytes > 0 && extra >= enough &&
		extra <= 2*r.GradBytes:
		return fmt.Sprintf("%d steps ended and no zero_grad came between a step and the next forward pass; at the "+
			"end of that pass %s more were held than in the first one, "+
			"beside the optimizer's state: as much as the gradients (%s)", t.Steps, size(extra), size(r.GradBytes))
	}
	return ""
}
