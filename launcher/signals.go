package launcher

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// handedOn are the signals that reach the command through us: all that somebody may send, those of faults too, which Go
// tells of only when they were sent. SIGKILL and SIGSTOP cannot be caught; SIGCHLD is about our own children; see
// catchInC for the rest.
func handedOn() []unix.Signal {
	signals := []unix.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
		unix.SIGABRT, unix.SIGALRM, unix.SIGVTALRM, unix.SIGIO, unix.SIGXCPU,
		unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS,
	}
	return append(signals, ofThisSystem()...)
}

// Signals returns the signals that are handed on to a command, without those that we inherited as ignored: catching one
// of these would un-ignore it for the command (nohup would no longer protect it).
func Signals() []os.Signal {
	var signals []os.Signal
	for _, s := range append(handedOn(), jobControl()...) {
		if !ignored(s) {
			signals = append(signals, s)
		}
	}
	return signals
}

// catch has the signals that are handed on sent to a channel, until stop is called.
func catch() (signals <-chan os.Signal, stop func()) {
	caught := make(chan os.Signal, 64) // more than there are kinds of signals, should we be slow to look
	signal.Notify(caught, Signals()...)
	release := catchInC(caught)
	return caught, func() {
		release()
		signal.Stop(caught)
	}
}

// Interrupt ends this process and its group as Ctrl-C does. It is for the end of a command that died of Ctrl-C while
// it, and not we, stood in the terminal's foreground: a shell script that started us stops only when it gets SIGINT and
// sees that its child has died of it. It returns when SIGINT is ignored or blocked.
func Interrupt() {
	signal.Reset(unix.SIGINT)
	if !ignored(unix.SIGINT) && unix.Kill(0, unix.SIGINT) == nil {
		// any thread may get the signal, and all end when it does: until then this one must not exit with a status
		time.Sleep(deathLimit)
	}
}

// Die ends this process by a signal, as that would have ended it had it not been caught. It returns when the signal is
// ignored or blocked.
func Die(by os.Signal) {
	s, ok := by.(syscall.Signal)
	if !ok {
		return
	}
	signal.Reset(s)
	if !ignored(s) && unix.Kill(os.Getpid(), s) == nil {
		time.Sleep(deathLimit)
	}
}

// deathLimit bounds how long this process waits to die of a signal that it has sent itself.
const deathLimit = 3 * time.Second

// isRequestToEnd tells whether somebody who sends us the signal wants us to end.
func isRequestToEnd(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}
