package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
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
	"oomguard/monitor/report"
)

// The tests of this file start real processes: oomguard (the test binary under its own name), a real torchrun, real
// ranks.

// program gives the path under which the test binary is oomguard.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// a file of its own: through a symbolic link the program would find itself under the name of the test binary
	path := filepath.Join(t.TempDir(), "oomguard")
	if os.Link(self, path) == nil {
		return path
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// bench is a folder to work in, with a PATH that finds torchrun.
type bench struct {
	t   *testing.T
	dir string
	exe string
	env []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), exe: program(t)}
	bin := filepath.Dir(testPython(t))
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name != "PATH" && !strings.HasPrefix(name, "PET_") &&
			name != "OOMGUARD_DIR" {
			b.env = append(b.env, kv)
		}
	}
	b.env = append(b.env, "PATH="+bin+":"+os.Getenv("PATH"), "OMP_NUM_THREADS=1", "NO_COLOR=1",
		"OOMGUARD_DIR="+filepath.Join(b.dir, "runs"))
	patience.EndAll(t, "OOMGUARD_DIR="+filepath.Join(b.dir, "runs"))
	return b
}

func (b *bench) write(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit(b.t))
	b.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return cmd
}

// result is what a command gave.
type result struct {
	status         int
	stdout, stderr string
}

