package job

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/shell"
)

// deepspeedOptions is the parser of deepspeed/launcher/runner.py (0.3 to 0.19); abbreviations are on, unknown options
// are refused.
func deepspeedOptions() []option {
	options := []option{
		{names: []string{"-h", "--help"}, dest: "help", kind: flagOption},
		{names: []string{"-H", "--hostfile"}, dest: "hostfile"},
		{names: []string{"-i", "--include"}, dest: "include"},
		{names: []string{"-e", "--exclude"}, dest: "exclude"},
		{names: []string{"--num_gpus", "--num_accelerators"}, dest: "num_gpus", kind: intOption},
		{names: []string{"-q", "--quiet"}, dest: "quiet", kind: flagOption},
	}
	for kind, names := range map[optionKind]string{
		intOption: "min_elastic_nodes max_elastic_nodes master_port node_rank ssh_port",
		textOption: "num_nodes master_addr launcher launcher_args enable_each_rank_log autotuning comment account " +
			"bind_core_list venv_script log_level",
		flagOption: "module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid elastic_training " +
			"bind_cores_to_rank",
	} {
		for name := range strings.FieldsSeq(names) {
			options = append(options, option{names: []string{"--" + name}, dest: name, kind: kind})
		}
	}
	return options
}

// A host is one line of a hostfile: its slots are the numbers of its GPUs.
type host struct {
	name  string
	slots []int
}

// readDeepSpeedLauncher reads the deepspeed command.
func (r *reader) readDeepSpeedLauncher(_ string, args []string) {
	p := &argparser{prog: "deepspeed", options: deepspeedOptions()}
	c, err := p.parse(args)
	switch {
	case err != nil:
		r.refused(err)
		return
	case c.flag("help"):
		r.blocked = "deepspeed only prints its help"
		return
	case len(c.rest) == 0:
		r.refused(errors.New("deepspeed: error: the following arguments are required: user_script, user_args"))
		return
	}
	switch why, err := r.deepspeedHosts(c); {
	case err != nil:
		r.refused(err)
		return
	case why != "":
		r.job.NNodes.Unknown(why)
		r.job.NProc.Unknown(why)
	}
	switch script, words := c.rest[0], c.rest[1:]; {
	case c.flag("module"):
		r.setScript("-m "+script, words)
	case c.flag("no_python") && isPython(script):
		r.readPython(words)
	default:
		r.setScript(script, words)
	}
	if len(c.passed) > 0 {
		r.note("after options of deepspeed that are not known here: " + strings.Join(c.passed, " "))
	}
}

// deepspeedHosts offers the processes: one for each slot of the hosts that are left after the filters. Without a
// hostfile the only host is this machine, with all its GPUs; CUDA_VISIBLE_DEVICES counts only then, and only without
// any filter. why says what is not known; the error is one with which deepspeed ends.
func (r *reader) deepspeedHosts(c *commandLine) (why string, err error) {
	for _, name := range []string{"hostfile", "include", "exclude", "num_nodes", "num_gpus"} {
		if why, unknown := shell.Unknown(c.values[name].text); unknown {
			return why, nil
		}
	}
	if c.open != "" {
		return c.open, nil
	}
	include, exclude := c.values["include"], c.values["exclude"]
	nodes, gpus := deepspeedNumber(c, "num_nodes"), deepspeedNumber(c, "num_gpus")
	switch {
	case include.text != "" && exclude.text != "":
		return "", errors.New("ValueError: include_str and exclude_str are mutually exclusive")
	case (nodes >= 0 || gpus >= 0) && (include.text != "" || exclude.text != ""):
		return "", errors.New("ValueError: Cannot specify num_nodes/gpus with include/exclude")
	}
	hosts, origin, err := r.hostfile(c.values["hostfile"])
	if err != nil {
		return "", err
	}
	if hosts == nil {
		if nodes > 1 {
			return "", errors.New("ValueError: Num nodes is >1 but no extra nodes available via hostfile")
		}
		filtered := include.text != "" || exclude.text != "" || gpus > 0
		there := r.visibleGPUs()
		if filtered {
			there = r.unrestrictedGPUs()
		}
		if there <= 0 && gpus <= 0 && include.text == "" {
			r.job.NNodes.Offer(1, "no hostfile: this machine alone")
			return "deepspeed starts one process for each GPU, and their number is not known; give --nproc", nil
		}
		hosts, origin = []host{{"localhost", count(max(there, 0))}}, "default of deepspeed: all visible GPUs"
	}
	for _, filter := range []sourced{include, exclude} {
		if filter.text != "" {
			if hosts, err = filterHosts(hosts, filter.text, filter == include); err != nil {
				return "", err
			}
			origin = filter.origin
		}
	}
	if nodes > 0 && nodes < len(hosts) {
		hosts = hosts[:nodes]
	}
	if gpus > 0 {
		origin = c.values["num_gpus"].origin
		for i := range hosts {
			hosts[i].slots = count(gpus)
		}
	}
	if len(hosts) == 0 {
		return "", errors.New("deepspeed: no host is left after --include and --exclude")
	}
	r.offerHosts(hosts, origin, c.values["num_nodes"])
	return "", nil
}

