package fence

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process does a part of the work in a process of our own: also what no recover catches (a stack or memory without
// end, a crash in C) then ends it and not us. Requests and answers are lines of JSON on its standard input and output;
// it ends when its input does. It is for one goroutine.
type Process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *words
	reap   sync.Once
	ended  chan struct{} // closed when it has been waited for
}

// maxAnswer bounds what a process may answer, all answers together.
const maxAnswer = 64 << 20

// Start starts argv in a session of its own, so that no Ctrl-C of the terminal reaches it.
func Start(argv, env []string) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), stderr: &words{}, ended: make(chan struct{})}
	// bound at start, the functions of NVML that are not there would end it
	p.cmd.Env = slices.DeleteFunc(slices.Clone(env),
		func(v string) bool { return strings.HasPrefix(v, "LD_BIND_NOW=") })
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(io.LimitReader(out, maxAnswer))
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return p, nil
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ask sends a request and waits so long for the answer. A process that does not give one is ended, and the Fault has
// its last words.
func (p *Process) Ask(part string, limit time.Duration, request, answer any) *Fault {
	type reply struct {
		line json.RawMessage
		err  error
	}
	limit = Limit(limit)
	replied := make(chan reply, 1)
	go func() {
		var r reply
		if r.err = json.NewEncoder(p.in).Encode(request); r.err == nil {
			r.err = p.out.Decode(&r.line)
		}
		replied <- r
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-replied:
		if r.err == nil {
			r.err = json.Unmarshal(r.line, answer)
		}
		if r.err == nil {
			return nil
		}
		p.Kill()
		return &Fault{Part: part, What: p.obituary(r.err), Stack: p.stderr.String()}
	case <-timer.C:
		p.Kill()
		return late(part, limit)
	}
}

// obituary says how the process ended, in its own first words if it has any.
func (p *Process) obituary(err error) string {
	how := "its process cannot be ended"
	select {
	case <-p.ended:
		how = fmt.Sprintf("its process ended (%s)", p.cmd.ProcessState)
	default:
	}
	for line := range strings.Lines(p.stderr.String()) {
		if line = strings.TrimSpace(line); line != "" {
			return how + ": " + line
		}
	}
	return fmt.Sprintf("%s: %v", how, err)
}

// grace is how long a process has to be gone after it was asked to end or killed. One that waits inside the kernel
// (state D, on a file system that does not answer) is gone only when the kernel lets it.
const grace = time.Second

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	p.wait()
}

// Close lets the process end, which it does when its input ends, and ends it if it does not.
func (p *Process) Close() {
	_ = p.in.Close()
	if !p.wait() {
		p.Kill()
	}
}

// wait tells whether the process has ended within the grace.
func (p *Process) wait() bool {
	p.reap.Do(func() {
		go func() {
			_ = p.cmd.Wait() // how it ended stands in ProcessState
			close(p.ended)
		}()
	})
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// maxWords bounds what is kept of a process's stderr: the beginning, where Go says what it died of and where.
const maxWords = 32 << 10

// words keeps the beginning of what is written to it.
type words struct {
	mu   sync.Mutex
	text []byte
}

func (t *words) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[:min(len(p), maxWords-len(t.text))]...)
	return len(p), nil
}

func (t *words) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.text), "?")
}
