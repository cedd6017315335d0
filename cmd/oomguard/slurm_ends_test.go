package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"oomguard/launcher/patience"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
)

// The tests of this file run a job of two nodes twice, as it is and with oomguard in front of its command, and end it
// in one of Slurm's ways.

// A job is one srun, with a task on each of its nodes.
type slurmJob struct {
	*bench
	name    string
	wrapped bool
	cmd     *exec.Cmd
}

// submit starts words on each node; NODE in them is the number of the node.
func submit(t *testing.T, wrapped bool, options []string, words ...string) *slurmJob {
	t.Helper()
	j := &slurmJob{bench: newBench(t), wrapped: wrapped}
	j.name = strings.NewReplacer("/", "-", " ", "-").Replace(fmt.Sprint(t.Name(), "-", wrapped))
	j.env = append(j.env, "SLURM_ENDS="+j.dir)
	j.write("recorder.py", faithful)
	j.write("eater.py", eater)
	if wrapped {
		words = append([]string{j.exe, "run", "--no-probe", "--"}, words...)
	}
	line := strings.ReplaceAll(strings.Join(words, " "), "NODE", "$SLURM_NODEID")
	j.cmd = j.command(append(append([]string{"srun", "--job-name=" + j.name}, options...), "bash", "-c",
		"exec "+line)...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal of ours
	j.cmd.Stdout, j.cmd.Stderr = j.files()
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range j.left() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("with oomguard: %v\nstdout:\n%s\nstderr:\n%s", wrapped, j.read("out"), j.read("err"))
		}
	})
	return j
}

// faithful writes down the signals that it gets. SIGTERM ends it, unless its node is the stubborn one.
const faithful = `import os, signal, sys, time
log = os.open("signals." + os.environ["SLURM_NODEID"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(number, frame):
    os.write(log, (signal.Signals(number).name + "\n").encode())
    if number == signal.SIGTERM and os.environ["SLURM_NODEID"] not in sys.argv:
        os._exit(0)
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(s, note)
os.write(log, b"ready\n")
deadline = time.time() + 300
while time.time() < deadline:
    time.sleep(0.05)
`

// signals are those that the process of a node has got.
func (j *slurmJob) signals(node int) string {
	data, _ := os.ReadFile(filepath.Join(j.dir, fmt.Sprint("signals.", node)))
	return strings.Join(strings.Fields(string(data)), " ")
}

func (j *slurmJob) ready(nodes int) {
	j.t.Helper()
	for node := range nodes {
		patience.Until(j.t, fmt.Sprintf("node %d to be ready", node), func() bool { return j.signals(node) != "" })
	}
}

// id is the job's number.
func (j *slurmJob) id() string {
	j.t.Helper()
	return strings.TrimSpace(j.run("squeue", "--noheader", "--format=%i", "--name="+j.name).stdout)
}

func (j *slurmJob) scancel(args ...string) {
	j.t.Helper()
	if r := j.run(append([]string{"scancel"}, args...)...); r.status != 0 {
		j.t.Fatalf("scancel: %s", r.stderr)
	}
}

// ended waits for srun and gives its status.
func (j *slurmJob) ended() int {
	_ = j.cmd.Wait()
	return j.cmd.ProcessState.ExitCode()
}

