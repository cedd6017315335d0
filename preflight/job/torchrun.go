package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An option is one option of torchrun's argparse parser.
type option struct {
	names []string // all spellings, in the order in which argparse lists them
	dest  string   // argparse's name; PET_<DEST> is its environment variable
	kind  optionKind
	env   bool // may come from PET_<DEST>
}

type optionKind int

const (
	textOption optionKind = iota
	flagOption            // takes no value
	intOption
	floatOption
)

// torchrunOptions is the parser of torch/distributed/run.py (get_args_parser, torch 2.6 to 2.15).
func torchrunOptions() []option {
	both := func(dest string, kind optionKind) option {
		dashed := "--" + strings.ReplaceAll(dest, "_", "-")
		return option{names: []string{dashed, "--" + dest}, dest: dest, kind: kind, env: true}
	}
	options := []option{
		{names: []string{"-h", "--help"}, dest: "help", kind: flagOption},
		{names: []string{"--nnodes"}, dest: "nnodes", env: true},
		both("nproc_per_node", textOption),
		both("rdzv_backend", textOption),
		both("rdzv_endpoint", textOption),
		both("rdzv_id", textOption),
		both("rdzv_conf", textOption),
		{names: []string{"--standalone"}, dest: "standalone", kind: flagOption, env: true},
		both("max_restarts", intOption),
		both("monitor_interval", floatOption),
		both("start_method", textOption),
		both("event_log_handler", textOption),
		{names: []string{"--role"}, dest: "role", env: true},
		{names: []string{"-m", "--module"}, dest: "module", kind: flagOption, env: true},
		both("no_python", flagOption),
		both("run_path", flagOption),
		both("log_dir", textOption),
		{names: []string{"-r", "--redirects"}, dest: "redirects", env: true},
		{names: []string{"-t", "--tee"}, dest: "tee", env: true},
		both("log_line_prefix_template", textOption),
		both("local_ranks_filter", textOption),
		both("duplicate_stdout_filters", textOption),
		both("duplicate_stderr_filters", textOption),
		both("node_rank", intOption),
		both("master_addr", textOption),
		both("master_port", intOption),
		both("local_addr", textOption),
		both("logs_specs", textOption),
		both("numa_binding", textOption),
		both("signals_to_handle", textOption),
		both("shutdown_timeout", intOption),
		both("virtual_local_rank", flagOption),
	}
	for i := range options {
		if options[i].dest == "logs_specs" || options[i].dest == "numa_binding" {
			options[i].env = false // plain argparse actions
		}
	}
	return options
}

// launchOptions is the parser of torch/distributed/launch.py, which adds one flag to torchrun's.
func launchOptions() []option {
	return append(torchrunOptions(), option{names: []string{"--use-env", "--use_env"}, dest: "use_env", kind: flagOption})
}

// A torchrunCommand is a torchrun command line as its parser sees it.
type torchrunCommand struct {
	values map[string]sourced // by dest; flags hold "1"
	script string             // "" when there is none
	args   []string           // of the script
	// passed are options that this parser does not know; newer versions of torch may.
	passed []string
}

type sourced struct{ text, origin string }

func (c *torchrunCommand) flag(dest string) bool { return c.values[dest].text == "1" }

// parseTorchrun splits torchrun's own options from the script and its arguments by argparse's rules: prefixes, both spellings,
// --x=v, -r3, a leading "--". What neither argument nor variable gives is absent. The error holds argparse's or Python's own words.
func parseTorchrun(prog string, options []option, args []string, getenv func(string) string) (*torchrunCommand, error) {
	c := &torchrunCommand{values: map[string]sourced{}}
	p := &argparser{prog: prog, options: options, command: c}
	rest, err := p.consume(args)
	if err != nil {
		return nil, err
	}
	if c.flag("help") {
		return c, nil
	}
	if len(rest) == 0 {
		return nil, fmt.Errorf("%s: error: the following arguments are required: training_script, training_script_args", prog)
	}
	c.script, c.args = rest[0], rest[1:]
	if len(c.args) > 0 && c.args[0] == "--" {
		c.args = c.args[1:]
	}
	return c, c.environment(options, getenv)
}

