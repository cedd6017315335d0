package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"oomguard/checklists"
	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
	"oomguard/preflight/job"
)

func noon(seconds float64) time.Time {
	return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// aPart is what a node with one rank of its number recorded; code -1: no end.
func aPart(node, of, code int, ended float64) report.Run {
	name := string(rune('0' + node))
	part := report.Run{
		Started: noon(0), Host: "host" + name, CgroupOOMKills: -1,
		Node: &monitor.Node{Key: "slurm-1.0", Name: name, Rank: node, Parts: of, MostParts: of, Restart: 1},
		Recording: &monitor.Recording{Memory: "cuda", Ranks: []monitor.Rank{{Rank: node, Memory: "cuda"}},
			LastSeen: noon(ended)},
	}
	if code >= 0 {
		part.Exit = &launcher.Exit{
			Code: code, Started: noon(0), Ended: noon(ended),
			Ranks: []launcher.RankExit{{Rank: node, Known: true, Code: code, EndedAt: noon(ended - 0.5)}},
		}
	}
	return part
}

func changed(part report.Run, change func(*report.Run)) report.Run {
	change(&part)
	return part
}

// TestMergeEnds: which node began, and how the run ended as a whole.
func TestMergeEnds(t *testing.T) {
	told := func(p *report.Run) { p.Exit.Forwarded = []string{"SIGTERM"} }
	reached := func(p *report.Run) { p.Exit.Reached = []string{"SIGTERM"} }
	for _, c := range []struct {
		name  string
		parts []report.Run
		first string // "" none
		code  int    // -1 unknown
	}{
		{"all well", []report.Run{aPart(0, 2, 0, 9), aPart(1, 2, 0, 9)}, "", 0},
		{"one failed, the other followed", []report.Run{aPart(0, 2, 1, 12), aPart(1, 2, 137, 10)}, "1", 137},
		{"one failed, Slurm told the other to end", []report.Run{changed(aPart(0, 2, 1, 9), told), aPart(1, 2, 1, 10)},
			"1", 1},
		{"all were told to end", []report.Run{changed(aPart(0, 2, 1, 9), told), changed(aPart(1, 2, 1, 9), reached)},
			"", 1},
		{"one fell silent, the other failed afterwards", []report.Run{aPart(0, 2, 1, 12), aPart(1, 2, -1, 10)}, "1", 1},
		{"one goes on, the other has failed", []report.Run{aPart(0, 2, -1, 60), aPart(1, 2, 1, 10)}, "1", 1},
		{"both go on", []report.Run{aPart(0, 2, -1, 60), aPart(1, 2, -1, 60)}, "", -1},
		{"one goes on, the other ended well", []report.Run{aPart(0, 2, 0, 60), aPart(1, 2, -1, 61)}, "1", -1},
		{"one refused, the other waited in vain",
			[]report.Run{aPart(0, 2, 1, 900), changed(aPart(1, 2, -1, 0), func(p *report.Run) { p.Refused = true })},
			"1", 1},
		// node 1's clock is an hour behind: its own time says 11:00:20, the file system's 12:00:20
		{"clocks differ", []report.Run{aPart(0, 2, 1, 12),
			changed(aPart(1, 2, 1, 20-3600), func(p *report.Run) { p.Node.ClockOffset = 3600 })}, "0", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := merge(&monitor.Store{Dir: "/runs/x"}, c.parts)
			first := ""
			for _, n := range doc.Nodes {
				if n.First {
					first += n.Name
				}
			}
			if first != c.first {
				t.Errorf("first to fail: %q, want %q: %+v", first, c.first, doc.Nodes)
			}
			switch {
			case c.code < 0 && doc.Exit != nil || c.code >= 0 && doc.Exit == nil:
				t.Errorf("exit %+v", doc.Exit)
			case doc.Exit != nil && doc.Exit.Code != c.code:
				t.Errorf("status %d, want %d", doc.Exit.Code, c.code)
			}
			if doc.ID != "x" || len(doc.Recording.Ranks) != 2 || doc.Host != "host0, host1" || doc.Node != nil {
				t.Errorf("merged %+v", doc)
			}
		})
	}
}

// TestMergeCause: the out-of-memory error of one node is the run's, whatever broke on the others.
func TestMergeCause(t *testing.T) {
	with := func(cause oom.Cause) func(*report.Run) {
		return func(p *report.Run) { p.Postmortem = &oom.Diagnosis{Cause: cause, Rank: p.Node.Rank} }
	}
	doc := merge(&monitor.Store{Dir: "/runs/x"}, []report.Run{
		changed(aPart(0, 2, 1, 10), with(oom.NotOOM)), changed(aPart(1, 2, 1, 10.2), with(oom.Activation)),
	})
	if doc.Postmortem == nil || doc.Postmortem.Cause != oom.Activation || doc.Postmortem.Rank != 1 {
		t.Errorf("post-mortem %+v", doc.Postmortem)
	}
	doc = merge(&monitor.Store{Dir: "/runs/x"},
		[]report.Run{aPart(0, 2, -1, 5), changed(aPart(1, 2, 1, 10), with(oom.NotOOM))})
	if doc.Postmortem != nil {
		t.Errorf("the echo of a node that fell silent is taken for the cause: %+v", doc.Postmortem)
	}
}

