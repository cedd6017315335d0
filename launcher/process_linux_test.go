package launcher

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		script string
		code   int
		signal unix.Signal
	}{
		{"exit 0", 0, 0},
		{"exit 1", 1, 0},
		{"exit 42", 42, 0},
		{"exit 143", 143, 0}, // looks like a signal and is none
		{"kill -TERM $$", 143, unix.SIGTERM},
		{"kill -KILL $$", 137, unix.SIGKILL},
		{"ulimit -c 0; kill -SEGV $$", 139, unix.SIGSEGV},
		{"kill -USR1 $$", 138, unix.SIGUSR1},
	} {
		t.Run(test.script, func(t *testing.T) {
			p, err := Start(Command{Argv: []string{"bash", "-c", test.script}, Env: os.Environ()}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // Wait may be called again
				exit, err := p.Wait()
				if err != nil {
					t.Fatal(err)
				}
				if exit.Code != test.code || exit.Signal != test.signal {
					t.Errorf("code %d signal %v, want %d %v", exit.Code, exit.Signal, test.code, test.signal)
				}
				if exit.Started.IsZero() || exit.Ended.Before(exit.Started) {
					t.Errorf("started %v, ended %v", exit.Started, exit.Ended)
				}
				if len(exit.Ranks)+len(exit.Survivors)+len(exit.Forwarded) > 0 {
					t.Errorf("ranks %v, survivors %v, signals %v of a plain command", exit.Ranks, exit.Survivors,
						exit.Forwarded)
				}
			}
		})
	}
}

// TestSignalsOnce sends each signal to the supervisor alone and to its whole process group, as timeout(1) and terminals
// do. A second signal after it closes the window in which a duplicate could come.
func TestSignalsOnce(t *testing.T) {
	for _, sig := range handedOn() {
		if sig > firstRealTime+1 {
			continue // one speaks for all
		}
		for _, to := range []string{"process", "group"} {
			name := signalName(sig)
			t.Run(name+" to "+to, func(t *testing.T) {
				t.Parallel()
				last := unix.SIGUSR2
				if sig == last {
					last = unix.SIGUSR1
				}
				s := supervise(t, program("signals", unix.SignalName(last)), func(cmd *exec.Cmd) {
					cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
				})
				s.hear("ready")
				pid := s.cmd.Process.Pid
				if to == "group" {
					pid = -pid
				}
				s.must(unix.Kill(pid, sig))
				s.hear(name)
				s.signal(last)
				s.hear(unix.SignalName(last))
				s.heardOnly()
				status, exit := s.wait()
				want := []string{name, unix.SignalName(last)}
				if sig == unix.SIGWINCH {
					want = want[1:]
				}
				if status != 7 || exit.Code != 7 || !slices.Equal(exit.Forwarded, want) {
					t.Errorf("status %d, exit %+v", status, exit)
				}
			})
		}
	}
}

// TestEarlySignal has a signal in the channel before the command exists.
func TestEarlySignal(t *testing.T) {
	s := prepare(t, []string{"true"})
	signals := make(chan os.Signal, 1)
	signals <- unix.SIGTERM
	p, err := Start(Command{Argv: []string{"sleep", "1000"}, Env: s.cmd.Env}, Options{Signals: signals})
	s.must(err)
	exit, err := p.Wait()
	s.must(err)
	if exit.Signal != unix.SIGTERM || exit.Code != 143 || !slices.Equal(exit.Forwarded, []string{"SIGTERM"}) {
		t.Errorf("exit %+v", exit)
	}
}

