package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Relay takes a copy of what the command writes to a pipe, for a post-mortem. A terminal and a regular file are
// handed to the command as they are: the one must stay a terminal, the other can be read afterwards.
//
// The command writes into a pipe of ours, and a process of its own moves the bytes on: with tee(2) into the copy and
// with splice(2) to where they were meant to go. So bytes leave the pipe only as they arrive at their end, and nothing
// is lost when one of the two dies: when oomguard is killed, the relay goes on until the last writer has closed the
// pipe; when the relay is killed, oomguard, which holds the pipe open too, starts another one that continues with the
// next byte. A relay that is stopped is continued, by oomguard or, when that dies meanwhile, by the kernel. Killing
// both at the same moment breaks the pipe; the relay has a name of its own, so that killing every process called
// oomguard does not.
type Relay struct {
	// Stdout and Stderr are what the command is to be given: our pipe, or the stream as it was.
	Stdout, Stderr *os.File

	stdout, stderr *os.File // as they were

	argv   []string
	copyTo string
	pid    atomic.Int64
	done   chan struct{} // closed when the last relay has ended for good
	quit   atomic.Bool   // do not start another one

	mu      sync.Mutex // guards streams
	streams []stream   // those that have a reader
	given   []*os.File // what the command gets in place of its streams
}

// stream is one way from the command: the pipe it writes to, and where that leads.
type stream struct{ read, write, to *os.File }

// RelayName is what a relay is called, in ps as in pkill.
const RelayName = "output-relay"

const (
	// maxRelays is how often a relay that dies is replaced; then oomguard relays itself.
	maxRelays = 3
	// readerGone + i is the status of a relay whose stream i has no reader any more. The command must get the SIGPIPE
	// that is meant for it, so our end of that pipe is closed too, and another relay goes on with the others.
	readerGone = 32
	firstFD    = 3 // where a relay finds its files: read, to, read, to, ...
)

// StartRelay prepares the streams of a command. argv starts this program as a relay: it calls ServeRelay with the
// number of streams and the name of the file for the copy, which StartRelay adds as the last words; its working
// directory is that file's folder. Where no relay is needed or none can be had, the streams are as they were; the error
// then says why there is no copy, and the command can be started all the same. A nil file is no stream of ours: the
// command gets it as it is.
func StartRelay(argv []string, copyTo string, stdout, stderr *os.File) (*Relay, error) {
	r := &Relay{Stdout: stdout, Stderr: stderr, stdout: stdout, stderr: stderr, argv: argv, copyTo: copyTo,
		done: make(chan struct{})}
	var err error
	if IsPipe(stdout) {
		r.Stdout, err = r.add(stdout)
	}
	switch {
	case err != nil:
	case len(r.streams) > 0 && SameStream(stdout, stderr):
		r.Stderr, err = r.alike(stderr)
	case IsPipe(stderr):
		r.Stderr, err = r.add(stderr)
	}
	if err == nil && len(r.streams) > 0 {
		err = r.start()
	}
	if err != nil {
		for _, s := range r.streams {
			_ = s.read.Close()
		}
		r.Started()
		return &Relay{Stdout: stdout, Stderr: stderr}, fmt.Errorf("copy the command's output: %w", err)
	}
	return r, nil
}

// IsPipe tells whether a stream leads to a pipe or a socket, which is what a Relay copies.
func IsPipe(f *os.File) bool {
	return f != nil && mode(f)&(os.ModeNamedPipe|os.ModeSocket) != 0
}

func mode(f *os.File) os.FileMode {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Mode()
}

// SameStream tells whether both lead to the same file, so that the order in which they are written to is kept.
func SameStream(a, b *os.File) bool {
	if a == nil || b == nil {
		return a == b
	}
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (r *Relay) add(to *os.File) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	s := stream{read: os.NewFile(uintptr(fds[0]), "relay"), write: os.NewFile(uintptr(fds[1]), to.Name()), to: to}
	r.streams, r.given = append(r.streams, s), append(r.given, s.write)
	return r.give(s.write, to)
}

// alike is stderr where it leads to the same pipe as stdout: one pipe for both, so that the order of their bytes is
// kept.
func (r *Relay) alike(stderr *os.File) (*os.File, error) {
	first := r.streams[0]
	one, err := opened(first.to)
	if err != nil {
		return nil, err
	}
	if other, err := opened(stderr); err != nil || one == other {
		return r.Stdout, err
	}
	return r.give(first.write, stderr)
}

// opened is how a stream was opened, as far as a command may notice: for appending, not to wait, for reading too (cmd
// <> pipe).
func opened(stream *os.File) (int, error) {
	fds, err := numbers(stream)
	if err != nil {
		return 0, err
	}
	flags, err := unix.FcntlInt(fds[0], unix.F_GETFL, 0)
	if flags &= unix.O_APPEND | unix.O_NONBLOCK | unix.O_RDWR; mode(stream)&os.ModeSocket != 0 {
		flags &^= unix.O_RDWR // as each socket is
	}
	return flags, err
}