// TestMergeAbsent: nodes that recorded nothing are named, or counted where they have no numbers.
func TestMergeAbsent(t *testing.T) {
	named := func(p *report.Run) { p.Node.Name, p.Node.Rank = "host-a", -1 }
	for want, parts := range map[string][]report.Run{
		"1, 3":     {aPart(0, 4, 0, 9), aPart(2, 4, 0, 9)},
		"(3 more)": {changed(aPart(0, 4, 0, 9), named)},
		"": {aPart(0, 2, 0, 9), aPart(1, 2, 0, 9),
			changed(aPart(1, 2, 0, 9), func(p *report.Run) { p.Node.Restart = 2 })},
	} {
		doc := merge(&monitor.Store{Dir: "/runs/x"}, parts)
		var absent []string
		for _, n := range doc.Nodes {
			if !n.Seen {
				absent = append(absent, n.Name)
			}
		}
		if got := strings.Join(absent, ", "); got != want {
			t.Errorf("absent %q, want %q", got, want)
		}
		missing := slices.ContainsFunc(doc.Missing,
			func(m string) bool { return strings.Contains(m, "nothing was recorded there") })
		if missing != (want != "") {
			t.Errorf("missing %q", doc.Missing)
		}
		var page strings.Builder
		if err := report.Write(&page, "text", doc, report.Style{}); err != nil ||
			want != "" && !strings.Contains(page.String(), "missing: nothing was recorded there") {
			t.Errorf("%v\n%s", err, page.String())
		}
	}
}

// TestMergeCommon: what all nodes found is said once.
func TestMergeCommon(t *testing.T) {
	both, one := checklists.Result{ID: "shm", Verdict: checklists.Verdict{Status: checklists.Warn, Detail: "64 MiB"}},
		checklists.Result{ID: "gpu-count", Verdict: checklists.Verdict{Status: checklists.Fail, Detail: "7 GPUs"}}
	doc := merge(&monitor.Store{Dir: "/runs/x"}, []report.Run{
		changed(aPart(0, 2, 0, 9), func(p *report.Run) {
			p.Checks, p.Missing = []checklists.Result{both},
				[]string{"the model"}
		}),
		changed(aPart(1, 2, 0, 9), func(p *report.Run) {
			p.Checks, p.Missing = []checklists.Result{both, one}, []string{"the model", "rank 1"}
		}),
	})
	if len(doc.Checks) != 2 || doc.Checks[0].Detail != "64 MiB" || doc.Checks[1].Detail != "node 1: 7 GPUs" {
		t.Errorf("checks %+v", doc.Checks)
	}
	if !slices.Equal(doc.Missing, []string{"the model", "node 1: rank 1"}) {
		t.Errorf("missing %q", doc.Missing)
	}
}

// TestPlacement: who is which part of which run, from what srun (srun(1)), torchrun's options and Kubernetes say.
func TestPlacement(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	slurm := "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=1 " +
		"SLURM_LOCALID=0 SLURM_STEP_NODELIST=n[1-2] SLURMD_NODENAME=n2"
	two := "torchrun --nnodes=2 --nproc-per-node=8 "
	for _, c := range []struct {
		env, command string
		key, name    string // "" alone
		parts        int
	}{
		{"", "torchrun --nproc-per-node=8 train.py", "", "", 0},
		{slurm, "torchrun --nproc-per-node=8 train.py", "slurm-12.0", "1", 2},
		{slurm + " SLURM_RESTART_COUNT=2", two + "train.py", "slurm-12.0.restart2", "1", 2},
		{slurm, two + "--rdzv-id=7 --rdzv-endpoint=n1:29500 --rdzv-backend=c10d train.py", "slurm-12.0", "1", 2},
		// a task a GPU
		{strings.Replace(slurm, "NUM_TASKS=2", "NUM_TASKS=16", 1), "python train.py", "slurm-12.0", "1-task-0", 16},
		{strings.Replace(slurm, "NUM_TASKS=2", "NUM_TASKS=1", 1), "torchrun train.py", "", "", 0},
		// in the batch script
		{"SLURM_JOB_ID=12 SLURM_NNODES=2 SLURM_NODEID=0", "torchrun --nproc-per-node=8 train.py", "", "", 0},
		{"", two + "--rdzv-id=exp7 --rdzv-endpoint=n1:29500 --rdzv-backend=c10d train.py", "rdzv-exp7", host, 2},
		{"", two + "--rdzv-id=exp7 --node-rank=1 --master-addr=n1 train.py", "rdzv-exp7", "1", 2},
		{"", two + "--rdzv-id none --rdzv-endpoint n1:29500 train.py", "rdzv-n1:29500", host, 2},
		{"", "torchrun --nnodes=2:4 --rdzv-id=e --rdzv-endpoint n1 train.py", "rdzv-e", host, 2},
		{"PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=train-node-0-0.train PET_MASTER_PORT=29500", "torchrun train.py",
			"rdzv-train-node-0-0.train:29500", "1", 2},
		{"", two + "train.py", "", "", 0}, // nothing says where they meet
	} {
		env := environment{environ: strings.Fields(c.env)}
		node := placement(env, job.Read(job.Sources{Argv: strings.Fields(c.command), Getenv: env.getenv,
			Dir: t.TempDir()}))
		switch {
		case node == nil && c.key == "":
		case node == nil || node.Key != c.key || node.Name != c.name || node.Parts != c.parts:
			t.Errorf("%s %s: %+v, want %s, part %s of %d", c.env, c.command, node, c.key, c.name, c.parts)
		}
	}
}
