package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a command that was started, with everything below it.
type Process struct {
	pid     int
	start   uint64 // see process.start
	options Options
	tree    tree
	ranks   *rankWatch
	term    *terminal // nil: we have no controlling terminal

	signals <-chan os.Signal // to hand on
	changed chan os.Signal   // SIGCHLD: a child has ended or stopped
	adopted map[int]bool     // orphans that came to us while the command ran
	canary  *canary          // nil: everything is handed on
	guard   *guard           // nil: nobody ends the command when we are killed
	termed  time.Time        // when the last SIGTERM was, where Options.WholeJob is set
	overdue <-chan time.Time // when Options.KillAfter is over; nil until somebody wants the command to end

	done chan struct{} // closed when all is over; exit and err are written before, by supervise only
	exit Exit
	err  error
}

// Start starts a command and looks after it until Wait returns. The error is ErrNotFound, ErrNotExecutable, or what
// kept the system from starting it; then nothing runs and the terminal is as before.
func Start(c Command, o Options) (*Process, error) {
	file, err := find(c)
	if err != nil {
		return nil, err
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.becoming == 0 {
		o.becoming = becoming
	}
	p := &Process{
		options: o,
		tree:    newTree(),
		term:    openTerminal(),
		signals: o.Signals,
		changed: make(chan os.Signal, 1),
		adopted: map[int]bool{},
		done:    make(chan struct{}),
	}
	// All is in place before the child exists, so that nothing it does and no signal meanwhile is missed.
	stop := p.catch()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		p.err = fmt.Errorf("become the child subreaper, to find ranks that outlive the command: %w", err)
	}
	if o.WholeJob {
		p.canary = startCanary()
	}
	if o.DieWithUs && o.Guard != nil {
		if p.guard, err = startGuard(o.Guard, cmp.Or(o.KillAfter, o.Grace)); err != nil {
			p.err = errors.Join(p.err, fmt.Errorf("start the guard, which ends the command when oomguard is killed; "+
				"it gets SIGTERM then: %w", err))
		}
	}
	p.exit.Started = time.Now()
	p.pid, err = p.execute(c, file)
	if p.term != nil {
		p.term.attach(p.pid)
	}
	if err != nil {
		p.canary.end()
		p.guard.dismiss()
		stop()
		return nil, err
	}
	child, ok := readProcess(p.pid)
	if !ok { // it cannot be gone: nobody but us reaps it
		p.err = errors.Join(p.err, errors.New("read /proc: it is not mounted or hidden; ranks and orphans of the "+
			"command cannot be found"))
	}
	p.start = child.start
	p.guard.watch(child)
	p.ranks = newRankWatch(p.tree, p.pid)
	p.ranks.single = o.SingleRank
	go func() {
		defer close(p.done)
		defer stop()
		p.supervise()
	}()
	return p, nil
}

// catch begins to receive signals, and returns how to end that and give the terminal back.
func (p *Process) catch() (stop func()) {
	signal.Notify(p.changed, unix.SIGCHLD)
	release := func() {}
	if p.signals == nil {
		p.signals, release = catch()
	}
	return func() {
		signal.Stop(p.changed)
		release()
		if p.term != nil {
			p.term.close()
		}
	}
}

// Ranks returns the training processes seen so far, by attempt and rank. EndedAt is zero for those that run.
func (p *Process) Ranks() []RankExit { return p.ranks.exits() }

// Wait waits until the command and the ranks it may have left behind have ended. An error says that part of our own
// accounting failed, for instance that orphans could not be found; Exit holds what is known in any case.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// supervise is the only place that waits for children and sends them signals, so that a pid cannot be reaped, and be
// used again by somebody else, just before a signal is sent to it.
func (p *Process) supervise() {
	look := time.NewTimer(0)
	defer look.Stop()
	for !p.news() {
		select {
		case s, open := <-p.signals:
			if !open {
				p.signals = nil
			}
			p.handle(s)
		case <-p.changed:
		case <-p.overdue:
			p.killAll()
		case <-p.ranks.ended:
			look.Reset(0)
		case <-look.C:
			look.Reset(p.ranks.look())
		}
	}
	if p.term != nil {
		p.exit.Interrupted = p.exit.Signal == unix.SIGINT && p.term.foreground() == p.pid &&
			!slices.Contains(p.exit.Forwarded, "SIGINT")
		p.term.take() // now, so that Ctrl-C reaches us while we end what is left
	}
	p.exit.Survivors = p.sweep()
	p.canary.end()
	p.guard.dismiss()
	p.ranks.close()
	p.exit.Ranks = withErrors(p.ranks.exits())
}

