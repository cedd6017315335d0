package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"oomguard/launcher"
	"oomguard/launcher/patience"
	"oomguard/monitor/report"
	"oomguard/preflight/job"
)

// launcherBench is a bench whose PATH finds the accelerate and deepspeed that .ci/launchers.sh sets up.
func launcherBench(t *testing.T) *bench {
	t.Helper()
	bin := os.Getenv("OOMGUARD_TEST_LAUNCHERS")
	if bin == "" {
		folder, err := os.ReadFile("../../.venv/launchers/where")
		if err != nil {
			t.Fatalf("OOMGUARD_TEST_LAUNCHERS is not set: %v; run make test, which sets up accelerate and deepspeed",
				err)
		}
		bin = strings.TrimSpace(string(folder))
	}
	b := newBench(t)
	b.env = append(b.env, "PATH="+bin+":"+os.Getenv("PATH"), "DS_ACCELERATOR=cpu", "HOME="+b.dir)
	return b
}

// fewSteps trains a little and fails.
const fewSteps = `import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
sys.exit(42)
`

// TestAccelerateOneProcess: accelerate starts one process without telling it that it is a rank, and returns 1 whatever
// becomes of it. The report has its memory by stage, and its own end.
func TestAccelerateOneProcess(t *testing.T) {
	b := launcherBench(t)
	b.write("few.py", fewSteps)
	r := b.run(b.exe, "accelerate", "launch", "--cpu", "--num_processes=1", "--num_machines=1", "--mixed_precision=no",
		"--dynamo_backend=no", "few.py")
	doc := b.theRun()
	if r.status != 1 {
		t.Errorf("status %d, accelerate's is 1", r.status)
	}
	if len(doc.Exit.Ranks) != 1 || doc.Exit.Ranks[0].Rank != 0 || doc.Exit.Ranks[0].Code != 42 {
		t.Errorf("the report's rank exits: %+v\n%s", doc.Exit.Ranks, r.stderr)
	}
	if doc.Recording == nil || len(doc.Recording.Ranks) != 1 || len(doc.Recording.Ranks[0].Stages) < 3 {
		t.Errorf("recorded: %+v", doc.Recording)
	}
	if !slices.ContainsFunc(doc.EnvironmentChanges,
		func(c report.EnvChange) bool { return c.Name == "OOMGUARD_SINGLE" }) {
		t.Errorf("environment: %+v", doc.EnvironmentChanges)
	}
}

// TestDeepSpeedReturnsZero: deepspeed returns 0 when the launcher that it has started is killed, and leaves the ranks
// behind. They are ended, and the report does not take that for a good end.
func TestDeepSpeedReturnsZero(t *testing.T) {
	b := launcherBench(t)
	b.write("sleeper.py", sleeper)
	cmd := b.command(b.exe, "deepspeed", "--num_gpus=2", "--master_port="+strconv.Itoa(freePort(t)), "sleeper.py")
	cmd.Stdout, cmd.Stderr = b.files()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ranks []int
	for _, name := range []string{"ready.0", "ready.1"} {
		patience.Until(t, name, func() bool { _, err := os.Stat(filepath.Join(b.dir, name)); return err == nil })
		pid, err := strconv.Atoi(b.read(name))
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, pid)
	}
	if err := syscall.Kill(parentOf(t, ranks[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	doc, stderr := b.theRun(), b.read("err")
	if code := cmd.ProcessState.ExitCode(); code != 0 || doc.Postmortem == nil || len(doc.Exit.Abandoned()) != 2 ||
		!strings.Contains(stderr, "returned status 0 after ") ||
		!strings.Contains(stderr, "rank 1 was left behind ("+launcher.Terminated+")") {
		t.Errorf("status %d, deepspeed's is 0; exit %+v\n%s", code, doc.Exit, stderr)
	}
	for _, pid := range ranks {
		if alive(pid) {
			t.Errorf("rank process %d is an orphan", pid)
		}
	}
}

// TestSingleRank: which processes below a launcher are its one rank.
func TestSingleRank(t *testing.T) {
	known := func(script string) job.Setting[string] { return job.Setting[string]{Value: script, Known: true} }
	script := &job.Job{OneProcess: true, Script: known("train.py"), ScriptArgs: []string{"--lr", "1"}}
	module := &job.Job{OneProcess: true, Script: known("-m pkg.train"), ScriptArgs: []string{"-v"}}
	for _, c := range []struct {
		job  *job.Job
		argv string
		is   bool
	}{
		{script, "/usr/bin/python3 train.py --lr 1", true},
		{script, "/usr/bin/python3 /usr/bin/accelerate launch train.py --lr 1", false},
		{script, "/usr/bin/python3 train.py --lr 2", false},
		{script, "/usr/bin/python3 -c from_multiprocessing", false},
		{script, "", false}, // it has ended
		{module, "python -m pkg.train -v", true},
		{module, "python -m accelerate.commands.launch -m pkg.train -v", false},
	} {
		if got := singleRank(singleWords(c.job))(strings.Fields(c.argv)); got != c.is {
			t.Errorf("%q: %v", c.argv, got)
		}
	}
	for name, j := range map[string]*job.Job{"has ranks": {Script: known("train.py")}, "unknown": {OneProcess: true}} {
		if singleRank(singleWords(j)) != nil {
			t.Errorf("%s: there is nothing to tell it by", name)
		}
	}
}
