//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// logger is a command that logs the signals it gets, and ends with 3 after a request to end.
func logger() []string { return []string{"python", "-S", "rank:log:3"} }

// plainScenarios hold for any command: what is inherited, handed through, and given back.
func plainScenarios() []scenario {
	return slices.Concat(statusScenarios(), limitScenarios(), streamScenarios(), inheritedScenarios(), plainSignals())
}

func statusScenarios() []scenario {
	var all []scenario
	for _, code := range []int{0, 1, 2, 42, 122, 125, 126, 127, 130, 137, 255} {
		all = append(all, scenario{name: fmt.Sprint("exit ", code),
			argv: []string{"sh", "-c", fmt.Sprint("exit ", code)}})
	}
	for _, s := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGSEGV, unix.SIGPIPE, unix.SIGABRT,
		unix.SIGUSR1, unix.Signal(34)} {
		all = append(all, scenario{name: fmt.Sprint("dies of signal ", int(s)),
			argv: []string{"sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", int(s))}})
	}
	return append(all,
		scenario{name: "not found", argv: []string{"no-such-command"}, ownWords: true},
		scenario{name: "not found by path", argv: []string{"./no/such/command"}, ownWords: true},
		scenario{name: "not executable", shell: `echo > file; "$@"`, argv: []string{"./file"}, ownWords: true},
		scenario{name: "a folder", argv: []string{"/tmp"}, ownWords: true},
		scenario{name: "no interpreter", shell: `printf '#!/no/such/interpreter\n' > file; chmod +x file; "$@"`,
			argv: []string{"./file"}, ownWords: true},
		scenario{name: "a shell script",
			shell: `printf '#!/bin/sh\necho "$@" 1>&2; exit 5\n' > file; chmod +x file; "$@"`,
			argv:  []string{"./file", "a", "b c"}},
		scenario{name: "python fails", argv: []string{"python", "-c", "import sys; print('before'); sys.exit(9)"}},
		scenario{name: "python raises", argv: []string{"python", "-c", "raise RuntimeError('so it is')"}},
	)
}

// limitScenarios: what oomguard needs is more than these leave, and the command gets it without oomguard.
func limitScenarios() []scenario {
	var all []scenario
	for _, limit := range []string{"-v 1500000", "-v 1048576", "-v 500000", "-d 200000", "-n 10", "-n 16", "-n 30"} {
		for _, ends := range []string{"exit:0", "exit:2", "exit:42", "kill:9"} {
			all = append(all, scenario{name: "ulimit " + limit + ", " + ends, shell: "ulimit " + limit + `; exec "$@"`,
				argv: []string{"python", "-S", "rank:" + ends}, ownWords: true})
		}
	}
	for _, limit := range []string{"-f 0", "-s 64", "-s unlimited", "-c 0", "-i 10", "-n 64", "-n 200"} {
		all = append(all, scenario{name: "ulimit " + limit, shell: "ulimit " + limit + `; exec "$@"`,
			argv: []string{"sh", "-c", "echo words; exit 42"}, ownWords: true})
	}
	return append(all, scenario{name: "few processes", ownWords: true, argv: []string{"sh", "-c", "exit 42"},
		shell: `[ $(id -u) = 0 ] && exec setpriv --reuid 65534 --clear-groups --inh-caps=-all prlimit --nproc=20 "$@"; exec prlimit --nproc=20 "$@"`})
}

