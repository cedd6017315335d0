package job

import (
	"fmt"
	"strings"
)

// launchOptions is the parser of torch/distributed/launch.py, which adds one flag to torchrun's.
func launchOptions() []option {
	return append(torchrunOptions(),
		option{names: []string{"--use-env", "--use_env"}, dest: "use_env", kind: flagOption})
}

// A torchrunCommand is a torchrun command line as its parser sees it.
type torchrunCommand struct {
	*commandLine
	script string   // "" when there is none
	args   []string // of the script
}

// parseTorchrun splits torchrun's own options from the script and its arguments by argparse's rules. What neither
// argument nor variable gives is absent. The error holds argparse's or Python's own words.
func parseTorchrun(prog string, options []option, args []string, getenv func(string) string) (*torchrunCommand, error) {
	p := &argparser{prog: prog, options: options}
	line, err := p.parse(args)
	if err != nil {
		return nil, err
	}
	c := &torchrunCommand{commandLine: line}
	if c.flag("help") {
		return c, nil
	}
	if len(line.rest) == 0 {
		return nil, fmt.Errorf("%s: error: the following arguments are required: training_script, training_script_args",
			prog)
	}
	c.script, c.args = line.rest[0], line.rest[1:]
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

// readTorchrun reads torchrun, python -m torch.distributed.run and python -m torch.distributed.launch.
func (r *reader) readTorchrun(prog string, options []option, args []string) {
	c, err := parseTorchrun(prog, options, args, r.getenv)
	if err != nil {
		r.fail(err.Error(), "command line")
		r.blocked = "the launcher refuses its arguments"
		return
	}
	if c.flag("help") {
		r.blocked = prog + " only prints its help"
		return
	}
	if c.flag("module") && c.flag("no_python") {
		r.fail("ValueError: Don't use both the '--no-python' flag and the '--module' flag at the same time.",
			"command line")
	}
	r.job.Rendezvous = c.rendezvous()
	if why, lost := c.lost("nnodes"); lost {
		r.job.NNodes.Withhold(why)
	} else {
		r.nodes(c.values["nnodes"])
	}
	if why, lost := c.lost("nproc_per_node"); lost {
		r.job.NProc.Withhold(why)
	} else {
		r.processes(c.values["nproc_per_node"])
	}
	switch {
	// which word is the script is not known
	case c.open != "" && (c.perhapsScript || !strings.HasSuffix(c.script, ".py")):
		r.setScript(c.script, c.args)
		r.job.Script.drop(c.open)
		r.open = c.open
	case c.flag("module"):
		r.setScript("-m "+c.script, c.args)
	case c.flag("no_python") && isPython(c.script):
		r.readPython(c.args)
	default:
		r.setScript(c.script, c.args)
	}
	if len(c.passed) > 0 {
		r.job.Script.Origin += " (after options of torchrun that are not known here: " + strings.Join(c.passed, " ") +
			")"
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
		err = fmt.Errorf("AssertionError: min_nodes must be > 0 and <= max_nodes, got min_nodes=%d, max_nodes=%d",
			least, most)
	}
	switch {
	case err != nil:
		r.fail(err.Error(), given.origin)
	case least != most:
		r.job.NNodes.Unknown(fmt.Sprintf("elastic (%s %s): between %d and %d nodes; give --nnodes for the one to judge",
			given.origin, given.text, least, most))
	default:
		r.job.NNodes.Offer(least, given.origin)
	}
}

// processes reads the number of processes a node (determine_local_world_size).
func (r *reader) processes(given sourced) {
	set := &r.job.NProc
	origin := given.origin + " " + given.text
	gpus, cpus := r.visibleGPUs(), r.src.CPUs
	switch given.text {
	case "":
		set.Offer(1, "default of torchrun")
	case "gpu":
		switch {
		case gpus > 0:
			set.Offer(gpus, origin+": the GPUs that it can see")
		case gpus == 0:
			r.fail("ValueError: Cuda is not available.", given.origin)
		default:
			set.Unknown(origin + ": the number of visible GPUs is not known; give --nproc")
		}
	case "cpu", "auto":
		switch {
		case given.text == "auto" && gpus > 0:
			set.Offer(gpus, origin+": the GPUs that it can see")
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
		case strings.HasPrefix(given.text, "-"):
			set.Unknown(given.origin + " is followed by an option")
			r.unread(fmt.Errorf("%s is followed by the option %s, and takes a number", given.origin, given.text))
		case err != nil:
			r.fail("ValueError: Unsupported nproc_per_node value: "+given.text, given.origin)
		case n < 1:
			r.fail(fmt.Sprintf("AssertionError: torchrun cannot start %d processes a node", n), given.origin)
		default:
			set.Offer(n, given.origin)
		}
	}
}
