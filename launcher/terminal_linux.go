package launcher

import (
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is our controlling terminal, and who is in its foreground: our process group (us and the rest of our
// pipeline), the command's, or somebody else's, normally the shell's.
type terminal struct {
	fd      int
	ours    int
	command int
	// shared: another member of our pipeline reads the keyboard (torchrun | less), so it stays with our group.
	shared bool
}

// openTerminal returns nil when we have no controlling terminal.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, ours: unix.Getpgrp()}
}

// attributes says how to start a child: in a group of its own, in the foreground if we are. The child itself does the
// change, before it becomes the command, so that no key is lost in between.
func (t *terminal) attributes() *unix.SysProcAttr {
	attr := &unix.SysProcAttr{Setpgid: true}
	if t != nil && t.foreground() == t.ours {
		attr.Foreground, attr.Ctty = true, t.fd
	}
	return attr
}

// attach is called when the command has been started. A process that changes the foreground from the background, or
// writes to a terminal with "stty tostop", is sent SIGTTOU, which by default stops it and all its group: not us.
func (t *terminal) attach(command int) {
	t.command = command
	if !ignored(unix.SIGTTOU) {
		signal.Ignore(unix.SIGTTOU)
	}
}

// foreground returns the terminal's foreground process group, 0 when the terminal has gone.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give moves the command to the foreground if we are there, and tells whether it did.
func (t *terminal) give() bool {
	return !t.shared && t.foreground() == t.ours && unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.command) == nil
}

// take moves us to the foreground if the command, or nobody that is alive, is there. Somebody else, who has put us into
// the background, is not disturbed.
func (t *terminal) take() {
	group := t.foreground()
	nobody := group > 0 && errors.Is(unix.Kill(-group, 0), unix.ESRCH)
	if group == t.command || nobody {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.ours) // it fails only if the terminal has gone
	}
}

// share leaves the terminal with our group from now on, if the command has it, and tells whether it had.
func (t *terminal) share() bool {
	if t.foreground() != t.command {
		return false
	}
	t.shared = true
	t.take()
	return true
}

// close takes the terminal back and returns SIGTTOU to what the next command should get: what is caught here is default
// there.
func (t *terminal) close() {
	t.take()
	_ = unix.Close(t.fd) // nothing was written to it
	if signal.Ignored(unix.SIGTTOU) {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, unix.SIGTTOU)
		signal.Stop(caught)
	}
}

// stoppable tells whether somebody would continue us if we stopped: a shell, that is a parent of our process group
// outside it and in the same session. In an orphaned process group the terminal's stop signals have no effect (POSIX,
// General Terminal Interface; setpgid(2)).
func stoppable() bool {
	self, ok := readProcess(os.Getpid())
	for p := self; ok; {
		if p, ok = readProcess(p.parent); ok && p.group != self.group {
			return p.session == self.session
		}
	}
	return false
}

// jobControl are the signals by which terminal and shell stop and continue a job.
func jobControl() []unix.Signal { return []unix.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGCONT} }