func streamScenarios() []scenario {
	return []scenario{
		{name: "bytes of both streams",
			argv: []string{"python", "-S", "-c",
				"import os\nos.write(1, bytes(range(256)) * 64)\nos.write(2, bytes(range(255, -1, -1)) * 64)"}},
		{name: "order in one pipe", shell: `exec "$@" 2>&1`,
			argv: []string{"sh", "-c", `for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done`}},
		{name: "progress bar and colours",
			argv: []string{"sh", "-c", `for i in 1 2 3; do printf '\r\033[32m%d/3\033[0m' $i >&2; done`}},
		{name: "megabytes", shell: `"$@" | cksum; exit ${PIPESTATUS[0]}`,
			argv: []string{"sh", "-c", "yes 0123456789 | head -c 30000000"}},
		{name: "to a file", shell: `"$@" > file 2>&1; s=$?; grep ^line file; exit $s`,
			argv: []string{"sh", "-c", "echo line 1; echo line 2 >&2; exit 4"}},
		{name: "appended to a file", shell: `echo first > file; "$@" >> file; cat file`,
			argv: []string{"echo", "second"}},
		{name: "to a full disk", shell: `exec "$@" > /dev/full`, argv: []string{"sh", "-c", "echo text; exit $?"}},
		{name: "to /dev/null", shell: `exec "$@" > /dev/null`,
			argv: []string{"sh", "-c", "ls -l /proc/self/fd/1 | sed 's/.*->//' >&2"}},
		{name: "to a socket", argv: []string{"echo", "text"}, shell: `python -S -c 'import os, socket, subprocess, sys
a, b = socket.socketpair()
child = subprocess.Popen(sys.argv[1:], stdout=b)
b.close()
print(a.recv(100), child.wait())' "$@"`},
		{name: "reader goes away", shell: `"$@" | head -2; exit ${PIPESTATUS[0]}`, argv: []string{"yes"}},
		{name: "reader of stderr goes away", shell: `exec 3>&1; { "$@" 2>&1 >&3 | true; } 3>&1; echo ${PIPESTATUS[0]}`,
			argv: []string{"sh", "-c", "while echo x >&2; do :; done; exit 6"}},
		{name: "reader goes away, SIGPIPE ignored", shell: `trap '' PIPE; "$@" | head -1; exit ${PIPESTATUS[0]}`,
			argv: []string{"sh", "-c", "while echo x; do :; done 2>/dev/null; exit 7"}},
		{name: "PID 1 of a container, and a slow reader", shell: "(" + container + `) | { sleep 7; cksum; }`,
			argv: []string{"sh", "-c", `head -c 100000 /dev/zero`}},
		{name: "PID 1 of a container, and a reader that reads now and then",
			shell: "(" + container + `) | { sleep 6; head -c 100000; sleep 6; cat; } | cksum`,
			argv:  []string{"sh", "-c", `head -c 3000000 /dev/zero`}},
		{name: "slow reader", shell: `"$@" | { sleep 0.3; cksum; }; exit ${PIPESTATUS[0]}`,
			argv: []string{"sh", "-c", "head -c 1000000 /dev/zero; exit 8"}},
		{name: "written after the end", argv: []string{"sh", "-c", "(sleep 0.4; echo late) & echo early"}},
		{name: "stdin", argv: []string{"sh", "-c", "read first; echo got $first; cat | cksum"},
			stdin: "one\n" + strings.Repeat("more\n", 200000)},
		{name: "stdin is left to the next", shell: `{ "$@"; read next; echo then $next; }`,
			argv: []string{"sh", "-c", "read first; echo got $first"}, stdin: "one\ntwo\n"},
		{name: "stdin at its end", argv: []string{"sh", "-c", "cat; echo end"}},
		{name: "stdin closed", shell: `exec "$@" <&-`, argv: []string{"sh", "-c", "cat; echo $?"}},
		{name: "stdout closed", shell: `exec "$@" >&-`, argv: []string{"sh", "-c", "echo text; echo $? >&2"}},
		{name: "stderr closed", shell: `exec "$@" 2>&-`, argv: []string{"sh", "-c", "echo text >&2; echo $?"}},
		{name: "all closed", shell: `"$@" <&- >&- 2>&-; echo $?`,
			argv: []string{"sh", "-c", "ls -l /proc/self/fd; exit 11"}},
	}
}

