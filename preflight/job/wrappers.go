package job

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

// A wrapper is a command that stands in front of the launcher and starts it: env, srun, bash -c. A new one is a row of
// wrappers.
type wrapper struct {
	words []string // base names of the first word
	// peel reads the wrapper's own options and calls inside with the command that it starts. A wrapper that decides how
	// many processes start (srun, mpirun) leaves them in reader.tasks; one that only prepares the ground does not.
	peel func(r *reader, word string, args []string, inside func(argv []string))
}

func wrappers() []wrapper {
	return slices.Concat(plainWrappers(), environmentWrappers(), containerWrappers(), []wrapper{
		{words: []string{"env"}, peel: peelEnv},
		{words: []string{"bash", "sh", "zsh", "dash", "ksh"}, peel: peelShell},
		{words: []string{"srun"}, peel: peelSrun},
		{words: []string{"sbatch"}, peel: peelSbatch},
		{words: []string{"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun"}, peel: peelMPI},
		{words: []string{"ray"}, peel: away(behind("job submit",
			`--address --job-id --submission-id --runtime-env --runtime-env-json --working-dir
			--metadata-json --entrypoint-num-cpus --entrypoint-num-gpus --entrypoint-memory --entrypoint-resources
			--headers --verify --log-style --log-color`, 0))},
	})
}

// plainWrappers change how a command runs, but neither its variables nor its files. Sources: the manual pages of
// coreutils, util-linux, numactl, sudo and xvfb-run, and the help texts of nsys 2025, ncu 2025 and strace 6.
func plainWrappers() []wrapper {
	return []wrapper{
		{words: []string{"nohup", "setsid", "unbuffer", "catchsegv", "dumb-init", "tini"}, peel: behind("", "", 0)},
		{words: []string{"time", "gtime"}, peel: behind("", "-f --format -o --output", 0)},
		{words: []string{"timeout"}, peel: behind("", "-k --kill-after -s --signal", 1)},
		{words: []string{"nice"}, peel: behind("", "-n --adjustment", 0)},
		{words: []string{"ionice"}, peel: behind("", "-c --class -n --classdata -p -P -u", 0)},
		{words: []string{"stdbuf"}, peel: behind("", "-i --input -o --output -e --error", 0)},
		{words: []string{"numactl"}, peel: behind("",
			`-i --interleave -w --weighted-interleave -N --cpunodebind -m --membind -C --physcpubind
			-p --preferred -P --preferred-many`, 0)},
		{words: []string{"taskset", "chrt"}, peel: behind("", "", 1)},
		{words: []string{"sudo"}, peel: behind("",
			"-u --user -g --group -h --host -p --prompt -C --close-from -D --chdir -r --role -t --type -T -R --chroot",
			0)},
		{words: []string{"xvfb-run"}, peel: behind("",
			"-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args -w --wait", 0)},
		{words: []string{"strace"}, peel: behind("", "-e --trace -o --output -s --string-limit -p -E -I -O -P -S -u -X",
			0)},
		{words: []string{"nsys"}, peel: behind("profile|launch",
			`-t --trace -o --output -c --capture-range -d --duration -y --delay -s --sample -b
			--backtrace -w --show-output -x --stop-on-exit -f --force-overwrite -e --env-var -n --inherit-environment -p
			--nvtx-capture --kill
			--capture-range-end --cuda-graph-trace --cuda-memory-usage --gpu-metrics-devices --gpu-metrics-device
			--gpu-metrics-set
			--python-backtrace --python-sampling --pytorch --stats --export --cudabacktrace --session-new --cpuctxsw
			--osrt-threshold`, 0)},
		{words: []string{"ncu", "nv-nsight-cu-cli"},
			peel: behind("", `-o --export -i --import -k --kernel-name -c --launch-count -s --launch-skip
			--launch-skip-before-match --set --section --metrics --target-processes --mode --page --kernel-id
			--kernel-name-base --devices
			--replay-mode --cache-control --clock-control --nvtx-include --nvtx-exclude --log-file --config-file-path
			--csv-file`, 0)},
		{words: []string{"compute-sanitizer"},
			peel: behind("", "--tool --log-file --save --kernel-regex --launch-count --launch-skip --target-processes",
				0)},
	}
}

