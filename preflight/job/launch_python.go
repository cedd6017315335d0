package job

import (
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

// pythonOptionsWithValue are the interpreter's options whose value is the next word.
const pythonOptionsWithValue = "XWQ"

// readPython reads the interpreter's own options up to the script or module. Inside torchrun --no-python the launcher
// is known already and stays.
func (r *reader) readPython(args []string) {
	for len(args) > 0 && (strings.HasPrefix(args[0], "-") && len(args[0]) > 1 ||
		shell.Whole(args[0]) && len(args) > 1) {
		word := args[0]
		args = args[1:]
		if why, unknown := shell.Unknown(word); unknown { // options of Python, or a launcher as -m
			for _, f := range []fact{&r.job.Launcher, &r.job.NNodes, &r.job.NProc} {
				f.Withhold(why)
			}
			if !strings.HasSuffix(args[0], ".py") && args[0][0] != '-' {
				r.blocked = "what Python runs is not known: " + why
				return
			}
			continue
		}
		if strings.HasPrefix(word, "--") {
			if word == "--check-hash-based-pycs" && len(args) > 0 {
				args = args[1:]
			}
			continue
		}
		at := strings.IndexAny(word, "mc"+pythonOptionsWithValue)
		if at < 0 {
			continue // only flags, such as -u or -OO
		}
		value := word[at+1:]
		if value == "" && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		switch word[at] {
		case 'm':
			r.readModule(value, args)
			return
		case 'c':
			r.plainPython("-c", args)
			return
		}
	}
	if len(args) == 0 {
		r.job.Launcher.Offer("python", "command line")
		r.blocked = "python is started without a script"
		return
	}
	for _, l := range launchers() {
		if slices.Contains(l.words, filepath.Base(args[0])) { // python /path/to/torchrun ...
			r.job.Launcher.Offer(l.name, "command line")
			l.read(r, filepath.Base(args[0]), args[1:])
			return
		}
	}
	r.plainPython(args[0], args[1:])
}

func (r *reader) readModule(module string, args []string) {
	if why, unknown := shell.Unknown(module); unknown { // it may be a launcher
		for _, f := range []fact{&r.job.Launcher, &r.job.NNodes, &r.job.NProc} {
			f.Withhold(why)
		}
	}
	for _, l := range launchers() {
		if slices.Contains(l.modules, module) {
			r.job.Launcher.Offer(l.name, "command line -m "+module)
			parts := strings.Split(module, ".")
			l.read(r, parts[len(parts)-1]+".py", args)
			return
		}
	}
	r.plainPython("-m "+module, args)
}

// plainPython is a script without a launcher, or below torchrun --no-python.
func (r *reader) plainPython(script string, args []string) {
	if r.readSubmitter(script, args) {
		return
	}
	if why := launchesOpen(args); why != "" {
		for _, f := range []fact{&r.job.Launcher, &r.job.NNodes, &r.job.NProc} {
			f.Withhold(why)
		}
	}
	r.job.Launcher.Offer("python", "command line")
	r.setScript(script, args)
	if r.tasks.word != "" {
		r.tasks.offer(r.job)
		return
	}
	if why, unknown := shell.Unknown(script); unknown { // what is run may start processes
		r.job.NNodes.Withhold(why)
		r.job.NProc.Withhold(why)
		return
	}
	r.job.NNodes.Offer(1, plainOrigin)
	r.job.NProc.Offer(1, plainOrigin)
}

// launchesOpen says why a script may submit a launcher that stands among its arguments: not all of them are known.
func launchesOpen(args []string) string {
	names := slices.ContainsFunc(args, func(word string) bool {
		return slices.ContainsFunc(launchers(), func(l launcher) bool { return slices.Contains(l.words, word) })
	})
	i := slices.IndexFunc(args, shell.Whole)
	if i < 0 || !names && !slices.Contains(args[i+1:], "--") {
		return ""
	}
	why, _ := shell.Unknown(args[i])
	return why
}

func (r *reader) setScript(script string, args []string) {
	if why, unknown := shell.Unknown(script); unknown {
		r.job.Script.Unknown(why)
		r.open = why
	} else {
		r.job.Script.Offer(script, "command line")
	}
	r.job.ScriptArgs = slices.Clone(args)
}