func inheritedScenarios() []scenario {
	facts := []string{"python", "-S", "rank:facts"}
	return []scenario{
		{name: "what a process inherits", argv: facts, environ: []string{"EMPTY=", "A=b=c", "NEWLINE=1\n2"},
			shell: `umask 027; ulimit -Sn 256; ulimit -c 0; ulimit -s 4096; mkdir sub; cd sub; exec 5</dev/zero 7>&1; exec nice -n 3 "$@"`},
		{name: "signals ignored and blocked", argv: facts,
			shell: `exec python -S -c 'import os, signal, sys
for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGTSTP, signal.SIGTTOU):
    signal.signal(s, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGWINCH])
os.execvp(sys.argv[1], sys.argv[1:])' "$@"`},
		{name: "signals ignored that Go keeps for itself", argv: facts,
			shell: `exec python -S -c 'import os, signal, sys
for s in (signal.SIGCHLD, signal.SIGPROF, signal.SIGURG, signal.SIGSEGV, signal.SIGTRAP, signal.SIGSYS, 34, 40):
    signal.signal(s, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])' "$@"`},
		{name: "no new privileges, one processor, no OOM killer", argv: facts,
			shell: `echo 300 > /proc/$$/oom_score_adj; exec setpriv --no-new-privs taskset -c 0 "$@"`},
		{name: "arguments of any bytes",
			argv: []string{"python", "-S", "-c", "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])", "",
				" ", "\xff\xfe", "é", "a\nb", "--", "-o", "--format=json", "$HOME", "*"}},
		{name: "a huge argument", argv: []string{"sh", "-c", `echo ${#1}`, "sh", strings.Repeat("x", 120_000)}},
		{name: "a huge environment", argv: []string{"sh", "-c", "env | grep -c ^BIG"}, environ: manyVariables()},
		{name: "a variable that is as long as it may be", argv: []string{"sh", "-c", `echo ${#PYTHONPATH}`},
			environ: []string{"PYTHONPATH=" + strings.Repeat("/x", 65_520)}},
		{name: "variables of any bytes", argv: []string{"sh", "-c", `printf '%s' "$ODD" | od -c`},
			environ: []string{"ODD=\xff\xfe\x01"}},
		{name: "the same variable twice", argv: []string{"sh", "-c", `tr '\0' '\n' < /proc/self/environ | grep ^TWICE`},
			environ: []string{"TWICE=1", "TWICE=2"},
			shell: `exec python -S -c 'import ctypes, os, sys
libc = ctypes.CDLL(None)
environment = [k + b"=" + v for k, v in os.environb.items()] + [b"TWICE=1", b"TWICE=2"]
array = lambda words: (ctypes.c_char_p * (len(words) + 1))(*words, None)
libc.execvpe(sys.argv[1].encode(), array([os.fsencode(a) for a in sys.argv[1:]]), array(environment))' "$@"`},
		{name: "ranks that a script starts and leaves", stays: 2, steps: []step{ready(2)},
			argv: []string{"sh", "-c", `for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 "$@" & done; while ! [ -e $CONFORMANCE/ready.0.0 -a -e $CONFORMANCE/ready.0.1 ]; do sleep 0.05; done`,
				"sh", "python", "-S", "rank:log"}},
		{name: "without /dev/null", argv: facts,
			shell: `unshare --mount true 2>/dev/null && user= || user=--map-root-user
exec unshare $user --mount sh -c 'mount -t tmpfs none /dev && exec "$@"' sh "$@"`},
		{name: "without /dev/null and streams", argv: facts,
			shell: `unshare --mount true 2>/dev/null && user= || user=--map-root-user
exec unshare $user --mount sh -c 'mount -t tmpfs none /dev && exec "$@" <&- >&- 2>&-' sh "$@"`},
		{name: "a daemon is left", argv: []string{"sh", "-c",
			"setsid sleep 300 > /dev/null 2>&1 < /dev/null & echo started"}, stays: 1},
		{name: "a daemon left while it runs",
			argv:  []string{"sh", "-c", "sh -c 'setsid sleep 300 > /dev/null 2>&1 < /dev/null &'; sleep 0.3; exit 2"},
			stays: 1},
		{name: "PID 1 of a container", argv: []string{"sh", "-c", adopted},
			shell: container},
		{name: "SIGTERM to PID 1 of a container", argv: logger(), steps: []step{ready(1), sendInside(unix.SIGTERM)},
			shell: container},
	}
}

// container runs the command as PID 1 of a namespace of its own, which a user who is not root may have only as the root
// of another one.
const container = `unshare --pid --fork true 2>/dev/null && user= || user=--map-root-user
exec unshare $user --pid --fork --mount-proc --kill-child -- "$@"`

// adopted leaves orphans that end, in a container without init, and waits until somebody has reaped them. The shell is
// PID 1 itself when it runs alone, and no shell reaps what it did not start; so it waits only where somebody else is
// PID 1.
const adopted = `for i in 1 2 3; do sh -c 'sleep 0.05 & exit 0' > /dev/null; done
[ $$ = 1 ] || while grep -qsx sleep /proc/[0-9]*/comm; do :; done
echo none is left; exit 5`

// manyVariables is an environment of 2 MB, in pieces that the kernel accepts.
func manyVariables() []string {
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("BIG%d=%s", i, strings.Repeat("x", 100_000)))
	}
	return all
}

