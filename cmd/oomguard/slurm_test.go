package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"oomguard/launcher/patience"
	"oomguard/monitor/report"
)

// slurmCluster is the folder of the Slurm of two nodes that .ci/slurm.sh runs around the tests; "" where it cannot.
func slurmCluster(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("OOMGUARD_TEST_SLURM"); dir != "" {
		return dir
	}
	why := os.Getenv("OOMGUARD_TEST_NO_SLURM")
	if why == "" {
		why = "go test was not started by .ci/slurm.sh, as make test starts it"
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("no Slurm in CI: %s", why)
	}
	fmt.Fprintf(os.Stderr, "\n*** %s DID NOT RUN: no Slurm of two nodes: %s\n", t.Name(), why)
	return ""
}

// gloo trains on all ranks together until it is told to end, and says where its processes are.
const gloo = `import os, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
w = torch.nn.Linear(8, 8)
opt = torch.optim.SGD(w.parameters(), lr=0.1)
go = torch.zeros(1)
deadline = time.time() + 240
while not go[0]:
    w(torch.randn(4, 8)).sum().backward()
    opt.step()
    opt.zero_grad()
    go[0] = float(os.path.exists("go") or time.time() > deadline)
    dist.all_reduce(go, op=dist.ReduceOp.MAX)
    name = "ready." + os.environ["SLURM_NODEID"]
    if not os.path.exists(name):
        open(name + ".tmp", "w").write("%d %d %d" % (rank, os.getpid(), os.getppid()))
        os.rename(name + ".tmp", name)
    time.sleep(0.05)
os.write(1, b"end of rank %d\n" % rank)
`

// step is a running srun of two nodes, with one rank each.
type step struct {
	*bench
	cmd           *exec.Cmd
	rank          [2]int // by node
	pid, torchrun [2]int
	oomguard      [2]int
	job           string
}

// srun starts a real torchrun over two nodes and waits until both ranks train together.
func srun(t *testing.T) *step {
	t.Helper()
	s := &step{bench: newBench(t)}
	s.write("gloo.py", gloo)
	endpoint := "127.0.0.1:" + strconv.Itoa(freePort(t))
	s.cmd = s.command("srun", "-N2", "-l", s.exe, "torchrun", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
		"--rdzv-endpoint="+endpoint, "--rdzv-id=test", "gloo.py")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal of ours
	out, errs := s.files()
	s.cmd.Stdout, s.cmd.Stderr = out, errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", s.read("out"), s.read("err"))
		}
	})
	for node := range s.rank {
		name := fmt.Sprintf("ready.%d", node)
		patience.Until(t, name, func() bool { _, err := os.Stat(filepath.Join(s.dir, name)); return err == nil })
		if _, err := fmt.Sscan(s.read(name), &s.rank[node], &s.pid[node], &s.torchrun[node]); err != nil {
			t.Fatal(err)
		}
		s.oomguard[node] = parentOf(t, s.torchrun[node])
	}
	s.job = environOf(t, s.oomguard[0])["SLURM_JOB_ID"]
	return s
}

func environOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for kv := range strings.SplitSeq(string(data), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	return vars
}