// TestClosedSignals: a channel that its owner closes neither hangs nor spins.
func TestClosedSignals(t *testing.T) {
	signals := make(chan os.Signal)
	close(signals)
	p, err := Start(Command{Argv: []string{"true"}, Env: os.Environ()}, Options{Signals: signals})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

// TestDispositions compares which signals a command finds ignored without and with us between.
func TestDispositions(t *testing.T) {
	for _, trap := range []string{"", "HUP", "HUP INT TSTP TTIN TTOU"} {
		t.Run("ignored: "+trap, func(t *testing.T) {
			set := ""
			if trap != "" {
				set = "trap '' " + trap + "; "
			}
			ask := []string{"grep", "^Sig[IB]", "/proc/self/status"} // ignored and blocked
			output := func(argv []string) string {
				s := prepare(t, append([]string{"bash", "-c", set + `exec "$@"`, "bash"}, argv...))
				out, err := s.cmd.Output()
				s.must(err)
				return string(out)
			}
			want, got := output(ask), output(program("supervisor", ask...))
			if got != want {
				t.Errorf("without us\n%swith us\n%s", want, got)
			}
			lastDigit := got[len(got)-2]
			// SIGHUP is signal 1, the lowest bit
			if hup := (lastDigit-'0')%2 == 1; hup != strings.Contains(trap, "HUP") {
				t.Errorf("SIGHUP ignored: %v\n%s", hup, got)
			}
		})
	}
}

// TestNohup: a SIGHUP that we ignore does not reach the command by us either.
func TestNohup(t *testing.T) {
	s := prepare(t, append([]string{"bash", "-c", `trap '' HUP; exec "$@"`, "bash"},
		program("supervisor", program("signals", "SIGUSR2", "SIGHUP")...)...))
	s.start()
	s.listen()
	s.hear("ready")
	s.signal(unix.SIGHUP)
	s.signal(unix.SIGUSR2)
	s.hear("SIGUSR2")
	if status, exit := s.wait(); status != 7 || !slices.Equal(exit.Forwarded, []string{"SIGUSR2"}) {
		t.Errorf("status %d, forwarded %v", status, exit.Forwarded)
	}
}

// TestStreams: arguments, standard input and further descriptors arrive as they were given.
func TestStreams(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{"bash", "-c", `printf '<%s>' "$@"; cat; echo to three >&3`, "bash", "a b", "", "$x", "--", "*"}
	s := prepare(t, program("supervisor", argv...), func(cmd *exec.Cmd) {
		cmd.Stdin = strings.NewReader("from stdin")
		cmd.ExtraFiles = []*os.File{writer}
	})
	out, err := s.cmd.Output()
	s.must(err)
	if want := "<a b><><$x><--><*>from stdin"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
	writer.Close()
	if three, err := io.ReadAll(reader); err != nil || string(three) != "to three\n" {
		t.Errorf("descriptor 3 got %q, %v", three, err)
	}
}

// TestNonBlockingStreams: a stream that we share with others keeps its blocking mode.
func TestNonBlockingStreams(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(uintptr(fds[1]), "out")
	defer out.Close()
	defer unix.Close(fds[0])
	p, err := Start(Command{Argv: []string{"true"}, Env: os.Environ(), Stdout: out}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}

// TestSupervisorKilled: the training goes on without us, with all its output.
func TestSupervisorKilled(t *testing.T) {
	const lines = 20000 // more than a pipe holds
	gate := fifo(t)
	script := fmt.Sprintf(`trap 'echo SIGTERM >$EVENTS' TERM HUP; echo ready >$EVENTS; read x <%s
		for ((i = 1; i <= %d; i++)); do echo line $i; done; echo finished >$EVENTS`, gate, lines)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := supervise(t, []string{"bash", "-c", script}, func(cmd *exec.Cmd) { cmd.Stdout = writer })
	writer.Close()
	s.hear("ready")
	s.signal(unix.SIGKILL)
	_ = s.cmd.Wait()
	s.must(os.WriteFile(gate, []byte("go\n"), 0))
	scanner, n := bufio.NewScanner(reader), 0
	for scanner.Scan() {
		n++
		if want := fmt.Sprint("line ", n); scanner.Text() != want {
			t.Fatalf("got %q, want %q", scanner.Text(), want)
		}
	}
	if n != lines {
		t.Errorf("%d lines of %d", n, lines)
	}
	s.hear("finished")
	s.heardOnly()
}

// TestZombies: whoever dies among our adopted children is reaped while the command runs.
func TestZombies(t *testing.T) {
	s := supervise(t, []string{"bash", "-c", `(setsid bash -c 'echo orphan $$ >$EVENTS; read x <$0' $0 &); read x <$0`,
		fifo(t)})
	orphan := s.pid("orphan")
	s.eventually("the orphan came to the supervisor", func() bool {
		p, ok := readProcess(orphan)
		return ok && p.parent == s.cmd.Process.Pid
	})
	s.must(unix.Kill(orphan, unix.SIGKILL))
	s.eventually("the orphan was reaped", func() bool {
		_, ok := readProcess(orphan)
		return !ok
	})
	s.signal(unix.SIGTERM)
	if status, exit := s.wait(); status != 143 || len(exit.Survivors) > 0 {
		t.Errorf("status %d, exit %+v", status, exit)
	}
}

// TestOwnHelpers: other parts of our program get the status of their own children while we wait for the command's.
func TestOwnHelpers(t *testing.T) {
	helper := exec.Command("sleep", "1000")
	helper.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Argv: []string{"bash", "-c", "read x"}, Env: os.Environ(), Stdin: silent(t)}, Options{
		Exclude: func() []int { return []int{helper.Process.Pid} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for code := range 50 {
		err := exec.Command("bash", "-c", fmt.Sprint("exit ", code)).Run()
		var failed *exec.ExitError
		if code == 0 && err != nil || code > 0 && (!errors.As(err, &failed) || failed.ExitCode() != code) {
			t.Errorf("helper that exits with %d: %v", code, err)
		}
	}
	if p.Owns(helper.Process.Pid) || slices.Contains(p.Tree(), helper.Process.Pid) || p.Owns(os.Getpid()) || p.Owns(1) {
		t.Error("the helper, we or init count as the command's")
	}
	if !p.Owns(p.pid) || !slices.Contains(p.Tree(), p.pid) {
		t.Error("the command does not count as its own")
	}
	_ = unix.Kill(p.pid, unix.SIGKILL)
	exit, err := p.Wait()
	if err != nil || exit.Signal != unix.SIGKILL || len(exit.Survivors) > 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Errorf("the helper was not left alone: %v", err)
	}
	if _ = helper.Wait(); helper.ProcessState == nil ||
		helper.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the helper's status: %v", helper.ProcessState)
	}
}

// silent is a standard input that neither says anything nor ends.
func silent(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	reader.Fd() // sets it to blocking, which a shell expects
	return reader
}

// TestStolenStatus: if another part of the program waits for all children, that is said, not guessed over.
func TestStolenStatus(t *testing.T) {
	p, err := Start(Command{Argv: []string{"bash", "-c", "read x; exit 3"}, Env: os.Environ(), Stdin: silent(t)},
		Options{})
	if err != nil {
		t.Fatal(err)
	}
	thief := make(chan error)
	go func() {
		_, err := unix.Wait4(p.pid, nil, 0, nil)
		thief <- err
	}()
	_ = unix.Kill(p.pid, unix.SIGKILL)
	exit, err := p.Wait()
	if stolen := <-thief == nil; stolen {
		if err == nil || exit.Code != 125 || exit.Signal != 0 {
			t.Errorf("exit %+v, error %v", exit, err)
		}
	} else if err != nil || exit.Code != 137 {
		t.Errorf("exit %+v, error %v", exit, err)
	}
}

func BenchmarkStart(b *testing.B) {
	b.Run("launcher", func(b *testing.B) {
		for b.Loop() {
			p, err := Start(Command{Argv: []string{"/bin/true"}, Env: os.Environ()}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("os-exec", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