func plainSignals() []scenario {
	const racing = "signals that come within microseconds may be taken in either order"
	var all []scenario
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		all = append(all, scenario{name: "catches " + unix.SignalName(s), argv: logger(),
			steps: []step{ready(1), send(s)}})
	}
	for _, s := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGXCPU, unix.SIGIO, unix.SIGPWR,
		unix.SIGVTALRM, unix.Signal(40),
		unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS, unix.SIGSTKFLT, unix.SIGPROF,
		unix.Signal(34), unix.Signal(64)} {
		all = append(all, scenario{name: fmt.Sprint("does not catch signal ", int(s)),
			argv: []string{"python", "-S", "rank:idle"}, steps: []step{ready(1), send(s)}})
	}
	for _, name := range []string{"PROF", "URG", "TRAP", "SYS", "SEGV", "BUS", "PIPE", "XCPU", "XFSZ", "RTMIN",
		"RTMAX"} {
		all = append(all, scenario{name: "catches SIG" + name,
			steps: []step{ready(1), send(unixSignal(name)), logged(0, "SIG"+name), send(unixSignal(name)),
				times(2, 0, "SIG"+name), sendRank(0, unix.SIGKILL)},
			argv: []string{"python", "-S", "rank:only:" + name}})
	}
	return append(all,
		scenario{name: "signals one after the other", argv: logger(), steps: []step{
			ready(1), send(unix.SIGUSR1), logged(0, "SIGUSR1"), send(unix.SIGUSR2), logged(0, "SIGUSR2"),
			send(unix.SIGWINCH), logged(0, "SIGWINCH"),
			send(unix.SIGTSTP), logged(0, "SIGTSTP"), send(unix.SIGCONT), logged(0, "SIGCONT"), send(unix.SIGINT)}},
		scenario{name: "stubborn, then killed", argv: []string{"python", "-S", "rank:stubborn"}, steps: []step{
			ready(1), send(unix.SIGTERM), logged(0, "SIGTERM"), send(unix.SIGINT), logged(0, "SIGINT"),
			sendRank(0, unix.SIGKILL)}},
		scenario{name: "five signals at once", argv: []string{"python", "-S", "rank:stubborn"}, why: racing,
			open: map[string]string{"rank 0": `((SIGHUP|SIGINT|SIGQUIT|SIGUSR1|SIGUSR2)\n){5}`}, steps: []step{
				ready(1), send(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2),
				logged(0, "SIGHUP"), logged(0, "SIGINT"), logged(0, "SIGQUIT"), logged(0, "SIGUSR1"),
				logged(0, "SIGUSR2"), sendRank(0, unix.SIGKILL)}},
		scenario{name: "the same signal three times", argv: []string{"python", "-S", "rank:stubborn"}, steps: []step{
			ready(1), send(unix.SIGUSR1), times(1, 0, "SIGUSR1"), send(unix.SIGUSR1), times(2, 0, "SIGUSR1"),
			send(unix.SIGUSR1), times(3, 0, "SIGUSR1"),
			sendRank(0, unix.SIGKILL)}},
		scenario{name: "nohup", shell: `exec nohup "$@"`, argv: logger(), steps: []step{
			ready(1), send(unix.SIGHUP), send(unix.SIGUSR1), logged(0, "SIGUSR1"), send(unix.SIGTERM)}},
		scenario{name: "in the background of a script", shell: `"$@" & wait $!`,
			argv: []string{"python", "-S", "rank:facts"}},
		scenario{name: "KeyboardInterrupt",
			argv: []string{"python", "-S", "-c",
				"import os, time\nopen(os.environ['CONFORMANCE'] + '/ready.0.0', 'w').write('%d 1' % " +
					"os.getpid())\nwhile True: time.sleep(0.01)"},
			steps: []step{ready(1), send(unix.SIGINT)}, open: map[string]string{"stderr": `(?:.*KeyboardInterrupt\n)`},
			why: "Python may be at either line of the script; and one long sleep misses a signal that comes " +
				"just before it"},
		// SIGALRM is what timeout(1) has itself sent when the time is over. It signals the command, then its own
		// process group, and then continues both.
		scenario{name: "timeout", shell: `exec timeout -s INT 1h "$@"`, argv: logger(),
			steps: []step{ready(1), send(unix.SIGALRM)}, why: racing,
			open: map[string]string{"rank 0": `(SIGCONT\n)?SIGINT\n`}},
	)
}

// unixSignal is the number of a signal.
func unixSignal(name string) unix.Signal {
	switch name {
	case "RTMIN":
		return 34
	case "RTMAX":
		return 64
	}
	return unix.SignalNum("SIG" + name)
}