func (b *bench) run(args ...string) result {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := b.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("%q: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// theRun gives the one run that was recorded.
func (b *bench) theRun() report.Run {
	b.t.Helper()
	paths, err := filepath.Glob(filepath.Join(b.dir, "runs", "*", "run.json"))
	if err != nil || len(paths) != 1 {
		b.t.Fatalf("want one recorded run, found %v (%v)", paths, err)
	}
	return b.document(filepath.Join(filepath.Dir(paths[0]), "report.json"))
}

func (b *bench) document(path string) report.Run {
	b.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	var doc report.Run
	if err := json.Unmarshal(data, &doc); err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
	return doc
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// TestDemo: the main job on real input. Both ranks' peaks of every stage stand beside the predicted ones.
func TestDemo(t *testing.T) {
	b := newBench(t)
	r := b.run(b.exe, "demo")
	if r.status != 0 {
		t.Fatalf("status %d\n%s\n%s", r.status, r.stdout, r.stderr)
	}
	t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	if !strings.Contains(r.stdout, "loss") {
		t.Errorf("the training's own output is missing:\n%s", r.stdout)
	}
	for _, want := range []string{"Checklist pretraining", "Measured and predicted, by stage and rank",
		"host memory (rss)"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr lacks %q", want)
		}
	}
	doc := b.theRun()
	for _, rank := range []int{0, 1} {
		for _, stage := range []string{"model-load", "optimizer-init", "forward", "backward", "optimizer-step"} {
			c := findComparison(doc, rank, stage)
			if c == nil || c.MeasuredBytes == nil || c.PredictedBytes == nil || *c.MeasuredBytes <= 0 ||
				*c.PredictedBytes <= 0 {
				t.Errorf("rank %d, %s: no measured and predicted peak: %+v", rank, stage, c)
				continue
			}
			t.Logf("rank %d %-15s predicted %4d MiB measured %4d MiB (%+.1f %%)", rank, stage, *c.PredictedBytes>>20,
				*c.MeasuredBytes>>20, *c.ErrorPercent)
			// half of it is what Python and torch take, which differs between machines
			if math.Abs(*c.ErrorPercent) > 30 {
				t.Errorf("rank %d, %s: the prediction is off by %+.1f %%", rank, stage, *c.ErrorPercent)
			}
		}
	}
	if doc.Exit == nil || doc.Exit.Code != 0 || doc.Postmortem != nil {
		t.Errorf("exit %+v, post-mortem %+v", doc.Exit, doc.Postmortem)
	}
}

func findComparison(doc report.Run, rank int, stage string) *report.Comparison {
	for i, c := range doc.Comparison {
		if c.Rank == rank && c.Stage == stage {
			return &doc.Comparison[i]
		}
	}
	return nil
}

// TestDemoOOM: without a GPU the error is PyTorch's own, raised on purpose, and the report says so.
func TestDemoOOM(t *testing.T) {
	b := newBench(t)
	r := b.run(b.exe, "demo", "--oom")
	doc := b.theRun()
	t.Logf("stderr:\n%s", r.stderr)
	if r.status == 0 || doc.Exit == nil || doc.Exit.Code != r.status {
		t.Errorf("status %d, recorded %+v", r.status, doc.Exit)
	}
	d := doc.Postmortem
	if d == nil {
		t.Fatal("no post-mortem")
	}
	if !d.Simulated || len(d.OOMs) == 0 || d.OOMs[0].TriedBytes <= 0 || d.OOMs[0].TotalBytes <= 0 ||
		d.Stage != "forward" || d.Rank != 0 {
		t.Errorf("diagnosis %+v", d)
	}
	priced := false
	for _, remedy := range d.Remedies {
		priced = priced || remedy.SavesBytes != nil && *remedy.SavesBytes > 0
	}
	if !priced {
		t.Errorf("no remedy says what it would save: %+v", d.Remedies)
	}
	if !strings.Contains(r.stderr, "simulated") {
		t.Error("the report does not say that the error was simulated")
	}
}

// exit42 lives for a moment, as any rank that trains does: how a rank ended can be learned only of one that was seen.
// Rank 0 is through before rank 1 fails, so that torchrun always tells the same story.
const exit42 = `import os, sys, time
rank = int(os.environ["RANK"])
time.sleep(0.5 + 2 * rank)
os.write(1, b"out of rank %d\n" % rank)
if rank == 1:
    sys.exit(42)
`

// volatile is what differs between two runs of torchrun: times, pids, ports, the code line of a log call is the same.
var volatile = regexp.MustCompile(`[0-9]+`)

// TestSameAsTorchrun: a rank exits with 42; status and output are torchrun's own.
func TestSameAsTorchrun(t *testing.T) {
	b := newBench(t)
	b.write("exit42.py", exit42)
	args := []string{"torchrun", "--nproc-per-node=2", "--master-port=" + strconv.Itoa(freePort(t)), "exit42.py"}
	direct := b.run(append([]string{filepath.Join(filepath.Dir(testPython(t)), "torchrun")}, args[1:]...)...)
	wrapped := b.run(append([]string{b.exe}, args...)...)
	if wrapped.status != direct.status {
		t.Errorf("status %d, torchrun's is %d", wrapped.status, direct.status)
	}
	if sortedLines(wrapped.stdout) != sortedLines(direct.stdout) {
		t.Errorf("stdout\n%s\ntorchrun's\n%s", wrapped.stdout, direct.stdout)
	}
	inner := volatile.ReplaceAllString(wrapped.stderr, "N")
	for line := range strings.Lines(volatile.ReplaceAllString(direct.stderr, "N")) {
		if !strings.Contains(inner, line) {
			t.Errorf("stderr lacks torchrun's line %q in\n%s", line, wrapped.stderr)
		}
	}
	doc := b.theRun()
	codes := map[int]int{}
	for _, r := range doc.Exit.Ranks {
		if r.Known {
			codes[r.Rank] = r.Code
		}
	}
	if codes[1] != 42 {
		t.Errorf("the report's rank exits: %+v", doc.Exit.Ranks)
	}
}

// freePort is a port that nobody listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// sortedLines: two ranks write to one stream in either order.
func sortedLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sleeper imports torch, so that the probe reports, says so in a file, and goes on until it is told to end.
const sleeper = `import os, sys, time
import torch
rank = os.environ["RANK"]
w = torch.nn.Linear(8, 8)
opt = torch.optim.SGD(w.parameters(), lr=0.1)
def step():
    w(torch.randn(4, 8)).sum().backward()
    opt.step()
    opt.zero_grad()
step()
open("ready." + rank + ".tmp", "w").write(str(os.getpid()))
os.rename("ready." + rank + ".tmp", "ready." + rank)
deadline = time.time() + 120
while not os.path.exists("go") and time.time() < deadline:
    step()
    time.sleep(0.02)
os.write(1, b"end of rank %d\n" % int(rank))
`

// started runs oomguard over torchrun with two sleepers and waits until both train.
func (b *bench) started(out, errs *os.File) (cmd *exec.Cmd, ranks []int) {
	b.t.Helper()
	b.write("sleeper.py", sleeper)
	cmd = b.command(b.exe, "torchrun", "--nproc-per-node=2", "--master-port="+strconv.Itoa(freePort(b.t)), "sleeper.py")
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for _, name := range []string{"ready.0", "ready.1"} {
		patience.Until(b.t, name, func() bool { _, err := os.Stat(filepath.Join(b.dir, name)); return err == nil })
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			b.t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(data))
		if err != nil {
			b.t.Fatal(err)
		}
		ranks = append(ranks, pid)
	}
	return cmd, ranks
}

// files are where a command's output can go without anybody reading it meanwhile.
func (b *bench) files() (out, errs *os.File) {
	b.t.Helper()
	for name, f := range map[string]**os.File{"out": &out, "err": &errs} {
		created, err := os.Create(filepath.Join(b.dir, name))
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { created.Close() })
		*f = created
	}
	return out, errs
}

