//go:build unix && !linux

package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// Process is a command that was started. GPUs that oomguard can watch are found on Linux only; elsewhere the command is
// started, signals are handed on and its status is returned, and its descendants and ranks are not known.
type Process struct {
	cmd     *exec.Cmd
	signals <-chan os.Signal
	started time.Time
	options Options
}

// Start starts a command. The error is ErrNotFound, ErrNotExecutable, or what kept the system from starting it. The
// command stays in our process group, so that the terminal's keys reach it.
func Start(c Command, o Options) (*Process, error) {
	if len(c.Argv) == 0 {
		return nil, ErrNotFound
	}
	file, err := Lookup(c.Argv[0], variable(c.Env, "PATH"), c.Dir)
	if err != nil {
		return nil, err
	}
	p := &Process{
		cmd:     &exec.Cmd{Path: file, Args: c.Argv, Env: c.Env, Dir: c.Dir},
		signals: o.Signals,
		started: time.Now(),
		options: o,
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stream(c.Stdin), stream(c.Stdout), stream(c.Stderr)
	if o.DieWithUs {
		return nil, errors.New("only Linux can end a command together with us")
	}
	if p.signals == nil {
		p.signals, _ = catch()
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", file, err)
	}
	return p, nil
}

// stream keeps a nil file from becoming an interface that is not nil.
func stream(f *os.File) io.ReadWriter {
	if f == nil {
		return nil
	}
	return f
}

// Tree returns the command's pid alone.
func (p *Process) Tree() []int { return []int{p.cmd.Process.Pid} }

// Owns tells whether a process is the command.
func (p *Process) Owns(pid int) bool { return pid == p.cmd.Process.Pid }

// Ranks returns nothing: ranks are not known here.
func (p *Process) Ranks() []RankExit { return nil }

// Wait hands signals on until the command has ended.
func (p *Process) Wait() (Exit, error) {
	exit := Exit{Started: p.started}
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	var overdue <-chan time.Time
	for {
		select {
		case <-overdue:
			exit.LastResort = true
			_ = p.cmd.Process.Kill() // it fails only when it has ended
		case s := <-p.signals:
			if isRequestToEnd(s) && overdue == nil && p.options.KillAfter > 0 {
				overdue = time.After(p.options.KillAfter)
			}
			if s, ok := s.(syscall.Signal); ok && !fromTerminal(s) && p.cmd.Process.Signal(s) == nil {
				exit.Forwarded = append(exit.Forwarded, s.String())
			}
		case err := <-ended:
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				err = nil
			}
			exit.Ended = time.Now()
			exit.Code = p.cmd.ProcessState.ExitCode()
			if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				exit.Signal, exit.Code = status.Signal(), 128+int(status.Signal())
			}
			return exit, err
		}
	}
}

// fromTerminal tells whether a signal comes from a key, so that the command got it too, being in our process group.
// That it might have been sent to us alone by kill(1) is not seen here.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT && s != syscall.SIGWINCH {
		return false
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	terminal.Close()
	return true
}

// jobControl returns nothing: the terminal stops and continues the command and us together.
func jobControl() []syscall.Signal { return nil }

// ignored tells whether we ignore a signal.
func ignored(s syscall.Signal) bool { return signal.Ignored(s) }