// give is our pipe, opened anew where the stream was not opened as a pipe is.
func (r *Relay) give(pipe, stream *os.File) (*os.File, error) {
	how, err := opened(stream)
	if err != nil || how == 0 {
		return pipe, err
	}
	if how&unix.O_RDWR == 0 {
		how |= unix.O_WRONLY
	}
	fds, err := numbers(pipe)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(fds[0])), how|unix.O_CLOEXEC, 0)
	if err != nil {
		return pipe, nil // without /proc it is an ordinary pipe
	}
	given := os.NewFile(uintptr(fd), stream.Name())
	r.given = append(r.given, given)
	return given, nil
}

// start begins to relay, in a session of its own so that neither Ctrl-C nor the end of our group reaches it.
func (r *Relay) start() error {
	pid, err := r.process()
	if err != nil {
		return err
	}
	go r.keep(pid)
	return nil
}

func (r *Relay) process() (pid int, err error) {
	streams := r.open()
	files := []*os.File{nil, nil, nil}
	for _, s := range streams {
		files = append(files, s.read, s.to)
	}
	files, closeNull, err := withNull(files...)
	if err != nil {
		return 0, err
	}
	defer closeNull()
	fds, err := numbers(files...)
	if err != nil {
		return 0, err
	}
	// Not even its arguments name us (pkill -f). It needs nothing of the environment.
	argv := slices.Concat([]string{RelayName}, r.argv[1:],
		[]string{strconv.Itoa(len(streams)), filepath.Base(r.copyTo)})
	pid, err = syscall.ForkExec(r.argv[0], argv, &syscall.ProcAttr{
		Dir: filepath.Dir(r.copyTo), Env: []string{}, Files: fds,
		// should it be stopped when we, who would continue it, die
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGCONT},
	})
	runtime.KeepAlive(streams)
	if err == nil {
		r.pid.Store(int64(pid))
	}
	return pid, err
}

// keep waits for the relay's end. One that dies before its time is replaced, in the end by ourselves.
func (r *Relay) keep(pid int) {
	defer close(r.done)
	for deaths := 0; ; {
		code, err := outcome(pid)
		switch {
		case code == 0 && err == nil, r.quit.Load():
			return
		case code >= readerGone && r.drop(code-readerGone):
			if len(r.open()) == 0 {
				return
			}
		default:
			deaths++
		}
		if deaths <= maxRelays {
			pid, err = r.process()
		}
		if deaths > maxRelays || err != nil {
			r.relayHere()
			return
		}
	}
}

// outcome waits for a relay's end and returns its exit status, -1 when it was killed. One that somebody stops is
// continued: it would hold up the command.
func outcome(pid int) (code int, err error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return -1, err
		case status.Stopped():
			_ = unix.Kill(pid, unix.SIGCONT)
		default:
			return status.ExitStatus(), nil
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
		if fds, err := numbers(s.read, s.to); err == nil {
			done.Go(func() {
				_ = newRoute(int(fds[0]), int(fds[1])).relay(nil)
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
	for _, f := range r.given {
		_ = f.Close()
	}
	if streams := r.open(); len(streams) > 0 && streams[0].to == r.stdout && !SameStream(r.stdout, r.stderr) {
		go r.letGo(streams[0])
	}
}

// letGo gives up our stdout, which we do not need ourselves, when the last writer of the command has closed its: its
// reader waits for the end.
func (r *Relay) letGo(s stream) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-tick.C:
		}
		if over, err := s.over(); err != nil || over {
			Release(s.to)
			return
		}
	}
}

// over tells whether all writers have closed the stream and all that they wrote has been taken.
func (s stream) over() (over bool, err error) {
	conn, err := s.read.SyscallConn()
	if err != nil {
		return false, err
	}
	err = conn.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, failed := poll(0, polled...)
		over = failed == nil && polled[0].Revents == unix.POLLHUP
	})
	return over, err
}

// Finish waits until all that was written has arrived, however slow its reader is, as the command itself would wait if
// it wrote there: until the last writer has closed the stream, or, when somebody the command has left behind keeps it
// open, until the pipes are empty. Where we are process 1 of a container, or the last process of a job, the relay would
// end with us. A signal that asks us to end ends the wait, and is returned; so does the limit, where that is above
// zero. A relay that still has work lives on without us, where that is possible.
func (r *Relay) Finish(limit time.Duration) (by os.Signal) {
	if len(r.open()) == 0 {
		return nil
	}
	defer r.quit.Store(true)
	signals, stop := catch()
	defer stop()
	var deadline <-chan time.Time
	if limit > 0 {
		deadline = time.After(limit)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	settled := 0
	for settled < 8 { // empty for longer than a relay waits before it writes down what it holds (see lull)
		select {
		case <-r.done:
			return nil
		case <-deadline:
			return nil
		case s := <-signals:
			if isRequestToEnd(s) {
				return s
			}
		case <-tick.C:
			if r.pending() == 0 {
				settled++
			} else {
				settled = 0
			}
		}
	}
	return nil
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
