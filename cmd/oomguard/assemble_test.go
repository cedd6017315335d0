package main

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

const gib = int64(1) << 30

// aRun is a run of two ranks that ended with the given status.
func aRun(code int, ranks ...monitor.Rank) report.Run {
	return report.Run{
		Exit:           &launcher.Exit{Code: code, Ranks: []launcher.RankExit{{Rank: 0, Known: true, Code: code}}},
		Recording:      &monitor.Recording{Memory: "cuda", Ranks: ranks},
		CgroupOOMKills: -1,
	}
}

func failedAllocation(stage string) monitor.OOMEvent {
	return monitor.OOMEvent{
		Stage: stage, Step: 3, WantBytes: 2 * gib, TotalBytes: 79 * gib, FreeBytes: gib, AllocatedBytes: 76 * gib,
		ReservedBytes: 76*gib + gib/4,
	}
}

// TestSilentOOM: a script that catches the exception and exits with a status of its own leaves no message; the
// allocator's failure that the probe saw is the post-mortem's.
func TestSilentOOM(t *testing.T) {
	doc := aRun(1, monitor.Rank{Rank: 0, Memory: "cuda", OOMs: []monitor.OOMEvent{failedAllocation("backward")}})
	explainDeath(&doc, "")
	d := doc.Postmortem
	if d == nil || d.Cause == oom.NotOOM || len(d.OOMs) != 1 || d.OOMs[0].TriedBytes != 2*gib {
		t.Fatalf("post-mortem %+v", d)
	}
	if text := strings.Join(d.Evidence, "\n"); !strings.Contains(text, "allocator failed in backward") ||
		strings.Contains(text, "line 0") {
		t.Errorf("evidence:\n%s", text)
	}
}

// TestOvercomeOOM: where another exception ended the rank afterwards, or the run ended well, a failed allocation is not
// the cause.
func TestOvercomeOOM(t *testing.T) {
	doc := aRun(1, monitor.Rank{
		Rank: 0, Memory: "cuda", OOMs: []monitor.OOMEvent{failedAllocation("forward")},
		Exception: &monitor.Exception{Type: "ValueError", Message: "bad label",
			Traceback: "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nValueError: " +
				"bad label\n", Stage: "forward"},
	})
	explainDeath(&doc, doc.Recording.Output())
	if doc.Postmortem == nil || doc.Postmortem.Cause != oom.NotOOM {
		t.Errorf("post-mortem %+v", doc.Postmortem)
	}
	well := aRun(0, monitor.Rank{OOMs: []monitor.OOMEvent{failedAllocation("forward")}})
	explainDeath(&well, "")
	if well.Postmortem != nil {
		t.Errorf("a run that ended well has a post-mortem: %+v", well.Postmortem)
	}
}

// TestCommandKilledByTheHost: the command itself is the training, so no rank's death tells of the kill.
func TestCommandKilledByTheHost(t *testing.T) {
	doc := aRun(137)
	doc.Exit = &launcher.Exit{Code: 137, Signal: syscall.SIGKILL}
	doc.CgroupOOMKills = 1
	explainDeath(&doc, "")
	if d := doc.Postmortem; d == nil || d.Cause != oom.HostOOMKill {
		t.Errorf("post-mortem %+v, want %s", d, oom.HostOOMKill)
	}
}

