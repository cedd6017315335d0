package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/monitor/gpu"
	"oomguard/monitor/report"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// wrapping are the commands that take another command: it begins behind -- or with the first word that is neither a
// flag nor a flag's value, and is left as it is. The others take arguments, between which flags may stand.
func wrapping() []string { return []string{"run", "check", "explain", "estimate", "plan"} }

// ownFlag is one of our flags as it is read from a command line.
type ownFlag struct {
	name string // its first one
	bare bool   // without a value of its own
	key  bool   // of the job: it takes true or false behind it, as every key takes its value
	many bool   // may be given several times
}

func ownFlags(c *cli.Command) map[string]ownFlag {
	flags := map[string]ownFlag{}
	for _, f := range c.Flags {
		own := ownFlag{name: f.Names()[0]}
		_, own.bare = f.(*cli.BoolFlag)
		_, own.many = f.(*cli.StringSliceFlag)
		own.key = own.bare && slices.ContainsFunc(job.Keys(), func(k job.Key) bool { return k.Flag == own.name })
		for _, name := range f.Names() {
			flags[name] = own
		}
	}
	return flags
}

// takeFlag reads the flag that args begin with: how many words it takes, and its value.
func takeFlag(own map[string]ownFlag, args []string) (f ownFlag, words int, value string, err error) {
	name, value, attached := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	f, known := own[name]
	var next string
	if len(args) > 1 && args[1] != "--" {
		next = args[1]
	}
	switch {
	case attached || !known:
		return f, 1, value, nil
	case f.key && slices.Contains(boolWords(), next):
		return f, 2, next, nil
	case f.bare:
		return f, 1, boolWords()[0], nil
	case next == "" && (len(args) == 1 || args[1] == "--"):
		return f, 0, "", usagef("--%s needs a value", f.name)
	}
	return f, 2, next, nil
}

// arrange puts a command line into the order that the flags' library reads: flags, then arguments. It makes
// --packing=true of
// --packing true, and refuses a flag that says two things at once.
func arrange(commands []*cli.Command, args []string) ([]string, error) {
	at := slices.IndexFunc(commands,
		func(c *cli.Command) bool { return len(args) > 0 && c.Name == args[0] && !c.Hidden })
	if at < 0 {
		return args, nil
	}
	own, wraps := ownFlags(commands[at]), slices.Contains(wrapping(), args[0])
	flags, given := []string{args[0]}, map[string]string{}
	var arguments []string
	for rest := args[1:]; len(rest) > 0; {
		switch word := rest[0]; {
		case word == "--":
			return slices.Concat(flags, []string{word}, arguments, rest[1:]), nil
		case word != "-" && strings.HasPrefix(word, "-"):
		case wraps:
			return append(flags, rest...), nil
		default:
			arguments, rest = append(arguments, word), rest[1:]
			continue
		}
		f, words, value, err := takeFlag(own, rest)
		if err != nil {
			return nil, err
		}
		if before, twice := given[f.name]; f.name != "" && !f.many && twice && before != value {
			return nil, usagef("--%s is given twice: %s and %s; give one of them", f.name, before, value)
		}
		given[f.name] = value
		if f.key && words == 2 {
			flags = append(flags, rest[0]+"="+value)
		} else {
			flags = append(flags, rest[:words]...)
		}
		rest = rest[words:]
	}
	if len(arguments) > 0 {
		flags = append(flags, "--")
	}
	return append(flags, arguments...), nil
}

// telling are values with which a flag behind the command can only be one of ours.
func telling() map[string]func(string) bool {
	is := func(words ...string) func(string) bool {
		return func(v string) bool { return slices.Contains(words, v) }
	}
	memory := func(v string) bool { _, err := gpu.ParseMemory(v); return err == nil }
	return map[string]func(string) bool{
		"gpu":        func(v string) bool { _, _, err := gpu.Lookup(v); return err == nil },
		"gpu-memory": memory, "activations": memory, "reserve": memory,
		"devices":  func(v string) bool { return strings.HasSuffix(v, ".json") },
		"headroom": func(v string) bool { _, err := parseHeadroom(v); return err == nil },
		"params":   func(v string) bool { _, err := model.ParseParams(v); return err == nil },
		"fail-on":  is("fail", "warn"), "units": is("binary", "si"), "format": is(report.Formats()...),
		"max": is("batch", "seq", "params"),
	}
}

// warnMisplaced says a word about our own flags behind the wrapped command, where they are the command's and change no
// answer of ours.
func warnMisplaced(env environment, c *cli.Context) error {
	if !slices.Contains(wrapping(), c.Command.Name) || c.Command.Name == "run" {
		return nil
	}
	own, words := ownFlags(c.Command), c.Args().Slice()
	for i, word := range words {
		name, value, attached := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !attached && i+1 < len(words) {
			value = words[i+1]
		}
		tells := telling()[name]
		if _, ours := own[name]; !ours || tells == nil || !strings.HasPrefix(word, "--") || !tells(value) {
			continue
		}
		if !attached {
			word += " " + value
		}
		env.say("%s stands behind the command and is taken for the command's own; flags of oomguard stand before --",
			word)
	}
	return nil
}

// checkJobFlags judges the values of the job's keys before anything is asked or started.
func checkJobFlags(c *cli.Context) error {
	if err := job.CheckFlags(givenJobFlags(c)); err != nil {
		return usageError{err}
	}
	return nil
}
