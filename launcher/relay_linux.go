package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Relay takes a copy of what the command writes to a pipe, for a post-mortem. A terminal and a regular file are handed to the command as
// they are: the one must stay a terminal, the other can be read afterwards.
//
// The command writes into a pipe of ours, and a process of its own moves the bytes on: with tee(2) into the copy and with splice(2) to
// where they were meant to go. So bytes leave the pipe only as they arrive at their end, and nothing is lost when one of the two dies:
// when oomguard is killed, the relay goes on until the last writer has closed the pipe; when the relay is killed, oomguard, which holds the
// pipe open too, starts another one that continues with the next byte. Killing both at the same moment breaks the pipe.
type Relay struct {
	// Stdout and Stderr are what the command is to be given: our pipe, or the stream as it was.
	Stdout, Stderr *os.File

	argv   []string
	copyTo string
	pid    atomic.Int64
	done   chan struct{} // closed when the last relay has ended for good
	quit   atomic.Bool   // do not start another one

	mu      sync.Mutex // guards streams
	streams []stream   // those that have a reader
}

// stream is one way from the command: the pipe it writes to, and where that leads.
type stream struct{ read, write, to *os.File }

// route is a stream as the kernel knows it. Descriptors instead of files: an *os.File may change the blocking mode of a stream that others
// share.
type route struct{ from, to int }

const (
	// pipeBytes is the capacity asked for: Linux' default limit for everybody (/proc/sys/fs/pipe-max-size).
	pipeBytes = 1 << 20
	// maxRelays is how often a relay that dies is replaced; then oomguard relays itself.
	maxRelays = 3
	// readerGone + i is the status of a relay whose stream i has no reader any more. The command must get the SIGPIPE that is meant for
	// it, so our end of that pipe is closed too, and another relay goes on with the others.
	readerGone = 32
	firstFD    = 3 // where a relay finds its files: read, to, read, to, ...
)

// StartRelay prepares the streams of a command. argv starts this program as a relay: it calls ServeRelay with the number of streams and
// the file for the copy, which StartRelay adds as the last words. Where no relay is needed or none can be had, the streams are as they
// were; the error then says why there is no copy, and the command can be started all the same.
func StartRelay(argv []string, copyTo string, stdout, stderr *os.File) (*Relay, error) {
	r := &Relay{Stdout: stdout, Stderr: stderr, argv: argv, copyTo: copyTo, done: make(chan struct{})}
	var err error
	if isPipe(stdout) {
		r.Stdout, err = r.add(stdout)
	}
	switch {
	case err != nil:
	case sameFile(stdout, stderr):
		r.Stderr = r.Stdout // one pipe for both: the order of their bytes is kept
	case isPipe(stderr):
		r.Stderr, err = r.add(stderr)
	}
	if err == nil && len(r.streams) > 0 {
		err = r.start()
	}
	if err != nil {
		for _, s := range r.streams {
			_, _ = s.read.Close(), s.write.Close()
		}
		return &Relay{Stdout: stdout, Stderr: stderr}, fmt.Errorf("copy the command's output: %w", err)
	}
	return r, nil
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (r *Relay) add(to *os.File) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil { // blocking, as the command must find its end
		return nil, err
	}
	s := stream{read: os.NewFile(uintptr(fds[0]), "relay"), write: os.NewFile(uintptr(fds[1]), to.Name()), to: to}
	r.streams = append(r.streams, s)
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes) // a smaller pipe works too
	return s.write, nil
}

// start begins to relay, in a session of its own so that neither Ctrl-C nor the end of our group reaches it.
func (r *Relay) start() error {
	process, err := r.process()
	if err != nil {
		return err
	}
	go r.keep(process)
	return nil
}

func (r *Relay) process() (*os.Process, error) {
	streams := r.open()
	files := []*os.File{nil, nil, nil}
	for _, s := range streams {
		files = append(files, s.read, s.to)
	}
	fds, closeNull, err := descriptors(files...)
	if err != nil {
		return nil, err
	}
	defer closeNull()
	argv := slices.Concat(r.argv, []string{strconv.Itoa(len(streams)), r.copyTo})
	// it needs nothing of the environment
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: []string{}, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, err
	}
	r.pid.Store(int64(pid))
	return os.FindProcess(pid)
}

// keep waits for the relay's end. One that dies before its time is replaced, in the end by ourselves.
func (r *Relay) keep(process *os.Process) {
	defer close(r.done)
	for deaths := 0; ; {
		state, err := process.Wait()
		switch {
		case err == nil && state.Success(), r.quit.Load():
			return
		case err == nil && state.ExitCode() >= readerGone && r.drop(state.ExitCode()-readerGone):
			if len(r.open()) == 0 {
				return
			}
		default:
			deaths++
		}
		if deaths <= maxRelays {
			process, err = r.process()
		}
		if deaths > maxRelays || err != nil {
			r.relayHere()
			return
		}
	}
}

