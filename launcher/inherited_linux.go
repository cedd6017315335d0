//go:build linux && cgo

package launcher

// #include "early_linux.h"
import "C"

import (
	"os"
	"os/signal"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepIgnored makes this process ignore again the signals that it was started with as ignored, so that a command that
// it starts inherits them as it would without us: by nohup, for a background job of a script, by systemd for SIGPIPE.
// Go itself keeps only some of them.
func keepIgnored() {
	for s := unix.Signal(1); s <= 64; s++ {
		if ignoredAtStart()&bit(s) != 0 && s != unix.SIGCHLD { // without SIGCHLD no process could be waited for
			signal.Ignore(s)
		}
	}
}

func ignoredAtStart() uint64 { return uint64(C.oomguard_ignored_at_start()) }

// inheritedClosed tells whether a standard stream was closed when this process was started.
func inheritedClosed(fd int) bool { return fd < 3 && int(C.oomguard_closed_at_start())&(1<<fd) != 0 }

// ignoring puts a step in front of a command for the signals that it is to ignore, as we were to, and that Go's runtime
// does not let us ignore (SIGCHLD, SIGPROF, those of faults): this program sets them and becomes the command. See
// early_linux.c.
func ignoring(file string, argv []string) (string, []string) {
	var lost uint64
	for s := unix.Signal(1); s <= 64; s++ {
		// which Go can ignore: who has changed that wants it so
		if slices.Contains([]unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT}, s) {
			continue
		}
		if wanted := ignoredAtStart() & bit(s); wanted != 0 && !ignored(s) {
			lost |= wanted
		}
	}
	self, err := os.Executable()
	if lost == 0 || err != nil {
		return file, argv
	}
	return self, append([]string{self, C.OOMGUARD_START_IGNORING, strconv.FormatUint(lost, 16), file}, argv...)
}

// caughtInC are the signals of which Go's runtime does not tell, or not who sent them: SIGPROF, SIGURG and the first
// real-time signal it keeps for itself, the others also come from the kernel when we write or work too much, which is
// not the command's concern.
func caughtInC() []unix.Signal {
	return []unix.Signal{unix.SIGPROF, unix.SIGURG, firstRealTime, unix.SIGPIPE, unix.SIGXFSZ, unix.SIGXCPU}
}

// catchInC hands them to a channel, those that are ignored apart, until stop is called.
func catchInC(to chan<- os.Signal) (stop func()) {
	read, write, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	conn, err := write.SyscallConn()
	if err != nil {
		return func() { read.Close(); write.Close() }
	}
	var caught []unix.Signal
	_ = conn.Control(func(fd uintptr) { // it fails for a closed file only
		for _, s := range caughtInC() {
			if !ignored(s) && ignoredAtStart()&bit(s) == 0 && C.oomguard_catch(C.int(s), C.int(fd)) == 0 {
				caught = append(caught, s)
			}
		}
	})
	go func() {
		numbers := make([]byte, 64)
		for {
			n, err := read.Read(numbers)
			for _, number := range numbers[:n] {
				select {
				case to <- unix.Signal(number):
				default: // as signal.Notify has it
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return func() {
		for _, s := range caught {
			C.oomguard_release(C.int(s))
		}
		write.Close()
		read.Close()
	}
}
