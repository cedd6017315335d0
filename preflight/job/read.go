package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/launcher/fence"
	"oomguard/preflight/job/shell"
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
	// Place is where the command will run; GPUs and CPUs are those of that place as far as they are known.
	Place Place
	// Dir is the working directory; relative paths start there. "" is the current one.
	Dir string
	// GPUs and CPUs are those of this machine (they resolve --nproc-per-node gpu and auto); GPUs is -1 when it is not
	// known, CPUs 0.
	GPUs, CPUs int
	// Versions are forced: they win over what the interpreter has installed.
	Versions map[string]string
	// FetchModel brings the config of a model on the hub to a folder; nil: the network is never touched.
	FetchModel func(model.HubModel) (folder string, err error)
	// Home is another user's home folder, for ~name in scripts; nil: they stay as they are.
	Home func(user string) string
	// LoadModel reads an architecture; nil means model.Load.
	LoadModel func(path string) (*model.Architecture, error)
}

// Read understands a training command. It never fails: what contradicts itself is in Problems, what could not be read
// in Unreadable, what cannot be determined is unknown with the reason. Every setting is taken from the strongest source
// that names it: oomguard's flags, the command line and PET_* variables, files that it names, oomguard.yaml, the
// framework's defaults for the installed version.
func Read(src Sources) *Job {
	if src.Getenv == nil {
		src.Getenv = func(string) string { return "" }
	}
	if src.LoadModel == nil {
		src.LoadModel = model.Load
	}
	r := &reader{src: src, job: &Job{Argv: slices.Clone(src.Argv)}, versions: map[string]string{}}
	r.job.eachFact(func(_ string, f fact) { f.attach(&r.ledger) })
	r.turn(sourceFlags, r.readOwnFlags)
	r.part("oomguard.yaml", r.readOwnFile)
	r.turn(sourceCommand, r.readCommand)
	r.part("the installed versions", r.readVersions)
	r.turn(sourceScript, r.readScriptArguments)
	r.turn(sourceOwnFile, func() { r.applyOwnFile(r.ownLines) })
	r.turn(sourceModel, r.readModel)
	r.turn(sourceDefaults, r.applyDefaults)
	r.turn(sourceDerived, r.derive)
	r.part("what is unknown", r.explainUnknowns)
	r.part("what is not known in the command's words", r.tellUnread)
	r.part("what is open in a script", r.settle)
	r.job.Place = r.src.Place
	r.job.eachFact(func(key string, f fact) {
		if key != "will_fail" { // senseless text there is a reason all the same
			fence.Garble("reading the job", f)
		}
	})
	return r.job
}

// Unread is a job of which nothing is known, by a fault of ours.
func Unread(argv []string, fault *fence.Fault) *Job {
	j := &Job{Argv: slices.Clone(argv)}
	j.eachFact(func(_ string, f fact) { f.Withhold(fault.Error()) })
	return j
}

// turn gives one of the sources of Order its turn.
func (r *reader) turn(name string, read func()) {
	r.ledger.source = name
	r.part(name, read)
}

// part is a part of the reading, behind a fence: after a fault of ours in it nobody knows what it would have said, so
// that no weaker source counts any more, and what stronger ones said stays.
func (r *reader) part(name string, read func()) {
	fault := fence.Do("reading "+name, read)
	if fault == nil {
		return
	}
	r.job.Faults = append(r.job.Faults, fault)
	r.doubt(fault.Error())
	r.job.eachFact(func(_ string, f fact) { f.Withhold(fault.Error()) })
}