// left are the processes of the job that live, srun apart; with names only those that are called so.
func (j *slurmJob) left(names ...string) []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		data, _ := os.ReadFile(path) // of a process that has ended: nothing
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || !strings.Contains(string(data), "\x00SLURM_ENDS="+j.dir+"\x00") {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		if name := strings.TrimSpace(string(comm)); name != "srun" &&
			(len(names) == 0 || slices.Contains(names, name)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// report is the one that oomguard makes of the nodes.
func (j *slurmJob) report() report.Run {
	j.t.Helper()
	var doc report.Run
	r := j.run(j.exe, "report", "--format", "json")
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		j.t.Fatalf("report: status %d: %v\n%s%s", r.status, err, r.stdout, r.stderr)
	}
	return doc
}

// TestSlurmEnds: what Slurm does to a step reaches the ranks and the status as without oomguard; ranks that torchrun
// would leave behind are ended.
func TestSlurmEnds(t *testing.T) {
	if slurmCluster(t) == "" {
		return
	}
	t.Parallel()
	for _, c := range []struct {
		name  string
		words []string // of scancel
		// direct and wrapped are what the ranks see, by node: Slurm signals every process of the step on node 0, the
		// task alone on node 1.
		direct, wrapped [2]string
		status          int
	}{
		// torchrun hands it on, and gives 1.
		{name: "scancel", direct: [2]string{"ready SIGTERM", "ready SIGTERM"},
			wrapped: [2]string{"ready SIGTERM", "ready SIGTERM"}, status: 1},
		// torchrun dies of it. Slurm kills what is left on node 0, perhaps before the rank has said what it got; with
		// oomguard it is asked to end.
		{name: "SIGUSR1", words: []string{"--signal=USR1"}, direct: [2]string{"ready( SIGUSR1)?", "ready"},
			wrapped: [2]string{"ready( SIGUSR1)?( SIGTERM)?", "ready SIGTERM"}, status: 138},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, wrapped := range []bool{false, true} {
				want := c.direct
				if wrapped {
					want = c.wrapped
				}
				j := submit(t, wrapped, []string{"-N2", "-l"}, "torchrun", "--nnodes=2", "--nproc-per-node=1",
					"--node-rank=NODE",
					"--master-addr=127.0.0.1", "--master-port="+strconv.Itoa(freePort(t)), "recorder.py")
				j.ready(2)
				j.scancel(append(c.words, j.id())...)
				if status := j.ended(); status != c.status {
					t.Errorf("with oomguard %v: status %d, want %d", wrapped, status, c.status)
				}
				if wrapped {
					patience.Until(t, "all processes to end", func() bool { return len(j.left()) == 0 })
				}
				for node := range 2 {
					if got := j.signals(node); !regexp.MustCompile("^(?:" + want[node] + ")$").MatchString(got) {
						t.Errorf("with oomguard %v: the rank of node %d got %q, want %q", wrapped, node, got,
							want[node])
					}
				}
				if wrapped {
					checkNodes(t, j.report(), [2]bool{true, true})
				}
			}
		})
	}
}

