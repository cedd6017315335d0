package job

import (
	"regexp"
	"strings"
)

// A wrapper is a command that stands in front of the launcher and starts it: env, srun, bash -c. A new one is a row of wrappers.
type wrapper struct {
	words []string // base names of the first word
	// peel reads the wrapper's own options and calls inside with the command that it starts. A wrapper that decides how many
	// processes start (srun, mpirun) offers that, and its name as the job's outer; one that only prepares the ground does not.
	peel func(r *reader, word string, args []string, inside func(argv []string))
}

func wrappers() []wrapper {
	return []wrapper{
		{words: []string{"env"}, peel: peelEnv},
	}
}

// assignment is a word by which a shell or env sets a variable.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// takeVariables takes NAME=value words off the front of a command and remembers them.
func (r *reader) takeVariables(argv []string) []string {
	for len(argv) > 0 && assignment.MatchString(argv[0]) {
		name, value, _ := strings.Cut(argv[0], "=")
		r.setenv(name, value)
		argv = argv[1:]
	}
	return argv
}

func (r *reader) setenv(name, value string) {
	if r.env == nil {
		r.env = map[string]string{}
	}
	r.env[name] = value
}

// peelEnv reads env of coreutils: -i, -u NAME, -C DIR, -S and the assignments.
func peelEnv(r *reader, _ string, args []string, inside func([]string)) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		word := args[0]
		args = args[1:]
		switch {
		case word == "--":
			inside(args)
			return
		case (word == "-u" || word == "--unset") && len(args) > 0:
			r.setenv(args[0], "")
			args = args[1:]
		case strings.HasPrefix(word, "--unset="):
			r.setenv(strings.TrimPrefix(word, "--unset="), "")
		case word == "-i" || word == "-" || word == "--ignore-environment" || word == "-0" || word == "--null":
		default:
			r.blocked = "env " + word + " is not read yet"
			return
		}
	}
	inside(args)
}
