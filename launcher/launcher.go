// Package launcher starts somebody else's command, stays out of its way, and accounts for its process tree. It knows
// nothing of memory.
//
// What the command can rely on:
//
//   - It gets our own standard streams, working directory, resource limits and inherited descriptors: a terminal stays
//     a terminal. There is no parent-death signal unless Options.DieWithUs asks for it: when oomguard is killed the
//     training goes on. A caller that wants a copy of what goes to a pipe starts a Relay first, which keeps that
//     promise too.
//   - It runs in a process group of its own. A signal sent to our group (by timeout, a shell, a scheduler) thus reaches
//     only us, and we hand each one on, at once and once, to the command's process: to torchrun a second SIGTERM means
//     "abort the graceful stop", a third one orphans the ranks. We do not signal the group, since torchrun gives each
//     rank a session of its own and stops them itself.
//   - Where we are the terminal's foreground job, the command's group becomes it. Ctrl-C then reaches the command
//     without us, Ctrl-Z stops the command and then us, and the shell's fg continues both.
//   - What we inherited as ignored (SIGHUP under nohup) is not caught, not handed on, and stays ignored in the command.
//     The Go runtime keeps that for SIGHUP, SIGINT, SIGTSTP, SIGTTIN and SIGTTOU only; all other signals have their
//     default action in the command.
//
// What we keep to ourselves: while the command runs we are the child subreaper, so that processes whose parent died
// come to us. Their zombies are reaped (we may be process 1 of a container), and ranks that outlive the command are
// ended, since they would hold the GPUs' memory. Our own helper processes are told from the command's by their process
// group: a helper that stays in our group, as os/exec leaves it, is never touched; one that gets a group of its own
// must be named by Options.Exclude.
//
// One Process at a time: orphans that come to us cannot be told apart by the command they came from.
package launcher

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"
)

// Command is what to start. Streams are handed over as they are: the child gets these very files, nothing is copied or
// buffered.
type Command struct {
	Argv                  []string
	Env                   []string // complete environment of the child
	Dir                   string
	Stdin, Stdout, Stderr *os.File
	// Descriptors are those beyond the streams that the child gets as they are, under their own numbers. They are
	// closed here when it has started.
	Descriptors []int
}

// Exit is how the command ended.
type Exit struct {
	// Code is the status to hand on: the command's own, or 128+N when it died of signal N.
	Code      int            `json:"code"`
	Signal    syscall.Signal `json:"signal"` // 0: it exited
	Started   time.Time      `json:"started"`
	Ended     time.Time      `json:"ended"`
	Forwarded []string       `json:"forwarded,omitempty"` // signals handed on, in order
	// Interrupted: it died of the terminal's Ctrl-C, which the rest of our process group did not get. See Interrupt.
	Interrupted bool `json:"interrupted,omitempty"`
	// Reached are signals that went to the command as well as to us, and were not handed on: see Options.WholeJob.
	Reached []string `json:"reached,omitempty"`
	// LastResort: it did not end within Options.KillAfter, and its whole tree was killed.
	LastResort bool `json:"last_resort,omitempty"`
	// Ranks are the training processes that were seen, with how each one ended where that could be learned.
	Ranks []RankExit `json:"ranks,omitempty"`
	// Survivors were left over when the command had died, and what was done with them.
	Survivors []Survivor `json:"survivors,omitempty"`
}

// RankExit is one training process (known by RANK/LOCAL_RANK in its environment).
type RankExit struct {
	PID       int       `json:"pid"`
	Rank      int       `json:"rank"`
	LocalRank int       `json:"local_rank"`
	Attempt   int       `json:"attempt"`
	Known     bool      `json:"known"`    // whether Code was learned
	Code      int       `json:"code"`     // exit code, or -N for signal N
	EndedAt   time.Time `json:"ended_at"` // zero while it runs
	// Told: Code is what the launcher said of it; nobody saw it end.
	Told bool `json:"told,omitempty"`
	// ErrorFile is where the rank was to describe the exception that ends it (TORCHELASTIC_ERROR_FILE, which torchrun
	// sets for each rank).
	ErrorFile string `json:"error_file,omitempty"`
	// Error is what it wrote there; nil: nothing, as most scripts do not use torch.distributed.elastic's @record.
	Error *RankError `json:"error,omitempty"`
}

// Attempts are the ranks of each attempt, the first attempt first: a launcher may start all of them anew when one has
// failed.
func (e Exit) Attempts() [][]RankExit {
	var attempts [][]RankExit
	for _, r := range e.Ranks { // by attempt
		last := len(attempts) - 1
		if last < 0 || attempts[last][0].Attempt != r.Attempt {
			attempts = append(attempts, nil)
			last++
		}
		attempts[last] = append(attempts[last], r)
	}
	return attempts
}