// environmentWrappers choose the Python environment. Sources: the command line references of uv 0.9, conda 25,
// micromamba 2, poetry 2, pipenv, pdm 2, hatch 1 and pixi.
func environmentWrappers() []wrapper {
	return []wrapper{
		{words: []string{"uv"}, peel: peelUV},
		{words: []string{"uvx"}, peel: behind("",
			"--from --with --with-editable --with-requirements -p --python --index --env-file -c --constraints", 0)},
		{words: []string{"conda", "mamba", "micromamba"}, peel: peelConda},
		{words: []string{"poetry", "pipenv", "pdm", "hatch", "pixi", "rye"},
			peel: behind("run", `-C --directory -P --project -p -e --environment
			--env --manifest-path --env-file -s`, 0)},
	}
}

// behind peels a wrapper without meaning for the job: the subcommand that starts a command ("exec|run" are two, "job
// submit" is one; "" for none), options of which those in values take the next word, and a number of operands before
// the command.
func behind(subcommands, values string, operands int) func(*reader, string, []string, func([]string)) {
	return func(r *reader, word string, args []string, inside func([]string)) {
		_, rest, ok := commandBehind(args, subcommands, values)
		if !ok || len(rest) < operands {
			r.blocked = word + " is not followed by a command that is read here"
			return
		}
		inside(rest[operands:])
	}
}

// away is a wrapper that starts the command on another machine.
func away(peel func(*reader, string, []string, func([]string))) func(*reader, string, []string, func([]string)) {
	return func(r *reader, word string, args []string, inside func([]string)) {
		r.src.Place = Elsewhere
		peel(r, word, args, inside)
	}
}

// commandBehind splits a wrapper's words: options, the subcommand with more options, and the rest. ok is false when
// another subcommand, or none, stands there.
func commandBehind(args []string, subcommands, values string) (options []wrapperOption, rest []string, ok bool) {
	options, rest = wrapperOptions(args, values, "")
	if subcommands == "" {
		return options, rest, true
	}
	for alternative := range strings.SplitSeq(subcommands, "|") {
		needed := strings.Fields(alternative)
		if len(rest) >= len(needed) && slices.Equal(rest[:len(needed)], needed) {
			more, after := wrapperOptions(rest[len(needed):], values, "")
			return append(options, more...), after, true
		}
	}
	return nil, nil, false
}

// A wrapperOption is one option as it was given.
type wrapperOption struct{ name, value string }

// origin names an option the way it was given.
func (o wrapperOption) origin(word string) string {
	return word + " " + o.name + " " + shell.Plain(o.value)
}

