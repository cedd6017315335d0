//go:build linux

package launcher

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"oomguard/launcher/patience"
)

func relayProgram(args []string) int {
	streams, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	return ServeRelay(streams, args[1])
}

// relayedProgram runs a shell script whose output goes through a relay, and waits.
func relayedProgram(args []string) int {
	r, err := StartRelay(program("relay"), args[0], os.Stdout, os.Stderr)
	if err != nil {
		return 1
	}
	cmd := exec.Command("bash", "-c", args[1])
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	if err := cmd.Start(); err != nil {
		return 2
	}
	r.Started()
	say("relay pid %d", r.PID())
	_ = cmd.Wait()
	say("command ended")
	if by := r.Finish(0); by != nil {
		say("asked to end by %v", by)
	}
	return 0
}

// wire is a command's output on its way through a relay to the test.
type wire struct {
	relay  *Relay
	reader *os.File
	writer *os.File // where the relay leads; oomguard has it open until it ends
	log    string
}

// newWire starts a relay for one pipe that is both stdout and stderr.
func newWire(t *testing.T) wire {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	writer.Fd() // a pipe that waits, as commands usually have it
	log := filepath.Join(t.TempDir(), "output")
	r, err := StartRelay(program("relay"), log, writer, writer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	return wire{r, reader, writer, log}
}

// command starts a shell that writes into the wire.
func (w wire) command(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Stdout, cmd.Stderr = w.relay.Stdout, w.relay.Stderr
	cmd.Env = append(os.Environ(), "WIRE="+w.log)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	patience.EndAll(t, "WIRE="+w.log)
	w.relay.Started()
	return cmd
}

// all reads what arrives until the command and its relay have ended.
func (w wire) all(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	arrived := make(chan []byte)
	go func() {
		data, err := io.ReadAll(w.reader)
		if err != nil {
			t.Error(err)
		}
		arrived <- data
	}()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	w.relay.Finish(time.Minute)
	w.writer.Close()
	select {
	case data := <-arrived:
		return data
	case <-patience.Over(t):
		t.Fatal("the stream does not end")
		return nil
	}
}

// TestRelayKeepsBytesAndOrder: what arrives is what was written, in its order across stdout and stderr, and the copy is
// its end.
func TestRelayKeepsBytesAndOrder(t *testing.T) {
	w := newWire(t)
	if w.relay.Stdout != w.relay.Stderr {
		t.Error("one pipe became two: the order of stdout and stderr is lost")
	}
	cmd := w.command(t, `for i in $(seq 1 2000); do echo out $i; echo err $i >&2; done; printf 'no newline \xff\x00'`)
	got := w.all(t, cmd)
	var want bytes.Buffer
	for i := 1; i <= 2000; i++ {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	want.WriteString("no newline \xff\x00")
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes arrived, %d were written", len(got), want.Len())
	}
	if copied := ReadTail(w.log); copied != want.String() {
		t.Errorf("the copy has %d bytes of %d", len(copied), want.Len())
	}
}

// TestRelayBoundsTheCopy: of a flood the end is kept; all of it arrives.
func TestRelayBoundsTheCopy(t *testing.T) {
	w := newWire(t)
	const size = 64 << 20
	cmd := w.command(t, fmt.Sprintf("head -c %d /dev/zero; echo the end", size))
	if got := w.all(t, cmd); len(got) != size+len("the end\n") {
		t.Errorf("%d bytes arrived", len(got))
	}
	copied := ReadTail(w.log)
	if len(copied) < pipeBytes/4 || len(copied) > 2*tailBytes+pipeBytes || !strings.HasSuffix(copied, "the end\n") {
		t.Errorf("%d bytes are kept, ending in %q", len(copied), copied[max(0, len(copied)-9):])
	}
}

// TestWindow: of a flood that nobody pays for, the copy has the end, and says how much is missing before it.
func TestWindow(t *testing.T) {
	log := filepath.Join(t.TempDir(), "output")
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := openWindow(newTail(log))
	w.budget, w.counted = 0, time.Now().Add(time.Hour)
	const size, piece = 3 << 20, 1 << 15
	for i := range size / piece {
		if _, err := unix.Write(pipe[1], bytes.Repeat([]byte{byte('a' + i%26)}, piece)); err != nil {
			t.Fatal(err)
		}
		n, err := w.take(route{pipe[0], null, -1})
		if err != nil || n != piece {
			t.Fatal(n, err)
		}
		if n, err := (route{pipe[0], null, -1}).move(n); err != nil || n != piece {
			t.Fatal(n, err)
		}
	}
	_ = unix.Close(pipe[1])
	if n, err := w.take(route{pipe[0], null, -1}); n != 0 || err != nil {
		t.Errorf("the end is %d, %v", n, err)
	}
	w.close()
	first, rest, _ := strings.Cut(strings.TrimPrefix(ReadTail(log), "\n"), "\n")
	kept := len(rest)
	if first != fmt.Sprintf("[oomguard: %d bytes of output are left out here]", size-kept) || kept < w.capacity/4 ||
		kept > w.capacity {
		t.Errorf("%q, then %d bytes", first, kept)
	}
	if last := byte('a' + (size/piece-1)%26); rest[kept-1] != last {
		t.Errorf("the last byte is %c, want %c", rest[kept-1], last)
	}
	_, _ = unix.Close(pipe[0]), unix.Close(null)
}

// TestRelayDies: whoever kills the relay, and however often, not a byte is lost or doubled.
func TestRelayDies(t *testing.T) {
	w := newWire(t)
	cmd := w.command(t, `for i in $(seq 1 60000); do echo "line $i of the output"; done`)
	sum, want, size := sha256.New(), sha256.New(), 0
	for i := 1; i <= 60000; i++ {
		n, _ := fmt.Fprintf(want, "line %d of the output\n", i)
		size += n
	}
	last, kills, total := 0, 0, 0
	chunk := make([]byte, 4096)
	for total < size {
		n, err := w.reader.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(chunk[:n])
		total += n
		if pid := w.relay.PID(); total > 200_000*(kills+1) && pid != last {
			last = pid
			kills++
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Logf("kill the relay %d: %v", pid, err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	w.relay.Finish(time.Minute)
	if !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Errorf("after %d kills other bytes arrived (%d)", kills, total)
	}
	if kills <= maxRelays {
		t.Errorf("the relay was killed %d times only", kills)
	}
}

// TestReaderGoes: `command | head -1`: the command gets its SIGPIPE as without a relay.
func TestReaderGoes(t *testing.T) {
	w := newWire(t)
	cmd := w.command(t, `trap '' TERM; while echo line; do :; done`)
	if _, err := w.reader.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	w.reader.Close()
	err := cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("the command ended with %v, want SIGPIPE", err)
	}
}

// TestReaderGoesQuietly: the reader has gone while the command did not write; already its next write is one too many,
// as without a relay.
func TestReaderGoesQuietly(t *testing.T) {
	w := newWire(t)
	gate := fifo(t)
	cmd := w.command(t, `echo line; read < "`+gate+`"; echo one too many; echo not reached >&2`)
	if _, err := w.reader.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	w.reader.Close()
	select {
	case <-w.relay.done:
	case <-patience.Over(t):
		t.Fatal("the relay does not notice")
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("the command ended with %v, want SIGPIPE", cmd.ProcessState)
	}
}

// TestNextReaderOfANamedPipe: a reader of a named pipe that goes may be followed by another one.
func TestNextReaderOfANamedPipe(t *testing.T) {
	named := fifo(t)
	open := func() *os.File {
		f, err := os.OpenFile(named, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := open()
	writer, err := os.OpenFile(named, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := StartRelay(program("relay"), filepath.Join(t.TempDir(), "output"), writer, writer)
	if err != nil {
		t.Fatal(err)
	}
	w := wire{relay: r, reader: first, writer: writer}
	gate := fifo(t)
	cmd := w.command(t, `echo one; read < "`+gate+`"; echo two`)
	if n, err := io.ReadFull(first, make([]byte, 4)); err != nil {
		t.Fatal(n, err)
	}
	first.Close()
	w.reader = open()
	defer w.reader.Close()
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := w.all(t, cmd); string(got) != "two\n" {
		t.Errorf("the second reader got %q", got)
	}
}

// TestRelayIsContinued: a relay that somebody stops would hold up the command.
func TestRelayIsContinued(t *testing.T) {
	w := newWire(t)
	gate := fifo(t)
	cmd := w.command(t, `echo one; read < "`+gate+`"; echo two`)
	if _, err := w.reader.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.relay.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := w.all(t, cmd); string(got) != "two\n" {
		t.Errorf("arrived: %q", got)
	}
}

// TestRelayIsContinuedWithoutUs: a relay that is stopped when we are killed, and could not continue it.
func TestRelayIsContinuedWithoutUs(t *testing.T) {
	gate := fifo(t)
	s := prepare(t, program("relayed", filepath.Join(t.TempDir(), "output"), `read < "`+gate+`"; echo said afterwards`))
	reader, writer, err := os.Pipe()
	s.must(err)
	defer reader.Close()
	s.cmd.Stdout, s.cmd.Stderr = writer, writer
	s.start()
	relay := s.pid("relay pid")
	s.eventually("it relays", func() bool { p, _ := readProcess(relay); return p.name == RelayName })
	for _, pid := range []int{s.cmd.Process.Pid, relay} {
		s.must(unix.Kill(pid, unix.SIGSTOP))
		s.eventually("stopped", func() bool { p, _ := readProcess(pid); return p.state == 'T' })
	}
	s.signal(unix.SIGKILL)
	_ = s.cmd.Wait()
	writer.Close()
	s.must(os.WriteFile(gate, []byte("go\n"), 0))
	if got, err := io.ReadAll(reader); err != nil || string(got) != "said afterwards\n" {
		t.Errorf("arrived: %q, %v", got, err)
	}
}

// TestRelayHasItsOwnName: neither pkill nor pkill -f with our name finds it.
func TestRelayHasItsOwnName(t *testing.T) {
	w := newWire(t)
	gate := fifo(t)
	cmd := w.command(t, `read < "`+gate+`"`)
	p, ok := readProcess(w.relay.PID())
	for ok && p.name != RelayName { // it takes the name when it begins
		p, ok = readProcess(w.relay.PID())
	}
	line, err := readProc(fmt.Sprintf("/proc/%d/cmdline", w.relay.PID()))
	if !ok || err != nil || !bytes.HasPrefix(line, []byte(RelayName+"\x00")) ||
		bytes.Contains(line, []byte(filepath.Dir(w.log))) {
		t.Errorf("its command line is %q (%v)", line, err)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	w.all(t, cmd)
}

// TestCopyIsPrompt: what a command has printed is in the copy at once, not only at the end.
func TestCopyIsPrompt(t *testing.T) {
	w := newWire(t)
	gate := fifo(t)
	cmd := w.command(t, `echo one; read < "`+gate+`"`)
	if !patience.Comes(t, func() bool { return ReadTail(w.log) == "one\n" }) {
		t.Fatalf("the copy is %q", ReadTail(w.log))
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	w.all(t, cmd)
}

// TestRelayWithoutSplice: to where the system cannot splice the bytes are copied.
func TestRelayWithoutSplice(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETFL, unix.O_APPEND); err != nil {
		t.Fatal(err)
	}
	w := wire{reader: os.NewFile(uintptr(fds[0]), "reader"), writer: os.NewFile(uintptr(fds[1]), "writer"),
		log: filepath.Join(t.TempDir(), "output")}
	defer w.reader.Close()
	if w.relay, err = StartRelay(program("relay"), w.log, w.writer, w.writer); err != nil {
		t.Fatal(err)
	}
	// by somebody who shares it
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETFL, unix.O_APPEND|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	cmd := w.command(t, `head -c 3000000 /dev/zero; echo the end`)
	if got := w.all(t, cmd); len(got) != 3000008 || !bytes.HasSuffix(got, []byte("the end\n")) {
		t.Errorf("%d bytes arrived", len(got))
	}
}

// TestOneOfTwoReadersGoes: the other stream goes on.
func TestOneOfTwoReadersGoes(t *testing.T) {
	outReader, outWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	errReader, errWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer errReader.Close()
	_, _ = outWriter.Fd(), errWriter.Fd()
	r, err := StartRelay(program("relay"), filepath.Join(t.TempDir(), "output"), outWriter, errWriter)
	if err != nil {
		t.Fatal(err)
	}
	w := wire{relay: r, reader: errReader, writer: errWriter}
	defer outWriter.Close()
	outReader.Close()
	cmd := w.command(t, `trap '' PIPE; for i in $(seq 1 500); do echo out 2>/dev/null; echo err $i >&2; done; true`)
	if got := w.all(t, cmd); !bytes.Contains(got, []byte("err 500\n")) {
		t.Errorf("stderr ended early: %d bytes", len(got))
	}
}

// TestDaemonKeepsTheStream: what a daemon that outlives the command writes still arrives, and nobody waits for it.
func TestDaemonKeepsTheStream(t *testing.T) {
	w := newWire(t)
	gate := fifo(t)
	cmd := w.command(t, `echo command; (read < "`+gate+`"; echo daemon) &`)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		w.relay.Finish(time.Hour)
	}()
	select {
	case <-finished:
	case <-patience.Over(t):
		t.Fatal("it waits for the daemon")
	}
	w.writer.Close() // oomguard ends
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(w.reader)
	if err != nil || string(got) != "command\ndaemon\n" {
		t.Errorf("arrived: %q, %v", got, err)
	}
}

// TestRelayOnlyForPipes: terminals, files and /dev/null are handed over as they are; so is everything when no relay can
// be had.
func TestRelayOnlyForPipes(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []*os.File{file, null} {
		r, err := StartRelay(program("relay"), "unused", f, f)
		if err != nil || r.Stdout != f || r.Stderr != f || r.PID() != 0 {
			t.Errorf("%s: %+v, %v", f.Name(), r, err)
		}
		r.Started()
		r.Finish(0)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	r, err := StartRelay([]string{"/no/such/program"}, "unused", writer, null)
	if err == nil || r.Stdout != writer || r.Stderr != null {
		t.Errorf("without a program: %+v, %v", r, err)
	}
}

// TestRelaySharesTheStream: the blocking mode of a stream that others share is not changed, and the command finds it as
// it is.
func TestRelaySharesTheStream(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	reader, writer := os.NewFile(uintptr(fds[0]), "reader"), os.NewFile(uintptr(fds[1]), "writer")
	defer writer.Close()
	r, err := StartRelay(program("relay"), filepath.Join(t.TempDir(), "output"), writer, writer)
	if err != nil {
		t.Fatal(err)
	}
	w := wire{relay: r, reader: reader, writer: writer}
	cmd := w.command(t, `exec python3 -S -c '
import os, select
data = bytes(3000000)  # more than the pipes hold
assert not os.get_blocking(1)
while data:
    select.select([], [1], [])
    data = data[os.write(1, data):]'`)
	got := make([]byte, 3000000)
	if _, err := io.ReadFull(reader, got); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v: the stream is blocking now", flags, err)
	}
}
