package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs a program of our own below bash or alone, with a new terminal as its controlling terminal, as the
// leader of the terminal's session and in its foreground. What is written to keys is typed.
func onTerminal(t *testing.T, argv []string) (s *supervised, keys *os.File) {
	t.Helper()
	s = prepare(t, argv)
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	s.must(err)
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	s.must(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	s.must(err)
	screen, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	s.must(err)
	s.must(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 101}))
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = screen, screen, screen
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	s.start()
	screen.Close()
	go func() { // somebody must read the screen, or writers wait
		text := make([]byte, 4096)
		for {
			n, err := keys.Read(text)
			if err != nil {
				return
			}
			_, _ = os.Stderr.Write(text[:n])
		}
	}()
	return s, keys
}

// shell returns bash running a script in which "$@" is a supervisor with one of the programs below it.
func shell(script, name string, args ...string) []string {
	return append([]string{"bash", "--norc", "-c", script, "bash"}, program("supervisor", program(name, args...)...)...)
}

func (s *supervised) press(keys *os.File, text string) {
	s.Helper()
	_, err := keys.WriteString(text)
	s.must(err)
}

const ctrlC, ctrlZ, ctrlBackslash = "\x03", "\x1a", "\x1c"

// TestKeys: keys reach the command exactly once, whether oomguard is alone, in a script, or a shell's job.
func TestKeys(t *testing.T) {
	for _, test := range []struct {
		name string
		argv []string
	}{
		{"alone", program("supervisor", program("signals", "SIGUSR2")...)},
		{"in a script", shell(`trap : INT QUIT; "$@"; echo status $? >$EVENTS`, "signals", "SIGUSR2")},
		{"a job", shell(`set -m; "$@"; echo status $? >$EVENTS`, "signals", "SIGUSR2")},
		{"in a pipeline", shell(`trap : INT QUIT; set -o pipefail; "$@" | cat; echo status $? >$EVENTS`, "signals",
			"SIGUSR2")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, keys := onTerminal(t, test.argv)
			s.listen()
			s.hear("ready")
			s.press(keys, ctrlC)
			s.hear("SIGINT")
			s.press(keys, ctrlBackslash)
			s.hear("SIGQUIT")
			s.must(unix.Kill(s.command, unix.SIGUSR2))
			s.hear("SIGUSR2")
			s.heardOnly()
			if test.name != "alone" {
				s.hear("status 7")
			}
			if _, exit := s.wait(); exit.Code != 7 || len(exit.Forwarded) > 0 {
				t.Errorf("exit %+v", exit)
			}
		})
	}
}

// TestTerminalSeen: the command sees the terminal itself, its size, and each change of it.
func TestTerminalSeen(t *testing.T) {
	s, keys := onTerminal(t, program("supervisor", program("terminal")...))
	s.listen()
	s.hear("start 33x101 33x101 33x101 foreground true")
	s.must(unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 44, Col: 55}))
	s.hear("change 44x55 44x55 44x55 foreground true")
	s.signal(unix.SIGUSR2)
	if status, _ := s.wait(); status != 0 {
		t.Errorf("status %d", status)
	}
	s.heardOnly()
}

// TestCtrlZ: the shell sees its job stop, with the command, and continues both.
func TestCtrlZ(t *testing.T) {
	gate := fifo(t)
	for _, way := range []struct{ name, stop string }{{"key", ctrlZ}, {"signal to the job", ""}} {
		t.Run(way.name, func(t *testing.T) {
			s, keys := onTerminal(t, shell(`set -m; "$@"; echo stopped $? >$EVENTS; read x <`+gate+
				`; fg; echo status $? >$EVENTS`,
				"signals", "SIGUSR2", "SIGTSTP"))
			var supervisor int
			_, err := fmt.Sscanf(s.hear("supervisor "), "supervisor %d command %d", &supervisor, &s.command)
			s.must(err)
			s.hear("ready")
			if way.stop != "" {
				s.press(keys, way.stop)
			} else {
				s.must(unix.Kill(-supervisor, unix.SIGTSTP))
			}
			s.hear(fmt.Sprint("stopped ", 128+int(unix.SIGSTOP)))
			for _, pid := range []int{supervisor, s.command} {
				s.eventually("stopped", func() bool { p, _ := readProcess(pid); return p.state == 'T' })
			}
			s.must(os.WriteFile(gate, []byte("go\n"), 0))
			s.hear("SIGCONT")
			s.eventually("the command is in the foreground again", func() bool {
				group, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPGRP)
				return err == nil && group == s.command
			})
			s.press(keys, ctrlC)
			s.hear("SIGINT")
			s.must(unix.Kill(s.command, unix.SIGUSR2))
			s.hear("SIGUSR2")
			s.hear("status 7")
			s.heardOnly()
			s.wait()
		})
	}
}

