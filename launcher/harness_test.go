//go:build linux

package launcher

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"oomguard/launcher/patience"
)

// supervised is a command under a supervisor in a process of its own.
type supervised struct {
	testing.TB
	cmd     *exec.Cmd
	events  *bufio.Reader
	fifo    *os.File
	heard   []string
	result  string
	command int // pid of the command
}

// supervise starts a supervisor with the command below it.
func supervise(t *testing.T, argv []string, setup ...func(*exec.Cmd)) *supervised {
	t.Helper()
	s := prepare(t, program("supervisor", argv...), setup...)
	s.start()
	s.listen()
	return s
}

// prepare makes any command that talks to the test through the fifo.
func prepare(t *testing.T, argv []string, setup ...func(*exec.Cmd)) *supervised {
	t.Helper()
	folder := t.TempDir()
	s := &supervised{TB: t, result: filepath.Join(folder, "result.json"), cmd: exec.Command(argv[0], argv[1:]...)}
	path := filepath.Join(folder, "events")
	s.must(unix.Mkfifo(path, 0o600))
	fifo, err := os.OpenFile(path, os.O_RDWR, 0) // for writing too, so that there is no end of file while nobody writes
	s.must(err)
	t.Cleanup(func() { fifo.Close() })
	s.fifo, s.events = fifo, bufio.NewReader(fifo)
	s.cmd.Env = append(os.Environ(), "EVENTS="+path, "RESULT="+s.result, "GRACE=20s")
	s.cmd.Stderr = os.Stderr
	for _, change := range setup {
		change(s.cmd)
	}
	return s
}

// start starts it, and ends it and whatever it started should the test fail half-way.
func (s *supervised) start() {
	s.Helper()
	s.must(s.cmd.Start())
	s.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	patience.EndAll(s.TB, "RESULT="+s.result)
}

// listen waits for the supervisor's first words.
func (s *supervised) listen() {
	s.Helper()
	var supervisor int
	_, err := fmt.Sscanf(s.hear("supervisor "), "supervisor %d command %d", &supervisor, &s.command)
	s.must(err)
}

func (s *supervised) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// hear waits for a line that begins like this, whatever else is said before, and returns it. Lines are heard once.
func (s *supervised) hear(prefix string) string {
	s.Helper()
	for i, line := range s.heard {
		if strings.HasPrefix(line, prefix) {
			s.heard = slices.Delete(s.heard, i, i+1)
			return line
		}
	}
	for {
		line := s.next()
		if strings.HasPrefix(line, prefix) {
			return line
		}
		s.heard = append(s.heard, line)
	}
}

// next waits for one line.
func (s *supervised) next() string {
	s.Helper()
	s.must(s.fifo.SetReadDeadline(time.Now().Add(patience.Limit(s.TB))))
	line, err := s.events.ReadString('\n')
	if err != nil {
		s.Fatalf("nothing more was said: %v; heard so far: %q", err, s.heard)
	}
	return strings.TrimSuffix(line, "\n")
}

// heardOnly fails unless exactly these lines were said and not heard yet. How many ranks the supervisor knew of in
// between depends on when it looked.
func (s *supervised) heardOnly(want ...string) {
	s.Helper()
	heard := slices.DeleteFunc(slices.Clone(s.heard),
		func(line string) bool { return strings.HasPrefix(line, "seen ") })
	if !slices.Equal(heard, want) {
		s.Errorf("also said: %q, want %q", s.heard, want)
	}
}

// pid waits for a line with a pid at its end.
func (s *supervised) pid(prefix string) int {
	s.Helper()
	line := s.hear(prefix)
	var pid int
	_, err := fmt.Sscanf(line[strings.LastIndexByte(line, ' '):], "%d", &pid)
	s.must(err)
	return pid
}

// signal signals the supervisor.
func (s *supervised) signal(sig unix.Signal) {
	s.Helper()
	s.must(s.cmd.Process.Signal(sig))
}

// wait waits for the supervisor and returns its status and what the launcher said of the command.
func (s *supervised) wait() (status int, exit Exit) {
	s.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			s.Fatal(err)
		}
	case <-patience.Over(s.TB):
		_ = s.cmd.Process.Signal(unix.SIGQUIT)
		s.Fatalf("the supervisor did not end")
	}
	text, err := os.ReadFile(s.result)
	s.must(err)
	s.must(json.Unmarshal(text, &exit))
	return s.cmd.ProcessState.ExitCode(), exit
}

// eventually waits until a condition holds that nobody announces.
func (s *supervised) eventually(what string, holds func() bool) {
	s.Helper()
	patience.Until(s.TB, what, holds)
}

// gone fails if a process is still there, dead or alive.
func (s *supervised) gone(pids ...int) {
	s.Helper()
	for _, pid := range pids {
		if p, ok := readProcess(pid); ok {
			s.Errorf("process %d (%s) is still there, state %c, parent %d", pid, p.name, p.state, p.parent)
		}
	}
}

// fifo makes a fifo that nobody writes to: reading it waits.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
