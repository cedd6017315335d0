package oom

import (
	"slices"
	"strings"
	"testing"
)

const mib = int64(1) << 20

// aRunOf is what a run folder tells of a rank that took steps of 40 GiB with 20 GiB held between them and died in the
// backward pass.
func aRunOf(steps int) RunFacts {
	r := RunFacts{
		Memory: "cuda", Steps: steps, ParamBytes: 4 * gib, GradBytes: 4 * gib, OptimizerBytes: 8 * gib,
		GPUBytes: 79 * gib,
		Predicted: map[string]int64{"model-load": 4 * gib, "forward": 38 * gib, "backward": 42 * gib,
			"optimizer-init": 17 * gib, "optimizer-step": 17 * gib},
		Job: JobFacts{Framework: "hf-trainer", MicroBatch: 1},
	}
	for i := range steps {
		r.Course = append(r.Course, CoursePoint{Step: i, PeakBytes: 40 * gib, HeldBytes: 20 * gib})
	}
	r.Course = append(r.Course, CoursePoint{Step: steps, PeakBytes: 41 * gib, HeldBytes: Unknown})
	return r
}

func situationsOf(t *testing.T, text, stage string, r *RunFacts, peaks map[string]int64) Diagnosis {
	t.Helper()
	f := NoFacts()
	f.ExitCode, f.Stage, f.Rank, f.GPU, f.Run, f.PeaksByStage = 1, stage, 0, 0, r, peaks
	return Diagnose(scanText(t, text), f)
}

