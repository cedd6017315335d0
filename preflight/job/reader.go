package job

import (
	"path/filepath"

	"oomguard/launcher/fence"
	"oomguard/preflight/job/document"
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
	// script is the script's own text, which package script reads when it is first asked for; nil: not read, or none.
	script     any
	scriptRead bool
	// autocastOff: every autocast of the script is switched off.
	autocastOff bool

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
	// fsdpCheckpointing: FSDP itself checkpoints activations.
	fsdpCheckpointing bool

	besides []besides // models held beside the one that is trained
	alone   string    // why there are no others

	// own is what the framework that reads the script keeps of it.
	own any

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
	// oddOption finds an option of which nobody here has heard (strange); stranger is what it found, nil: it was not
	// asked.
	oddOption func() string
	stranger  *stranger
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

// A keptFile is a configuration file that a framework keeps in reader.own.
type keptFile interface {
	// At is the value under a path; nil: there is none.
	At(path string) *document.Node
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

// getenv reads a variable as the command will see it.
func (r *reader) getenv(name string) string { return r.variable(name).text }

// besides is a second model that a source names, until its size is looked up.
type besides struct {
	SecondModel
	uncounted bool // it is named, and nothing more can be said
}

// A stranger is what strange found, for the words and kinds of options that were known then.
type stranger struct {
	words, kinds int
	framework    string
	option       string
}
