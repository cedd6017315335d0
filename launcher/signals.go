package launcher

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// handedOn are the signals that reach the command through us: all that somebody may send. SIGKILL and SIGSTOP cannot be caught; SIGCHLD,
// SIGPIPE, SIGXFSZ and those of faults are about ourselves; SIGURG wakes Go's scheduler.
func handedOn() []unix.Signal {
	signals := []unix.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
		unix.SIGABRT, unix.SIGALRM, unix.SIGVTALRM, unix.SIGIO, unix.SIGXCPU,
	}
	return append(signals, ofThisSystem()...)
}

// Signals returns the signals that are handed on to a command, without those that we inherited as ignored: catching one of these
// would un-ignore it for the command (nohup would no longer protect it).
func Signals() []os.Signal {
	var signals []os.Signal
	for _, s := range append(handedOn(), jobControl()...) {
		if !ignored(s) {
			signals = append(signals, s)
		}
	}
	return signals
}

// Interrupt ends this process and its group as Ctrl-C does. It is for the end of a command that died of Ctrl-C while it, and not we, stood in
// the terminal's foreground: a shell script that started us stops only when it gets SIGINT and sees that its child has died of it.
// It returns when SIGINT is ignored or blocked.
func Interrupt() {
	signal.Reset(unix.SIGINT)
	if !ignored(unix.SIGINT) && unix.Kill(0, unix.SIGINT) == nil {
		time.Sleep(deathLimit) // any thread may get the signal, and all end when it does: until then this one must not exit with a status
	}
}

// deathLimit bounds how long this process waits to die of a signal that it has sent itself.
const deathLimit = 3 * time.Second

// isRequestToEnd tells whether somebody who sends us the signal wants us to end.
func isRequestToEnd(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}
