package job

import (
	"strconv"
	"strings"
)

// readComposer reads MosaicML's composer (composer/cli/launcher.py): one process for each visible GPU unless -n says
// otherwise.
func (r *reader) readComposer(_ string, args []string) {
	options, rest := wrapperOptions(args,
		`-n --nproc --world_size --base_rank --node_rank --master_addr --master_port --stdout --stderr -t --timeout`,
		"")
	nproc, world := sourced{}, sourced{}
	module := false
	for _, o := range options {
		switch o.name {
		case "-n", "--nproc":
			nproc = sourced{o.value, "command line " + o.name}
		case "--world_size":
			world = sourced{o.value, "command line " + o.name}
		case "-m", "--module_mode":
			module = true
		}
	}
	if nproc.text == "" && r.visibleGPUs() > 0 {
		nproc = sourced{strconv.Itoa(r.visibleGPUs()), "default of composer: all visible GPUs"}
	}
	r.ranksFrom(nproc, world)
	if len(rest) == 0 {
		r.blocked = "composer is given no script"
		return
	}
	script := rest[0]
	if module {
		script = "-m " + script
	}
	r.setScript(script, rest[1:])
}

// ranksFrom offers processes a node and the nodes that the world size leaves.
func (r *reader) ranksFrom(nproc, world sourced) {
	each, all := r.count(nproc, &r.job.NProc), r.count(world, &r.job.NNodes)
	if each > 0 {
		r.job.NProc.Offer(each, nproc.origin)
	}
	switch {
	case all > 0 && each > 0 && all%each == 0:
		r.job.NNodes.Offer(all/each, world.origin)
	case world.text == "":
		r.job.NNodes.Offer(1, "default of the launcher")
	}
}

// readColossalAI reads colossalai run (colossalai/cli/launcher): one process a node unless told otherwise.
func (r *reader) readColossalAI(_ string, args []string) {
	options, rest, ok := commandBehind(args, "run",
		`-H --host --hostfile --include --exclude --num_nodes --nproc_per_node --master_port --master_addr
		--extra_launch_args --ssh-port`)
	if !ok || len(rest) == 0 {
		r.blocked = "colossalai starts a training only with run and a script"
		return
	}
	nproc, nodes := sourced{"1", "default of colossalai"}, sourced{}
	for _, o := range options {
		switch o.name {
		case "--nproc_per_node":
			nproc = sourced{o.value, "command line " + o.name}
		case "--num_nodes":
			nodes = sourced{o.value, "command line " + o.name}
		case "-H", "--host":
			nodes = sourced{strconv.Itoa(len(strings.Split(o.value, ","))), "command line " + o.name}
		case "--hostfile":
			nodes = sourced{strconv.Itoa(len(r.mpiHosts(o.value))), "command line " + o.name}
		}
	}
	if n := r.count(nodes, &r.job.NNodes); n > 0 {
		r.job.NNodes.Offer(n, nodes.origin)
	}
	r.ranksFrom(nproc, sourced{})
	r.setScript(rest[0], rest[1:])
}
