//go:build linux

// Package conformance compares the built oomguard with the command that it wraps: each scenario is run twice, directly
// and under oomguard, and output, status, signals seen by each rank, what is left of the process tree, and the terminal
// must be the same.
//
// Scenarios are rows: scenarios_plain_test.go has those that hold for any command, scenarios_torchrun_test.go those of
// torchrun, which run on the newest and, in make test-all, on the oldest PyTorch that this machine can install, and
// scenarios_terminal_test.go those on a terminal.
package conformance

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// everything tells whether all is to be run, also what takes long and differs little (make test-all): the oldest
// PyTorch, and the long tail of accelerate and DeepSpeed.
func everything() bool { return os.Getenv("OOMGUARD_TEST_ALL") != "" }

// atOnce is how many commands run at the same time, however few processors there are: most of a scenario is waiting.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		// by nohup, or in the background of a script: the scenarios say for themselves what is ignored
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(programFolder())
	os.Exit(code)
}

// TestPlainCommands: what holds for any command.
func TestPlainCommands(t *testing.T) {
	for _, s := range plainScenarios() {
		conform(t, s, newestTorch(t))
	}
}

// TestTorchrun: what holds for torchrun, on the newest PyTorch and, in make test-all, on the oldest.
func TestTorchrun(t *testing.T) {
	for _, torch := range torches(t) {
		t.Run(torch.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range torchrunScenarios() {
				if !s.newestOnly || torch.newest {
					conform(t, s, torch)
				}
			}
		})
	}
}

// TestTerminal: what a user at a terminal sees and presses.
func TestTerminal(t *testing.T) {
	for _, s := range terminalScenarios() {
		conform(t, s, newestTorch(t))
	}
}

// conform runs a scenario under oomguard, and compares with what the command does directly: now, or when it was
// recorded. It is run once: what depends on the moment at which a process of the command runs is no difference, and a
// scenario that finds one has to wait for what it builds on, or to say what is open and why.
func conform(t *testing.T, s scenario, with torch) {
	t.Helper()
	t.Run(s.name, func(t *testing.T) {
		t.Parallel()
		path := recordingOf(t, s, with)
		direct := recorded(t, path, s)
		isRecorded := direct != nil
		var wrapped outcome
		t.Run("runs", func(t *testing.T) {
			if !isRecorded {
				t.Run("direct", func(t *testing.T) {
					t.Parallel()
					direct = execute(t, s, with, false)
				})
			}
			t.Run("wrapped", func(t *testing.T) {
				t.Parallel()
				wrapped = execute(t, s, with, true)
			})
		})
		if t.Failed() {
			return
		}
		differences := compare(s, direct, wrapped)
		if isRecorded && len(differences) > 0 { // on a machine that the recording does not know
			t.Logf("%s is of another machine (make record): %s", path, strings.Join(differences, "\n"))
			differences = compare(s, execute(t, s, with, false), wrapped)
		}
		for _, difference := range differences {
			t.Error(difference)
		}
		if len(differences) == 0 {
			record(t, path, s, direct)
		}
	})
}

// outcome is what was observed of a run, by name: status, stdout, stderr, screen, and "rank N", the log of a rank.
type outcome map[string]string

// compare tells each observation that differs, and, where a scenario's timing is open, each that is none of the
// allowed.
func compare(s scenario, direct, wrapped outcome) (differences []string) {
	names := map[string]bool{}
	for name := range direct {
		names[name] = true
	}
	for name := range wrapped {
		names[name] = true
	}
	for name := range names {
		want, got := direct[name], wrapped[name]
		if s.orphans > 0 && strings.HasPrefix(name, "rank ") {
			want += "SIGTERM\n" // what torchrun alone leaves behind is ended
		}
		if slices.Contains(s.unordered, name) {
			want, got = sortedLines(want), sortedLines(got)
		}
		if allowed, open := s.open[name]; open {
			for which, text := range map[string]string{"the command": want, "oomguard": got} {
				if !regexp.MustCompile(`^(?s:` + allowed + `)$`).MatchString(text) {
					differences = append(differences,
						fmt.Sprintf("%s of %s is not one of those that its timing allows, %s:\n%s", name, which,
							allowed, text))
				}
			}
			continue
		}
		if got != want {
			differences = append(differences,
				fmt.Sprintf("%s differs\ndirectly:\n%s\nunder oomguard:\n%s%s", name, want, got,
					firstDifference(want, got)))
		}
	}
	return differences
}

// sortedLines is for streams that several processes write to at the same time.
func sortedLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func firstDifference(want, got string) string {
	n := 0
	for n < len(want) && n < len(got) && want[n] == got[n] {
		n++
	}
	around := func(text string) string { return text[max(0, n-20):min(len(text), n+60)] }
	return fmt.Sprintf("first at byte %d: %q, %q\n", n, around(want), around(got))
}
