//go:build linux

package conformance

import "slices"

// Keys as a terminal sends them.
const (
	ctrlC         = "\x03"
	ctrlD         = "\x04"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
)

const prompt = "> "

// terminalScenarios: an interactive bash on a terminal starts ./job, which is the command or oomguard with the command.
func terminalScenarios() []scenario {
	begin := []step{shows("> "), types("./job\n")}
	end := []step{shows(prompt), types("echo status $?\n"), shows(prompt), types("stty -a | head -c 300; exit\n")}
	job := func(steps ...step) []step { return slices.Concat(begin, steps, end) }
	patient := []string{"python", "-S", "rank:patient"}
	stubborn := []string{"python", "-S", "rank:stubborn"}
	return []scenario{
		{name: "it sees the terminal", typed: true, steps: job(), argv: []string{"python", "-S", "-c", "import os\n" +
			"print([os.isatty(fd) for fd in range(3)], os.ttyname(0) == os.ttyname(1) == os.ttyname(2), " +
			"os.get_terminal_size())\n" +
			"print(os.tcgetpgrp(0) == os.getpgrp(), os.tcgetsid(0) == os.getsid(0))"}},
		{name: "progress bar", typed: true,
			argv: []string{"sh", "-c", `for i in 1 2 3; do printf '\r\033[32m%d/3\033[0m' $i; done; echo; tput cols; exit 3`}, steps: job()},
		{name: "Ctrl-C", typed: true, argv: logger(), steps: job(ready(1), types(ctrlC))},
		{name: "Ctrl-backslash", typed: true, argv: logger(), steps: job(ready(1), types(ctrlBackslash))},
		{name: "Ctrl-C twice", typed: true, argv: stubborn,
			steps: job(ready(1), types(ctrlC), logged(0, "SIGINT"), types(ctrlC), times(2, 0, "SIGINT"), finish())},
		// Not "when it has said something": dash catches SIGINT under -c and waits for the child to die of it; a child
		// that it is just starting by vfork has that handler, which does nothing there. So a Ctrl-C in that moment is
		// lost (in 4 to 8 % of tries on a busy machine).
		{name: "Ctrl-C kills", typed: true, argv: []string{"sh", "-c", `sleep 1000; echo not reached`},
			steps: job(sleeps("sleep"), types(ctrlC))},
		{name: "size changes", typed: true, argv: stubborn,
			steps: job(ready(1), resize(20, 80), logged(0, "SIGWINCH"), finish())},
		{name: "Ctrl-Z, fg, Ctrl-C", typed: true, argv: patient,
			steps: job(shows("begun"), types(ctrlZ), shows("Stopped"), shows(prompt), types("jobs\n"),
				shows("Stopped"), shows(prompt), types("fg\n"), shows("./job\r\n"), resumed(), types(ctrlC),
				shows("interrupted"))},
		{name: "Ctrl-Z, bg, fg, Ctrl-C", typed: true, argv: patient,
			steps: job(shows("begun"), types(ctrlZ), shows("Stopped"), shows(prompt), types("bg\n"),
				shows(prompt), touch("touched"), shows("goes on"), types("fg\n"), shows("./job\r\n"), resumed(),
				types(ctrlC), shows("interrupted"))},
		{name: "started in the background, wants to read", typed: true,
			argv: []string{"sh", "-c", `read line; echo "got $line"; exit 6`},
			// The shell waits until it has learned that the job has stopped, and tells of it before its next prompt.
			steps: []step{shows("> "), types("./job & wait %1\n"), shows("Stopped"), shows(prompt), types("fg\n"),
				shows("./job\r\n"), types("text\n"), shows("got text"),
				shows(prompt), types("echo status $?\n"), shows(prompt), types("exit\n")}},
		{name: "reads lines and the end", typed: true, argv: []string{"cat"},
			steps: job(sleeps("cat"), types("a line\n"), shows("a line\r\na line"), types(ctrlD))},
		{name: "no echo, raw, and back", typed: true,
			argv:  []string{"sh", "-c", `old=$(stty -g); stty raw -echo; echo now raw; dd bs=1 count=3 2>/dev/null | od -c; stty $old; exit 2`},
			steps: job(shows("now raw\n"), types(ctrlC+"x"+ctrlZ))},
		{name: "leaves the terminal raw", typed: true, argv: []string{"sh", "-c", `stty -echo -icanon; exit 2`},
			steps: job()},
		{name: "the terminal goes away", typed: true, argv: stubborn,
			steps: slices.Concat(begin, []step{ready(1), hangUp(), logged(0, "SIGHUP"), finish()}),
			open:  map[string]string{"rank 0": `(SIGHUP\n|SIGCONT\n)+`},
			why:   "the shell and the kernel each send them, at the same time"},
		{name: "Ctrl-C in a script", typed: true,
			argv: []string{"python", "-S", "-c",
				"import os, time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"},
			steps: []step{shows("> "), types("bash -c './job 2>/dev/null; echo the script goes on'\n"), shows("begun"),
				types(ctrlC), shows(prompt), types("exit\n")}},
		// The rest of the pipeline ignores Ctrl-C, as a pager does. Where it does not, it dies of it alone, before or
		// after the command's last words; under oomguard only the command gets the keys, so that they always arrive.
		{name: "in a pipeline", typed: true, argv: patient,
			steps: []step{shows(prompt), types("./job | (trap '' INT; cat); echo ${PIPESTATUS[0]}\n"), shows("begun"),
				types(ctrlC), shows(prompt), types("exit\n")}},
		{name: "torchrun, Ctrl-C", typed: true, argv: torchrun("rank:log"), steps: job(ready(2), types(ctrlC))},
		{name: "torchrun, Ctrl-Z, fg, Ctrl-C", typed: true, argv: torchrun("rank:log"),
			steps: job(ready(2), types(ctrlZ), shows("Stopped"), shows(prompt), types("fg\n"), shows("./job\r\n"),
				resumed(), types(ctrlC))},
	}
}
