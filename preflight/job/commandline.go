package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

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

// leads reports whether a word could start a command that leads to a training.
func (r *reader) leads(word string) bool {
	base := filepath.Base(word)
	return isPython(word) || isShellScript(base) || strings.HasSuffix(base, ".py") || assignment.MatchString(word) ||
		slices.ContainsFunc(wrappers(), func(w wrapper) bool { return slices.Contains(w.words, base) }) ||
		slices.ContainsFunc(launchers(), func(l launcher) bool { return slices.Contains(l.words, base) })
}
