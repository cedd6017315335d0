//go:build linux

package conformance

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// scenario is a command and what happens to it.
type scenario struct {
	name string
	// argv is the command. In it PORT is a free port, DATA the folder with the scripts, and rank:... is rank.py with
	// that behaviour.
	argv []string
	// shell is what bash runs, in which "$@" is the command or oomguard with the command. Empty: exec "$@".
	shell string
	// flags are oomguard's.
	flags   []string
	environ []string
	stdin   string
	steps   []step

	// typed: on a terminal, where an interactive bash waits for keys; ./job is then the command.
	typed bool

	// unordered names the streams that several processes write to at the same time: their lines are compared as a set.
	unordered []string
	// open says of observations whose timing the command itself leaves open what they may be, as a regular expression;
	// why says why.
	open map[string]string
	why  string
	// orphans is how many processes the command alone leaves behind; oomguard must leave none, and ends ranks with
	// SIGTERM.
	orphans int
	// stays is how many processes of the command are meant to outlive it, also under oomguard.
	stays int
	// ends are how the report has to say that ranks ended, by rank: an exit code, or -N for signal N.
	ends map[int]int
	// ownWords: oomguard speaks on stdout and stderr in place of the shell (a command that does not exist): these are
	// not compared.
	ownWords bool
	// newestOnly: what is looked at does not exist in old versions, or does not depend on the version.
	newestOnly bool
}

// step is something that happens to a running command.
type step func(*run)

// ready waits until so many ranks have said that they are ready, in an attempt of torchrun.
func ready(ranks int) step {
	return func(r *run) {
		for rank := range ranks {
			r.until("a rank is ready", func() bool { return r.rankPID(rank) > 0 })
		}
	}
}

// send sends signals to the process that the user started, one right after the other.
func send(signals ...unix.Signal) step {
	return func(r *run) {
		for _, s := range signals {
			r.kill(r.cmd.Process.Pid, s)
		}
	}
}

// sendEvery is send with a pause between.
func sendEvery(pause time.Duration, signals ...unix.Signal) step {
	return func(r *run) {
		for i, s := range signals {
			if i > 0 {
				time.Sleep(pause) // the pause is what is tested
			}
			r.kill(r.cmd.Process.Pid, s)
		}
	}
}

// sendLauncher sends a signal to torchrun itself.
func sendLauncher(s unix.Signal) step { return func(r *run) { r.kill(r.launcherPID(), s) } }

// sendRank sends a signal to a rank.
func sendRank(rank int, s unix.Signal) step { return func(r *run) { r.kill(r.rankPID(rank), s) } }

// logged waits until a rank has logged a line.
func logged(rank int, line string) step {
	return func(r *run) {
		r.until("a rank logs "+line, func() bool { return r.hasLogged(rank, line) })
	}
}

// everywhere is logged for two ranks.
func everywhere(line string) step {
	return func(r *run) { logged(0, line)(r); logged(1, line)(r) }
}

// state waits until torchrun is in a state: T stopped, S sleeping.
func state(letters string) step {
	return func(r *run) {
		r.until("torchrun is in state "+letters, func() bool { return inState(r.launcherPID(), letters) })
	}
}

// times waits until a rank has logged a line so many times.
func times(n, rank int, line string) step {
	return func(r *run) { r.until("logged again", func() bool { return r.timesLogged(rank, line) == n }) }
}

// touch makes a file.
func touch(name string) step { return func(r *run) { r.write(name, "") } }

// sleeps waits until a program that says nothing by itself, the last one that the command starts, is executed and
// waits. What a shell has said before that tells nothing: it may not have started the program, or the child have
// executed it, and a Ctrl-C may reach only the shell.
func sleeps(name string) step {
	return func(r *run) {
		r.until(name+" waits", func() bool {
			return slices.ContainsFunc(r.living(),
				func(p process) bool { return p.name == name && inState(p.pid, "S") })
		})
	}
}

// resumed waits until the shell, which tells of fg before it does it, has given the terminal away: it would get the
// keys itself.
func resumed() step {
	return func(r *run) {
		r.until("the job is in the foreground", func() bool { return r.foreground() != r.cmd.Process.Pid })
	}
}

// hangUp takes the terminal away.
func hangUp() step { return func(r *run) { r.keys.Close() } }

// sendInside sends a signal to the first process inside a new namespace of pids: PID 1 there.
func sendInside(s unix.Signal) step {
	return func(r *run) {
		for _, p := range r.living() {
			if p.parent == r.cmd.Process.Pid {
				r.kill(p.pid, s)
			}
		}
	}
}

// seen waits until oomguard holds a handle of each rank: the end of one that it has not seen may not be learned.
func seen(ranks int) step {
	return func(r *run) {
		for rank := range ranks {
			r.until("oomguard knows the rank", func() bool { return !r.wrapped || r.isHeld(r.rankPID(rank)) })
		}
	}
}

// finish tells ranks that wait to end.
func finish() step { return func(r *run) { r.write("end", "") } }

// types presses keys.
func types(keys string) step { return func(r *run) { r.press(keys) } }

// shows waits until a text has appeared on the screen after the last one that was waited for.
func shows(text string) step { return func(r *run) { r.waitFor(text) } }

// resize changes the terminal's size.
func resize(rows, columns uint16) step { return func(r *run) { r.resize(rows, columns) } }
