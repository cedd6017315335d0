package main

import (
	"errors"
	"fmt"

	"oomguard/checklists"
	"oomguard/launcher"
)

// The exit statuses of the contract. A command that run has started gives its own status instead.
const (
	exitOK            = 0
	exitInternal      = 1   // oomguard failed
	exitUsage         = 2   // wrong usage or unreadable input
	exitNo            = 3   // a check failed, the job does not fit
	exitNoAnswer      = 4   // something that decides is unknown
	exitRefused       = 122 // run: the checklist refused the run, nothing was started
	exitCannotStart   = 125 // run: oomguard could not start the command
	exitNotExecutable = 126 // run: the command cannot be executed
	exitNotFound      = 127 // run: the command was not found
)

// usageError is the user's to mend: wrong flags or input that cannot be read.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// noAnswer says what is not known of the job and what to give; the rest has been printed already.
type noAnswer struct{ why string }

func (e noAnswer) Error() string { return "no answer: " + e.why }

// status carries an exit status that is an answer rather than an error; everything has been printed already.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

var errCannotStart = errors.New("the command could not be started")

// exitStatus is the one table from error to exit status.
func exitStatus(err error) int {
	var s status
	var u usageError
	var n noAnswer
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &s):
		return int(s)
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, &n):
		return exitNoAnswer
	case errors.Is(err, launcher.ErrNotFound):
		return exitNotFound
	case errors.Is(err, launcher.ErrNotExecutable):
		return exitNotExecutable
	case errors.Is(err, errCannotStart):
		return exitCannotStart
	case errors.Is(err, checklists.ErrRefused):
		return exitNo
	}
	return exitInternal
}
