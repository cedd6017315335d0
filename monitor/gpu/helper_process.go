package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a helper has to end by itself, which takes it a few milliseconds.
	stopGrace = time.Second
	// killGrace is how long it has to be gone after it was killed. A process that waits inside the driver (state D)
	// does not die before the driver lets it.
	killGrace = 2 * time.Second
)

// child is one running helper process.
type child struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	replies  chan reply    // closed when the helper's output has ended
	dropped  chan struct{} // closed when nobody takes replies any more
	gone     chan struct{} // closed when the process has been waited for; waitErr and garbled are then set
	waitErr  error
	garbled  error // why its output could not be read, if it was not its end
	stderr   *tail
	started  time.Time
	answered bool
	listed   bool // it has listed processes
}

func startChild(argv, env []string, now time.Time) (*child, error) {
	c := &child{
		cmd: exec.Command(argv[0], argv[1:]...), stderr: &tail{}, started: now,
		replies: make(chan reply), dropped: make(chan struct{}), gone: make(chan struct{}),
	}
	c.cmd.Env = env
	c.cmd.Env = lazyBinding(c.cmd.Environ()) // a copy, and this process's environment when env is nil
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = stopGrace
	// In a session of its own it gets no Ctrl-C from the terminal: it must be there for the last sample. It ends when
	// its input does.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.in = in
	go c.read(out)
	return c, nil
}

// lazyBinding takes out LD_BIND_NOW, with which the loader would look for every NVML function before main and give up.
func lazyBinding(env []string) []string {
	return slices.DeleteFunc(env, func(variable string) bool { return strings.HasPrefix(variable, "LD_BIND_NOW=") })
}

// read passes the replies on until the output ends, and then waits for the process. It alone writes waitErr and
// garbled.
func (c *child) read(out io.Reader) {
	decoder := json.NewDecoder(out)
	for {
		var r reply
		if err := decoder.Decode(&r); err != nil {
			// it died between replies, or within one
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				c.garbled = err
				_ = c.cmd.Process.Kill() // it may have ended already; Wait tells
			}
			break
		}
		select {
		case c.replies <- r:
		case <-c.dropped:
		}
	}
	c.waitErr = c.cmd.Wait()
	close(c.gone)
	close(c.replies)
}

// stop ends the process and tells whether it is gone: by closing its input, then by force.
func (c *child) stop() bool {
	close(c.dropped)
	_ = c.in.Close() // fails only when it is closed already
	if c.isGone(stopGrace) {
		return true
	}
	_ = c.cmd.Process.Kill() // it may have ended meanwhile; isGone tells
	return c.isGone(killGrace)
}

// isGone waits so long for the process to end, and tells whether it has.
func (c *child) isGone(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.gone:
		return true
	case <-timer.C:
		return false
	}
}

// obituary says what the helper died of, in its own last words. It is for a helper that was stopped.
func (c *child) obituary() error {
	select {
	case <-c.gone:
	default:
		return errors.New("the NVML helper closed its output but did not end, not even when killed: the driver may " +
			"be hung")
	}
	words := c.stderr.lastWords()
	if c.garbled != nil {
		return fmt.Errorf("the NVML helper sent something else than a reply: %w%s: is it the same version of oomguard?",
			c.garbled, words)
	}
	cause := "it ended"
	if c.waitErr != nil {
		cause = c.waitErr.Error()
	}
	text := fmt.Sprintf("the NVML helper died (%s)%s", cause, words)
	if c.cmd.ProcessState != nil && c.cmd.ProcessState.ExitCode() == exitNoSymbol &&
		strings.Contains(words, "symbol lookup error") {
		text += ": the driver's library does not fit this build of oomguard: update the driver"
	}
	return errors.New(text)
}

// exitNoSymbol is the status with which glibc's loader ends a process that calls a function which is not there.
const exitNoSymbol = 127

const (
	tailBytes = 64 << 10 // kept of the helper's stderr; Go's report of a crash in C has about 10 KiB
	tailLines = 3        // shown of it
	lineBytes = 300      // shown of each line
)

// tail keeps the last of what is written to it, between one and two times tailBytes.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if len(t.last) > 2*tailBytes { // not at every line: a talkative library must not cost time
		t.last = slices.Clone(t.last[len(t.last)-tailBytes:])
	}
	return len(p), nil
}

// goCrash begins Go's report of a crash, whose end is only the registers (runtime/signal_unix.go, runtime/panic.go).
var goCrash = regexp.MustCompile(`^(SIG[A-Z0-9]+|fatal error|panic): `)

// lastWords gives the last lines that are not empty, as ": first; second", or nothing: of a crash those around the
// beginning of Go's report, as the library may have said something before it.
func (t *tail) lastWords() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.last)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line[:min(len(line), lineBytes)])
		}
	}
	if len(lines) == 0 {
		return ""
	}
	first := max(0, len(lines)-tailLines)
	if crash := slices.IndexFunc(lines, goCrash.MatchString); crash >= 0 {
		first = max(0, crash-1)
	}
	lines = lines[first:min(len(lines), first+tailLines)]
	return ": " + strings.ToValidUTF8(strings.Join(lines, "; "), "?")
}
