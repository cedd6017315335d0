//go:build linux

package conformance

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// torchrun is a launch of two ranks on a port of its own. Both spellings of options are of all versions but this one.
func torchrun(words ...string) []string {
	return append([]string{"torchrun", "--nproc_per_node=2", "--master_port=PORT"}, words...)
}

// torchrunScenarios are the facts of torchrun that decide how it can be wrapped, and what its users meet.
func torchrunScenarios() []scenario {
	// Ranks end in any order, and the agent tells of their ends as it finds them.
	stderr := []string{"stderr"}
	// or oomguard would not start what cannot work
	started := []string{"--waive", "job-consistent", "--waive", "gpu-count"}
	// How long torchrun waits for ranks that do not end: where it is waited for, and where something is to happen
	// meanwhile.
	short, long := []string{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=2"}, []string{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100"}
	const firstToEnd = "both ranks fail at once, and the agent tells of the one that it sees first"
	all := []scenario{
		// Its status is nearly always 1; the ranks' own are in its words only.
		{name: "ranks end well", argv: torchrun("rank:say:words"), unordered: []string{"stdout", "stderr"}},
		{name: "a rank exits with 42", argv: torchrun("rank:log exit:42"), unordered: stderr},
		{name: "a rank exits with 2", argv: torchrun("rank:log exit:2"), unordered: stderr, newestOnly: true},
		{name: "a rank is killed", argv: torchrun("rank:log log"), steps: []step{ready(2), sendRank(1, unix.SIGKILL)},
			unordered: stderr},
		{name: "a rank segfaults", argv: torchrun("rank:log kill:11"), unordered: stderr, newestOnly: true},
		{name: "SIGTERM", argv: torchrun("rank:log"), steps: []step{ready(2), send(unix.SIGTERM)}, unordered: stderr},
		{name: "SIGINT", argv: torchrun("rank:log"), steps: []step{ready(2), send(unix.SIGINT)}, unordered: stderr},
		{name: "SIGHUP", argv: torchrun("rank:log"), steps: []step{ready(2), send(unix.SIGHUP)}, unordered: stderr,
			newestOnly: true},
		{name: "SIGQUIT", argv: torchrun("rank:log"), steps: []step{ready(2), send(unix.SIGQUIT)}, unordered: stderr,
			newestOnly: true},
		{name: "SIGUSR1", argv: torchrun("rank:log"), steps: []step{ready(2), send(unix.SIGUSR1)}, orphans: 2},
		{name: "usage error", argv: torchrun("--no-such-option", "rank:log"), newestOnly: true},
		{name: "help", argv: torchrun("--help")},
		{name: "ambiguous option", argv: []string{"torchrun", "--nproc=2", "rank:say:words"}, newestOnly: true,
			flags: started},
		{name: "bad number of processes", argv: torchrun("--nproc_per_node=many", "rank:log"), newestOnly: true,
			flags: started},
		{name: "no GPU for --nproc_per_node=gpu", argv: torchrun("--nproc_per_node=gpu", "rank:log"), newestOnly: true,
			flags: started},
		{name: "bad PET variable", argv: torchrun("rank:log"), environ: []string{"PET_STANDALONE=yes"},
			newestOnly: true, flags: started},
		{name: "port in use", argv: torchrun("rank:log"),
			shell: `exec 9< <(exec python -S -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", PORT)); s.listen(); print("ready", flush=True); time.sleep(1000)'); read -u 9; p=$!; "$@"; s=$?; kill $p; exit $s`},

		// Ranks have sessions of their own (since 2.2): what torchrun's group gets does not reach them, and stopping it
		// leaves them running.
		{name: "what a rank inherits", argv: torchrun("rank:facts")},
		{name: "stopped and continued", argv: torchrun("rank:log"), unordered: stderr, steps: []step{
			ready(2), sendLauncher(unix.SIGSTOP), state("T"), sendRank(0, unix.SIGUSR1), logged(0, "SIGUSR1"),
			sendLauncher(unix.SIGCONT), state("SR"), send(unix.SIGTERM)}},

		// Killed, it orphans its ranks.
		{name: "SIGKILL of torchrun", argv: torchrun("rank:log"), steps: []step{ready(2), sendLauncher(unix.SIGKILL)},
			orphans: 2},
		{name: "SIGKILL of torchrun, ranks with children", argv: torchrun("rank:parent"),
			steps: []step{ready(2), sendLauncher(unix.SIGKILL)}, orphans: 6, newestOnly: true},
		{name: "SIGTERM, ranks with children", argv: torchrun("rank:parent"),
			steps: []step{ready(2), send(unix.SIGTERM), finishWhen("SIGTERM")}, unordered: stderr},

		// A second signal changes what the first one asked for, a third one orphans.
		{name: "SIGINT twice", argv: torchrun("rank:stubborn"), environ: long, newestOnly: true, unordered: stderr,
			steps: []step{
				ready(2), send(unix.SIGINT), everywhere("SIGINT"), send(unix.SIGINT), everywhere("SIGTERM"), finish()}},
		{name: "SIGINT twice within 1 ms", argv: torchrun("rank:stubborn"), environ: short, newestOnly: true,
			why: "the second may come before the first is taken, while it is handed on, or after",
			open: map[string]string{"rank 0": `(SIGINT\n)?(SIGTERM\n)?`, "rank 1": `(SIGINT\n)?(SIGTERM\n)?`,
				"stderr": ".*"},
			steps: []step{ready(2), sendEvery(time.Millisecond, unix.SIGINT, unix.SIGINT)}},
		{name: "SIGTERM three times", argv: torchrun("rank:stubborn"), environ: long, steps: []step{
			ready(2), send(unix.SIGTERM), everywhere("SIGTERM"), send(unix.SIGTERM), times(2, 0, "SIGTERM"),
			times(2, 1, "SIGTERM"), send(unix.SIGTERM)}, orphans: 2,
			why: "torchrun's traceback names the line that it was at", open: map[string]string{"stderr": ".*"}},

		// It waits for ranks that do not end: 30 s in versions before 2.12, whatever is asked.
		{name: "ranks ignore SIGTERM", argv: torchrun("rank:stubborn"), environ: short, unordered: stderr,
			steps: []step{ready(2), send(unix.SIGTERM)}},
		{name: "a rank in uninterruptible sleep", argv: torchrun("rank:uninterruptible log"), environ: short,
			unordered: stderr, newestOnly: true, steps: []step{
				ready(2), func(r *run) {
					r.until("the rank is in the kernel",
						func() bool { return inState(r.rankPID(0), "D") })
				}, send(unix.SIGTERM)}},

		// torchrun takes SIGHUP although nohup ignored it. oomguard leaves it ignored, so the signal is sent to
		// torchrun itself, as a terminal does.
		{name: "nohup", shell: `exec nohup "$@"`, argv: torchrun("rank:log"), unordered: stderr,
			steps: []step{ready(2), sendLauncher(unix.SIGHUP)}},
		{name: "stdin shared by the ranks", argv: torchrun("rank:read"), stdin: "a\nb\nc\n",
			why: "whichever rank is first gets the lines",
			open: map[string]string{"rank 0": `(read b'a\\n'\nread b'b\\n'\nread b'c\\n'\n)?end of input\n`,
				"rank 1": `(read b'a\\n'\nread b'b\\n'\nread b'c\\n'\n)?end of input\n`}},
		{name: "restarts", argv: torchrun("--max_restarts=2", "rank:restart:1"), why: firstToEnd,
			open: map[string]string{"stderr": ".*"}},
		{name: "restarts are used up", argv: torchrun("--max_restarts=1", "rank:restart:9"), why: firstToEnd,
			open: map[string]string{"stderr": ".*"}, newestOnly: true},
		{name: "logs in files", argv: torchrun("--log_dir=logs", "--redirects=3", "--tee=3", "rank:say:words"),
			unordered: []string{"stdout", "stderr"},
			shell:     `"$@"; s=$?; cd logs; for f in $(find . -type f | sed 's/none_[a-z0-9_]*/none_*/' | sort); do echo "file $f"; cat $f; done; exit $s`, newestOnly: true},
		{name: "reader goes away", shell: `"$@" | head -3; exit ${PIPESTATUS[0]}`, argv: torchrun("rank:flood"),
			why:  "whether the second rank finds the pipe closed before the agent stops it",
			open: map[string]string{"stderr": ".*"}},
		{name: "from the environment", argv: []string{"torchrun", "rank:say:words"},
			environ:   []string{"PET_NPROC_PER_NODE=2", "PET_MASTER_PORT=PORT"},
			unordered: []string{"stdout", "stderr"}, newestOnly: true},
		{name: "python -m torch.distributed.run",
			argv:      append([]string{"python", "-m", "torch.distributed.run"}, torchrun("rank:log exit:42")[1:]...),
			unordered: stderr},
		{name: "a shell script", argv: []string{"sh", "-c",
			`torchrun --nproc_per_node=2 --master_port=PORT "$@"; echo status $?; exit 77`, "sh", "rank:log exit:42"},
			unordered: stderr, newestOnly: true},
		{name: "a training", argv: torchrun("DATA/train.py"), unordered: []string{"stdout", "stderr"}},
	}
	for i, s := range all {
		// torchrun is to sleep when it gets a signal: what it does with one while it looks at its ranks depends on the
		// line
		if len(s.steps) > 0 && s.name != "a rank is killed" {
			all[i].environ = append(slices.Clone(s.environ), "PET_MONITOR_INTERVAL=20")
		}
	}
	return all
}

// finishWhen tells processes that wait to end once the ranks have logged a line.
func finishWhen(line string) step {
	return func(r *run) { everywhere(line)(r); finish()(r) }
}
