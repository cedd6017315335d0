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
	// defaultFirstTimeout leaves room for a driver that initialises every GPU because nothing else holds it open: 1 to
	// 10 s and more without persistence mode.
	defaultFirstTimeout = 20 * time.Second
	// maxFailures is how often in a row a helper may hang or die before it is not started any more: the cause is then
	// in the driver.
	maxFailures = 4
	// healthyAfter is how long a helper must have worked for its predecessors' failures to be forgotten.
	healthyAfter = 10 * time.Minute
)

// HelperOptions are the limits of a helper process; the zero value is the usual one.
type HelperOptions struct {
	Timeout      time.Duration // of a Snapshot; 0 is 5 s
	FirstTimeout time.Duration // of the first Snapshot of each helper, while the driver may still initialise; 0 is 20 s
	// of the helper; nil is this process's. LD_BIND_NOW is taken out: it would load all of NVML at once
	Env []string
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

	// listFailures is how often listing processes hung or killed a helper, listsFailed the last of them; they are not
	// listed again before listAt.
	listFailures int
	listsFailed  error
	listAt       time.Time

	pid atomic.Int64 // of the child that was started last
}

// PID is the helper process that was started last: whoever accounts for our processes must know that it is ours. It may
// be called from any goroutine.
func (h *helper) PID() int { return int(h.pid.Load()) }

// OpenHelper starts argv, a program that runs Serve on its standard input and output, and gives a Source that asks it.
// Neither a crash nor a hanging driver reaches this process: Snapshot then returns an error that says which of the two
// it was, and a later Snapshot starts another helper, after a growing pause and at most a few times. Snapshot waits as
// long as the options say, or until the context's deadline if that comes first; a helper that is late is killed. If the
// context is cancelled, the helper lives on. The Source is for one goroutine.
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

// Snapshot asks the helper, and starts one if there is none. A helper is first asked without the lists of processes: if
// those hang or crash it, memory is known all the same, and what could not be had is unknown with its reason.
func (h *helper) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, fmt.Errorf("ask NVML: %w", err)
	}
	if err := h.ready(); err != nil {
		return Snapshot{}, err
	}
	if h.child.listed {
		return h.whole(ctx)
	}
	limit := h.options.Timeout
	if !h.child.answered {
		limit = h.options.FirstTimeout
	}
	r, err := h.within(ctx, limit, request{NoProcesses: true})
	if err != nil {
		return Snapshot{}, h.fail(err)
	}
	memory, err := r.result()
	if err != nil || len(memory.Devices) == 0 {
		return memory, err
	}
	return h.listed(ctx, memory), nil
}

// whole asks a helper that has listed processes before.
func (h *helper) whole(ctx context.Context) (Snapshot, error) {
	r, err := h.within(ctx, h.options.Timeout, request{})
	if err != nil {
		return Snapshot{}, h.fail(err)
	}
	return r.result()
}

// listed adds to a snapshot of the memory who holds it, or why that is not known.
func (h *helper) listed(ctx context.Context, memory Snapshot) Snapshot {
	if h.listsFailed != nil && (h.listFailures >= maxFailures || h.now().Before(h.listAt)) {
		return memory.withoutProcesses(h.listsFailed)
	}
	r, err := h.within(ctx, h.options.Timeout, request{})
	if err == nil {
		h.child.listed = true
		if whole, err := r.result(); err == nil {
			return whole
		}
		return memory
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) { // nobody waits for it any more
		return memory
	}
	h.child = nil
	h.listsFailed = fmt.Errorf("list its processes: %w", err)
	h.listAt = h.now().Add(time.Minute << (2 * h.listFailures))
	h.listFailures++
	return memory.withoutProcesses(h.listsFailed)
}

func (s Snapshot) withoutProcesses(reason error) Snapshot {
	for i, d := range s.Devices {
		if d.MemoryKnown {
			s.Devices[i] = d.withoutProcesses(reason.Error())
		}
	}
	return s
}

// within asks and waits so long for the reply. After an error that is not a cancellation the helper has been stopped.
func (h *helper) within(ctx context.Context, limit time.Duration, q request) (reply, error) {
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := h.ask(ctx, q)
	switch {
	case errors.Is(err, context.Canceled):
		return reply{}, fmt.Errorf("wait for NVML: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return reply{}, &hungError{limit.Round(time.Millisecond), h.child.stop()}
	case err != nil:
		h.child.stop()
		return reply{}, h.child.obituary()
	}
	h.child.answered = true
	if h.now().Sub(h.child.started) >= healthyAfter {
		h.failures = 0
	}
	return r, nil
}

// ready makes sure that a helper runs, or says why none may.
func (h *helper) ready() error {
	switch {
	case h.closed:
		return errors.New("ask NVML: the source is closed")
	case h.child != nil:
		return nil
	case h.failures >= maxFailures:
		return fmt.Errorf("NVML is not asked any more after %d failures, of which the last was: %w", h.failures,
			h.failed)
	case h.now().Before(h.retryAt):
		return fmt.Errorf("NVML is asked again in %s, because: %w", h.retryAt.Sub(h.now()).Round(time.Second), h.failed)
	}
	return h.start()
}

// errDied means that the helper takes no request or gives no reply any more; its obituary says why.
var errDied = errors.New("the NVML helper died")

// ask sends a request and waits for its reply.
func (h *helper) ask(ctx context.Context, q request) (reply, error) {
	h.id++
	q.ID = h.id
	line, err := json.Marshal(q)
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
// A cancelled question is no failure.
func (h *helper) fail(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
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
		return Snapshot{}, errors.New("ask NVML: the helper sent neither a snapshot nor an error: is it the same " +
			"version of oomguard?")
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
		return fmt.Errorf("stop the NVML helper: process %d hangs in the driver and cannot be killed; it ends with "+
			"the driver's call, or at a reboot", pid)
	}
	return nil
}

// hungError says that NVML did not answer in time.
type hungError struct {
	limit  time.Duration
	killed bool
}

func (e *hungError) Error() string {
	text := fmt.Sprintf("NVML did not answer within %s; the driver may be hung: try nvidia-smi, and look for Xid or "+
		"NVRM lines in dmesg", e.limit)
	if !e.killed {
		text += "; the helper process hangs in the driver, could not be killed and was left behind"
	}
	return text
}

// Timeout marks the error as one of time, as those of package net are.
func (e *hungError) Timeout() bool { return true }