// TestCtrlZWithoutShell: with nobody to continue the job (docker run -it, ssh -t) Ctrl-Z has no effect.
func TestCtrlZWithoutShell(t *testing.T) {
	s, keys := onTerminal(t, program("supervisor", program("signals", "SIGUSR2", "SIGTSTP")...))
	s.listen()
	s.hear("ready")
	s.press(keys, ctrlZ)
	s.hear("SIGCONT") // it was stopped for a moment
	s.press(keys, ctrlC)
	s.hear("SIGINT")
	s.signal(unix.SIGUSR2)
	if status, _ := s.wait(); status != 7 {
		t.Errorf("status %d", status)
	}
}

// TestStoppedAlone: who stops the command with kill, and continues it with kill, does not stop us for good.
func TestStoppedAlone(t *testing.T) {
	s := supervise(t, program("signals", "SIGUSR2"))
	s.hear("ready")
	s.must(unix.Kill(s.command, unix.SIGSTOP))
	s.eventually("stopped", func() bool { p, _ := readProcess(s.command); return p.state == 'T' })
	s.must(unix.Kill(s.command, unix.SIGCONT))
	s.hear("SIGCONT")
	s.signal(unix.SIGUSR2)
	if status, exit := s.wait(); status != 7 || len(exit.Forwarded) != 1 {
		t.Errorf("status %d, forwarded %v", status, exit.Forwarded)
	}
}

// TestBackground: a job that was started in the background and wants to read stops, and reads after fg.
func TestBackground(t *testing.T) {
	s, keys := onTerminal(t, shell(`set -m; "$@" & wait $!; echo stopped $? >$EVENTS; fg; echo status $? >$EVENTS`,
		"reader"))
	s.listen()
	s.hear("reading")
	s.hear("stopped")
	s.eventually("the command is in the foreground", func() bool {
		group, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPGRP)
		return err == nil && group == s.command
	})
	s.press(keys, "hello\n")
	s.hear("read hello")
	s.hear("status 0")
	s.wait()
}

// TestTerminalReturned: after the command has ended, our group has the terminal again; the script that called us can
// read.
func TestTerminalReturned(t *testing.T) {
	for _, end := range []string{"exits", "is killed", "cannot be executed"} {
		t.Run(end, func(t *testing.T) {
			argv := shell(`"$@"; echo status $? >$EVENTS; read x && echo read $x >$EVENTS`, "signals", "SIGUSR2")
			if end == "cannot be executed" {
				file := t.TempDir() + "/script"
				if err := os.WriteFile(file, []byte("#!/no/such/python\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				argv = append(argv[:len(argv)-3], file)
			}
			s, keys := onTerminal(t, argv)
			status := "status 7"
			switch end {
			case "cannot be executed":
				status = "status 125" // the supervisor program's; oomguard distinguishes
			case "is killed":
				s.listen()
				s.hear("ready")
				s.must(unix.Kill(s.command, unix.SIGKILL))
				status = "status 137"
			default:
				s.listen()
				s.hear("ready")
				s.must(unix.Kill(s.command, unix.SIGUSR2))
			}
			s.hear(status)
			s.press(keys, "hello\n")
			s.hear("read hello")
			s.must(s.cmd.Wait())
		})
	}
}

// TestSharedKeyboard: another member of our pipeline (a pager) may read the keyboard; Ctrl-C still reaches the command
// once.
func TestSharedKeyboard(t *testing.T) {
	pager := strings.Join(program("reader"), " ")
	gate := fifo(t)
	s, keys := onTerminal(t, shell(`set -m; "$@" | (read x <`+gate+`; exec `+pager+`); echo status $? >$EVENTS`,
		"signals", "SIGUSR2"))
	s.listen()
	s.hear("ready")
	s.must(os.WriteFile(gate, []byte("go\n"), 0)) // it starts to read when the command has the terminal
	s.hear("reading")
	s.eventually("the pipeline has the terminal", func() bool {
		group, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPGRP)
		return err == nil && group != s.command
	})
	s.press(keys, "hello\n")
	s.hear("read hello")
	s.press(keys, ctrlC)
	s.hear("SIGINT")
	s.must(unix.Kill(s.command, unix.SIGUSR2))
	s.hear("SIGUSR2")
	s.hear("status 0")
	if _, exit := s.wait(); exit.Code != 7 {
		t.Errorf("exit %+v", exit)
	}
}

// TestInterrupt: whoever started us sees each time that we died of SIGINT, and not a status that only looks like it.
func TestInterrupt(t *testing.T) {
	argv := program("interrupt")
	for range 30 {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // not the tests' group
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGINT {
			t.Fatalf("ended with %v", err)
		}
	}
}
