//go:build linux

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"oomguard/launcher/patience"
)

// screen is a terminal: a real one, with a line discipline that turns keys into signals.
type screen struct {
	*testing.T
	sink
	keys *os.File // the end that the user is at
	tty  *os.File // the program's end, until the program has it
	seen int      // what was waited for so far
}

// openScreen gives a command a terminal, as the leader of whose session it is started.
func openScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	s := &screen{T: t}
	var err error
	if s.keys, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	number := uint32(0)
	s.control(func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		}
		return err
	})
	if s.tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	s.resize(33, 101)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.tty, s.tty, s.tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	s.done = make(chan struct{})
	return s
}

// started begins to show.
func (s *screen) started() {
	s.tty.Close()
	go func() {
		defer close(s.done)
		text := make([]byte, 4096)
		for {
			n, err := s.keys.Read(text) // EIO when nobody has the terminal any more
			_, _ = s.Write(text[:n])
			if err != nil {
				return
			}
		}
	}()
}

func (s *screen) resize(rows, columns uint16) {
	s.Helper()
	s.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// control does something with the descriptor; File.Fd would make it one whose reader no Close wakes up.
func (s *screen) control(do func(fd int) error) {
	s.Helper()
	conn, err := s.keys.SyscallConn()
	if err == nil {
		if outer := conn.Control(func(fd uintptr) { err = do(int(fd)) }); outer != nil {
			err = outer
		}
	}
	if err != nil {
		s.Fatal(err)
	}
}

// foreground is the process group that gets the keys.
func (s *screen) foreground() (group int) {
	s.Helper()
	s.control(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return group
}

func (s *screen) press(keys string) {
	s.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}

func (s *screen) waitFor(text string) {
	s.Helper()
	at := -1
	if !patience.Comes(s, func() bool { at = strings.Index(s.String()[s.seen:], text); return at >= 0 }) {
		s.Fatalf("%q was never shown; the screen:\n%s", text, s.String())
	}
	s.seen += at + len(text)
}

// close waits for the last of the terminal's writers and returns all that was shown.
func (s *screen) close() string {
	s.Helper()
	select {
	case <-s.done:
	case <-patience.Over(s):
		s.Fatalf("the terminal is still in use; the screen:\n%s", s.String())
	}
	s.keys.Close()
	return s.String()
}
