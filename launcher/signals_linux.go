package launcher

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The real-time signals that a program may use: the C library keeps the two below for itself; see signal(7).
const firstRealTime, lastRealTime = unix.Signal(34), unix.Signal(64)

// ofThisSystem are the signals to hand on that other systems do not have. The first real-time signal cannot be caught
// in Go, which leaves it to the C library (musl uses it); catchInC does.
func ofThisSystem() []unix.Signal {
	signals := []unix.Signal{unix.SIGPWR, unix.SIGSTKFLT}
	for s := firstRealTime + 1; s <= lastRealTime; s++ {
		signals = append(signals, s)
	}
	return signals
}

// signalName is what kill(1) calls a signal.
func signalName(s os.Signal) string {
	number, ok := s.(unix.Signal)
	switch {
	case !ok:
		return s.String()
	case number == firstRealTime:
		return "SIGRTMIN"
	case number > firstRealTime && number <= lastRealTime:
		return fmt.Sprint("SIGRTMIN+", int(number-firstRealTime))
	}
	return unix.SignalName(number)
}