// A reader is one pass over the sources. What several settings depend on is kept here until all sources have spoken.
type reader struct {
	sourceReading // the script's own text

	src    Sources
	job    *Job
	ledger ledger

	ownLines  []ownLine         // of oomguard.yaml
	versions  map[string]string // forced by flag or file, until readVersions adds the installed ones
	framework framework         // that reads the script
	family    family            // what is known of the script
	// variables that the command sets itself (env A=B, a script, a launcher), over those it inherits
	env       map[string]sourced
	args      map[string]argument
	fallbacks map[string]argument // what the framework takes for arguments that nobody gave, by its version
	unsaid    map[string]string   // why it is not known what the framework takes for an argument that nobody gave
	fsdp      bool                // Trainer shards with FSDP
	deepspeed *deepspeedFile      // nil: none was named or it could not be read
	axolotl   *axolotl            // its configuration; nil: another framework
	// fsdpCheckpointing: FSDP itself checkpoints activations.
	fsdpCheckpointing bool

	besides []besides // models held beside the one that is trained
	alone   string    // why there are no others

	megatron *megatron // arguments of Megatron-LM; nil: another framework

	// load is the dtype in which the script loads the model's weights; param_dtype and base_dtype follow from it.
	load    Setting[string]
	params  Setting[int64] // --params
	adapter adapterParts
	// revision and cacheDir are those with which the script loads its model.
	revision, cacheDir Setting[string]
	// shardingLost says why nobody knows what a DeepSpeed or FSDP configuration decides: it was named but could not be
	// read.
	shardingLost string
	// tasks are the processes that srun or mpirun starts, given the GPUs that a wrapper gives to each.
	tasks tasks
	given Setting[int]
	// place is where the command stands when a shell script holds it: "run.sh:12"; scripts counts those that lead
	// there.
	place   string
	scripts int
	// written are the files that a script on the way to the command writes itself, by their paths.
	written map[string]string
	// program is the word that starts the launcher or Python; hidden says what keeps its packages out of sight.
	program, hidden string
	// sealed: the command does not inherit the environment.
	sealed bool
	// notes are remarks for the origin of the script.
	notes []string
	// uncertain says why no contradiction is certain; gaps are the reasons of what is not known in the command's words.
	// open says why settings may be given that nobody can see.
	uncertain, open string
	// stranger is what strange found; nil: it was not asked.
	stranger *stranger
	// starts: a framework starts the processes itself. kinds are the options of its parser, where they are its own.
	starts bool
	kinds  map[string]argumentKind
	// model says why the model is not known, where a word of a script hides it.
	model string
	// words are those behind the program.
	words []string
	gaps  []string
	// blocked says why nothing can be said about the script: the launcher is not read yet, or it refuses its command
	// line.
	blocked string
}

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

// launchers lists the programs that are recognised. python itself is not here: it runs a script or one of these
// modules.
func launchers() []launcher {
	return []launcher{
		{name: "tune", words: []string{"tune"}, modules: []string{"torchtune._cli.tune"}, read: (*reader).readTune},
		{name: "litgpt", words: []string{"litgpt"}, modules: []string{"litgpt"}, read: (*reader).readLitGPT},
		{name: "fabric", words: []string{"fabric", "lightning"}, modules: []string{"lightning.fabric.cli"},
			read: (*reader).readFabric},
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
			modules: []string{"accelerate.commands.launch", "accelerate.commands.accelerate_cli"},
			read:    (*reader).readAccelerate,
		},
		{name: "axolotl", words: []string{"axolotl"}, modules: []string{"axolotl.cli.main"},
			read: (*reader).readAxolotl},
		{name: "trl", words: []string{"trl"}, modules: []string{"trl.cli"}, read: (*reader).readTRLCommand},
		{name: "llamafactory-cli", words: []string{"llamafactory-cli", "lmf"}, modules: []string{"llamafactory.cli"},
			read: (*reader).readLlamafactory},
		{
			name: "deepspeed", words: []string{"deepspeed", "deepspeed.pt", "ds"},
			modules: []string{"deepspeed.launcher.runner"},
			read:    (*reader).readDeepSpeedLauncher,
		},
		{name: "torchx", words: []string{"torchx"}, modules: []string{"torchx.apps.main"}, read: (*reader).readTorchX},
		{name: "composer", words: []string{"composer"}, modules: []string{"composer.cli.launcher"},
			read: (*reader).readComposer},
		{name: "colossalai", words: []string{"colossalai"}, read: (*reader).readColossalAI},
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
	if r.scripts > 0 && r.job.Outer.Origin == "" {
		r.job.Outer.Offer("bash", "command line")
	}
	if r.job.Outer.Origin == "" {
		r.job.Outer.Offer("", "no wrapper before the launcher")
	}
	if len(r.notes) > 0 && r.job.Script.Known {
		r.job.Script.Origin += " (" + strings.Join(r.notes, "; ") + ")"
	}
}

// maxWrappers bounds how many commands may stand in front of each other: srun bash -c 'env ... uv run torchrun' has
// four.
const maxWrappers = 16

// readWords reads one command: variables and wrappers in front are taken off, then a launcher or Python takes the rest.
// Commands that start a launcher themselves (trl sft, axolotl train) come back here with the command that they start.
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
	if why, unknown := shell.Unknown(word); unknown {
		r.blocked = "the command is not known: " + why
		r.job.Outer.Unknown(r.blocked)
		return
	}
	r.program, r.words = word, args
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
	if isShellScript(base) {
		r.readScriptFile(word, args, func(inside []string) { r.readWords(inside, depth+1) })
		return
	}
	r.blocked = base + " is not read yet"
	r.job.Outer.Unknown(r.blocked)
}

// getenv reads a variable as the command will see it.
func (r *reader) getenv(name string) string { return r.variable(name).text }
