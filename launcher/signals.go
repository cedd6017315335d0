package launcher

import (
	"os"

	"golang.org/x/sys/unix"
)

// handedOn are the signals that reach the command through us. SIGKILL and SIGSTOP cannot be caught; SIGCHLD, SIGPIPE and those of
// faults are about ourselves.
func handedOn() []unix.Signal {
	return []unix.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
	}
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

// isRequestToEnd tells whether somebody who sends us the signal wants us to end.
func isRequestToEnd(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}