// ended waits for every process of the step and for srun, and gives its status.
func (s *step) ended() int {
	s.t.Helper()
	for node := range s.rank {
		for _, pid := range []int{s.pid[node], s.torchrun[node], s.oomguard[node]} {
			patience.Until(s.t, fmt.Sprintf("process %d of node %d to end", pid, node),
				func() bool { return !alive(pid) })
		}
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// merged is the one report of the one run, as oomguard report makes it.
func (s *step) merged() report.Run {
	t := s.t
	t.Helper()
	var doc report.Run
	r := s.run(s.exe, "report", "--format", "json")
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		t.Fatalf("report: status %d: %v\n%s%s", r.status, err, r.stdout, r.stderr)
	}
	if runs := s.run(s.exe, "runs"); strings.Count(runs.stdout, "-slurm-") != 1 {
		t.Errorf("the run is not listed once:\n%s", runs.stdout)
	}
	if len(doc.Nodes) != 2 || doc.Recording == nil {
		t.Fatalf("nodes %+v", doc.Nodes)
	}
	for node, n := range doc.Nodes {
		if n.Name != strconv.Itoa(node) || n.Host != fmt.Sprintf("n%d", node+1) || !n.Seen ||
			!slices.Equal(n.Ranks, []int{s.rank[node]}) {
			t.Errorf("node %d: %+v", node, n)
		}
	}
	var stages []int
	for _, r := range doc.Recording.Ranks {
		if len(r.Stages) > 2 {
			stages = append(stages, r.Rank)
		}
	}
	if !slices.Equal(stages, []int{0, 1}) {
		t.Errorf("ranks with memory by stage: %v", stages)
	}
	t.Logf("%s", s.run(s.exe, "report").stdout)
	return doc
}

// TestSlurm: srun of two nodes over a real torchrun: one run, one report, and status, signals and left-overs as without
// us. The cluster's first node signals every process of a step, its second one only the task that it has started (see
// .ci/slurm.sh).
func TestSlurm(t *testing.T) {
	if slurmCluster(t) == "" {
		return
	}
	t.Run("ends well", func(t *testing.T) {
		t.Parallel()
		s := srun(t)
		s.write("go", "")
		if status := s.ended(); status != 0 {
			t.Errorf("status %d", status)
		}
		doc := s.merged()
		if doc.Exit == nil || doc.Exit.Code != 0 || doc.Postmortem != nil || len(doc.Exit.Ranks) != 2 {
			t.Errorf("exit %+v, post-mortem %+v", doc.Exit, doc.Postmortem)
		}
		if out := s.read("out"); !strings.Contains(out, "0: end of rank") || !strings.Contains(out, "1: end of rank") {
			t.Errorf("the training's output:\n%s", out)
		}
	})
	kills := []struct {
		name    string
		victims func(*step) []int
		// goesOn: the training does not die of it and is let go to its end.
		goesOn bool
		// ends: whether the end of each node is recorded.
		ends [2]bool
	}{
		{"torchrun killed", func(s *step) []int { return []int{s.torchrun[1]} }, false, [2]bool{true, true}},
		{"node lost", func(s *step) []int { return []int{s.oomguard[1], s.torchrun[1], s.pid[1]} }, false,
			[2]bool{true, false}},
		{"oomguard killed", func(s *step) []int { return []int{s.oomguard[1]} }, true, [2]bool{true, false}},
	}
	for _, c := range kills {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := srun(t)
			for _, pid := range c.victims(s) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if c.goesOn {
				for node := range s.pid {
					if !alive(s.pid[node]) || !alive(s.torchrun[node]) {
						t.Errorf("the training on node %d died with it", node)
					}
				}
				s.write("go", "")
			}
			status := s.ended()
			doc := s.merged()
			for node, n := range doc.Nodes {
				if (n.Exit != nil) != c.ends[node] {
					t.Errorf("node %d: the end is %+v", node, n.Exit)
				}
			}
			if !c.goesOn && (status == 0 || !doc.Nodes[1].First || doc.Nodes[0].First) {
				t.Errorf("status %d; the report does not say that node 1 began: %+v", status, doc.Nodes)
			}
		})
	}
	t.Run("scancel", func(t *testing.T) {
		t.Parallel()
		s := srun(t)
		s.scancel()
		if status := s.ended(); status == 0 {
			t.Error("srun's status is 0")
		}
		doc := s.merged()
		for node, n := range doc.Nodes {
			if !n.Stopped || n.First || n.Exit == nil || n.Exit.Code != 1 {
				t.Errorf("node %d was told to end, and its torchrun gave 1: %+v %+v", node, n, n.Exit)
			}
		}
	})
}

// scancel signals or ends the job.
func (s *step) scancel(args ...string) {
	s.t.Helper()
	if r := s.run(append(append([]string{"scancel"}, args...), s.job)...); r.status != 0 {
		s.t.Fatalf("scancel: %s", r.stderr)
	}
}

// recorder writes down the signals that it gets, and ends with the third kind.
const recorder = `import os, signal, time
log = open("signals." + os.environ["SLURM_NODEID"], "a", buffering=1)
def note(number, frame):
    log.write(signal.Signals(number).name + "\n")
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(s, note)
log.write("ready\n")
deadline = time.time() + 120
while "SIGTERM" not in open(log.name).read() and time.time() < deadline:
    time.sleep(0.01)
time.sleep(0.5)  # for one too many
`

// TestSlurmSignalsOnce: each signal to a step reaches the command once, where Slurm signals every process (node 0) and
// where it signals only the task (node 1).
func TestSlurmSignalsOnce(t *testing.T) {
	if slurmCluster(t) == "" {
		return
	}
	s := &step{bench: newBench(t)}
	s.write("recorder.py", recorder)
	s.cmd = s.command("srun", "-N2", "--job-name=signals", s.exe, "run", "--no-probe", "--", testPython(t), "-S",
		"recorder.py")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.cmd.Stdout, s.cmd.Stderr = s.files()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := func(text string) {
		t.Helper()
		for _, name := range []string{"signals.0", "signals.1"} {
			patience.Until(t, text+" in "+name, func() bool {
				data, _ := os.ReadFile(filepath.Join(s.dir, name))
				return strings.HasSuffix(string(data), text+"\n")
			})
		}
	}
	seen("ready")
	s.job = strings.TrimSpace(s.run("squeue", "--noheader", "--format=%i", "--name=signals").stdout)
	for _, name := range []string{"SIGUSR1", "SIGUSR2", "SIGINT", "SIGUSR1", "SIGTERM"} {
		s.scancel("--signal=" + strings.TrimPrefix(name, "SIG"))
		seen(name)
	}
	_ = s.cmd.Wait()
	if status := s.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("status %d", status)
	}
	for node := range 2 {
		if got := strings.Fields(s.read(fmt.Sprintf("signals.%d", node))); !slices.Equal(got,
			[]string{"ready", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGUSR1", "SIGTERM"}) {
			t.Errorf("node %d got %q", node, got)
		}
		paths, _ := filepath.Glob(filepath.Join(s.dir, "runs", "2*", fmt.Sprintf("node-%d", node), "report.json"))
		if len(paths) != 1 {
			t.Fatalf("reports of node %d: %v", node, paths)
		}
		exit := s.document(paths[0]).Exit
		if all := slices.Concat(exit.Forwarded, exit.Reached); len(all) != 5 || len(exit.Reached) != 5*(1-node) {
			t.Errorf("node %d: handed on %q, reached %q", node, exit.Forwarded, exit.Reached)
		}
	}
}