// open is the streams that have a reader.
func (r *Relay) open() []stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.streams)
}

// drop closes our end of a stream that has no reader any more.
func (r *Relay) drop(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= len(r.streams) {
		return false
	}
	_ = r.streams[i].read.Close()
	r.streams = slices.Delete(r.streams, i, i+1)
	return true
}

// relayHere moves the streams on in this process, without a copy.
func (r *Relay) relayHere() {
	var done sync.WaitGroup
	for _, s := range r.open() {
		if fds, closeNull, err := descriptors(s.read, s.to); err == nil {
			closeNull()
			done.Go(func() {
				_ = route{int(fds[0]), int(fds[1])}.relay(nil)
				_ = s.read.Close()
			})
		}
	}
	done.Wait()
}

// PID is the relay's process; 0 when there is none.
func (r *Relay) PID() int { return int(r.pid.Load()) }

// Started closes our copies of what the command was given, so that the end of its writers is the end of the stream.
func (r *Relay) Started() {
	for _, s := range r.open() {
		_ = s.write.Close()
	}
}

// Finish waits until all that was written has arrived: until the last writer has closed the stream, or, when somebody the command has
// left behind keeps it open, until the pipes are empty, or until the limit. A relay that still has writers lives on without us.
func (r *Relay) Finish(limit time.Duration) {
	if len(r.open()) == 0 {
		return
	}
	defer r.quit.Store(true)
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	settled := 0
	for settled < 3 { // empty for a while: the last bytes have been moved, not only taken
		select {
		case <-r.done:
			return
		case <-deadline:
			return
		case <-tick.C:
			if r.pending() == 0 {
				settled++
			} else {
				settled = 0
			}
		}
	}
}

// pending is how many bytes wait in the pipes.
func (r *Relay) pending() int {
	sum := 0
	for _, s := range r.open() {
		conn, err := s.read.SyscallConn()
		if err != nil {
			continue
		}
		_ = conn.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				sum += n
			}
		})
	}
	return sum
}

// ServeRelay is the body of a relay process: streams pairs of files from descriptor 3 on, each a pipe to read and where it leads, and the
// file for the copy. It returns the exit status. Signals that end other processes do not end it: it ends with the last writer.
func ServeRelay(streams int, copyTo string) int {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	routes := make([]route, streams)
	for i := range routes {
		routes[i] = route{firstFD + 2*i, firstFD + 2*i + 1}
	}
	copied := newTail(copyTo)
	type end struct {
		stream int
		err    error
	}
	ends := make(chan end, streams)
	for i, way := range routes {
		go func() { ends <- end{i, way.relay(copied)} }()
	}
	for range routes {
		if e := <-ends; e.err != nil {
			return readerGone + e.stream // what the others hold is still in their pipes
		}
	}
	return 0
}

// relay moves one stream on until its end; copied may be nil. An error means that nobody reads it any more.
func (way route) relay(copied *tail) error {
	var between [2]int
	if copied != nil && unix.Pipe2(between[:], unix.O_CLOEXEC) != nil {
		copied = nil // no copy then; the command's output matters more
	}
	buffer := make([]byte, 1<<16)
	for {
		n := len(buffer)
		if copied != nil {
			taken, err := retry(func() (int64, error) { return unix.Tee(way.from, between[1], len(buffer), 0) })
			if err != nil {
				copied = nil
				continue
			}
			n = int(taken)
			if got, err := unix.Read(between[0], buffer[:n]); err == nil && got > 0 {
				copied.write(buffer[:got])
			}
		}
		moved, err := way.move(n)
		if err != nil {
			return err
		}
		if moved == 0 {
			return nil // the last writer has closed it
		}
	}
}

// move takes up to n bytes to their end: all n when they are known to be there, as many as come at once otherwise.
func (way route) move(n int) (int, error) {
	moved := 0
	for moved < n {
		got, err := retry(func() (int64, error) { return unix.Splice(way.from, nil, way.to, nil, n-moved, unix.SPLICE_F_MOVE) })
		switch {
		case errors.Is(err, unix.EAGAIN): // somebody has made the reader's end non-blocking
			wait := []unix.PollFd{{Fd: int32(way.to), Events: unix.POLLOUT}}
			if _, err := unix.Poll(wait, -1); err != nil && !errors.Is(err, unix.EINTR) {
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

func retry(call func() (int64, error)) (int64, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