// Clean tells whether the command returned 0, no rank is known to have failed at last, and none was left behind: some
// launchers return 0 all the same (deepspeed, when its ranks' launcher dies of a signal).
func (e Exit) Clean() bool { return e.Code == 0 && len(e.Failed()) == 0 && len(e.Abandoned()) == 0 }

// Abandoned are the ranks that outlived the command and had to be ended.
func (e Exit) Abandoned() []Survivor {
	return slices.DeleteFunc(slices.Clone(e.Survivors),
		func(s Survivor) bool { return s.Rank < 0 || s.Action == LeftAlone || s.Action == Gone })
}

// Failed are the ranks that are known to have ended badly and were not started anew: by an agent as a further attempt,
// or by a script that runs the launcher again.
func (e Exit) Failed() []RankExit {
	attempts := e.Attempts()
	if len(attempts) == 0 {
		return nil
	}
	ranks := attempts[len(attempts)-1]
	var failed []RankExit
	for i, r := range ranks { // those with the same number stand together, in the order in which they were started
		last := i == len(ranks)-1 || ranks[i+1].Rank != r.Rank
		if last && r.Known && r.Code != 0 {
			failed = append(failed, r)
		}
	}
	return failed
}

// Survivor is a process of the tree that outlived the command.
type Survivor struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	Rank   int    `json:"rank"`   // -1: not a rank
	Action string `json:"action"` // one of the actions below
}

// What was done with a survivor.
const (
	// Terminated: it ended after SIGTERM, within the grace.
	Terminated = "terminated"
	// Killed: it ended after SIGKILL.
	Killed = "killed"
	// Unkillable: it was sent SIGKILL and has not ended; it hangs in the kernel, often in a driver or a dead network
	// file system.
	Unkillable = "unkillable"
	// LeftAlone: it is neither a rank nor belongs to one, so it was not touched (an experiment tracker may be
	// uploading).
	LeftAlone = "left alone"
	// Gone: it ended by itself before anything was done.
	Gone = "gone"
)

// DefaultGrace is what torchrun gives its workers between SIGTERM and SIGKILL (30 s in
// torch/distributed/elastic/agent/server/ local_elastic_agent.py up to 2.12, the default of --shutdown-timeout since).
const DefaultGrace = 30 * time.Second

// Options are how to look after a command. The zero value is useful.
type Options struct {
	// Signals are those to hand on. A program that starts commands late passes a channel that it had notified of
	// Signals() from its very start, so that none is lost meanwhile. Nil: Start installs its own.
	Signals <-chan os.Signal
	// Grace is how long ranks that outlive the command have between SIGTERM and SIGKILL. Zero: DefaultGrace. A SIGINT,
	// SIGTERM, SIGHUP or SIGQUIT that comes in this time ends it at once.
	Grace time.Duration
	// LeftBehind is called once, before anything is done to them, when ranks are to be ended that have outlived the
	// command: how many. Waiting for them can take the whole grace, which a user wants to be told. It must not block.
	// Nil: nobody is told.
	LeftBehind func(ranks int)
	// KillAfter is the last resort against a command that does not end: so long after the first request to end (SIGINT,
	// SIGTERM, SIGHUP, SIGQUIT) was handed on, the command and everything below it are sent SIGKILL. Zero: never,
	// however long it takes.
	KillAfter time.Duration
	// DieWithUs: when we die, even of SIGKILL, the command gets SIGTERM. Without it the command goes on.
	DieWithUs bool
	// Guard starts this program as a process that calls ServeGuard with the duration that is added as the last word:
	// for DieWithUs it also sends SIGKILL to what still lives of the command so long after our death (KillAfter, or
	// else Grace). Nil: the kernel sends the SIGTERM alone.
	Guard []string
	// SingleRank tells by its arguments, the program's name included, whether a process below the command is its one
	// rank, where that has neither RANK nor LOCAL_RANK. It must not block. Nil: ranks have both.
	SingleRank func(argv []string) bool
	// WholeJob: who signals us may signal every process of our job, as Slurm does by its configuration. A signal that
	// has reached the command in this way is not handed on, since it would come twice. Finding out takes up to a tenth
	// of a second where it has not.
	WholeJob bool
	// Exclude returns the pids of our own helper processes that have a process group of their own. They and their
	// descendants are neither counted as the command's, signalled nor reaped. Nil: there are none.
	Exclude func() []int

	becoming time.Duration // see the constant; tests cannot tell how long they take
}

// Errors of Start and Lookup; errors.Is finds them. Any other error of Start means that the system could not start the
// command (no memory, too many processes, argument list too long).
var (
	// ErrNotFound: there is no such command. Shells and env(1) exit with 127.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable: it is there and cannot be executed. Shells and env(1) exit with 126.
	ErrNotExecutable = errors.New("command cannot be executed")
)
