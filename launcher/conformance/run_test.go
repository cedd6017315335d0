//go:build linux

package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"oomguard/launcher"
	"oomguard/launcher/patience"
)

// run is one execution of a scenario.
type run struct {
	*testing.T
	scenario
	wrapped bool
	folder  string // its working directory, where its ranks log
	runs    string // oomguard's
	port    string
	bin     string // of the Python with torch
	env     []string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended
	stdout  sink
	stderr  sink
	*screen // nil: no terminal
}

// sink collects what comes out of a pipe, until its last writer has closed it.
type sink struct {
	mu     sync.Mutex
	text   []byte
	writer *os.File
	done   chan struct{}
}

func (s *sink) open(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.writer, s.done = writer, make(chan struct{})
	go func() {
		defer close(s.done)
		defer reader.Close()
		_, _ = io.Copy(s, reader)
	}()
	return writer
}

func (s *sink) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, text...)
	return len(text), nil
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// execute runs a scenario and returns what was observed.
func execute(t *testing.T, s scenario, with torch, wrapped bool) outcome {
	t.Helper()
	r := &run{T: t, scenario: s, wrapped: wrapped, folder: t.TempDir(), runs: t.TempDir(), ended: make(chan struct{})}
	if slices.Contains(s.argv, "PORT") || strings.Contains(strings.Join(s.argv, " "), "PORT") {
		r.port = strconv.Itoa(freePort(t))
	}
	r.prepare(with)
	r.start()
	for _, step := range s.steps {
		step(r)
	}
	select {
	case <-r.ended:
	case <-patience.Over(t):
		r.giveUp("the command did not end")
	}
	left := r.checkLeft()
	out := outcome{"status": fmt.Sprint(shellStatus(r.cmd)), "left": left}
	r.collect(out)
	if wrapped && !s.ownWords {
		r.checkRecorded()
	}
	return out
}

// prepare makes the command, with an environment that is the same whoever runs the tests.
func (r *run) prepare(with torch) {
	r.Helper()
	r.bin = with.bin
	words := r.words()
	r.env = []string{
		"PATH=" + with.bin + ":" + os.Getenv("PATH"), "HOME=" + r.folder, "TMPDIR=" + r.folder, "LC_ALL=C.UTF-8",
		"TERM=xterm", "NO_COLOR=1",
		"OMP_NUM_THREADS=1", "PET_MONITOR_INTERVAL=0.1", // 5 s in old versions
		"CONFORMANCE=" + r.folder, "OOMGUARD_DIR=" + r.runs,
	}
	r.env = slices.Concat(r.env, patience.Mark(), r.environ)
	if r.typed {
		r.write("job", "#!/bin/bash\nexec "+quote(words)+"\n")
		if err := os.Chmod(filepath.Join(r.folder, "job"), 0o700); err != nil {
			r.Fatal(err)
		}
		r.cmd = exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
		r.env = append(r.env, "PS1=> ", "HISTFILE=")
	} else {
		shell := r.shell
		if shell == "" {
			shell = `exec "$@"`
		}
		r.cmd = exec.Command("bash", append([]string{"--norc", "-c", r.fill(shell), "bash"}, words...)...)
	}
	r.cmd.Dir, r.cmd.Env = r.folder, r.env
}

// words is the command, or oomguard with the command.
func (r *run) words() []string {
	r.Helper()
	var words []string
	for _, word := range r.argv {
		if behaviour, isRank := strings.CutPrefix(word, "rank:"); isRank {
			words = append(words, append([]string{r.data("rank.py")}, strings.Fields(behaviour)...)...)
		} else {
			words = append(words, r.fill(word))
		}
	}
	if r.wrapped {
		words = slices.Concat([]string{program(r), "run"}, r.flags, []string{"--"}, words)
	}
	return words
}

func (r *run) fill(text string) string {
	return strings.NewReplacer("PORT", r.port, "DATA", filepath.Dir(r.data("rank.py"))).Replace(text)
}

func (r *run) data(name string) string {
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		r.Fatal(err)
	}
	return path
}

