package report

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"oomguard/checklists"
	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

var update = flag.Bool("update", false, "write the golden files anew")

const gib = int64(1) << 30

// golden compares text with testdata/name; go test ./monitor/report -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s changed (-update writes it anew); got:\n%s", name, got)
	}
}

func write(t *testing.T, format string, d Document, s Style) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, format, d, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func ptr[T any](v T) *T { return &v }

func components(parameters, gradients, optimizer, activations, context int64) estimate.Components {
	var c estimate.Components
	c[estimate.Parameters], c[estimate.Gradients], c[estimate.Optimizer] = parameters, gradients, optimizer
	c[estimate.Activations], c[estimate.Context] = activations, context
	return c
}

func anEstimate() *estimate.Estimate {
	backward := components(16*gib, 16*gib, 32*gib, 9*gib, gib)
	return &estimate.Estimate{
		Schema: estimate.Schema,
		Model:  estimate.ModelSize{Name: "models/tiny_llama", Parameters: 4 * gib, TrainableParameters: 4 * gib},
		GPU:    estimate.GPUSize{Name: "H100 SXM 80GB", Kind: "cuda", Count: 2, TotalBytes: 79 * gib, Origin: "NVML"},
		PerGPU: estimate.PerGPU{
			AllocatedBytes: backward.Allocated(), ReservedBytes: backward.Allocated(), DeviceBytes: backward.Sum(),
			LowBytes: 70 * gib, HighBytes: ptr[int64](80 * gib),
			PeakStage: estimate.Backward, Components: backward,
		},
		Stages: []estimate.StageMemory{
			{Stage: estimate.ModelLoad, AllocatedBytes: 16 * gib, DeviceBytes: 17 * gib,
				Components: components(16*gib, 0, 0, 0, gib)},
			{Stage: estimate.Backward, AllocatedBytes: backward.Allocated(), DeviceBytes: backward.Sum(),
				Components: backward},
		},
		Ranks: []estimate.Rank{{}}, Bottleneck: "optimizer", Fits: ptr(false), HeadroomBytes: ptr(5 * gib),
		Assumptions: []estimate.Assumption{{What: "attention = sdpa", Origin: "attention is unknown: not given",
			Widens: true}},
	}
}

// aDeath is a run of two ranks, one of which ran out of memory.
func aDeath() Run {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	rec := &monitor.Recording{
		Memory: "cuda",
		Ranks: []monitor.Rank{
			{Rank: 0, Memory: "cuda", Stages: []monitor.StagePeak{{Stage: "model-load", AllocatedBytes: 16 * gib},
				{Stage: "backward", AllocatedBytes: 74 * gib}}},
			{Rank: 1, Memory: "cuda", Stages: []monitor.StagePeak{{Stage: "model-load", AllocatedBytes: 16 * gib},
				{Stage: "other", AllocatedBytes: gib}}},
		},
		Devices: []monitor.DeviceRecord{{Index: 0, Name: "NVIDIA H100 80GB HBM3", TotalBytes: 79 * gib,
			PeakUsedBytes: 78 * gib, MinFreeBytes: gib, Samples: 9}},
	}
	e := anEstimate()
	return Run{
		Schema: RunSchema, ID: "20261101T120000Z-abc", Dir: "runs/20261101T120000Z-abc",
		Command: []string{"torchrun", "--nproc-per-node=2", "train.py"},
		Started: start, Estimate: e, Recording: rec, Comparison: Compare(e, rec), PeakStage: "backward",
		Bottleneck: "optimizer",
		Exit: &launcher.Exit{
			Code: 1, Started: start, Ended: start.Add(90 * time.Second), Forwarded: []string{"terminated"},
			Ranks: []launcher.RankExit{{Rank: 0, PID: 11, Known: true, Code: 1},
				{Rank: 1, PID: 12, Known: true, Code: -15}, {Rank: 2, PID: 13}},
		},
		Postmortem: &oom.Diagnosis{
			Cause: oom.Capacity, Confidence: "high", Stage: "backward", Rank: 0, GPU: 0,
			Summary:  "the GPU is too small for this job",
			Evidence: []string{"line 7: CUDA out of memory | tried 2 GiB"},
			OOMs: []oom.Message{{GPU: 0, TriedBytes: 2 * gib, TotalBytes: 79 * gib, FreeBytes: gib,
				AllocatedBytes: 74 * gib, ReservedUnallocatedBytes: oom.Unknown, ProcessBytes: 78 * gib}},
			Remedies: []oom.Remedy{
				{ID: "checkpointing", Why: "layers keep their input alone", How: "--gradient_checkpointing",
					SavesBytes: ptr(7 * gib)},
				{ID: "free-gpu", Why: "another process holds memory", How: "kill 4711"},
			},
		},
		Missing: []string{"no memory by stage from rank 2"},
		Checks: []checklists.Result{
			{ID: "shm", Verdict: checklists.Verdict{Status: checklists.Pass, Detail: "enough"}},
			{ID: "headroom", Verdict: checklists.Verdict{Status: checklists.Warn, Detail: "6 % free, 20 % are better",
				Remedy: "see oomguard plan"}},
		},
	}
}

