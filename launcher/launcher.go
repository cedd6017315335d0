// Package launcher starts somebody else's command, stays out of its way, and accounts for its process tree. It knows nothing of
// memory.
package launcher

import (
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
	Known     bool      `json:"known"` // whether Code was learned
	Code      int       `json:"code"`  // exit code, or -N for signal N
	EndedAt   time.Time `json:"ended_at"`
}

// Survivor is a process of the tree that outlived the command.
type Survivor struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	Rank   int    `json:"rank"`   // -1: not a rank
	Action string `json:"action"` // "terminated", "killed", "left alone", "gone"
}