// wrapperOptions takes options off the front: those in values take the next word, those in pairs the next two, all
// others none (--name=value and -n4 hold their value themselves). A word that nobody knows is an option without a name.
func wrapperOptions(args []string, values, pairs string) (options []wrapperOption, rest []string) {
	valued, paired := strings.Fields(values), strings.Fields(pairs)
	given := args
	defer func() { // no program behind a word that nobody knows: that word is the command itself
		if open := slices.IndexFunc(options, func(o wrapperOption) bool { return o.name == "" }); open >= 0 &&
			(len(rest) == 0 || strings.HasSuffix(rest[0], ".py")) {
			at := slices.Index(given, options[open].value)
			options, rest = options[:open], given[at:]
		}
	}()
	for len(args) > 0 && (len(args[0]) > 1 && args[0][0] == '-' || shell.Several(args[0]) && len(args) > 1) {
		word := args[0]
		args = args[1:]
		if word == "--" {
			break
		}
		if shell.Several(word) { // options that nobody knows, or the command itself
			options = append(options, wrapperOption{"", word})
			continue
		}
		name, value, attached := strings.Cut(word, "=")
		switch {
		case attached:
		case slices.Contains(valued, word) && len(args) > 0:
			value, args = args[0], args[1:]
		case slices.Contains(paired, word) && len(args) > 1:
			value, args = args[0]+"="+args[1], args[2:]
		case word[1] != '-' && len(word) > 2 && slices.Contains(valued, word[:2]) && word[2] >= '0' && word[2] <= '9':
			name, value = word[:2], word[2:]
		}
		options = append(options, wrapperOption{name, value})
	}
	return options, args
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

// peelEnv reads env of coreutils: -i, -u NAME, -C DIR and the assignments.
func peelEnv(r *reader, word string, args []string, inside func([]string)) {
	if len(args) > 1 && (args[0] == "-S" || args[0] == "--split-string") {
		inside(append(strings.Fields(args[1]), args[2:]...))
		return
	}
	options, rest := wrapperOptions(args, "-u --unset -C --chdir", "")
	for _, o := range options {
		switch o.name {
		case "-u", "--unset":
			r.setenvFrom(o.value, "", "")
		case "-C", "--chdir":
			r.enter(o.value)
		case "-i", "--ignore-environment":
			r.sealed = true
		case "-0", "--null", "-v", "--debug", "":
		default:
			r.blocked = word + " " + o.name + " is not read yet"
			return
		}
	}
	if len(rest) > 0 && rest[0] == "-" {
		r.sealed, rest = true, rest[1:]
	}
	inside(rest)
}

// enter changes the working directory of the command.
func (r *reader) enter(dir string) {
	if why, unknown := shell.Unknown(dir); unknown {
		r.note("the folder that the command starts in is not known: " + why)
		return
	}
	r.src.Dir = r.path(dir)
}

// peelUV reads uv run: it runs Python for a script or -m, and its environment is the project's .venv unless another one
// is active.
func peelUV(r *reader, word string, args []string, inside func([]string)) {
	options, rest, ok := commandBehind(args, "run",
		`--with --with-editable --with-requirements -p --python --extra --no-extra --group --no-group
		--only-group --env-file --index --default-index -i --index-url --extra-index-url -f --find-links --project
		--directory --config-file
		--cache-dir --package --no-install-package --link-mode --resolution --prerelease --exclude-newer
		--index-strategy --keyring-provider
		-P --upgrade-package --reinstall-package --refresh-package -C --config-setting --no-build-package
		--no-binary-package --color -w`)
	if !ok {
		r.blocked = word + " is not followed by a command that is read here"
		return
	}
	project := ""
	for _, o := range options {
		switch o.name {
		case "--directory":
			r.enter(o.value)
		case "--project":
			project = o.value
		case "-m", "--module":
			rest = append([]string{"python", "-m"}, rest...)
		case "-s", "--script":
			rest = append([]string{"python"}, rest...)
		}
	}
	r.usePrefix(filepath.Join(r.path(project), ".venv"))
	inside(rest)
}

// peelConda reads conda run. An environment that is only named lies in a folder that nothing here tells.
func peelConda(r *reader, word string, args []string, inside func([]string)) {
	options, rest, ok := commandBehind(args, "run", "-n --name -p --prefix --cwd -r --root-prefix -e --env -a --attach")
	if !ok {
		r.blocked = word + " is not followed by a command that is read here"
		return
	}
	for _, o := range options {
		switch o.name {
		case "-p", "--prefix":
			r.usePrefix(r.path(o.value))
		case "-n", "--name":
			if root := r.getenv("MAMBA_ROOT_PREFIX"); root != "" {
				r.usePrefix(filepath.Join(root, "envs", o.value))
			} else if conda := r.getenv("CONDA_EXE"); conda != "" { // ROOT/bin/conda
				r.usePrefix(filepath.Join(filepath.Dir(filepath.Dir(conda)), "envs", o.value))
			} else {
				r.hidden = "the environment " + o.value + " of " + word
			}
		case "--cwd":
			r.enter(o.value)
		}
	}
	inside(rest)
}

// usePrefix puts an environment's programs in front, where there is one.
func (r *reader) usePrefix(prefix string) {
	bin := filepath.Join(prefix, "bin")
	if isFile(filepath.Join(bin, "python")) {
		r.setenv("PATH", bin+string(filepath.ListSeparator)+r.getenv("PATH"))
		r.setenv("VIRTUAL_ENV", prefix)
	}
}
