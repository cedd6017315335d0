package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

const (
	// maxScripts is how many shell scripts may lead to each other: one that starts another.
	maxScripts = 2
	// maxCandidates bounds the commands of a script that are tried; real scripts have a few that could be the launcher.
	maxCandidates = 32
)

// isShellScript recognises a script by its name.
func isShellScript(base string) bool {
	return slices.Contains([]string{".sh", ".bash", ".slurm", ".sbatch", ".sub", ".job"}, filepath.Ext(base))
}

// peelShell reads bash SCRIPT and bash -c STRING.
func peelShell(r *reader, word string, args []string, inside func([]string)) {
	text := false
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		option := args[0]
		args = args[1:]
		switch {
		case option == "--":
		case option == "--rcfile" || option == "--init-file":
			args = args[min(1, len(args)):]
		case !strings.HasPrefix(option, "--"):
			text = text || strings.Contains(option, "c")
			if strings.ContainsAny(option, "oO") { // -o pipefail, -euxo pipefail, -O extglob
				args = args[min(1, len(args)):]
			}
		}
	}
	switch {
	case len(args) == 0:
		r.blocked = word + " reads its commands from its input"
	case !text:
		r.readScriptFile(args[0], args[1:], inside)
	default:
		name := word
		params := args[1:]
		if len(params) > 0 {
			name, params = params[0], params[1:]
		}
		r.readScript([]byte(args[0]), word+" -c", name, params, inside)
	}
}

// readScriptFile reads a script that the command names. One that is not here may still be a framework's own launcher.
func (r *reader) readScriptFile(name string, params []string, inside func([]string)) {
	if why, unknown := shell.Unknown(name); unknown {
		r.blocked = "the script is not known: " + why
		return
	}
	data, err := document.Read(r.path(name), name)
	if err == nil {
		r.readScript(data, name, name, params, inside)
		return
	}
	for _, l := range launchers() {
		if slices.Contains(l.words, filepath.Base(name)) {
			inside(append([]string{name}, params...))
			return
		}
	}
	if words := r.titanScript(filepath.Base(name)); words != nil && !isFile(r.path(name)) {
		r.scripts++
		r.place = name + " (torchtitan's own, which is not here)"
		inside(append(words, params...))
		return
	}
	r.unusable(err)
	r.blocked = "the script " + name + " could not be read"
}

// readScript finds the command of a shell script that starts the training, and goes on with it.
func (r *reader) readScript(data []byte, shown, name string, params []string, inside func([]string)) {
	if r.scripts >= maxScripts {
		r.blocked = "scripts start each other more than once: " + shown
		return
	}
	r.scripts++
	dir, err := filepath.Abs(r.src.Dir)
	if err != nil {
		dir = r.src.Dir
	}
	script, err := shell.Read(data, shell.Input{
		Name: shown, Script: name, Args: params, Dir: dir, Here: r.src.Place == Here, CPUs: r.countedCPUs(),
		GPUs: r.countedGPUs,
		Getenv: func(name string) (string, bool) {
			v := r.variable(name)
			return v.text, v != sourced{}
		},
		Open:  func(path string) ([]byte, error) { return document.Read(r.path(path), path) },
		Home:  r.src.Home,
		Begin: func(lines []shell.Directive) { r.batchDirectives(shown, lines) },
	})
	if err != nil {
		r.unread(err)
		r.blocked = shown + " could not be read"
		return
	}
	if r.written == nil {
		r.written = map[string]string{}
	}
	maps.Copy(r.written, script.Written)
	for i := range script.Commands {
		c := &script.Commands[i]
		c.Words, c.Unset = r.settleWords(c.Words)
	}
	script.Commands = slices.DeleteFunc(script.Commands, func(c shell.Command) bool { return len(c.Words) == 0 })
	command, why := r.launching(script.Commands, shown)
	if command == nil && script.Exit != "" {
		why += " (what stands behind the exit at " + script.Exit + " does not run)"
	}
	if command == nil {
		r.blocked = why
		r.job.Outer.Unknown(why)
		return
	}
	if why != "" {
		r.note(why)
	}
	r.follow(command)
	inside(command.Words)
}