// TestRemediesOfTheStage: what a remedy saves is counted in the stage where the run died, even where another is the
// predicted peak.
func TestRemediesOfTheStage(t *testing.T) {
	arch, err := model.Parse([]byte(`{"model_type":"llama","hidden_size":1024,"num_hidden_layers":16,"num_attention_heads":16,"intermediate_size":4096,"vocab_size":32000}`), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	j := job.Read(job.Sources{Flags: map[string]string{
		"precision": "fp32", "optimizer": "adamw", "micro-batch": "1", "seq-len": "128", "nproc": "1",
		"checkpointing": "none", "attention": "sdpa", "grad-accum": "1",
	}, Getenv: func(string) string { return "" }, GPUs: -1})
	in := estimate.Input{Job: j, Model: arch,
		Hardware: estimate.Hardware{Kind: "cuda", TotalBytes: 8 * gib, ContextBytes: -1, NCCLBytes: -1},
		Options:  estimate.DefaultOptions()}
	e, err := estimate.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	if e.PerGPU.PeakStage == estimate.Forward {
		t.Fatal("the example's peak must not be the forward pass")
	}
	doc := aRun(1)
	doc.Estimate, doc.EstimateInput = e, &in
	remedies := []oom.Remedy{{ID: "checkpointing"}, {ID: "alloc-conf"}}
	ids := func(stage string) string {
		var out []string
		d := oom.Diagnosis{Stage: stage, Remedies: slices.Clone(remedies)}
		priced(&d, &doc)
		for _, r := range d.Remedies {
			out = append(out, r.ID)
		}
		return strings.Join(out, " ")
	}
	if got := ids("forward"); got != "checkpointing alloc-conf" {
		t.Errorf("died in forward: %s", got)
	}
	if got := ids("optimizer-step"); got != "alloc-conf" {
		t.Errorf("died in the optimizer step, where no activation is alive: %s", got)
	}
}

// TestHistory: earlier runs of the run folder count as what they were.
func TestHistory(t *testing.T) {
	root := t.TempDir()
	add := func(doc report.Run) {
		t.Helper()
		store, err := monitor.CreateRun(root, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		doc.ID = store.ID()
		if err := writeRun(store, doc); err != nil {
			t.Fatal(err)
		}
	}
	measured := aRun(0, monitor.Rank{Steps: 5, Stages: make([]monitor.StagePeak, 3)})
	measured.JobKey = "a"
	add(measured)
	add(report.Run{Refused: true, JobKey: "b"})
	died := aRun(1)
	died.Postmortem, died.JobKey = &oom.Diagnosis{Cause: oom.Capacity}, "c"
	add(died)
	add(report.Run{JobKey: "d"})
	if store, err := monitor.CreateRun(root, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	} else if err := store.WriteFile("run.json", []byte("{broken")); err != nil {
		t.Fatal(err)
	}
	got := map[string]preflight.Earlier{}
	for _, e := range history(root) {
		got[e.JobKey] = e
	}
	if len(got) != 4 || got["a"].Outcome != preflight.OutcomeOK || !got["a"].Measured || !got["a"].Small ||
		got["b"].Outcome != "refused" || got["c"].Outcome != "capacity" || got["d"].Outcome != "unknown" {
		t.Errorf("history %+v", got)
	}
	if h := history(filepath.Join(root, "nowhere")); len(h) != 0 {
		t.Errorf("a folder that is not there has a history: %+v", h)
	}
}

// TestSilentRanksAreNamed: ranks that were started and never heard of are in the report, with why.
func TestSilentRanksAreNamed(t *testing.T) {
	doc := aRun(0, monitor.Rank{Rank: 0, PID: 11, Stages: make([]monitor.StagePeak, 1)})
	doc.Probed = true
	doc.Exit.Ranks = []launcher.RankExit{{Rank: 0, PID: 11}, {Rank: 1, PID: 12}}
	if got := strings.Join(silentRanks(&doc), "\n"); !strings.Contains(got, "from rank 1:") ||
		strings.Contains(got, "rank 0") {
		t.Errorf("missing: %q", got)
	}
	doc.Recording, doc.Exit.Ranks = &monitor.Recording{}, nil
	doc.Probed = false
	if got := silentRanks(&doc); len(got) != 0 {
		t.Errorf("without the probe nobody is expected to speak: %q", got)
	}
	doc.Probed = true
	if got := silentRanks(&doc); len(got) != 1 || !strings.Contains(got[0], "imported torch") {
		t.Errorf("missing: %q", got)
	}
}
