package monitor

import (
	"time"

	"oomguard/monitor/probe"
)

// StepMemory is one optimizer step of a rank (or several neighbours of a long run): the highest memory inside it and
// what was still held when it was over. Sizes are allocated bytes; for an "rss" rank resident bytes above the baseline.
type StepMemory struct {
	Step      int       `json:"step"` // the last step that it stands for; setup belongs to step 0
	Time      time.Time `json:"time"`
	PeakBytes int64     `json:"peak_bytes"`
	PeakStage string    `json:"peak_stage"`
	// after the optimizer's step; -1: not seen (the rank died inside the step)
	HeldBytes     int64 `json:"held_bytes"`
	ReservedBytes int64 `json:"reserved_bytes"`
}

// Turnover says what becomes of the gradients between two steps. Zero sizes are unknown.
type Turnover struct {
	// FirstForwardBytes was held at the end of the first forward pass of all, when there were no gradients and no
	// optimizer state yet; LaterForwardBytes is the least of the later steps' first forward passes.
	FirstForwardBytes int64 `json:"first_forward_bytes"`
	LaterForwardBytes int64 `json:"later_forward_bytes"`
	LaterForwards     int   `json:"later_forwards"`
	// AfterStepBytes was held right after an optimizer step, AfterClearBytes right after the zero_grad that followed
	// it.
	AfterStepBytes  int64 `json:"after_step_bytes"`
	AfterClearBytes int64 `json:"after_clear_bytes"`
	Steps           int   `json:"steps"`   // optimizer steps of which the end was seen
	Cleared         int   `json:"cleared"` // of these, how many a zero_grad followed before the next forward pass
}

// keepSteps bounds the steps that are kept of a rank; longer runs merge neighbours. It is about the width of a picture.
const keepSteps = 256

// stepFold follows a rank through its windows.
type stepFold struct {
	steps   []StepMemory
	span    int // steps that one kept element stands for
	current StepMemory
	begun   bool
	turn    Turnover
}

// add takes one window; bytes are above the rank's baseline.
func (f *stepFold) add(e probe.Event, at time.Time, peak, held int64) {
	tail := isStep(e.S) && e.Micro == 0 && f.turn.Steps > 0 // zero_grad closed it: it belongs to the step before
	step := e.Step
	if tail {
		step = max(0, step-1)
	}
	f.enter(step, at)
	f.current.Time = at
	f.current.ReservedBytes = max(f.current.ReservedBytes, e.PR)
	if peak > f.current.PeakBytes {
		f.current.PeakBytes, f.current.PeakStage = peak, e.S
	}
	if isStep(e.S) {
		f.current.HeldBytes = held
	}
	f.gradients(e, tail, held)
}

func isStep(stage string) bool { return stage == "optimizer-init" || stage == "optimizer-step" }

// enter begins another step, unless the running element still has room for it. A window that was folded over many steps
// carries its last one's number, so numbers may repeat and jump, but not fall by more than one.
func (f *stepFold) enter(step int, at time.Time) {
	span := max(f.span, 1)
	if f.begun && step/span == f.current.Step/span {
		f.current.Step = max(f.current.Step, step)
		return
	}
	f.flush()
	f.begun, f.current = true, StepMemory{Step: step, Time: at, HeldBytes: -1}
}

func (f *stepFold) flush() {
	if !f.begun {
		return
	}
	f.steps = append(f.steps, f.current)
	if len(f.steps) < keepSteps {
		return
	}
	half := f.steps[:0]
	for i := 0; i < len(f.steps); i += 2 {
		merged := f.steps[i]
		if i+1 < len(f.steps) {
			merged = mergeSteps(merged, f.steps[i+1])
		}
		half = append(half, merged)
	}
	f.steps, f.span = half, 2*max(f.span, 1)
}

func mergeSteps(a, b StepMemory) StepMemory {
	if a.PeakBytes > b.PeakBytes {
		b.PeakBytes, b.PeakStage = a.PeakBytes, a.PeakStage
	}
	b.ReservedBytes = max(a.ReservedBytes, b.ReservedBytes)
	if b.HeldBytes < 0 {
		b.HeldBytes = a.HeldBytes
	}
	return b
}

// gradients notes what is held where gradients should be gone.
func (f *stepFold) gradients(e probe.Event, tail bool, held int64) {
	t := &f.turn
	switch {
	case tail:
		t.AfterClearBytes = held
		t.Cleared += max(e.N, 1)
	case isStep(e.S):
		t.AfterStepBytes = held
		t.Steps += max(e.N, 1)
	case e.S == "forward" && e.Micro == 0 && t.Steps == 0:
		if t.FirstForwardBytes == 0 {
			t.FirstForwardBytes = held
		}
	case e.S == "forward" && e.Micro == 0:
		if t.LaterForwards == 0 || held < t.LaterForwardBytes {
			t.LaterForwardBytes = held
		}
		t.LaterForwards++
	}
}

// keepPoints bounds the samples that are kept of a device for its picture.
const keepPoints = 240

// DevicePoint is what a device's memory was for a while: the extremes of the samples up to Time.
type DevicePoint struct {
	Time      time.Time `json:"time"`
	UsedBytes int64     `json:"used_bytes"` // the whole device, highest
	OwnBytes  int64     `json:"own_bytes"`  // our processes, highest; 0 unknown
}

// thinPoints halves a series that has grown too long; no peak is lost.
func thinPoints(points []DevicePoint) []DevicePoint {
	if len(points) < 2*keepPoints {
		return points
	}
	half := points[:0]
	for i := 0; i+1 < len(points); i += 2 {
		a, b := points[i], points[i+1]
		half = append(half, DevicePoint{Time: b.Time, UsedBytes: max(a.UsedBytes, b.UsedBytes),
			OwnBytes: max(a.OwnBytes, b.OwnBytes)})
	}
	return half
}
