package probe

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testPython is a Python that can import torch: OOMGUARD_TEST_PYTHON, or that of the repository's virtual environment.
func testPython(tb testing.TB) string {
	tb.Helper()
	python := os.Getenv("OOMGUARD_TEST_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	path, err := filepath.Abs(python) // not resolved: a virtual environment is found by the path of its link
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		tb.Fatalf("no Python with torch (%v): run make test, which sets up a Python with torch", err)
	}
	return path
}

// newRun makes a folder with the probe installed.
func newRun(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := Install(dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// plainEnv is our environment without variables that would make other processes of a job of it.
func plainEnv(extra ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PYTHON") && !strings.HasPrefix(entry, "OOMGUARD_") &&
			!strings.HasPrefix(entry, "RANK=") && !strings.HasPrefix(entry, "LOCAL_RANK=") {
			env = append(env, entry)
		}
	}
	return append(env, extra...)
}

// rankEnv is the environment of a process that torchrun started as the only one.
func rankEnv(extra ...string) []string {
	return plainEnv(append([]string{"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "OOMGUARD_RESET_PEAKS=1"}, extra...)...)
}

type result struct {
	stdout, stderr string
	code           int // -1: killed by a signal
}

// python runs a command to its end.
func python(tb testing.TB, env []string, args ...string) result {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// rankFile is what one process of a rank recorded.
type rankFile struct {
	Events []Event
	Lost   int64
}

// readRanks reads the files of a probe's folder in the order of their names.
func readRanks(t *testing.T, dir string) []rankFile {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, filePattern))
	if err != nil {
		t.Fatal(err)
	}
	var files []rankFile
	for _, path := range paths {
		events, lost, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, rankFile{events, lost})
	}
	return files
}

// onlyFile reads the events of the only rank that reported, and demands that none is lost.
func onlyFile(t *testing.T, dir string) []Event {
	t.Helper()
	files := readRanks(t, dir)
	if len(files) != 1 || files[0].Lost != 0 {
		t.Fatalf("want one file without losses, got %d: %+v", len(files), files)
	}
	events := files[0].Events
	for i, event := range events {
		if event.Q != int64(i+1) {
			t.Fatalf("event %d has number %d", i+1, event.Q)
		}
	}
	return events
}

func ofKind(events []Event, kind string) []Event {
	var out []Event
	for _, event := range events {
		if event.E == kind {
			out = append(out, event)
		}
	}
	return out
}

// stages are those of the windows, equal ones in a row once.
func stages(events []Event) []string {
	var out []string
	for _, event := range ofKind(events, "w") {
		out = append(out, event.S)
	}
	return slices.Compact(out)
}

func TestPythonUnits(t *testing.T) {
	t.Parallel()
	dir := newRun(t)
	got := python(t, plainEnv("TMPDIR="+t.TempDir()), testPython(t), filepath.Join("testdata", "units.py"),
		filepath.Join(dir, "pylib"))
	if got.code != 0 {
		t.Fatalf("unit tests of the probe failed:\n%s%s", got.stdout, got.stderr)
	}
}

// timedLog are lines of torch's own log, which carry the time and the process.
var timedLog = regexp.MustCompile(`(?m)^[WIE]\d{4} .*\n`)

// TestStory runs a script that does most of what a training may do, once with the probe and once with a probe that
// cannot write, and wants the same output of both; and from the first the stages as the script went through them.
func TestStory(t *testing.T) {
	t.Parallel()
	dir, out := newRun(t), t.TempDir()
	site, err := filepath.Abs(filepath.Join("testdata", "site"))
	if err != nil {
		t.Fatal(err)
	}
	script := []string{testPython(t), filepath.Join("testdata", "story.py"), out, "fail"}
	base := rankEnv("PYTHONPATH="+site, "PYTHONDONTWRITEBYTECODE=1")
	with := python(t, Env(base, dir), script...)
	without := python(t, base, script...)
	if with.code != 1 || with.code != without.code {
		t.Errorf("exit status %d with the probe, %d without", with.code, without.code)
	}
	if with.stdout != without.stdout {
		t.Errorf("stdout with the probe:\n%s\nwithout:\n%s", with.stdout, without.stdout)
	}
	if a, b := timedLog.ReplaceAllString(with.stderr, ""), timedLog.ReplaceAllString(without.stderr, ""); a != b {
		t.Errorf("stderr with the probe:\n%s\nwithout:\n%s", a, b)
	}
	if !strings.Contains(with.stdout, "path clean: True sitecustomize: "+site) {
		t.Errorf("the user's own sitecustomize did not run:\n%s", with.stdout)
	}
	checkStory(t, onlyFile(t, dir))
}

// checkStory compares with what testdata/story.py does; its model has (1024*4096+4096 + 4096*1024+1024) parameters of 4
// bytes.
func checkStory(t *testing.T, events []Event) {
	t.Helper()
	hello := events[0]
	if hello.E != "hello" || hello.Mem != "rss" || hello.PID == 0 || hello.WorldSize != 1 || hello.A == 0 ||
		hello.Wall == 0 || hello.Torch == "" {
		t.Errorf("first event: %+v", hello)
	}
	want := []string{
		"start", "model-load",
		"forward", "backward", "forward", "backward", "optimizer-init", // two micro-batches
		"forward", "backward", "forward", "backward", "optimizer-step",
		"other", "eval", "checkpoint-save", "eval",
		"forward", "backward", // the error that is caught
		"forward", "backward", "optimizer-step",
		"forward", "backward", "optimizer-step", // re-entrant checkpointing is one backward
	}
	if got := stages(events); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("stages\n got %v\nwant %v", got, want)
	}
	const params = 4 * (2*1024*4096 + 4096 + 1024)
	states := ofKind(events, "state")
	if len(states) == 0 || states[0].Params != params || states[0].Grads != params || states[0].Optim != 2*params+4*4 {
		t.Errorf("state %+v, want %d bytes of parameters and gradients, and Adam's two moments and 4 step counters",
			states, params)
	}
	if ooms := ofKind(events, "oom"); len(ooms) != 2 || ooms[0].S != "backward" {
		t.Errorf("out-of-memory errors seen: %+v, want the caught one and the fatal one", ooms)
	}
	exceptions := ofKind(events, "exc")
	if len(exceptions) != 1 {
		t.Fatalf("want one exception, got %+v", exceptions)
	}
	e := exceptions[0]
	if !e.OOM || e.S != "backward" || !strings.HasSuffix(e.Type, "OutOfMemoryError") ||
		e.Msg != "CUDA out of memory. Tried to allocate 2.00 MiB." ||
		!strings.Contains(e.Where, "story.py:") || !strings.HasPrefix(e.TB, "Traceback (most recent call last):\n") ||
		strings.Contains(e.TB, "_oomguard") {
		t.Errorf("exception %+v", e)
	}
	if last := events[len(events)-1]; last.E != "bye" || last.CostNS <= 0 {
		t.Errorf("last event %+v", last)
	}
	if notes := ofKind(events, "note"); len(notes) != 0 {
		t.Errorf("the probe complains: %+v", notes)
	}
}

func TestCrash(t *testing.T) {
	t.Parallel()
	table := []struct{ where, stage, message, place string }{
		{"forward", "forward", "mat1 and mat2 shapes", "linear.py:"},
		{"clip", "optimizer-step", "", "clip_grad.py:"},
		{"step", "optimizer-step", "", "optim"},
		{"hook", "forward", "after backward", "crash.py:"}, // somebody replaces sys.excepthook
		{"kill", "", "", ""},
	}
	for _, row := range table {
		t.Run(row.where, func(t *testing.T) {
			t.Parallel()
			dir := newRun(t)
			got := python(t, Env(rankEnv(), dir), testPython(t), filepath.Join("testdata", "crash.py"), row.where)
			events := onlyFile(t, dir)
			if row.stage == "" {
				if windows := ofKind(events, "w"); got.code != -1 || windows[len(windows)-1].S != "optimizer-step" {
					t.Errorf("killed after the second step: code %d, events %+v", got.code, events)
				}
				return
			}
			exceptions := ofKind(events, "exc")
			if got.code != 1 || len(exceptions) != 1 {
				t.Fatalf("code %d, exceptions %+v, stderr %s", got.code, exceptions, got.stderr)
			}
			if e := exceptions[0]; e.S != row.stage || e.Step != 1 || e.OOM || !strings.Contains(e.Msg, row.message) ||
				!strings.Contains(e.Where, row.place) {
				t.Errorf("exception %+v", e)
			}
		})
	}
}

// TestUnwritable: with a folder that does not exist the training runs as if there were no probe.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	dir := newRun(t)
	env := append(Env(rankEnv(), dir), "OOMGUARD_PROBE_DIR="+filepath.Join(dir, "missing"))
	script := "import os, sys, torch; print(any('_oomguard' in repr(value) for value in " +
		"torch.save.__code__.co_consts), any(hasattr(f, 'oomguard') for f in sys.meta_path))"
	got := python(t, env, testPython(t), "-c", script)
	if got != (result{stdout: "False False\n"}) {
		t.Errorf("got %+v", got)
	}
}