// settle gives the settings of a script's command their place in it.
func (r *reader) settle() {
	r.job.eachFact(func(key string, f fact) {
		if key != "outer" {
			f.settle(r.place)
		}
	})
	for i, word := range r.job.ScriptArgs {
		r.job.ScriptArgs[i] = shell.Plain(word)
	}
}

// follow puts the reader where a command of a script starts.
func (r *reader) follow(c *shell.Command) {
	// bash -c in a script stands at its line there
	if inLine := strings.HasSuffix(c.File, " -c"); !inLine || r.place == "" {
		r.place = c.Origin()
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if value := r.settleText(c.Env[name]); value != r.getenv(name) {
			r.setenvFrom(name, value, c.Origin()+" "+name)
		}
	}
	r.enter(c.Dir)
	r.doubtWords(c.Words, c.Unset)
}

// launching chooses the command that starts the training: the last that a launcher starts, or else the last that Python
// does. why says what a person should know of the choice, or why there is none.
func (r *reader) launching(commands []shell.Command, shown string) (chosen *shell.Command, why string) {
	var found []*shell.Command
	best, open := 0, unknownWord(commands)
	for _, c := range r.candidates(commands) {
		rank, why := r.rank(c)
		if why != "" {
			open = why
		}
		switch {
		case rank == 0 || rank < best:
		case rank > best:
			best, found = rank, []*shell.Command{c}
		default:
			found = append(found, c)
		}
	}
	certain := slices.DeleteFunc(slices.Clone(found), func(c *shell.Command) bool { return c.Branch != "" })
	switch {
	case best < 2 && open != "": // what is not known may be the launcher
		return nil, open
	case len(found) == 0:
		return nil, shown + " starts no training that is recognised; give the command itself"
	case len(certain) > 1:
		return certain[len(certain)-1], fmt.Sprintf("the last of %d in %s", len(certain), shown)
	case len(certain) == 1:
		return certain[0], ""
	case slices.ContainsFunc(found, func(c *shell.Command) bool { return !slices.Equal(c.Words, found[0].Words) }):
		return nil, fmt.Sprintf("which of %d commands of %s runs is not known (%s); give the command itself",
			len(found), shown, found[0].Branch)
	}
	return found[0], "it runs only " + found[0].Branch
}

// unknownWord says why nobody knows what a command of a script starts; "" when all are known.
func unknownWord(commands []shell.Command) string {
	for _, c := range commands {
		if why, unknown := shell.Unknown(c.Words[0]); unknown {
			return "the command is not known: " + why
		}
	}
	return ""
}

// candidates are the last commands whose first word could lead to a training.
func (r *reader) candidates(commands []shell.Command) []*shell.Command {
	var likely []*shell.Command
	for i := range commands {
		if r.leads(commands[i].Words[0]) {
			likely = append(likely, &commands[i])
		}
	}
	return likely[max(0, len(likely)-maxCandidates):]
}

// rank reads a command on trial: 2 when a launcher starts it, 1 when Python runs a script or module, 0 when nothing is
// trained.
func (r *reader) rank(c *shell.Command) (rank int, why string) {
	trial := &reader{src: r.src, job: &Job{}, env: maps.Clone(r.env), versions: map[string]string{}, scripts: r.scripts,
		sealed: r.sealed}
	trial.oddOption = trial.strange
	trial.follow(c)
	trial.readWords(c.Words, 0)
	launcher, script := trial.job.Launcher, trial.job.Script.Value
	switch {
	case launcher.withheld:
		return 0, launcher.Origin
	case !launcher.Known && len(trial.gaps) > 0 && shell.Whole(c.Words[0]):
		return 0, trial.blocked
	case !launcher.Known:
		return 0, ""
	case launcher.Value != "python":
		return 2, ""
	case script == "-c" || slices.Contains([]string{"-m pip", "-m venv", "-m ensurepip", "-m json.tool",
		"-m http.server"}, script):
		return 0, ""
	}
	return 1, ""
}