func (b *bench) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "PPid:")
	ppid, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return ppid
}

// TestTorchrunKilled: SIGKILL of torchrun leaves no rank behind, and the report says what happened.
func TestTorchrunKilled(t *testing.T) {
	b := newBench(t)
	cmd, ranks := b.started(b.files())
	if err := syscall.Kill(parentOf(t, ranks[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+9 {
		t.Errorf("status %d (%v), want 137", code, err)
	}
	for _, pid := range ranks {
		if alive(pid) {
			t.Errorf("rank process %d is an orphan", pid)
		}
	}
	doc := b.theRun()
	if doc.Exit == nil || doc.Exit.Signal != syscall.SIGKILL || len(doc.Exit.Survivors) < 2 {
		t.Errorf("exit %+v", doc.Exit)
	}
	if len(doc.Recording.Ranks) != 2 {
		t.Errorf("recorded ranks %+v", doc.Recording.Ranks)
	}
}

// TestRankKilled: SIGKILL of one rank: torchrun's status, no orphan, and the report knows which rank died of what.
func TestRankKilled(t *testing.T) {
	b := newBench(t)
	cmd, ranks := b.started(b.files())
	if err := syscall.Kill(ranks[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("status %d, torchrun's is 1", code)
	}
	for _, pid := range ranks {
		if alive(pid) {
			t.Errorf("rank process %d is an orphan", pid)
		}
	}
	doc := b.theRun()
	found := false
	for _, r := range doc.Exit.Ranks {
		found = found || r.Rank == 1 && r.Known && r.Code == -9
	}
	if !found {
		t.Errorf("the report does not say that rank 1 died of SIGKILL: %+v", doc.Exit.Ranks)
	}
}

// TestOomguardKilled: SIGKILL of oomguard: the training ends as it would have, with all its output, and the run is
// readable; with its output in files, and in a pipe that oomguard copies from.
func TestOomguardKilled(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		b := newBench(t)
		cmd, ranks := b.started(b.files())
		b.killOomguard(cmd, ranks)
		b.checkCutOff(b.read("out"))
	})
	t.Run("pipe", func(t *testing.T) {
		b := newBench(t)
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		cmd, ranks := b.started(writer, writer)
		writer.Close()
		arrived := make(chan string)
		go func() {
			data, _ := io.ReadAll(reader)
			arrived <- string(data)
		}()
		b.killOomguard(cmd, ranks)
		var ends []string // among the checklist and torchrun's warnings, which share the pipe
		for line := range strings.Lines(<-arrived) {
			if strings.HasPrefix(line, "end of rank") {
				ends = append(ends, line)
			}
		}
		b.checkCutOff(strings.Join(ends, ""))
	})
}

// killOomguard kills it, sees that nothing else dies, and lets the training end.
func (b *bench) killOomguard(cmd *exec.Cmd, ranks []int) {
	b.t.Helper()
	torchrun := parentOf(b.t, ranks[0])
	if err := cmd.Process.Kill(); err != nil {
		b.t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range append(ranks, torchrun) {
		if !alive(pid) {
			b.t.Fatalf("process %d died with oomguard", pid)
		}
	}
	b.write("go", "")
	patience.Until(b.t, "the training to end", func() bool { return !alive(torchrun) })
}

// checkCutOff: the training's output is whole, and the run can be read.
func (b *bench) checkCutOff(output string) {
	t := b.t
	t.Helper()
	if got := sortedLines(output); got != "end of rank 0\nend of rank 1" {
		t.Errorf("the training's output:\n%s", got)
	}
	var doc report.Run
	patience.Until(t, "the relay's end, with which nobody uses the private folder", func() bool {
		r := b.run(b.exe, "report", "--format", "json")
		if r.status != 0 {
			t.Fatalf("report: status %d\n%s", r.status, r.stderr)
		}
		if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(doc.PrivateDir)
		return errors.Is(err, os.ErrNotExist)
	})
	if doc.Exit != nil || doc.Recording == nil || len(doc.Recording.Ranks) != 2 || doc.Recording.LastSeen.IsZero() {
		t.Errorf("exit %+v, recording %+v", doc.Exit, doc.Recording)
	}
	text := b.run(b.exe, "report")
	if !strings.Contains(text.stdout, "oomguard itself was stopped") {
		t.Errorf("the report does not say when the watch ended:\n%s", text.stdout)
	}
}