func (r *run) write(name, text string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// quote writes words for a shell.
func quote(words []string) string {
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(quoted, " ")
}

func (r *run) start() {
	r.Helper()
	if r.typed {
		r.screen = openScreen(r.T, r.cmd)
	} else {
		r.cmd.Stdout, r.cmd.Stderr = r.stdout.open(r.T), r.stderr.open(r.T)
		r.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // no terminal, also where whoever runs the tests has one
		if r.stdin != "" {
			r.cmd.Stdin = bytes.NewReader([]byte(r.stdin))
		}
	}
	if err := r.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	patience.EndAll(r, "CONFORMANCE="+r.folder)
	for _, f := range []*os.File{r.stdout.writer, r.stderr.writer} {
		if f != nil {
			f.Close()
		}
	}
	if r.screen != nil {
		r.started()
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // the status is what is compared
	}()
}

// shellStatus is how a shell tells of an end.
func shellStatus(cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

func (r *run) kill(pid int, s unix.Signal) {
	r.Helper()
	if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
		r.giveUp(fmt.Sprintf("signal %v to %d: %v", s, pid, err))
	}
}

// until waits for what nobody announces.
func (r *run) until(what string, holds func() bool) {
	r.Helper()
	if !patience.Comes(r, holds) {
		r.giveUp("never: " + what)
	}
}

func (r *run) giveUp(why string) {
	r.Helper()
	if r.screen != nil {
		r.Logf("screen:\n%s", r.String())
	}
	logs, _ := filepath.Glob(filepath.Join(r.folder, "log.*"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		r.Logf("%s:\n%s", filepath.Base(path), text)
	}
	r.Fatalf("%s\nprocesses: %v\nstdout:\n%s\nstderr:\n%s", why, r.living(), r.stdout.String(), r.stderr.String())
}

// rankPID is the process that said it was a rank, in the first attempt; 0 before it did.
func (r *run) rankPID(rank int) int { pid, _ := r.said(rank); return pid }

// launcherPID is the parent of the ranks: torchrun.
func (r *run) launcherPID() int {
	if pid, parent := r.said(0); pid > 0 {
		return parent
	}
	return r.cmd.Process.Pid
}

func (r *run) said(rank int) (pid, parent int) {
	text, err := os.ReadFile(filepath.Join(r.folder, fmt.Sprintf("ready.0.%d", rank)))
	if err != nil {
		return 0, 0
	}
	_, _ = fmt.Sscan(string(text), &pid, &parent)
	return pid, parent
}

func (r *run) hasLogged(rank int, line string) bool { return r.timesLogged(rank, line) > 0 }

func (r *run) timesLogged(rank int, line string) int {
	text, _ := os.ReadFile(filepath.Join(r.folder, fmt.Sprintf("log.%d", rank)))
	times := 0
	for logged := range strings.Lines(string(text)) {
		if logged == line+"\n" {
			times++
		}
	}
	return times
}

// checkLeft waits until as many processes are left as should be, and ends them.
func (r *run) checkLeft() string {
	r.Helper()
	want := r.stays
	if !r.wrapped {
		want += r.orphans
	}
	var left []process
	// nobody tells of the end of processes that are not ours
	if !patience.Comes(r, func() bool { left = r.living(); return len(left) == want }) {
		r.Errorf("left are %v, want %d", left, want)
	}
	var meant []string // what outlives the command on purpose must be adopted by init, as it would be
	if r.stays > 0 {
		for _, p := range left {
			meant = append(meant, fmt.Sprintf("parent %d", p.parent))
		}
	}
	killAll(left)
	return strings.Join(meant, "\n")
}

// collect adds streams, screen and the ranks' logs.
func (r *run) collect(out outcome) {
	r.Helper()
	streams := map[string]string{}
	if r.screen != nil {
		streams["screen"] = r.close()
	} else {
		for name, s := range map[string]*sink{"stdout": &r.stdout, "stderr": &r.stderr} {
			select {
			case <-s.done:
			case <-patience.Over(r):
				r.giveUp(name + " is still open")
			}
			streams[name] = s.String()
		}
	}
	if r.wrapped {
		streams = r.withoutOwnWords(streams)
	}
	for name, text := range streams {
		out[name] = r.masked(text)
	}
	if r.ownWords {
		delete(out, "stdout")
		delete(out, "stderr")
	}
	logs, err := filepath.Glob(filepath.Join(r.folder, "log.*"))
	if err != nil {
		r.Fatal(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			r.Fatal(err)
		}
		out["rank "+strings.TrimPrefix(filepath.Ext(path), ".")] = r.masked(string(text))
	}
}

// checkRecorded: each run that oomguard saw to its end has a report that can be read and tells the status.
func (r *run) checkRecorded() {
	r.Helper()
	paths, err := filepath.Glob(filepath.Join(r.runs, "*", "report.json"))
	if err != nil || len(paths) != 1 {
		r.Errorf("want one report, found %v (%v)", paths, err)
		return
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		r.Fatal(err)
	}
	var report struct{ Exit *launcher.Exit }
	if err := json.Unmarshal(text, &report); err != nil || report.Exit == nil {
		r.Errorf("%s: %v, exit %v", paths[0], err, report.Exit)
		return
	}
	for rank, code := range r.ends {
		if !slices.ContainsFunc(report.Exit.Ranks,
			func(e launcher.RankExit) bool { return e.Rank == rank && e.Known && e.Code == code }) {
			r.Errorf("the report does not say that rank %d ended with %d: %+v", rank, code, report.Exit.Ranks)
		}
	}
}
