package launcher

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A window holds the newest bytes of a stream inside the kernel: tee(2) shares the pages of the command's pipe with a
// pipe of ours, so that not a byte is copied. What a command writes at an ordinary pace goes on to the file at once. Of
// a flood only what is still in the window when the flood is over, or when the budget allows, is written; the oldest is
// dropped. So a command that writes gigabytes a second costs us next to nothing, and the end of its output, which is
// what a post-mortem reads, is there all the same.
type window struct {
	copied      *tail
	read, write int // the pipe
	null        int // /dev/null: where pages are dropped without having been looked at
	capacity    int // of the pipe, in bytes
	buffer      []byte
	held        int       // bytes in the pipe
	dropped     int64     // bytes that were left out since the last that were written
	budget      int       // bytes that may be written now
	counted     time.Time // when the budget was last raised
}

const (
	// copyRate is how many bytes a second are copied of a flood for ever: far above any log that is meant to be read.
	// Our own choice.
	copyRate = 4 << 20
	// copyBurst is how many are copied without asking: all that the file keeps.
	copyBurst = 2 * tailBytes
	// usualPipe is the capacity of a pipe that nobody has changed; see pipe(7).
	usualPipe = 1 << 16
	// lull is how many milliseconds without output end a flood.
	lull = 10
)

// openWindow returns nil when there can be none; a stream without a window has no copy.
func openWindow(copied *tail) *window {
	if copied == nil {
		return nil
	}
	var pipe [2]int
	if unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_, _ = unix.Close(pipe[0]), unix.Close(pipe[1])
		return nil
	}
	capacity, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_SETPIPE_SZ, pipeBytes)
	if err != nil { // the user has too many large pipes: less is kept of a flood
		capacity = usualPipe
	}
	return &window{
		copied: copied, read: pipe[0], write: pipe[1], null: null, capacity: capacity, buffer: make([]byte, 1<<16),
		budget: copyBurst, counted: time.Now(),
	}
}

// close writes down what is held.
func (w *window) close() {
	if w == nil {
		return
	}
	w.save()
	_, _, _ = unix.Close(w.read), unix.Close(w.write), unix.Close(w.null)
}

// take waits for bytes of the stream and takes them in. It returns how many; they are still to be moved. 0 is the
// stream's end.
func (w *window) take(way route) (int, error) {
	for {
		n, err := retry(func() (int64, error) { return unix.Tee(way.from, w.write, chunk, unix.SPLICE_F_NONBLOCK) })
		switch {
		case err == nil:
			w.held += int(n)
			if w.affordable() {
				w.save()
			}
			return int(n), nil
		case !errors.Is(err, unix.EAGAIN):
			return 0, err
		}
		if err := w.makeRoom(); err != nil {
			return 0, err
		}
		patience := -1
		if w.held > 0 {
			patience = lull
		}
		more, err := way.wait(patience)
		if err != nil {
			return 0, err
		}
		if !more {
			w.save()
		}
	}
}

// affordable tells whether the budget covers what is held, and pays for it.
func (w *window) affordable() bool {
	if w.held > w.budget {
		now := time.Now()
		w.budget = min(copyBurst, w.budget+int(copyRate*now.Sub(w.counted).Seconds()))
		w.counted = now
	}
	if w.held > w.budget {
		return false
	}
	w.budget -= w.held
	return true
}

// makeRoom drops the older half of a full window. One that is full of small pieces, each of which takes a page's place,
// is written instead: it holds too little.
func (w *window) makeRoom() error {
	free, err := poll(0, unix.PollFd{Fd: int32(w.write), Events: unix.POLLOUT})
	if err != nil || free > 0 {
		return err
	}
	if w.held < w.capacity/4 {
		w.save()
		return nil
	}
	n, err := retry(func() (int64, error) {
		return unix.Splice(w.read, nil, w.null, nil, w.held/2,
			unix.SPLICE_F_NONBLOCK)
	})
	if err == nil {
		w.held -= int(n)
		w.dropped += n
	}
	return err
}

// save writes what is held to the file.
func (w *window) save() {
	if w.held > 0 && w.dropped > 0 {
		w.copied.write(fmt.Appendf(nil, "\n[oomguard: %d bytes of output are left out here]\n", w.dropped))
		w.dropped = 0
	}
	for w.held > 0 {
		n, err := retry(func() (int64, error) {
			n, err := unix.Read(w.read, w.buffer)
			return int64(n), err
		})
		if err != nil || n == 0 {
			w.held = 0
			return
		}
		w.held -= int(n)
		w.copied.write(w.buffer[:n])
	}
}