// news reaps orphans and tells whether the command has ended. The orphans of its lifetime are noted: such a process has
// gone its own way, or its launcher has died. Those listed before the command is found alive came before its end; one
// that is dying may have left us its children already, though its end cannot be waited for before its last thread has
// gone.
func (p *Process) news() (ended bool) {
	orphans := p.reap()
	if p.collect() {
		return true
	}
	if command, ok := readProcess(p.pid); !ok || command.dying() {
		return false
	}
	for _, orphan := range orphans {
		p.adopted[orphan.pid] = true
	}
	return false
}

// collect takes the command's changes of state and tells whether it has ended.
func (p *Process) collect() bool {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(p.pid, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			p.exit.Ended, p.exit.Code = time.Now(), statusUnknown
			p.err = errors.Join(p.err, fmt.Errorf("learn how the command ended: %w; another part of oomguard has "+
				"waited for pid %d", err, p.pid))
			return true
		case pid == 0:
			return false
		case status.Stopped():
			p.stopped(status.StopSignal())
		default:
			p.ended(status)
			return true
		}
	}
}

// statusUnknown is handed on when the command's own status was lost: 125, "the wrapper itself failed" to env(1) and
// timeout(1).
const statusUnknown = 125

func (p *Process) ended(status unix.WaitStatus) {
	p.exit.Ended = time.Now()
	p.exit.Code = status.ExitStatus()
	if status.Signaled() {
		p.exit.Signal = status.Signal()
		p.exit.Code = 128 + int(p.exit.Signal) // as shells do
	}
	// without a launcher between, the command is a rank itself
	p.ranks.reaped(process{pid: p.pid, start: p.start}, status)
}

// handle does what a signal to us asks for. Stopping and continuing is for the whole group, as the terminal would do
// it; everything else is for the command's process alone.
func (p *Process) handle(s os.Signal) {
	switch s {
	case unix.SIGCONT: // the shell's fg or bg
		if p.term != nil {
			p.term.give()
		}
		p.send(-p.pid, unix.SIGCONT)
	case unix.SIGTTIN: // another member of our pipeline wants the keyboard
		if p.term != nil && p.term.share() {
			_ = unix.Kill(0, unix.SIGCONT)
			return
		}
		p.send(-p.pid, unix.SIGTTIN)
	case unix.SIGTSTP:
		p.send(-p.pid, unix.SIGTSTP)
	default:
		if s, ok := s.(unix.Signal); ok && !p.reached(s) && !p.repeated(s) {
			p.send(p.pid, s)
		}
		if isRequestToEnd(s) && p.overdue == nil && p.options.KillAfter > 0 {
			p.overdue = time.After(p.options.KillAfter)
		}
	}
}

// send hands a signal on and notes it. Changes of the window's size are too many and explain nothing.
func (p *Process) send(to int, s unix.Signal) {
	if err := unix.Kill(to, s); err == nil && s != unix.SIGWINCH {
		p.exit.Forwarded = append(p.exit.Forwarded, signalName(s))
	}
}

// stopped reacts to the command having been stopped: we stop too, so that the shell whose job we are notices. It will
// continue us, and then handle continues the command.
func (p *Process) stopped(by unix.Signal) {
	if p.term == nil {
		return // nobody's job: whoever stopped the command will continue it
	}
	foreground := p.term.foreground()
	wantsTerminal := by == unix.SIGTTIN || by == unix.SIGTTOU
	switch {
	case wantsTerminal && p.term.give(): // we came to the foreground since it was started
		_ = unix.Kill(-p.pid, unix.SIGCONT)
	case by == unix.SIGSTOP && foreground != p.term.command:
		// Somebody has stopped the command alone, with kill.
	case stoppable():
		p.term.take()
		_ = unix.Kill(0, unix.SIGSTOP)
	case by == unix.SIGTSTP: // Ctrl-Z with no shell to continue us has no effect
		_ = unix.Kill(-p.pid, unix.SIGCONT)
	}
}
