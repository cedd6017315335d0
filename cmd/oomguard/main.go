// Command oomguard replaces a direct torchrun call: it estimates the memory of each GPU and goes through a checklist
// before the run, watches it, and explains its end. This package holds flags, wiring and exit statuses, one file a
// command.
package main

import (
	"os"
	"slices"
	"time"

	"oomguard/launcher"
)

func main() {
	descriptors := launcher.Inherit()
	env := processEnvironment()
	env.descriptors = descriptors
	os.Exit(run(env))
}

// environment is all that the program takes from outside, so that nothing below main reaches for it.
type environment struct {
	args                  []string // without the program's name
	environ               []string
	stdin, stdout, stderr *os.File
	descriptors           []int  // inherited beyond these, for the command
	dir                   string // working directory
	executable            string // our own path, to start ourselves as a helper
	now                   func() time.Time
	adviser               *link // we are the adviser of a run; nil: we are not
}

func processEnvironment() environment {
	env := environment{
		args: os.Args[1:], environ: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: time.Now,
	}
	// both fail only on a machine in trouble; what needs them says so when it does
	env.dir, _ = os.Getwd()
	env.executable, _ = os.Executable()
	return env
}

// lookup finds a variable; the last of several wins, as in a process's own environment.
func (e environment) lookup(name string) (string, bool) {
	for _, v := range slices.Backward(e.environ) {
		if kv := v; len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:], true
		}
	}
	return "", false
}

func (e environment) getenv(name string) string {
	value, _ := e.lookup(name)
	return value
}
