//go:build linux

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withLaunchers is a Python with accelerate and deepspeed, as .ci/launchers.sh sets it up.
func withLaunchers(tb testing.TB) torch {
	tb.Helper()
	bin := os.Getenv("OOMGUARD_TEST_LAUNCHERS")
	if bin == "" {
		folder, err := os.ReadFile("../../.venv/launchers/where")
		if err != nil {
			tb.Fatalf("OOMGUARD_TEST_LAUNCHERS is not set: %v; run make test, which sets up accelerate and deepspeed",
				err)
		}
		bin = strings.TrimSpace(string(folder))
	}
	for _, name := range []string{"accelerate", "deepspeed"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			tb.Fatalf("%v; run make test, which sets it up", err)
		}
	}
	return torch{name: "launchers", bin: bin, newest: true}
}

// TestAccelerate and TestDeepSpeed: the launchers that people use in place of torchrun, each as it is released. make
// test runs one scenario of each kind, make test-all the long tail too: a start of accelerate takes 2 s of processor
// time, one of DeepSpeed 5 s.
func TestAccelerate(t *testing.T) {
	conformAll(t, accelerateScenarios(), []string{
		"ranks end well",                         // streams
		"what a rank inherits",                   // environment, descriptors, limits
		"a rank exits with 42",                   // ranks whose ends are told
		"SIGTERM",                                // signals
		"the file that it reads unasked",         // its own configuration
		"one process is killed",                  // a child that knows of no rank
		"SIGKILL of accelerate with one process", // what it leaves behind
		"Ctrl-C with one process",                // a terminal
	})
}

func TestDeepSpeed(t *testing.T) {
	conformAll(t, deepspeedScenarios(), []string{
		"ranks end well",          // streams
		"what a rank inherits",    // environment, descriptors, limits
		"a rank exits with 42",    // ranks whose ends are told
		"SIGTERM",                 // signals to its command
		"SIGKILL of its launcher", // what it leaves behind, and a status of 0
		"Ctrl-C",                  // a terminal
	})
}

// conformAll runs all scenarios, or those that are chosen for each time.
func conformAll(t *testing.T, all []scenario, chosen []string) {
	t.Helper()
	with := withLaunchers(t)
	for _, name := range chosen {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			t.Errorf("no scenario is called %q", name)
		}
	}
	for _, s := range all {
		if everything() || slices.Contains(chosen, s.name) {
			conform(t, s, with)
		}
	}
}