// TestSituations: each of the eight is recognised from the evidence of a run folder, says its numbers, and says what to
// do; and is not recognised where the evidence is missing.
func TestSituations(t *testing.T) {
	with := func(steps int, edit func(*RunFacts)) *RunFacts { r := aRunOf(steps); edit(&r); return &r }
	as := func(*RunFacts) {}
	fits := map[string]int64{"model-load": 4 * gib, "forward": 39 * gib, "backward": 41 * gib}
	for _, c := range []struct {
		id, name, text, stage string
		run                   *RunFacts
		peaks                 map[string]int64
		evidence, do          string // "": it must not hold
	}{
		{"estimate-off", "more in forward than predicted", full, "backward",
			with(3, func(r *RunFacts) { r.Unsure = []string{"attention = sdpa"} }),
			map[string]int64{"model-load": 4 * gib, "forward": 76 * gib},
			"in forward 38.00 GiB were predicted and 76.00 GiB measured (-50 %)", "eager"},
		{"estimate-off", "the first stage that departs is named", full, "backward", with(3, as),
			map[string]int64{"model-load": 8 * gib, "forward": 76 * gib}, "in model-load", "fp32"},
		{"estimate-off", "less than predicted", full, "backward", with(3, as),
			map[string]int64{"model-load": 4 * gib, "forward": 20 * gib}, "+90 %", "less there than predicted"},
		{"estimate-off", "close", full, "backward", with(3, as), fits, "", ""},
		{"estimate-off", "the stage of death is cut short", full, "backward", with(3, as),
			map[string]int64{"model-load": 4 * gib, "forward": 39 * gib, "backward": 10 * gib}, "", ""},

		{"optimizer-jump", "in the first step", full, "optimizer-init", with(0, as), fits,
			"17.00 GiB in the first optimizer step", "8-bit"},
		{"optimizer-jump", "in the forward pass after it", full, "forward", with(1, as), fits,
			"8.00 GiB of optimizer state (exact)", "ZeRO-1"},
		{"optimizer-jump", "much later", full, "forward", with(50, as), fits, "", ""},
		{"optimizer-jump", "a small state", full, "forward", with(1, func(r *RunFacts) { r.OptimizerBytes = gib / 4 }),
			fits, "", ""},

		{"dies-after-steps", "a leak", full, "forward", with(40, func(r *RunFacts) {
			for i := range r.Course[:40] {
				r.Course[i].HeldBytes += int64(i) * gib / 2
			}
		}), fits, "grew from 21.00 GiB (step 2) to 39.50 GiB (step 39), 512.00 MiB a step", ".detach()"},
		{"dies-after-steps", "one longer batch", full, "forward",
			with(40, func(r *RunFacts) { r.Course[40].PeakBytes = 78 * gib }), fits, "that of the last one 78.00 GiB",
			"cap the length"},
		{"dies-after-steps", "in the first step", full, "forward", with(0, as), fits, "", ""},

		{"reserved-unused", "holes", holed, "forward", with(3, as), fits, "10.20 GiB reserved and not allocated",
			"pad to a few fixed lengths"},
		{"reserved-unused", "none", full, "forward", with(3, as), fits, "", ""},

		{"amp-no-savings", "not in effect", full, "backward", with(3, func(r *RunFacts) {
			r.AMP = &AMPFacts{Stage: "forward", MeasuredBytes: 59 * gib, WithBytes: 38 * gib, WithoutBytes: 60 * gib,
				TouchedBytes: 30 * gib, Bytes: 60 * gib}
		}), fits, "nearer to the 60.00 GiB of fp32", "inside autocast"},
		{"amp-no-savings", "what it touches is small", full, "backward", with(3, func(r *RunFacts) {
			r.AMP = &AMPFacts{Stage: "forward", MeasuredBytes: 38 * gib, WithBytes: 38 * gib, WithoutBytes: 40 * gib,
				TouchedBytes: 3 * gib, Bytes: 60 * gib}
		}), fits, "3.00 GiB of 60.00 GiB", "sharding"},
		{"amp-no-savings", "16-bit copies of the weights cost more", full, "backward", with(3, func(r *RunFacts) {
			r.AMP = &AMPFacts{Stage: "forward", MeasuredBytes: 40 * gib, WithBytes: 40 * gib, WithoutBytes: 39 * gib,
				TouchedBytes: 3 * gib, Bytes: 60 * gib}
		}), fits, "16-bit copies of the weights", "sharding"},
		{"amp-no-savings", "it saves", full, "backward", with(3, func(r *RunFacts) {
			r.AMP = &AMPFacts{Stage: "forward", MeasuredBytes: 39 * gib, WithBytes: 38 * gib, WithoutBytes: 60 * gib,
				TouchedBytes: 30 * gib, Bytes: 60 * gib}
		}), fits, "", ""},

		{"gradients-kept", "never cleared", full, "forward", with(6, func(r *RunFacts) {
			r.Turnover = Turnover{FirstForwardBytes: 30 * gib, LaterForwardBytes: 42 * gib, LaterForwards: 5,
				AfterStepBytes: 20 * gib, Steps: 6}
		}), fits, "no zero_grad came between a step and the next forward pass", "set_to_none=True"},
		{"gradients-kept", "filled with zeros", full, "forward", with(6, func(r *RunFacts) {
			r.Turnover = Turnover{FirstForwardBytes: 30 * gib, LaterForwardBytes: 42 * gib, LaterForwards: 5,
				AfterStepBytes: 20 * gib, AfterClearBytes: 20 * gib, Steps: 6, Cleared: 6}
		}), fits, "filled them with zeros", "set_to_none=True"},
		{"gradients-kept", "cleared", full, "forward", with(6, func(r *RunFacts) {
			r.Turnover = Turnover{FirstForwardBytes: 30 * gib, LaterForwardBytes: 38 * gib, LaterForwards: 5,
				AfterStepBytes: 20 * gib, AfterClearBytes: 16 * gib, Steps: 6, Cleared: 6}
		}), fits, "", ""},

		{"try-small-first", "a large first batch", full, "forward",
			with(0, func(r *RunFacts) { r.Job.MicroBatch = 16 }), fits, "a micro-batch of 16", "micro-batch 1 first"},
		{"try-small-first", "a smaller one worked", full, "forward", with(0, func(r *RunFacts) {
			r.Job.MicroBatch, r.Smaller = 16,
				&SmallerRun{ID: "20261101-a", Tokens: 4096, Here: 65536, PeakBytes: 30 * gib}
		}), fits, "run 20261101-a did 4096 tokens", "go up from 4096 tokens"},
		{"try-small-first", "already the smallest", full, "forward", with(0, as), fits, "", ""},

		{"other-processes", "NVML", full, "forward", with(3, func(r *RunFacts) {
			r.Strangers = []Stranger{{PID: 77, Name: "jupyter", Bytes: 20 * gib}, {PID: 78, Bytes: Unknown}}
		}), fits,
			"process 77 (jupyter) 20.00 GiB", "nvidia-smi"},
		{"other-processes", "before the start", full, "forward",
			with(3, func(r *RunFacts) { r.HeldBeforeBytes = 30 * gib }), fits,
			"30.00 GiB of 79.00 GiB were in use before", "nvidia-smi"},
		{"other-processes", "the message", shared, "forward", nil, nil, "process 4242 40.00 GiB", "nvidia-smi"},
		{"other-processes", "alone", full, "forward", with(3, as), fits, "", ""},
	} {
		d := situationsOf(t, c.text, c.stage, c.run, c.peaks)
		i := slices.IndexFunc(d.Situations, func(s Situation) bool { return s.ID == c.id })
		if (i >= 0) != (c.evidence != "") {
			t.Errorf("%s, %s: found %v, want %v; %+v", c.id, c.name, i >= 0, c.evidence != "", d.Situations)
			continue
		}
		if i < 0 {
			continue
		}
		s := d.Situations[i]
		if text := strings.Join(s.Evidence, "\n"); !strings.Contains(text, c.evidence) {
			t.Errorf("%s, %s: evidence %q, want %q", c.id, c.name, text, c.evidence)
		}
		if !strings.Contains(s.Do, c.do) || s.Title == "" {
			t.Errorf("%s, %s: says %q, want %q", c.id, c.name, s.Do, c.do)
		}
	}
}

