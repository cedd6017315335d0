package job

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// Sources are all that a job is read from.
type Sources struct {
	// Argv is the wrapped command; empty for an estimate without one.
	Argv []string
	// Flags are oomguard's own job flags that were given: name without dashes -> text. Keys lists the names.
	Flags map[string]string
	// Getenv reads the environment that the command will get.
	Getenv func(string) string
	// Dir is the working directory; relative paths start there. "" is the current one.
	Dir string
	// GPUs and CPUs are those of this machine (they resolve --nproc-per-node gpu and auto); GPUs is -1 when it is not known, CPUs 0.
	GPUs, CPUs int
	// Versions are forced: they win over what the interpreter has installed.
	Versions map[string]string
	// LoadModel reads an architecture; nil means model.Load.
	LoadModel func(path string) (*model.Architecture, error)
}

// Read understands a training command. It never fails: what cannot be read or contradicts itself is in Problems, what cannot be
// determined is unknown with the reason. Every setting is taken from the strongest source that names it: oomguard's flags, the
// command line and PET_* variables, files that it names, oomguard.yaml, the framework's defaults for the installed version.
func Read(src Sources) *Job {
	if src.Getenv == nil {
		src.Getenv = func(string) string { return "" }
	}
	if src.LoadModel == nil {
		src.LoadModel = model.Load
	}
	r := &reader{src: src, job: &Job{Argv: slices.Clone(src.Argv)}, versions: map[string]string{}}
	r.readOwnFlags()
	lines := r.readOwnFile()
	r.readCommand()
	r.readVersions()
	r.readScriptArguments()
	r.applyOwnFile(lines)
	r.readModel()
	r.applyDefaults()
	r.derive()
	r.explainUnknowns()
	return r.job
}

// A reader is one pass over the sources. What several settings depend on is kept here until all sources have spoken.
type reader struct {
	src Sources
	job *Job

	versions  map[string]string // forced by flag or file, until readVersions adds the installed ones
	framework framework         // that reads the script
	family    family            // what is known of the script
	env       map[string]string // variables that the command sets itself (env A=B, an outer wrapper), over those it inherits
	args      map[string]argument
	fsdp      bool           // Trainer shards with FSDP
	deepspeed *deepspeedFile // nil: none was named or it could not be read

	// load is the dtype in which the script loads the model's weights; param_dtype and base_dtype follow from it.
	load    Setting[string]
	params  Setting[int64] // --params
	adapter adapterParts
	// shardingLost says why nobody knows what a DeepSpeed or FSDP configuration decides: it was named but could not be read.
	shardingLost string
	// blocked says why nothing can be said about the script: the launcher is not read yet, or it refuses its command line.
	blocked string
}

// problem records an input that could not be used, once.
func (r *reader) problem(err error) {
	same := func(before error) bool { return before.Error() == err.Error() }
	if !slices.ContainsFunc(r.job.Problems, same) {
		r.job.Problems = append(r.job.Problems, err)
	}
}

// fail records that the job would die at start.
func (r *reader) fail(why, origin string) { r.job.WillFail.Offer(why, origin) }

// path resolves a path that the user wrote.
func (r *reader) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.src.Dir, name)
}

// installed names a package with its version, for origins: "transformers 4.51.3".
func (r *reader) installed(name string) string {
	if v := r.versions[name]; v != "" {
		return name + " " + v
	}
	return name + " (version unknown)"
}

// A launcher is a program that starts the ranks.
type launcher struct {
	name    string
	words   []string // base names of the first word
	modules []string // of python -m
	read    func(r *reader, prog string, args []string)
}

// launchers lists the programs that are recognised. python itself is not here: it runs a script or one of these modules.
func launchers() []launcher {
	return []launcher{
		{
			name: "torchrun", words: []string{"torchrun"}, modules: []string{"torch.distributed.run"},
			read: func(r *reader, prog string, args []string) { r.readTorchrun(prog, torchrunOptions(), args) },
		},
		{
			name: "torch.distributed.launch", modules: []string{"torch.distributed.launch"},
			read: func(r *reader, prog string, args []string) { r.readTorchrun(prog, launchOptions(), args) },
		},
		{
			name: "accelerate", words: []string{"accelerate", "accelerate-launch"},
			modules: []string{"accelerate.commands.launch", "accelerate.commands.accelerate_cli"}, read: notReadYet("accelerate launch"),
		},
		{
			name: "deepspeed", words: []string{"deepspeed", "deepspeed.pt", "ds"}, modules: []string{"deepspeed.launcher.runner"},
			read: notReadYet("the deepspeed launcher"),
		},
	}
}

// notReadYet is for launchers whose options decide about the job but are not understood: nothing is guessed.
func notReadYet(what string) func(*reader, string, []string) {
	return func(r *reader, _ string, _ []string) {
		r.blocked = what + " is not read yet"
	}
}

// readCommand finds the launcher, the script and its arguments.
func (r *reader) readCommand() {
	if len(r.src.Argv) == 0 {
		r.job.Launcher.Unknown("no command given")
		r.job.Script.Unknown("no command given")
		r.job.Framework.Unknown("no command given")
		return
	}
	r.readWords(r.src.Argv, 0)
	if r.job.Outer.Origin == "" {
		r.job.Outer.Offer("", "no wrapper before the launcher")
	}
}