func TestRunGolden(t *testing.T) {
	golden(t, "death.txt", write(t, "text", aDeath(), Style{}))
	golden(t, "death.md", write(t, "markdown", aDeath(), Style{Units: Units{UTF8: true}}))
	golden(t, "estimate.txt", write(t, "text", Estimate{anEstimate()}, Style{Units: Units{SI: true, UTF8: true}}))
	checks := Checks{checklists.Outcome{List: "pretraining", Outcome: checklists.Fail, Results: []checklists.Result{
		{ID: "headroom", Verdict: checklists.Verdict{Status: checklists.Fail, Detail: "75 of 79 GiB",
			Remedy: "see oomguard plan"}},
		{ID: "shm", Verdict: checklists.Verdict{Status: checklists.Skip, Detail: "not here"}},
		{ID: "gpu-count", Waived: true,
			Verdict: checklists.Verdict{Status: checklists.Fail, Detail: "1 GPU, 2 processes", Remedy: "start one"}},
		{ID: "alloc-conf", Verdict: checklists.Verdict{Status: checklists.Pass, Detail: "none set"}},
	}}}
	golden(t, "checks.txt", write(t, "text", checks, Style{}))
}

// TestEndings: every way in which a run can end is said as it is.
func TestEndings(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Run)
		want string
	}{
		{"well", func(r *Run) { r.Exit.Code, r.Exit.Ranks = 0, nil }, "ended well (status 0) after 1m30s"},
		{"status 0 and dead ranks", func(r *Run) { r.Exit.Code = 0 },
			"returned status 0 after 1m30s, but rank 0 exit status 1, rank 1 killed by signal 15 (SIGTERM)"},
		{"status 0 and a rank left behind", func(r *Run) {
			r.Exit.Code, r.Exit.Survivors = 0,
				[]launcher.Survivor{{PID: r.Exit.Ranks[0].PID, Name: "python", Action: launcher.Killed}}
			r.Exit.Ranks = r.Exit.Ranks[:1]
		}, "returned status 0 after 1m30s, but rank 0 was left behind (killed)\n"},
		{"attempts", func(r *Run) { r.Exit.Ranks[2].Attempt = 1 }, "attempt 0 (started anew):"},
		{"told by the launcher", func(r *Run) { r.Exit.Ranks[0].Told = true },
			"pid 11): exit status 1, as the launcher says"},
		{"error file", func(r *Run) { r.Exit.Ranks[0].Error = &launcher.RankError{Message: "ValueError: bad\nsecond line"} }, "rank 0 wrote: ValueError: bad\n"},
		{"last resort", func(r *Run) { r.Exit.LastResort = true }, "all of it was killed (--kill-after)"},
		{"another status", func(r *Run) { r.OOMExitCode = 86 }, "status 86 was handed on instead"},
		{"allocator settings", func(r *Run) {
			r.EnvironmentChanges = []EnvChange{{"PYTORCH_ALLOC_CONF", EnvAdded, "expandable_segments:True", "why"},
				{"PYTHONPATH", EnvAdded, "x", "y"}}
		}, "environment: PYTORCH_ALLOC_CONF=expandable_segments:True added: why\nended"},
		{"signal", func(r *Run) { r.Exit.Code, r.Exit.Signal = 137, syscall.SIGKILL },
			"died of signal 9 (killed) after 1m30s; status 137"},
		{"refused", func(r *Run) { r.Refused, r.Exit = true, nil }, "refused by the checklist: nothing was started"},
		{"watch ended", func(r *Run) {
			r.Exit, r.State, r.Recording.LastSeen = nil, StateCutOff, time.Date(2026, 11, 1, 12, 0, 30, 0, time.UTC)
		}, "oomguard itself was stopped, or could not write, before it had recorded the end; it was watched until " +
			"2026-11-01T12:00:30Z"},
		{"goes on", func(r *Run) { r.Exit, r.State = nil, StateLive }, "the run goes on, and oomguard watches it"},
		{"goes on without us", func(r *Run) { r.Exit, r.State = nil, StateUnwatched },
			"processes of the command go on"},
		{"no end", func(r *Run) { r.Exit = nil }, "whether it goes on cannot be told from here"},
		{"nothing measured", func(r *Run) { r.Recording = nil }, "nothing was measured inside the ranks"},
		{"simulated", func(r *Run) { r.Postmortem.Simulated = true }, "simulated: the error was raised on purpose"},
		{"no estimate", func(r *Run) { r.Estimate, r.EstimateError = nil, "the model is not known" },
			"unknown: the model is not known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := aDeath()
			tt.edit(&r)
			if got := write(t, "text", r, Style{}); !strings.Contains(got, tt.want) {
				t.Errorf("lacks %q:\n%s", tt.want, got)
			}
		})
	}
}

// TestRoundTrip: the JSON of a run is read back as it was, since report RUN shows a run from its file.
func TestRoundTrip(t *testing.T) {
	first := write(t, "json", aDeath(), Style{})
	var back Run
	if err := json.Unmarshal([]byte(first), &back); err != nil {
		t.Fatal(err)
	}
	if second := write(t, "json", back, Style{}); second != first {
		t.Errorf("read back:\n%s\nwant\n%s", second, first)
	}
}