// environment fills what was not given from PET_* variables (torch/distributed/argparse_util.py).
func (c *torchrunCommand) environment(options []option, getenv func(string) string) error {
	for _, o := range options {
		name := "PET_" + strings.ToUpper(o.dest)
		text := getenv(name)
		if _, given := c.values[o.dest]; given || !o.env || text == "" {
			continue
		}
		if o.kind == flagOption {
			on, err := pythonInt(text)
			if err != nil {
				return fmt.Errorf("torchrun: %w (%s)", err, name)
			}
			if on == 0 {
				continue
			}
			text = "1"
		}
		c.values[o.dest] = sourced{text, "environment " + name}
	}
	return nil
}

// argparser follows the rules of Python's argparse for options before the first positional argument.
type argparser struct {
	prog    string
	options []option
	command *torchrunCommand
}

// consume takes options from the front and returns the words from the script on.
func (p *argparser) consume(args []string) ([]string, error) {
	for len(args) > 0 {
		word := args[0]
		if word == "--" {
			return args[1:], nil
		}
		match, value, attached, err := p.match(word)
		if err != nil {
			return nil, err
		}
		switch {
		case match != nil:
			args, err = p.take(match, word, value, attached, args[1:])
		case isOption(word):
			args = p.pass(args)
		default:
			return args, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// match finds the option that a word names: exactly, as --option=value, as an unambiguous prefix, or as -r3.
func (p *argparser) match(word string) (found *option, value string, attached bool, err error) {
	if len(word) < 2 || word[0] != '-' {
		return nil, "", false, nil
	}
	if o := p.named(word); o != nil {
		return o, "", false, nil
	}
	name, value, attached := strings.Cut(word, "=")
	if o := p.named(name); attached && o != nil {
		return o, value, true, nil
	}
	if !strings.HasPrefix(word, "--") {
		return p.named(word[:2]), word[2:], true, nil
	}
	var names []string
	for i := range p.options {
		for _, candidate := range p.options[i].names {
			if strings.HasPrefix(candidate, name) {
				names = append(names, candidate)
				found = &p.options[i]
			}
		}
	}
	if len(names) > 1 {
		return nil, "", false, fmt.Errorf("%s: error: ambiguous option: %s could match %s", p.prog, word, strings.Join(names, ", "))
	}
	return found, value, attached, nil
}

func (p *argparser) named(name string) *option {
	for i := range p.options {
		if slices.Contains(p.options[i].names, name) {
			return &p.options[i]
		}
	}
	return nil
}

// take stores an option's value and returns the words after it.
func (p *argparser) take(o *option, word, value string, attached bool, rest []string) ([]string, error) {
	shown := strings.Join(o.names, "/")
	name, _, _ := strings.Cut(word, "=")
	if o.kind == flagOption {
		p.command.values[o.dest] = sourced{"1", "command line " + name}
		if !attached {
			return rest, nil
		}
		// -mr3 is -m -r3: the rest of a short flag's word names more short options.
		if next := p.named("-" + first(value)); next != nil && !strings.HasPrefix(word, "--") {
			return p.take(next, "-"+value, value[1:], len(value) > 1, rest)
		}
		return nil, fmt.Errorf("%s: error: argument %s: ignored explicit argument '%s'", p.prog, shown, value)
	}
	if !attached {
		if len(rest) == 0 || rest[0] == "--" || isOption(rest[0]) {
			return nil, fmt.Errorf("%s: error: argument %s: expected one argument", p.prog, shown)
		}
		value, rest = rest[0], rest[1:]
	} else if !strings.HasPrefix(word, "--") {
		name = word[:2]
	}
	if err := o.check(value); err != nil {
		return nil, fmt.Errorf("%s: error: argument %s: %w", p.prog, shown, err)
	}
	p.command.values[o.dest] = sourced{value, "command line " + name}
	return rest, nil
}

func first(s string) string {
	if s == "" {
		return ""
	}
	return s[:1]
}

func (o *option) check(value string) error {
	if _, err := pythonInt(value); o.kind == intOption && err != nil {
		return fmt.Errorf("invalid int value: '%s'", value)
	}
	if _, err := strconv.ParseFloat(value, 64); o.kind == floatOption && err != nil {
		return fmt.Errorf("invalid float value: '%s'", value)
	}
	return nil
}

// pass skips an option that is not in the table: torch gains some every year. The word after it is taken for its value unless
// it looks like the script, so that neither kind of new option hides the script.
func (p *argparser) pass(args []string) []string {
	word, rest := args[0], args[1:]
	p.command.passed = append(p.command.passed, word)
	if strings.Contains(word, "=") || len(rest) < 2 || isOption(rest[0]) || strings.HasSuffix(rest[0], ".py") {
		return rest
	}
	return rest[1:]
}

// isOption reports whether argparse takes a word for an option: a dash in front, and neither a negative number nor a phrase.
func isOption(word string) bool {
	if len(word) < 2 || word[0] != '-' || strings.Contains(word, " ") {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil
}

// pythonInt is int() of Python for the spellings that people use, with its own error text.
func pythonInt(text string) (int, error) {
	n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(text), "_", ""))
	if err != nil {
		return 0, fmt.Errorf("ValueError: invalid literal for int() with base 10: '%s'", text)
	}
	return n, nil
}

// readTorchrun reads torchrun, python -m torch.distributed.run and python -m torch.distributed.launch.
func (r *reader) readTorchrun(prog string, options []option, args []string) {
	c, err := parseTorchrun(prog, options, args, r.getenv)
	if err != nil {
		r.fail(err.Error(), "command line")
		r.blocked = "the launcher refuses the command line"
		return
	}
	if c.flag("help") {
		r.blocked = prog + " only prints its help"
		return
	}
	if c.flag("module") && c.flag("no_python") {
		r.fail("ValueError: Don't use both the '--no-python' flag and the '--module' flag at the same time.", "command line")
	}
	r.nodes(c.values["nnodes"])
	r.processes(c.values["nproc_per_node"])
	switch {
	case c.flag("module"):
		r.setScript("-m "+c.script, c.args)
	case c.flag("no_python") && isPython(c.script):
		r.readPython(c.args)
	default:
		r.setScript(c.script, c.args)
	}
	if len(c.passed) > 0 {
		r.job.Script.Origin += " (after options of torchrun that are not known here: " + strings.Join(c.passed, " ") + ")"
	}
}

// nodes reads N or MIN:MAX (parse_min_max_nnodes).
func (r *reader) nodes(given sourced) {
	if given.text == "" {
		r.job.NNodes.Offer(1, "default of torchrun")
		return
	}
	low, high, elastic := strings.Cut(given.text, ":")
	if !elastic {
		high = low
	}
	if strings.Contains(high, ":") {
		r.fail(fmt.Sprintf("RuntimeError: nnodes=%s is not in \"MIN:MAX\" format", given.text), given.origin)
		return
	}
	least, err := pythonInt(low)
	most, errHigh := pythonInt(high)
	if err == nil {
		err = errHigh
	}
	if err == nil && (least < 1 || least > most) {
		err = fmt.Errorf("AssertionError: min_nodes must be > 0 and <= max_nodes, got min_nodes=%d, max_nodes=%d", least, most)
	}
	switch {
	case err != nil:
		r.fail(err.Error(), given.origin)
	case least != most:
		r.job.NNodes.Unknown(fmt.Sprintf("elastic (%s %s): between %d and %d nodes; give --nnodes for the one to judge", given.origin, given.text, least, most))
	default:
		r.job.NNodes.Offer(least, given.origin)
	}
}

// processes reads the number of processes a node (determine_local_world_size).
func (r *reader) processes(given sourced) {
	set := &r.job.NProc
	origin := given.origin + " " + given.text
	gpus, cpus := r.src.GPUs, r.src.CPUs
	switch given.text {
	case "":
		set.Offer(1, "default of torchrun")
	case "gpu":
		switch {
		case gpus > 0:
			set.Offer(gpus, origin+": GPUs visible here")
		case gpus == 0:
			r.fail("ValueError: Cuda is not available.", given.origin)
		default:
			set.Unknown(origin + ": the number of visible GPUs is not known; give --nproc")
		}
	case "cpu", "auto":
		switch {
		case given.text == "auto" && gpus > 0:
			set.Offer(gpus, origin+": GPUs visible here")
		case given.text == "auto" && gpus < 0:
			set.Unknown(origin + ": the number of visible GPUs is not known; give --nproc")
		case cpus > 0:
			set.Offer(cpus, origin+": CPUs of this machine")
		default:
			set.Unknown(origin + ": the number of CPUs is not known; give --nproc")
		}
	case "xpu":
		set.Unknown(origin + ": Intel GPUs are not counted; give --nproc")
	default:
		n, err := pythonInt(given.text)
		switch {
		case err != nil:
			r.fail("ValueError: Unsupported nproc_per_node value: "+given.text, given.origin)
		case n < 1:
			r.fail(fmt.Sprintf("AssertionError: torchrun cannot start %d processes a node", n), given.origin)
		default:
			set.Offer(n, given.origin)
		}
	}
}