// accelerate is a launch with what it would else warn about.
func accelerate(words ...string) []string {
	return append([]string{"accelerate", "launch", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"},
		words...)
}

// accelerateScenarios: several ranks are started by torchrun's agent inside accelerate's own process, without a GPU as
// with one; a single one is a child that knows of no rank, and which accelerate leaves behind whatever it dies of.
func accelerateScenarios() []scenario {
	stderr := []string{"stderr"}
	two := func(words ...string) []string {
		return accelerate(append([]string{"--multi_gpu", "--num_processes=2", "--main_process_port=PORT"}, words...)...)
	}
	one := func(words ...string) []string {
		return accelerate(append([]string{"--cpu", "--num_processes=1"}, words...)...)
	}
	// or oomguard would not start what cannot work
	started := []string{"--waive", "job-consistent", "--waive", "gpu-count"}
	all := []scenario{
		{name: "ranks end well", argv: two("rank:say:words"), unordered: []string{"stdout", "stderr"}},
		{name: "what a rank inherits", argv: two("rank:facts")},
		{name: "a rank exits with 42", argv: two("rank:log late:42"), unordered: stderr, ends: map[int]int{1: 42}},
		{name: "a rank is killed", argv: two("rank:log log"),
			steps: []step{ready(2), seen(2), sendRank(1, unix.SIGKILL)}, unordered: stderr, ends: map[int]int{1: -9}},
		{name: "SIGTERM", argv: two("rank:log"), steps: []step{ready(2), send(unix.SIGTERM)}, unordered: stderr},
		{name: "SIGINT", argv: two("rank:log"), steps: []step{ready(2), send(unix.SIGINT)}, unordered: stderr},
		{name: "SIGKILL of accelerate", argv: two("rank:log"), steps: []step{ready(2), sendLauncher(unix.SIGKILL)},
			orphans: 2},
		{name: "restarts", argv: two("--max_restarts=2", "rank:restart:1"),
			why:  "both ranks fail at once, and the agent tells of the one that it sees first",
			open: map[string]string{"stderr": ".*"}},
		{name: "the file that it reads unasked",
			argv:      []string{"accelerate", "launch", "--main_process_port=PORT", "rank:say:words"},
			shell:     `mkdir -p .cache/huggingface/accelerate; cp DATA/accelerate.yaml .cache/huggingface/accelerate/default_config.yaml; exec "$@"`,
			unordered: []string{"stdout", "stderr"}},
		{name: "python -m accelerate.commands.launch",
			argv:      append([]string{"python", "-m", "accelerate.commands.launch"}, two("rank:log exit:42")[2:]...),
			unordered: stderr},
		{name: "a training", argv: two("DATA/train.py"), unordered: []string{"stdout", "stderr"}},

		{name: "one process", argv: one("rank:say:words"), unordered: stderr},
		{name: "what one process inherits", argv: one("rank:facts")},
		{name: "one process exits with 42", argv: one("rank:late:42"), ends: map[int]int{0: 42}},
		{name: "one process is killed", argv: one("rank:log"),
			steps: []step{ready(1), seen(1), sendRank(0, unix.SIGKILL)}, ends: map[int]int{0: -9}},
		{name: "one process, quietly", argv: one("--quiet", "rank:exit:42")},

		{name: "help", argv: []string{"accelerate", "launch", "--help"}},
		interrupted("Ctrl-C with one process", []step{ready(1), state("S")}, one("rank:log")),
		{name: "usage error", argv: accelerate("--no_such_option", "rank:log"), flags: started},
		{name: "two processes are too few", argv: accelerate("--multi_gpu", "--num_processes=1", "rank:log"),
			flags: started},
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		all = append(all, scenario{name: fmt.Sprintf("%s of accelerate with one process", unix.SignalName(s)),
			argv:  one("rank:log"),
			steps: []step{ready(1), state("S"), sendLauncher(s)}, orphans: 1})
	}
	return all
}

// deepspeed is a launch of two ranks that does not tell them their local rank as an argument.
func deepspeed(words ...string) []string {
	return append([]string{"deepspeed", "--num_gpus=2", "--master_port=PORT", "--no_local_rank"}, words...)
}

// deepspeedScenarios: its command starts a launcher, which starts the ranks; all of them are in one process group, and
// only the launcher looks after the ranks. The command does not: it leaves all behind when it is told to end, and
// returns 0 when its launcher was killed.
func deepspeedScenarios() []scenario {
	stderr := []string{"stderr", "stdout"} // its log goes to stdout
	started := []string{"--waive", "job-consistent", "--waive", "gpu-count"}
	all := []scenario{
		{name: "ranks end well", argv: deepspeed("rank:say:words")},
		{name: "what a rank inherits", argv: deepspeed("rank:facts")},
		{name: "a rank exits with 42", argv: deepspeed("rank:log late:42"), ends: map[int]int{1: 42}},
		{name: "a rank is killed", argv: deepspeed("rank:log log"),
			steps: []step{ready(2), catches(), seen(2), sendRank(1, unix.SIGKILL)}, ends: map[int]int{1: -9}},
		{name: "SIGTERM of its launcher", argv: deepspeed("rank:log"),
			steps: []step{ready(2), catches(), sendLauncher(unix.SIGTERM)}},
		{name: "SIGINT of its launcher", argv: deepspeed("rank:log"),
			steps: []step{ready(2), catches(), sendLauncher(unix.SIGINT)}},
		{name: "SIGKILL of its launcher", argv: deepspeed("rank:log"),
			steps: []step{ready(2), catches(), seen(2), sendLauncher(unix.SIGKILL)}, orphans: 2},
		{name: "a log for each rank", argv: deepspeed("--enable_each_rank_log=logs", "rank:say:words"),
			unordered: stderr,
			shell:     `"$@"; s=$?; cd logs; for f in *; do echo "file ${f#*_}"; cat $f; done; exit $s`},
		{name: "CUDA_VISIBLE_DEVICES", argv: []string{"deepspeed", "--master_port=PORT", "--no_local_rank",
			"rank:say:words"},
			environ: []string{"CUDA_VISIBLE_DEVICES=0,1"},
			flags:   append(slices.Clone(started), "--waive", "cuda-visible-devices")},
		{name: "a training", argv: []string{"deepspeed", "--num_gpus=2", "--master_port=PORT", "DATA/train.py"}},
		{name: "help", argv: []string{"deepspeed", "--help"}},
		interrupted("Ctrl-C", []step{ready(2), catches()}, deepspeed("rank:log")),
		{name: "usage error", argv: deepspeed("--no_such_option", "rank:log"), flags: started},
		{name: "contradicting options", argv: deepspeed("--include=localhost:0", "rank:log"), flags: started},
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		all = append(all, scenario{name: unix.SignalName(s), argv: deepspeed("rank:log"),
			steps: []step{ready(2), catches(), sendCommand(s)}, orphans: 3,
			open: map[string]string{"stdout": ".*"}, why: "its launcher, which is ended too, has last words"})
	}
	for i := range all {
		all[i].environ = append(all[i].environ, "DS_ACCELERATOR=cpu")
		if all[i].unordered == nil {
			all[i].unordered = stderr
		}
	}
	return all
}

// interrupted is a launch on a terminal that is ended by Ctrl-C, which all of its processes get.
func interrupted(name string, ready []step, argv []string) scenario {
	return scenario{name: name, typed: true, argv: argv, why: "all of them have last words",
		open: map[string]string{"screen": `.*\r\nstatus 130\r\n.*`},
		steps: slices.Concat([]step{shows(prompt), types("./job\n")}, ready, []step{
			types(ctrlC), shows(prompt), types("echo status $?\n"), shows("\nstatus"), shows(prompt), types("exit\n")})}
}

// catches waits until DeepSpeed's launcher has started all ranks and looks after them, for which it takes SIGINT and
// SIGTERM.
func catches() step {
	const both = 1<<(unix.SIGINT-1) | 1<<(unix.SIGTERM-1)
	return func(r *run) {
		r.until("the launcher catches signals", func() bool {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.launcherPID()))
			_, mask, _ := strings.Cut(string(text), "\nSigCgt:\t")
			var caught uint64
			_, err := fmt.Sscanf(mask, "%x", &caught)
			return err == nil && caught&both == both
		})
	}
}

// sendCommand sends a signal to the process that the user started, or to oomguard; SIGKILL is for the command itself.
func sendCommand(s unix.Signal) step {
	return func(r *run) {
		if s != unix.SIGKILL || !r.wrapped {
			send(s)(r)
			return
		}
		for _, p := range r.living() {
			if p.parent == r.cmd.Process.Pid && p.name == r.argv[0] {
				r.kill(p.pid, s)
			}
		}
	}
}
