package launcher

import (
	"bytes"
	"errors"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A canary tells whether a signal that we got was sent to every process of our job, and so has reached the command
// without us.
//
// Slurm does the one or the other, by its configuration (observed with Slurm 22.05 and read in its source up to 26.05;
// whatever the reason of the signal: scancel, --signal, the time limit, another task's death):
//
//   - proctrack/cgroup, the default, signals only what slurmstepd has started itself, which is us; SIGKILL alone goes
//     to all. proctrack/pgid signals the process group of that, which holds us and our helpers. The command waits for
//     us to hand it on.
//   - proctrack/linuxproc, and proctrack/cgroup with SignalChildrenProcesses=yes (since 23.11; read only), signal every
//     process below slurmstepd in whatever group or session: the command too. Handed on as well, it would be the second
//     one, which to torchrun means to abort the graceful stop; with a repeated scancel the third, which orphans the
//     ranks.
//
// Neither the signal nor its sender tells which; so we look whether a process that stands where the command stands,
// below us and in a session of its own, got it too. It blocks all signals, so that what was sent to it stays pending,
// where /proc shows it.
type canary struct {
	pid int
	// signals that its predecessor was sent and that we have not looked for yet; bit N-1 for signal N
	seen uint64
	stop chan struct{} // closed to end it
	gone chan struct{} // closed when it has been reaped
}

// startCanary returns nil where there is no sleep(1): then every signal is handed on.
func startCanary() *canary {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return nil
	}
	null, err := openNull()
	if err != nil {
		return nil
	}
	defer null.Close()
	fds, err := numbers(null, null, null)
	if err != nil {
		return nil
	}
	c := &canary{stop: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(c.gone)
		// The child inherits the mask of the thread that starts it, and is killed when that thread ends: when we do, at
		// the latest.
		runtime.LockOSThread()
		all := unix.Sigset_t{}
		for i := range all.Val {
			all.Val[i] = ^all.Val[i]
		}
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
			started <- err
			return
		}
		c.pid, err = syscall.ForkExec(sleep, []string{"sleep", "infinity"}, &syscall.ProcAttr{
			Dir: "/", Files: fds, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
		})
		started <- err
		if err == nil {
			<-c.stop
			_ = unix.Kill(c.pid, unix.SIGKILL)
			for err = unix.EINTR; errors.Is(err, unix.EINTR); {
				_, err = unix.Wait4(c.pid, nil, 0, nil)
			}
		} // the goroutine ends locked, and its thread, which blocks all signals, with it
	}()
	if <-started != nil {
		return nil
	}
	return c
}

func (c *canary) end() {
	if c != nil {
		close(c.stop)
		<-c.gone
	}
}

// canaryTime is how long a sender may take from us to the canary. Slurm signals the processes of a step in one loop,
// and torchrun looks at its signals ten times a second (--monitor-interval), so that nobody notices the delay.
const canaryTime = 100 * time.Millisecond

// got tells whether the canary was sent the signal, now or within canaryTime.
func (c *canary) got(s unix.Signal) bool {
	if c == nil {
		return false
	}
	for deadline := time.Now().Add(canaryTime); ; time.Sleep(time.Millisecond) {
		if (c.seen|pending(c.pid))&bit(s) != 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// pending is the set of signals that wait for a process as a whole (ShdPnd of /proc/PID/status: bit N-1 for signal N).
func pending(pid int) uint64 {
	data, err := readProc("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(data, []byte("\nShdPnd:"))
	line, _, _ := strings.Cut(string(rest), "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return 0
	}
	return set
}

func bit(s unix.Signal) uint64 { return 1 << (uint(s) - 1) }

// reached tells whether a signal that we got has reached the command by itself. The canary that has seen it is
// replaced, since a pending signal cannot be taken from it; the new one takes over what else the old one has seen, for
// signals come together.
func (p *Process) reached(s unix.Signal) bool {
	if s == unix.SIGWINCH || !p.canary.got(s) {
		return false
	}
	old := p.canary
	if p.canary = startCanary(); p.canary != nil {
		p.canary.seen = (old.seen | pending(old.pid)) &^ bit(s)
	}
	old.end()
	p.exit.Reached = append(p.exit.Reached, signalName(s))
	return true
}

// oneRequest is the time within which Slurm's SIGTERMs are one: at the time limit it sends two of them, 12 ms apart
// (observed with Slurm 22.05), for the step and for the job.
const oneRequest = time.Second

// repeated tells whether a SIGTERM is the second one of the same request to end.
func (p *Process) repeated(s unix.Signal) bool {
	if !p.options.WholeJob || s != unix.SIGTERM {
		return false
	}
	last := p.termed
	p.termed = time.Now()
	return p.termed.Sub(last) < oneRequest
}
