package job

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/shell"
)

// torchxShape is -j of torchx's dist.ddp: nodes x processes, with MIN: in front of the nodes when they may vary.
var torchxShape = regexp.MustCompile(`^(?:(\d+):)?(\d+)x(\d+)$`)

// readTorchX reads torchx run dist.ddp -j 2x8 --script train.py -- words (torchx/components/dist.py): it starts
// torchrun on each node.
func (r *reader) readTorchX(prog string, args []string) {
	_, component, ok := commandBehind(args, "run",
		"-s --scheduler -cfg --scheduler_args --workspace --parent_run_id --tee_logs")
	if !ok || len(component) == 0 || component[0] != "dist.ddp" {
		r.blocked = fmt.Sprintf("%s starts a training that is read here only with run dist.ddp", prog)
		return
	}
	const values = `-j --j --script --script_bin -m --m --image --name -h --h --cpu --gpu --memMB --env --max_retries
		--rdzv_port --rdzv_backend --mounts
		--debug --tee --rdzv_conf --start_method --max_restarts`
	options, rest := wrapperOptions(component[1:], values, "")
	own := component[1:]
	if at := slices.Index(own, "--"); at >= 0 {
		own = own[:at]
	}
	r.withholdRanks(own)
	if i := slices.IndexFunc(own, shell.Whole); i >= 0 { // the script's words may begin there
		r.open, _ = shell.Unknown(own[i])
	}
	shape, script := sourced{"1x2", "default of torchx: -j 1x2"}, ""
	for _, o := range options {
		switch strings.TrimLeft(o.name, "-") {
		case "j":
			shape = sourced{o.value, "command line -j"}
		case "script":
			script = o.value
		case "m":
			script = "-m " + o.value
		case "env":
			for pair := range strings.SplitSeq(o.value, ",") {
				r.takeVariables([]string{pair})
			}
		}
	}
	r.torchxRanks(shape)
	if script == "" {
		r.blocked = "torchx is given neither --script nor -m"
		return
	}
	r.setScript(script, rest)
}

// torchxRanks offers nnodes and nproc.
func (r *reader) torchxRanks(shape sourced) {
	match := torchxShape.FindStringSubmatch(shape.text)
	if match == nil {
		if each, err := pythonInt(shape.text); err == nil && each > 0 { // -j 8 is one node
			r.job.NNodes.Offer(1, shape.origin)
			r.job.NProc.Offer(each, shape.origin)
			return
		}
		why := fmt.Sprintf("%s is %q, need NODESxPROCESSES such as 2x8", shape.origin, shape.text)
		r.unread(fmt.Errorf("%s", why))
		r.job.NNodes.Withhold(why)
		r.job.NProc.Withhold(why)
		return
	}
	nodes, errNodes := strconv.Atoi(match[2])
	each, errEach := strconv.Atoi(match[3])
	switch {
	case errNodes != nil || errEach != nil || nodes < 1 || each < 1:
		r.unread(fmt.Errorf("%s %s: need whole numbers from 1", shape.origin, shape.text))
		return
	case match[1] != "" && match[1] != match[2]:
		r.job.NNodes.Unknown(fmt.Sprintf("elastic (%s %s): between %s and %s nodes; give --nnodes for the one to judge",
			shape.origin, shape.text, match[1], match[2]))
	default:
		r.job.NNodes.Offer(nodes, shape.origin)
	}
	r.job.NProc.Offer(each, shape.origin)
}
