//go:build linux

package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests run real processes: this test binary, executed again as one of the programs below, bash, and torchrun.

const programArg = "program:"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if name, ok := strings.CutPrefix(os.Args[1], programArg); ok {
			os.Exit(programs()[name](os.Args[2:]))
		}
	}
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(s) { // by nohup, or in the background of a script: what the tests start shall not inherit it
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// programs are what the test binary can be besides a test.
func programs() map[string]func(args []string) int {
	return map[string]func(args []string) int{
		"supervisor": supervisorProgram,
		"signals":    signalsProgram,
		"interrupt":  interruptProgram,
		"agent":      agentProgram,
		"rank":       rankProgram,
		"terminal":   terminalProgram,
		"reader":     readerProgram,
		"relay":      relayProgram,
		"relayed":    relayedProgram,
		"writer":     writerProgram,
		"guard":      guardProgram,
	}
}

// program returns the command line of one of the programs.
func program(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err) // only on systems without /proc
	}
	return append([]string{self, programArg + name}, args...)
}

// say appends a line to the fifo that the test reads. Lines this short are written in one piece.
func say(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv("EVENTS"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", args...)
}

// supervisorProgram does what `oomguard run` does with the launcher. It says "seen N" when it knows of N ranks, and
// leaves the Exit in the file $RESULT.
func supervisorProgram(args []string) int {
	grace, _ := time.ParseDuration(os.Getenv("GRACE"))
	killAfter, _ := time.ParseDuration(os.Getenv("KILL_AFTER"))
	becoming, _ := time.ParseDuration(os.Getenv("BECOMING"))
	p, err := Start(Command{Argv: args, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
		Options{
			Grace:      grace,
			KillAfter:  killAfter,
			DieWithUs:  os.Getenv("DIE_WITH_US") != "",
			Guard:      guardOf(os.Getenv("GUARD")),
			WholeJob:   os.Getenv("WHOLE_JOB") != "",
			LeftBehind: func(n int) { say("left behind %d", n) },
			becoming:   becoming,
		})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	say("supervisor %d command %d", os.Getpid(), p.pid)
	ended := make(chan struct{})
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for seen := 0; ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if n := len(p.Ranks()); n != seen {
				seen = n
				say("seen %d", n)
			}
		}
	}()
	exit, err := p.Wait()
	close(ended)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 124
	}
	text, err := json.Marshal(exit)
	if err == nil {
		err = os.WriteFile(os.Getenv("RESULT"), text, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 123
	}
	return exit.Code
}

// signalsProgram says each signal that it gets, and exits with 7 after the one that is named. Signals after "default"
// keep their default action.
func signalsProgram(args []string) int {
	caught := make(chan os.Signal, 64)
	for _, s := range append(handedOn(), jobControl()...) {
		if name := signalName(s); len(args) == 1 || !strings.Contains(args[1], name) {
			signal.Notify(caught, s)
		}
	}
	say("ready %d", os.Getpid())
	for s := range caught {
		name := signalName(s)
		say("%s", name)
		if name == args[0] {
			break
		}
	}
	return 7
}

// interruptProgram ends as oomguard does after a command that died of Ctrl-C, while other threads work.
func interruptProgram([]string) int {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGINT)
	for range 4 {
		go func() {
			for {
				time.Sleep(50 * time.Microsecond)
			}
		}()
	}
	time.Sleep(5 * time.Millisecond) // until there are several threads
	Interrupt()
	return 130
}

// agentProgram stands for torchrun: it starts one rank for each argument in a session of its own, polls them every 100
// ms as torchrun does, and exits with 1 if any failed, as torchrun does.
func agentProgram(args []string) int {
	var ranks []*exec.Cmd
	for i, does := range args {
		argv := program("rank", does)
		rank := exec.Command(argv[0], argv[1:]...)
		rank.Env = append(os.Environ(), fmt.Sprint("RANK=", i), fmt.Sprint("LOCAL_RANK=", i),
			"TORCHELASTIC_RESTART_COUNT=3")
		rank.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := rank.Start(); err != nil {
			return 99
		}
		ranks = append(ranks, rank)
	}
	code := 0
	for _, rank := range ranks {
		for ended := false; !ended; {
			p, ok := readProcess(rank.Process.Pid)
			if ended = ok && p.ended(); ended || !ok {
				break
			}
			time.Sleep(100 * time.Millisecond) // torchrun's monitor interval
		}
		if rank.Wait() != nil {
			code = 1
		}
	}
	return code
}

// rankProgram says "rank R pid P", waits for SIGUSR1, and then does what it was told: "exit N", "kill N", or
// "stubborn", which ignores SIGTERM from the beginning. A "parent" also starts a child in a session of its own, the
// "parent of a stubborn one" one that ignores SIGTERM.
func rankProgram(args []string) int {
	does, number, _ := strings.Cut(args[0], " ")
	n, _ := strconv.Atoi(number)
	if does == "stubborn" {
		signal.Ignore(unix.SIGTERM)
	}
	wanted := make(chan os.Signal, 1)
	signal.Notify(wanted, unix.SIGUSR1)
	if does == "parent" {
		script := "exec sleep 1000"
		if number != "" {
			script = "trap '' TERM; " + script
		}
		child := exec.Command("bash", "-c", script)
		child.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 99
		}
		for p := (process{}); p.name != "sleep"; p, _ = readProcess(child.Process.Pid) {
			runtime.Gosched() // bash is still setting its trap
		}
		say("child pid %d", child.Process.Pid)
	}
	say("rank %s pid %d", os.Getenv("RANK"), os.Getpid())
	<-wanted
	if does == "kill" {
		_ = unix.Kill(os.Getpid(), unix.Signal(n))
		select {}
	}
	return n
}

// terminalProgram says whether its standard streams are the terminal, of which size, and whether it is in the
// foreground, at its start and after each SIGWINCH.
func terminalProgram([]string) int {
	changed := make(chan os.Signal, 8)
	signal.Notify(changed, unix.SIGWINCH, unix.SIGUSR2)
	report := func(why string) {
		var sizes []string
		for fd := range 3 {
			size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
			if err != nil {
				sizes = append(sizes, err.Error())
				continue
			}
			sizes = append(sizes, fmt.Sprintf("%dx%d", size.Row, size.Col))
		}
		group, _ := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		say("%s %s foreground %v", why, strings.Join(sizes, " "), group == unix.Getpgrp())
	}
	report("start")
	for s := range changed {
		if s == unix.SIGUSR2 {
			return 0
		}
		report("change")
	}
	return 0
}

// readerProgram says the line that it reads from the terminal. Like a pager, it does not end by Ctrl-C.
func readerProgram([]string) int {
	signal.Ignore(unix.SIGINT)
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		say("%v", err)
		return 1
	}
	say("reading")
	line := make([]byte, 100)
	n, err := terminal.Read(line)
	if err != nil && !errors.Is(err, io.EOF) {
		say("%v", err)
		return 1
	}
	say("read %s", strings.TrimSpace(string(line[:n])))
	return 0
}

// testPython returns a Python that can import torch.
func testPython(t testing.TB) string {
	t.Helper()
	python := os.Getenv("OOMGUARD_TEST_PYTHON")
	if python == "" {
		python, _ = filepath.Abs("../.venv/bin/python")
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v; run make test, which sets up a Python with torch", err)
	}
	return python
}