// TestCausesOfARun: what a run folder knows decides the cause where the text alone would not.
func TestCausesOfARun(t *testing.T) {
	leak := aRunOf(40)
	for i := range leak.Course[:40] {
		leak.Course[i].HeldBytes += int64(i) * gib / 2
	}
	if d := situationsOf(t, full, "backward", &leak, nil); d.Cause != LeakGrowth || d.Confidence != high ||
		d.Remedies[0].ID != "find-leak" {
		t.Errorf("a leak: %s (%s), first remedy %v", d.Cause, d.Confidence, d.Remedies)
	}
	steady := aRunOf(40)
	if d := situationsOf(t, full, "backward", &steady, nil); d.Cause != Activation {
		t.Errorf("no leak: %s", d.Cause)
	}
	guest := aRunOf(3)
	guest.Strangers = []Stranger{{PID: 77, Name: "jupyter", Bytes: 30 * gib}}
	d := situationsOf(t, full, "backward", &guest, nil)
	if d.Cause != OtherProcess || d.Remedies[0].ID != "free-gpu" ||
		!strings.Contains(d.Remedies[0].Why, "77 (jupyter)") {
		t.Errorf("a stranger: %s, %+v", d.Cause, d.Remedies[0])
	}
	if d := situationsOf(t, agentKilled, "", &steady, nil); len(d.Situations) != 0 {
		t.Errorf("a shortage of the host has situations of the device: %+v", d.Situations)
	}
}

// TestLeak: a rise that settles, one within the scatter and one of few steps are no leaks.
func TestLeak(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps int
		held  func(i int) int64
		want  bool
	}{
		{"steady rise", 40, func(i int) int64 { return 10*gib + int64(i)*100*mib }, true},
		{"rise with scatter", 40, func(i int) int64 { return 10*gib + int64(i)*100*mib + int64(i%5)*300*mib }, true},
		{"settles after five steps", 40, func(i int) int64 { return 10*gib + int64(min(i, 5))*gib }, false},
		{"scatter", 40, func(i int) int64 { return 10*gib + int64(i%7)*gib }, false},
		// resident memory of a run without a leak
		{"two jumps", 12, func(i int) int64 { return 789*mib + int64(i/6)*62*mib + int64(i/11)*17*mib }, false},
		{"small", 40, func(i int) int64 { return 10*gib + int64(i)*mib }, false},
		{"few steps", 6, func(i int) int64 { return 10*gib + int64(i)*gib }, false},
	} {
		r := &RunFacts{}
		for i := range c.steps {
			r.Course = append(r.Course, CoursePoint{Step: i, HeldBytes: c.held(i)})
		}
		if _, got := r.leak(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