// unrestrictedGPUs is how many GPUs there are without CUDA_VISIBLE_DEVICES; -1 when that is not known.
func (r *reader) unrestrictedGPUs() int {
	if r.src.Getenv(visibleDevices) != "" {
		return -1
	}
	if r.given.Known {
		return r.given.Value
	}
	return r.src.GPUs
}

func (r *reader) offerHosts(hosts []host, origin string, nodes sourced) {
	j := r.job
	each, world := make([]int, len(hosts)), 0
	for i, h := range hosts {
		each[i] = len(h.slots)
		world += len(h.slots)
	}
	nodesOrigin := origin
	if nodes.text != "" {
		nodesOrigin = nodes.origin
	}
	j.NNodes.Offer(len(hosts), nodesOrigin)
	if most := slices.Max(each); slices.Min(each) == most {
		j.NProc.Offer(most, origin)
	} else {
		j.NProc.OfferEach(most, each, origin)
	}
	j.WorldSize.Offer(world, origin)
}

func deepspeedNumber(c *commandLine, name string) int {
	low, _, _ := strings.Cut(c.values[name].text, ":") // MIN:MAX of elastic training
	if n, err := pythonInt(low); err == nil {
		return n
	}
	return -1
}

// count lists 0 to n-1.
func count(n int) []int {
	const most = 1 << 12 // no machine has more GPUs; a number beyond it is a mistake that must not take memory
	slots := make([]int, min(n, most))
	for i := range slots {
		slots[i] = i
	}
	return slots
}

// slotsLine is a line of a hostfile.
var slotsLine = regexp.MustCompile(`^(\S+)\s+slots=(\d+)`)

// hostfile reads the named file, or the one at deepspeed's default place when it is there; nil without one, which
// deepspeed takes for this machine alone.
func (r *reader) hostfile(named sourced) ([]host, string, error) {
	file, origin := named.text, named.origin
	if file == "" {
		file, origin = "/job/hostfile", "default of deepspeed"
	}
	if !r.hasFile(file) {
		if named.text != "" && named.text != os.DevNull { // which is named to keep to this machine
			r.unread(fmt.Errorf("%s: %s: no such file, and deepspeed goes on with this machine alone; correct the name",
				origin, file))
		}
		return nil, "", nil
	}
	data, err := r.readFile(file)
	if err != nil {
		return nil, "", err
	}
	var hosts []host
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		match := slotsLine.FindStringSubmatch(line)
		if match == nil {
			return nil, "", fmt.Errorf("%s:%d: ValueError: Hostfile contains a bad entry: %s, unable to proceed "+
				"with launching", file, number, line)
		}
		if slices.ContainsFunc(hosts, func(h host) bool { return h.name == match[1] }) {
			return nil, "", fmt.Errorf("%s:%d: ValueError: Hostfile contains multiple entries for %s, unable to "+
				"proceed with launching", file, number, match[1])
		}
		slots, err := strconv.Atoi(match[2])
		if err != nil {
			return nil, "", fmt.Errorf("%s:%d: %s is no number of slots", file, number, match[2])
		}
		hosts = append(hosts, host{match[1], count(slots)})
	}
	if len(hosts) == 0 {
		return nil, "", fmt.Errorf("%s: ValueError: Hostfile is empty or not formatted correctly, unable to proceed "+
			"with launching", file)
	}
	return hosts, origin + " " + file, nil
}

// filterHosts follows NAME[:SLOT[,SLOT...]][@NAME...]: of an inclusion only what is named is left, in the hostfile's
// order. Slots of an included host are believed even beyond the hostfile's number.
func filterHosts(hosts []host, text string, include bool) ([]host, error) {
	named := map[string][]int{} // empty: the whole host
	for node := range strings.SplitSeq(text, "@") {
		name, list, some := strings.Cut(node, ":")
		if !slices.ContainsFunc(hosts, func(h host) bool { return h.name == name }) {
			return nil, fmt.Errorf("ValueError: Hostname '%s' not found in hostfile", name)
		}
		slots := named[name]
		if some {
			for word := range strings.SplitSeq(list, ",") {
				slot, err := pythonInt(word)
				if err != nil {
					return nil, err
				}
				if !slices.Contains(slots, slot) {
					slots = append(slots, slot)
				}
			}
		}
		named[name] = slots
	}
	var left []host
	for _, h := range hosts {
		slots, mentioned := named[h.name]
		switch {
		case include && mentioned && len(slots) > 0:
			h.slots = slots
		case include && !mentioned, !include && mentioned && len(slots) == 0:
			continue
		case !include && mentioned:
			for _, slot := range slots {
				if !slices.Contains(h.slots, slot) {
					return nil, fmt.Errorf("ValueError: No slot '%d' specified on host '%s'", slot, h.name)
				}
			}
			h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(s int) bool { return slices.Contains(slots, s) })
		}
		if len(h.slots) > 0 {
			left = append(left, h)
		}
	}
	return left, nil
}
