package launcher

import (
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// What a relay process does: relay_linux.go starts and keeps it.

const (
	// ordinary is what a stream moves before its two pipes are made larger. Up to then the command can be ahead of its
	// reader by one more usual pipe than without a relay, so that one that writes more than its reader wants gets its
	// SIGPIPE.
	ordinary = 8 << 20
	// pipeBytes is the capacity asked for then: Linux' default limit for everybody (/proc/sys/fs/pipe-max-size). The
	// larger the pipes, the fewer are the moments in which one side waits for the other; that pays for the relay
	// (BenchmarkRelay: on two cores a third of a flood's speed is lost with usual pipes, nothing with large ones).
	pipeBytes = 1 << 20
	// chunk is how much is moved in one turn.
	chunk = 1 << 18
	// A command that writes line after line would wake the relay for each, and on few cores wait for it: a relay that
	// has just moved little (littleBytes, within hurry) rests before it looks again, and then moves all that has come.
	// What is written seldom, such as a progress bar, is never held up.
	littleBytes = 16 << 10
	// atOnce is what a pipe or socket takes without waiting where poll(2) says that there is room: PIPE_BUF.
	atOnce = 4 << 10
	hurry  = time.Millisecond
	rest   = 500 * time.Microsecond
)

// route is a stream as the kernel knows it. Descriptors instead of files: an *os.File may change the blocking mode of a
// stream that others share.
type route struct {
	from, to int
	// watched is to, or -1 where a reader that goes may be followed by another one: in a named pipe.
	watched int
}

func newRoute(from, to int) route {
	const anonymous = 0x50495045 // PIPEFS_MAGIC of include/uapi/linux/magic.h
	var stat unix.Statfs_t
	if unix.Fstatfs(to, &stat) == nil && stat.Type == anonymous {
		return route{from, to, to}
	}
	return route{from, to, -1}
}

// ServeRelay is the body of a relay process: streams pairs of files from descriptor 3 on, each a pipe to read and where
// it leads, and the file for the copy. It returns the exit status. Signals that end other processes do not end it: it
// ends with the last writer.
func ServeRelay(streams int, copyTo string) int {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP,
		unix.SIGXFSZ) // the copy may become too large for whom we run
	// without it we are harder to tell from oomguard, and work
	_ = os.WriteFile("/proc/self/comm", []byte(RelayName), 0)
	copied := newTail(copyTo)
	type end struct {
		stream int
		err    error
	}
	ends := make(chan end, streams)
	for i := range streams {
		way := newRoute(firstFD+2*i, firstFD+2*i+1)
		go func() {
			err := way.relay(copied)
			if err == nil {
				_, _ = unix.Close(way.from), unix.Close(way.to) // at once: its reader waits for the end
			}
			ends <- end{i, err}
		}()
	}
	for range streams {
		if e := <-ends; e.err != nil {
			return readerGone + e.stream // what the others hold is still in their pipes
		}
	}
	return 0
}

// relay moves one stream on until its end; copied may be nil. An error means that nobody reads it any more.
func (way route) relay(copied *tail) error {
	w := openWindow(copied)
	defer w.close()
	total := 0
	last := time.Now()
	for {
		n := chunk
		if w != nil {
			taken, err := w.take(way)
			if errors.Is(err, errNoReader) {
				return err
			}
			if err != nil { // no copy then; the command's output matters more
				w.close()
				w = nil
				continue
			}
			n = taken
		}
		moved, err := way.move(n)
		if err != nil {
			return err
		}
		if moved == 0 {
			return nil // the last writer has closed it
		}
		if moved < littleBytes && time.Since(last) < hurry {
			time.Sleep(rest)
		}
		last = time.Now()
		if before := total; before < ordinary {
			if total += moved; total >= ordinary {
				way.widen()
			}
		}
	}
}

// widen makes both pipes larger, where they are pipes and the system allows it; smaller ones work too.
func (way route) widen() {
	for _, fd := range []int{way.from, way.to} {
		if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && size < pipeBytes {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes)
		}
	}
}

// errNoReader: the reader's end of the pipe that a stream leads to has been closed.
var errNoReader = errors.New("nobody reads the stream any more")

// move takes up to n bytes to their end: all n when they are known to be there, as many as come at once otherwise.
func (way route) move(n int) (int, error) {
	moved := 0
	for moved < n {
		got, err := retry(func() (int64,
			error) {
			return unix.Splice(way.from, nil, way.to, nil, n-moved, unix.SPLICE_F_MOVE)
		})
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			got, err = way.carry(n - moved)
		}
		switch {
		case errors.Is(err, unix.EAGAIN): // somebody has made the reader's end non-blocking
			if _, err := poll(-1, unix.PollFd{Fd: int32(way.to), Events: unix.POLLOUT}); err != nil {
				return moved, err
			}
		case err != nil:
			return moved, err
		case got == 0:
			return moved, nil
		default:
			moved += int(got)
		}
	}
	return moved, nil
}

// carry copies up to n bytes, where the system cannot splice (to a socket in append mode, or where a container forbids
// it). It takes no more out of the command's pipe than the reader's end has room for, so that nothing is on its way in
// here while that is full.
func (way route) carry(n int) (int64, error) {
	if _, err := poll(-1, unix.PollFd{Fd: int32(way.to), Events: unix.POLLOUT}); err != nil {
		return 0, err
	}
	buffer := make([]byte, min(n, atOnce))
	got, err := retry(func() (int64, error) {
		n, err := unix.Read(way.from, buffer)
		return int64(n), err
	})
	for rest := buffer[:max(got, 0)]; err == nil && len(rest) > 0; {
		var wrote int
		wrote, err = unix.Write(way.to, rest)
		rest = rest[max(wrote, 0):]
		switch {
		case errors.Is(err, unix.EAGAIN):
			_, err = poll(-1, unix.PollFd{Fd: int32(way.to), Events: unix.POLLOUT})
		case errors.Is(err, unix.EINTR):
			err = nil
		}
	}
	return got, err
}

// wait waits until there is something to read, or the end; false after so many milliseconds, -1: never. The reader's
// end is watched too, so that the command's next write finds it closed.
func (way route) wait(milliseconds int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(way.from), Events: unix.POLLIN}, {Fd: int32(way.watched)}}
	n, err := poll(milliseconds, fds...)
	if err == nil && fds[1].Revents&unix.POLLERR != 0 && fds[0].Revents&unix.POLLIN == 0 {
		err = errNoReader
	}
	return n > 0, err
}

func poll(milliseconds int, fds ...unix.PollFd) (int, error) {
	n, err := retry(func() (int64, error) {
		n, err := unix.Poll(fds, milliseconds)
		return int64(n), err
	})
	return int(n), err
}

func retry(call func() (int64, error)) (int64, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