// TestCompareUsesTheLastAttempt: torchrun restarts all ranks after a failure; earlier attempts are not compared.
func TestCompareUsesTheLastAttempt(t *testing.T) {
	rec := &monitor.Recording{Ranks: []monitor.Rank{
		{Rank: 0, Attempt: 0, Stages: []monitor.StagePeak{{Stage: "backward", AllocatedBytes: gib}}},
		{Rank: 0, Attempt: 1, Stages: []monitor.StagePeak{{Stage: "backward", AllocatedBytes: 2 * gib}}},
	}}
	rows := Compare(anEstimate(), rec)
	if len(rows) != 2 || *rows[1].MeasuredBytes != 2*gib || *rows[1].ErrorPercent != 3550 {
		t.Errorf("rows %+v", rows)
	}
}

func TestUnits(t *testing.T) {
	for _, tt := range []struct {
		units Units
		bytes int64
		want  string
	}{
		{Units{}, 3 * gib / 2, "1.50 GiB"}, {Units{}, 512 << 20, "512.00 MiB"}, {Units{}, 0, "0.00 MiB"},
		{Units{}, -2 * gib, "-2.00 GiB"},
		{Units{SI: true}, 112e9, "112.00 GB"}, {Units{SI: true}, 5e8, "500.00 MB"},
	} {
		if got := tt.units.Size(tt.bytes); got != tt.want {
			t.Errorf("%+v: %d is %q, want %q", tt.units, tt.bytes, got, tt.want)
		}
	}
}

// TestColour: colour is decided per stream and never leaks into other formats.
func TestColour(t *testing.T) {
	if got := write(t, "text", aDeath(), Style{Color: true}); !strings.Contains(got, "\x1b[") {
		t.Error("no colour where it is wanted")
	}
	for _, format := range Formats() {
		if got := write(t, format, aDeath(), Style{Color: format != "text"}); strings.Contains(got, "\x1b[") {
			t.Errorf("%s is coloured", format)
		}
	}
	if err := Write(&strings.Builder{}, "pdf", aDeath(), Style{}); err == nil ||
		!strings.Contains(err.Error(), "text, json, markdown") {
		t.Errorf("unknown format: %v", err)
	}
}

// TestJobLine: the first line names what is stored how: the base of adapters apart from the adapters, and what is
// quantised as it is.
func TestJobLine(t *testing.T) {
	known := func(v string) job.Setting[string] { return job.Setting[string]{Value: v, Known: true} }
	yes := job.Setting[bool]{Value: true, Known: true}
	adapter := job.Setting[*job.LoRA]{Value: &job.LoRA{R: 8}, Known: true}
	quant := func(q job.Quant) job.Setting[*job.Quant] { return job.Setting[*job.Quant]{Value: &q, Known: true} }
	for _, tt := range []struct {
		name string
		job  job.Job
		want string
	}{
		{"QLoRA", job.Job{Method: known("qlora"), LoRA: adapter,
			Quant: quant(job.Quant{Method: "bnb", Bits: 4, Type: "nf4"}), ParamDtype: known("fp32"),
			BaseDtype: known("bf16"), Precision: known("bf16"), Autocast: yes},
			"qlora, nf4 base, bf16 autocast over fp32 adapters"},
		{"LoRA", job.Job{Method: known("lora"), LoRA: adapter, ParamDtype: known("fp32"), BaseDtype: known("bf16"),
			Precision: known("bf16"), Autocast: yes}, "lora, bf16 base, bf16 autocast over fp32 adapters"},
		{"LoRA on a GPTQ checkpoint", job.Job{Method: known("lora"), LoRA: adapter,
			Quant: quant(job.Quant{Method: "gptq", Bits: 4}), ParamDtype: known("bf16"), Precision: known("bf16")},
			"lora, 4-bit gptq base, bf16 adapters"},
		{"LoRA, base unknown", job.Job{Method: known("lora"), LoRA: adapter, ParamDtype: known("fp32"),
			Precision: known("fp32")}, "lora, fp32 adapters"},
		{"a quantised base of unknown adapters",
			job.Job{Quant: quant(job.Quant{Method: "bnb", Bits: 8, Type: "int8"}), ParamDtype: known("fp32"),
				Precision: known("bf16")}, "int8 base, bf16 autocast over fp32 weights"},
		{"full", job.Job{Method: known("full"), ParamDtype: known("fp32"), Precision: known("bf16"), Autocast: yes},
			"bf16 autocast over fp32 weights"},
		{"full, 16 bit", job.Job{Method: known("full"), ParamDtype: known("bf16"), Precision: known("bf16")}, "bf16"},
		{"master copy", job.Job{ParamDtype: known("bf16"), Precision: known("bf16"), MasterFP32: yes},
			"bf16 with an fp32 master copy"},
		{"unknown", job.Job{}, "dtype unknown"},
	} {
		if got := strings.Join(jobLine(&tt.job), ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