// TestSlurmStepKilled: SIGKILL of a step. On node 1, with proctrack/pgid, Slurm does not see what has a process group
// of its own: a command under oomguard goes on there. Proctrack/cgroup, which Slurm advises, and linuxproc (node 0)
// kill it.
func TestSlurmStepKilled(t *testing.T) {
	if slurmCluster(t) == "" {
		return
	}
	t.Parallel()
	python := filepath.Base(testPython(t))
	for _, wrapped := range []bool{false, true} {
		j := submit(t, wrapped, []string{"-N2", "-l"}, testPython(t), "-S", "recorder.py")
		j.ready(2)
		j.scancel("--signal=KILL", j.id()+".0")
		stays := 0
		if wrapped {
			stays = 1
		}
		patience.Until(t, "the tasks to end",
			func() bool { return len(j.left("oomguard")) == 0 && len(j.left(python)) == stays })
		for _, pid := range j.left() { // it would keep srun waiting
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if status := j.ended(); status != 137 {
			t.Errorf("with oomguard %v: status %d, want 137", wrapped, status)
		}
		for node := range 2 {
			if got := j.signals(node); got != "ready" {
				t.Errorf("with oomguard %v: node %d got %q", wrapped, node, got)
			}
		}
		if wrapped {
			checkNodes(t, j.report(), [2]bool{false, false})
		}
	}
}

// checkNodes: each node has a part in the report, and an end where one could be recorded.
func checkNodes(t *testing.T, doc report.Run, ends [2]bool) {
	t.Helper()
	if len(doc.Nodes) != 2 {
		t.Fatalf("nodes %+v", doc.Nodes)
	}
	for node, n := range doc.Nodes {
		if !n.Seen || (n.Exit != nil) != ends[node] || n.First && ends[node] {
			t.Errorf("node %d: %+v, exit %+v", node, n, n.Exit)
		}
		if n.Exit == nil && n.LastSeen.IsZero() {
			t.Errorf("node %d: nothing says when it was last seen", node)
		}
	}
}

// TestSlurmTimeLimit: the signal that was asked for before the limit (--signal), SIGTERM at the limit, and SIGKILL
// after KillWait to a command that goes on.
func TestSlurmTimeLimit(t *testing.T) {
	if slurmCluster(t) == "" {
		return
	}
	t.Parallel()
	const stubborn = "0"
	// slurmctld looks at limits every 30 s, and sends the signal up to so much too early, to the processes that there
	// are then. So the end is set when the recorders have begun: one look sends the signal, the next but one at the
	// latest finds the limit reached.
	limits := []string{"--time=60", "--signal=USR1@20"}
	want := [2]string{"ready SIGUSR1( SIGTERM)+", "ready SIGUSR1 SIGTERM"} // Slurm repeats the one that does not help
	var jobs [2]*slurmJob
	for i, wrapped := range []bool{false, true} {
		jobs[i] = submit(t, wrapped, append([]string{"-N2", "-l"}, limits...), testPython(t), "-S", "recorder.py",
			stubborn)
	}
	for _, j := range jobs {
		j.ready(2)
		if r := j.run("scontrol", "update", "JobId="+j.id(), "EndTime=now+45"); r.status != 0 {
			t.Fatalf("scontrol: %s", r.stderr)
		}
	}
	var status [2]int
	for i, j := range jobs {
		status[i] = j.ended()
		for node := range 2 {
			if got := j.signals(node); !regexp.MustCompile("^" + want[node] + "$").MatchString(got) {
				t.Errorf("with oomguard %v: node %d got %q, want %q", j.wrapped, node, got, want[node])
			}
		}
		patience.Until(t, "all processes to end", func() bool { return len(j.left()) == 0 })
	}
	if status[0] != status[1] || status[0] != 137 {
		t.Errorf("status %d, with oomguard %d, want 137 of both", status[0], status[1])
	}
	doc := jobs[1].report()
	checkNodes(t, doc, [2]bool{false, true})
	if e := doc.Nodes[1].Exit; e == nil || e.Code != 0 {
		t.Errorf("the end of node 1: %+v", e)
	}
}

// eater takes memory until it is killed, and is the first that the kernel chooses.
const eater = `import os
if os.environ["RANK"] == "1":
    open("/proc/self/oom_score_adj", "w").write("1000")
    taken = []
    while True:
        taken.append(bytearray(b"1") * (16 << 20))
import time
time.sleep(300)
`

// TestSlurmOOMKill: a rank takes more memory than its job has asked for, and the kernel kills it in Slurm's control
// group.
func TestSlurmOOMKill(t *testing.T) {
	if slurmCluster(t) == "" {
		return
	}
	if why := os.Getenv("OOMGUARD_TEST_NO_SLURM_MEMORY"); why != "" {
		fmt.Fprintf(os.Stderr, "\n*** %s DID NOT RUN: %s. What slurmstepd says then is tested from logs "+
			"(monitor/oom).\n", t.Name(), why)
		return
	}
	t.Parallel()
	var status [2]int
	for i, wrapped := range []bool{false, true} {
		port := "--master-port=" + strconv.Itoa(freePort(t))
		j := submit(t, wrapped, []string{"-N1", "-w", "n2", "--mem=1000"}, "torchrun", "--nproc-per-node=2", port,
			"eater.py")
		status[i] = j.ended()
		if said := j.read("err"); !strings.Contains(said, "oom-kill event") &&
			!strings.Contains(said, "oom_kill event") || !strings.Contains(said, "Out Of Memory") {
			t.Errorf("with oomguard %v: Slurm did not find that memory ran out", wrapped)
		}
		if !wrapped {
			continue
		}
		doc := j.report()
		killed := false
		for _, r := range doc.Exit.Ranks {
			killed = killed || r.Rank == 1 && r.Known && r.Code == -9
		}
		if d := doc.Postmortem; !killed || d == nil || d.Cause != oom.HostOOMKill {
			t.Errorf("ranks %+v, post-mortem %+v", doc.Exit.Ranks, d)
		}
		// the whole job's log has Slurm's words too
		if r := j.run(j.exe, "postmortem", "--format", "json", "err"); !strings.Contains(r.stdout,
			`"`+string(oom.HostOOMKill)+`"`) {
			t.Errorf("post-mortem of the log: %s%s", r.stdout, r.stderr)
		}
	}
	if status[0] != status[1] || status[0] == 0 {
		t.Errorf("status %d, with oomguard %d", status[0], status[1])
	}
}
