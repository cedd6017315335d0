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
			"print([os.isatty(fd) for fd in range(3)], os.ttyname(0) == os.ttyname(1) == os.ttyname(2), os.get_terminal_size())\n" +
			"print(os.tcgetpgrp(0) == os.getpgrp(), os.tcgetsid(0) == os.getsid(0))"}},
		{name: "progress bar", typed: true, argv: []string{"sh", "-c", `for i in 1 2 3; do printf '\r\033[32m%d/3\033[0m' $i; done; echo; tput cols; exit 3`}, steps: job()},
		{name: "Ctrl-C", typed: true, argv: logger(), steps: job(ready(1), types(ctrlC))},
		{name: "Ctrl-backslash", typed: true, argv: logger(), steps: job(ready(1), types(ctrlBackslash))},
		{name: "Ctrl-C twice", typed: true, argv: stubborn, steps: job(ready(1), types(ctrlC), logged(0, "SIGINT"), types(ctrlC), twice("SIGINT"), finish())},
		{name: "Ctrl-C kills", typed: true, argv: []string{"sh", "-c", `echo begun; sleep 1000`}, steps: job(shows("begun"), types(ctrlC))},
		{name: "size changes", typed: true, argv: stubborn, steps: job(ready(1), resize(20, 80), logged(0, "SIGWINCH"), finish())},
		{name: "Ctrl-Z, fg, Ctrl-C", typed: true, argv: patient, steps: job(shows("begun"), types(ctrlZ), shows("Stopped"), shows(prompt), types("jobs\n"),
			shows("Stopped"), shows(prompt), types("fg\n"), shows("./job\r\n"), types(ctrlC), shows("interrupted"))},
		{name: "Ctrl-Z, bg, fg, Ctrl-C", typed: true, argv: patient, steps: job(shows("begun"), types(ctrlZ), shows("Stopped"), shows(prompt), types("bg\n"),
			shows(prompt), touch("touched"), shows("goes on"), types("fg\n"), shows("./job\r\n"), types(ctrlC), shows("interrupted"))},
		{name: "started in the background, wants to read", typed: true, argv: []string{"sh", "-c", `read line; echo "got $line"; exit 6`},
			steps: []step{shows("> "), types("./job &\n"), shows(prompt), stops(), types("\n"), shows("Stopped"), shows(prompt), types("fg\n"), shows("./job\r\n"), types("text\n"), shows("got text"),
				shows(prompt), types("echo status $?\n"), shows(prompt), types("exit\n")}},
		{name: "reads lines and the end", typed: true, argv: []string{"cat"}, steps: job(reads(), types("a line\n"), shows("a line\r\na line"), types(ctrlD))},
		{name: "no echo, raw, and back", typed: true, argv: []string{"sh", "-c", `old=$(stty -g); stty raw -echo; echo now raw; dd bs=1 count=3 2>/dev/null | od -c; stty $old; exit 2`},
			steps: job(shows("now raw\n"), types(ctrlC+"x"+ctrlZ))},
		{name: "leaves the terminal raw", typed: true, argv: []string{"sh", "-c", `stty -echo -icanon; exit 2`}, steps: job()},
		{name: "the terminal goes away", typed: true, argv: stubborn, steps: slices.Concat(begin, []step{ready(1), hangUp(), logged(0, "SIGHUP"), finish()}),
			open: map[string]string{"rank 0": `(SIGHUP\n|SIGCONT\n)+`}, why: "the shell and the kernel each send them, at the same time"},
		{name: "Ctrl-C in a script", typed: true, argv: []string{"python", "-S", "-c", "import os, time\nprint('begun', flush=True)\ntime.sleep(100)"},
			steps: []step{shows("> "), types("bash -c './job 2>/dev/null; echo the script goes on'\n"), shows("begun"), types(ctrlC), shows(prompt), types("exit\n")}},
		// Of the foreground job only the command itself gets the keys, not the rest of its pipeline: its last words still arrive.
		{name: "in a pipeline", typed: true, argv: patient, why: "cat is not interrupted with it, so that the last words arrive",
			open:  map[string]string{"screen": `> ./job \| cat; echo \S+\r\nbegun\r\n\^C(141|interrupted\r\n9)\r\n> exit\r\nexit\r\n`},
			steps: []step{shows(prompt), types("./job | cat; echo ${PIPESTATUS[0]}\n"), shows("begun"), types(ctrlC), shows(prompt), types("exit\n")}},
		{name: "torchrun, Ctrl-C", typed: true, argv: torchrun("rank:log"), steps: job(ready(2), types(ctrlC))},
		{name: "torchrun, Ctrl-Z, fg, Ctrl-C", typed: true, argv: torchrun("rank:log"),
			steps: job(ready(2), types(ctrlZ), shows("Stopped"), shows(prompt), types("fg\n"), shows("./job\r\n"), types(ctrlC))},
	}
}
