// Package launcher starts somebody else's command, stays out of its way, and accounts for its process tree. It knows nothing of
// memory.
//
// What the command can rely on:
//
//   - It gets our own standard streams, working directory, resource limits and inherited descriptors: a terminal stays a terminal.
//     There is no parent-death signal: when oomguard is killed the training goes on. A caller that wants a copy of what goes to a
//     pipe starts a Relay first, which keeps that promise too.
//   - It runs in a process group of its own. A signal sent to our group (by timeout, a shell, a scheduler) thus reaches only us,
//     and we hand each one on, at once and once, to the command's process: to torchrun a second SIGTERM means "abort the graceful
//     stop", a third one orphans the ranks. We do not signal the group, since torchrun gives each rank a session of its own and stops
//     them itself.
//   - Where we are the terminal's foreground job, the command's group becomes it. Ctrl-C then reaches the command without us, Ctrl-Z
//     stops the command and then us, and the shell's fg continues both.
//   - What we inherited as ignored (SIGHUP under nohup) is not caught, not handed on, and stays ignored in the command. The Go
//     runtime keeps that for SIGHUP, SIGINT, SIGTSTP, SIGTTIN and SIGTTOU only; all other signals have their default action in the
//     command.
//
// What we keep to ourselves: while the command runs we are the child subreaper, so that processes whose parent died come to us. Their
// zombies are reaped (we may be process 1 of a container), and ranks that outlive the command are ended, since they would hold
// the GPUs' memory. Our own helper processes are told from the command's by their process group: a helper that stays in our group,
// as os/exec leaves it, is never touched; one that gets a group of its own must be named by Options.Exclude.
//
// One Process at a time: orphans that come to us cannot be told apart by the command they came from.
package launcher

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Command is what to start. Streams are handed over as they are: the child gets these very files, nothing is copied or buffered.
type Command struct {
	Argv                  []string
	Env                   []string // complete environment of the child
	Dir                   string
	Stdin, Stdout, Stderr *os.File
}

// Exit is how the command ended.
type Exit struct {
	// Code is the status to hand on: the command's own, or 128+N when it died of signal N.
	Code      int            `json:"code"`
	Signal    syscall.Signal `json:"signal"` // 0: it exited
	Started   time.Time      `json:"started"`
	Ended     time.Time      `json:"ended"`
	Forwarded []string       `json:"forwarded,omitempty"` // signals handed on, in order
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
	// Unkillable: it was sent SIGKILL and has not ended; it hangs in the kernel, often in a driver or a dead network file system.
	Unkillable = "unkillable"
	// LeftAlone: it is neither a rank nor belongs to one, so it was not touched (an experiment tracker may be uploading).
	LeftAlone = "left alone"
	// Gone: it ended by itself before anything was done.
	Gone = "gone"
)

// DefaultGrace is what torchrun gives its workers between SIGTERM and SIGKILL (30 s in torch/distributed/elastic/agent/server/
// local_elastic_agent.py up to 2.12, the default of --shutdown-timeout since).
const DefaultGrace = 30 * time.Second

// Options are how to look after a command. The zero value is useful.
type Options struct {
	// Signals are those to hand on. A program that starts commands late passes a channel that it had notified of Signals() from its
	// very start, so that none is lost meanwhile. Nil: Start installs its own.
	Signals <-chan os.Signal
	// Grace is how long ranks that outlive the command have between SIGTERM and SIGKILL. Zero: DefaultGrace. A SIGINT, SIGTERM,
	// SIGHUP or SIGQUIT that comes in this time ends it at once.
	Grace time.Duration
	// LeftBehind is called once, before anything is done to them, when ranks have outlived the command: how many processes they and
	// theirs are. Waiting for them can take the whole grace, which a user wants to be told. It must not block. Nil: nobody is told.
	LeftBehind func(processes int)
	// Exclude returns the pids of our own helper processes that have a process group of their own. They and their descendants
	// are neither counted as the command's, signalled nor reaped. Nil: there are none.
	Exclude func() []int
}

// Errors of Start and Lookup; errors.Is finds them. Any other error of Start means that the system could not start the command
// (no memory, too many processes, argument list too long).
var (
	// ErrNotFound: there is no such command. Shells and env(1) exit with 127.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable: it is there and cannot be executed. Shells and env(1) exit with 126.
	ErrNotExecutable = errors.New("command cannot be executed")
)
