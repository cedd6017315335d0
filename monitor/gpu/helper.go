package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	defaultTimeout = 5 * time.Second
	// defaultFirstTimeout leaves room for a driver that initialises every GPU because nothing else holds it open: 1 to 10 s
	// and more without persistence mode.
	defaultFirstTimeout = 20 * time.Second
	// maxFailures is how often in a row a helper may hang or die before it is not started any more: the cause is then in the driver.
	maxFailures = 4
	// healthyAfter is how long a helper must have worked for its predecessors' failures to be forgotten.
	healthyAfter = 10 * time.Minute
)

// HelperOptions are the limits of a helper process; the zero value is the usual one.
type HelperOptions struct {
	Timeout      time.Duration // of a Snapshot; 0 is 5 s
	FirstTimeout time.Duration // of the first Snapshot of each helper, while the driver may still initialise; 0 is 20 s
	Env          []string      // of the helper; nil is this process's. LD_BIND_NOW is taken out: it would load all of NVML at once
}

// helper is a Source in a process of its own.
type helper struct {
	argv    []string
	options HelperOptions
	now     func() time.Time

	child    *child // nil while none runs
	id       uint64 // of the last request
	closed   bool
	failures int       // in a row
	failed   error     // the last of them
	retryAt  time.Time // not started again before

	pid atomic.Int64 // of the child that was started last
}

// PID is the helper process that was started last: whoever accounts for our processes must know that it is ours. It may be called
// from any goroutine.
func (h *helper) PID() int { return int(h.pid.Load()) }

// OpenHelper starts argv, a program that runs Serve on its standard input and output, and gives a Source that asks it. Neither a
// crash nor a hanging driver reaches this process: Snapshot then returns an error that says which of the two it was, and a later
// Snapshot starts another helper, after a growing pause and at most a few times. Snapshot waits as long as the options say, or until
// the context's deadline if that comes first; a helper that is late is killed. If the context is cancelled, the helper lives on.
// The Source is for one goroutine.
func OpenHelper(argv []string, options HelperOptions) (Source, error) {
	if len(argv) == 0 {
		return nil, errors.New("start the NVML helper: no program is given")
	}
	if options.Timeout <= 0 {
		options.Timeout = defaultTimeout
	}
	if options.FirstTimeout <= 0 {
		options.FirstTimeout = defaultFirstTimeout
	}
	h := &helper{argv: argv, options: options, now: time.Now}
	if err := h.start(); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *helper) start() error {
	c, err := startChild(h.argv, h.options.Env, h.now())
	if err != nil {
		return fmt.Errorf("start the NVML helper %s: %w", h.argv[0], err)
	}
	h.child = c
	h.pid.Store(int64(c.cmd.Process.Pid))
	return nil
}

// Snapshot asks the helper, and starts one if there is none.
func (h *helper) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, fmt.Errorf("ask NVML: %w", err)
	}
	if err := h.ready(); err != nil {
		return Snapshot{}, err
	}
	limit := h.options.Timeout
	if !h.child.answered {
		limit = h.options.FirstTimeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := h.ask(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return Snapshot{}, fmt.Errorf("wait for NVML: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return Snapshot{}, h.fail(&hungError{limit.Round(time.Millisecond), h.child.stop()})
	case err != nil:
		h.child.stop()
		return Snapshot{}, h.fail(h.child.obituary())
	}
	h.child.answered = true
	if h.now().Sub(h.child.started) >= healthyAfter {
		h.failures = 0
	}
	return r.result()
}

// ready makes sure that a helper runs, or says why none may.
func (h *helper) ready() error {
	switch {
	case h.closed:
		return errors.New("ask NVML: the source is closed")
	case h.child != nil:
		return nil
	case h.failures >= maxFailures:
		return fmt.Errorf("NVML is not asked any more after %d failures, of which the last was: %w", h.failures, h.failed)
	case h.now().Before(h.retryAt):
		return fmt.Errorf("NVML is asked again in %s, because: %w", h.retryAt.Sub(h.now()).Round(time.Second), h.failed)
	}
	return h.start()
}

// errDied means that the helper takes no request or gives no reply any more; its obituary says why.
var errDied = errors.New("the NVML helper died")

// ask sends a request and waits for its reply.
func (h *helper) ask(ctx context.Context) (reply, error) {
	h.id++
	line, err := json.Marshal(request{ID: h.id})
	if err != nil {
		return reply{}, fmt.Errorf("ask the NVML helper: %w", err)
	}
	if _, err := h.child.in.Write(append(line, '\n')); err != nil {
		return reply{}, errDied
	}
	for {
		select {
		case r, open := <-h.child.replies:
			if !open {
				return reply{}, errDied
			}
			if r.ID == h.id {
				return r, nil
			}
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
}

// fail gives the helper up and sets when there may be another: 1, 4, 16 seconds after the first, second, third failure.
func (h *helper) fail(err error) error {
	h.child = nil
	h.failed = err
	h.retryAt = h.now().Add(time.Second << (2 * h.failures))
	h.failures++
	return err
}

func (r reply) result() (Snapshot, error) {
	switch {
	case r.NoDriver:
		return Snapshot{}, &noDriverError{r.Error}
	case r.Error != "":
		return Snapshot{}, errors.New(r.Error)
	case r.Snapshot == nil:
		return Snapshot{}, errors.New("ask NVML: the helper sent neither a snapshot nor an error: is it the same version of oomguard?")
	}
	return *r.Snapshot, nil
}

// Close ends the helper. The error says if it could not be ended.
func (h *helper) Close() error {
	h.closed = true
	if h.child == nil {
		return nil
	}
	gone := h.child.stop()
	pid := h.child.cmd.Process.Pid
	h.child = nil
	if !gone {
		return fmt.Errorf("stop the NVML helper: process %d hangs in the driver and cannot be killed; it ends with the driver's call, or at a reboot", pid)
	}
	return nil
}

// hungError says that NVML did not answer in time.
type hungError struct {
	limit  time.Duration
	killed bool
}

func (e *hungError) Error() string {
	text := fmt.Sprintf("NVML did not answer within %s; the driver may be hung: try nvidia-smi, and look for Xid or NVRM lines in dmesg", e.limit)
	if !e.killed {
		text += "; the helper process hangs in the driver, could not be killed and was left behind"
	}
	return text
}

// Timeout marks the error as one of time, as those of package net are.
func (e *hungError) Timeout() bool { return true }
