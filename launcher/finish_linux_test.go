package launcher

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFinishWaitsForTheReader: nothing is given up as long as a reader is there, however slow it is.
func TestFinishWaitsForTheReader(t *testing.T) {
	w := newWire(t)
	cmd := w.command(t, `head -c 100000 /dev/zero`) // more than the reader's pipe holds
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		w.relay.Finish(0)
	}()
	moment := time.NewTimer(300 * time.Millisecond) // in which nothing must happen
	defer moment.Stop()
	select {
	case <-finished:
		t.Fatal("the output was given up")
	case <-moment.C:
	}
	if _, err := io.ReadFull(w.reader, make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	<-finished
}

// TestFinishIsEndedByASignal: who waits for a reader that does not read can be told to end, and only by a signal that
// asks for it.
func TestFinishIsEndedByASignal(t *testing.T) {
	s := prepare(t, program("relayed", filepath.Join(t.TempDir(), "output"), `head -c 100000 /dev/zero`))
	reader, writer, err := os.Pipe()
	s.must(err)
	defer reader.Close()
	defer writer.Close()
	s.cmd.Stdout, s.cmd.Stderr = writer, writer
	s.start()
	s.hear("command ended")
	s.eventually("it catches signals", func() bool { return catches(s.cmd.Process.Pid, firstRealTime) })
	s.signal(unix.SIGUSR1)
	s.signal(unix.SIGTERM)
	s.hear("asked to end by terminated")
	s.must(s.cmd.Wait())
}

// catches tells whether a process has a handler for a signal that Go's runtime does not catch by itself.
func catches(pid int, s unix.Signal) bool {
	text, err := readProc(fmt.Sprintf("/proc/%d/status", pid))
	_, mask, _ := strings.Cut(string(text), "\nSigCgt:\t")
	var caught uint64
	_, scanErr := fmt.Sscanf(mask, "%x", &caught)
	return err == nil && scanErr == nil && caught&bit(s) != 0
}