// maxWrappers bounds how many commands may stand in front of each other: srun bash -c 'env ... uv run torchrun' has four.
const maxWrappers = 16

// readWords reads one command: variables and wrappers in front are taken off, then a launcher or Python takes the rest. Commands
// that start a launcher themselves (trl sft, axolotl train) come back here with the command that they start.
func (r *reader) readWords(argv []string, depth int) {
	argv = r.takeVariables(argv)
	switch {
	case r.blocked != "":
		return
	case len(argv) == 0:
		r.blocked = "no command after the variables and wrappers in front"
		return
	case depth == maxWrappers:
		r.blocked = fmt.Sprintf("more than %d commands are nested", maxWrappers)
		return
	}
	word, args := argv[0], argv[1:]
	base := filepath.Base(word)
	if isPython(word) {
		r.readPython(args)
		return
	}
	for _, w := range wrappers() {
		if slices.Contains(w.words, base) {
			w.peel(r, base, args, func(inside []string) { r.readWords(inside, depth+1) })
			return
		}
	}
	for _, l := range launchers() {
		if slices.Contains(l.words, base) {
			r.job.Launcher.Offer(l.name, "command line")
			l.read(r, base, args)
			return
		}
	}
	if strings.HasSuffix(base, ".py") { // an executable script: its first line starts Python
		r.readPython(argv)
		return
	}
	r.blocked = base + " is not read yet"
	r.job.Outer.Unknown(r.blocked)
}

// getenv reads a variable as the command will see it.
func (r *reader) getenv(name string) string {
	if value, set := r.env[name]; set {
		return value
	}
	return r.src.Getenv(name)
}

// isPython recognises python, python3, python3.11 and pypy3 with any path in front.
func isPython(word string) bool {
	base := strings.TrimRight(filepath.Base(word), "0123456789.")
	return base == "python" || base == "pypy"
}

// pythonOptionsWithValue are the interpreter's options whose value is the next word.
const pythonOptionsWithValue = "XWQ"

// readPython reads the interpreter's own options up to the script or module. Inside torchrun --no-python the launcher is known
// already and stays.
func (r *reader) readPython(args []string) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && len(args[0]) > 1 {
		word := args[0]
		args = args[1:]
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
	r.job.Launcher.Offer("python", "command line")
	r.setScript(script, args)
	r.job.NNodes.Offer(1, "plain python starts one process")
	r.job.NProc.Offer(1, "plain python starts one process")
}

func (r *reader) setScript(script string, args []string) {
	r.job.Script.Offer(script, "command line")
	r.job.ScriptArgs = slices.Clone(args)
}

// readModel loads the architecture that the job names, or makes one from --params.
func (r *reader) readModel() {
	j := r.job
	if name := r.args["model_name_or_path"]; name.text != "" {
		j.Model.Offer(name.text, name.origin)
	}
	if j.Model.Known {
		r.loadModel()
	}
	if r.params.Known {
		if a := j.Architecture; a != nil && a.Parameters() != r.params.Value {
			r.problem(fmt.Errorf("%s: %d parameters, but %s has %d; give one of the two", r.params.Origin, r.params.Value, a.Source, a.Parameters()))
		} else if a == nil {
			j.Architecture = model.FromParams(r.params.Value)
		}
	}
	switch {
	case r.params.Known:
		j.ModelParams.Offer(r.params.Value, r.params.Origin)
	case j.Architecture != nil:
		j.ModelParams.Offer(j.Architecture.Parameters(), j.Architecture.Source)
	case !j.Model.Known:
		j.ModelParams.Unknown("no model named; give --model DIR or --params")
	}
}

func (r *reader) loadModel() {
	name := r.job.Model.Value
	path := r.path(name)
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir() && !exists(path, "config.json") && exists(path, "adapter_config.json"):
		r.adapter.folder = true
		r.job.ModelParams.Unknown("an adapter's folder; its base model is not read yet, give --model DIR or --params")
		return
	case err == nil:
	case looksLikePath(name) && r.params.Known:
		return
	case looksLikePath(name):
		r.job.ModelParams.Unknown("the model's folder could not be read")
		r.problem(fmt.Errorf("%s: model %s: no such file or folder; correct the path, or give --params", r.job.Model.Origin, name))
		return
	default:
		r.job.ModelParams.Unknown("hub name; give --model DIR or --params")
		return
	}
	architecture, err := r.src.LoadModel(path)
	switch {
	case err == nil:
		r.job.Architecture = architecture
	case !r.params.Known: // --params is the remedy for a model that cannot be read
		r.job.ModelParams.Unknown("the model could not be read")
		r.problem(err)
	}
}

func exists(folder, file string) bool {
	_, err := os.Stat(filepath.Join(folder, file))
	return err == nil
}

// looksLikePath tells a path from a hub name, which has at most one slash in its middle and no dots in front.
func looksLikePath(name string) bool {
	return filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") ||
		strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".json") || strings.Count(name, "/") > 1
}
