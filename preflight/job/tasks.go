package job

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// doubt takes the tasks back when options stand there that nobody can see.
func doubtTasks(t *tasks, options []wrapperOption) {
	for _, o := range options {
		hosts := slices.Contains([]string{"", "H", "host", "hosts", "hostfile", "machinefile", "f"},
			strings.TrimLeft(o.name, "-"))
		if why, unknown := shell.Unknown(o.value); hosts && unknown {
			for _, set := range []*Setting[int]{&t.nodes, &t.perNode, &t.world} {
				set.drop(why)
			}
		}
	}
}

// start keeps the outermost tasks: srun mpirun is one task that starts others, and what mpirun starts are the ranks.
func (r *reader) start(t tasks) {
	r.tasks = t
	r.job.Outer.Offer(t.word, "command line")
}

const srunValues = `-A --account --acctg-freq -b --begin --bcast -B --extra-node-info -c --cpus-per-task --comment -C
	--constraint --container
	--container-id --container-image --container-mounts --container-name --container-workdir --container-env
	--container-save
	--cluster-constraint --cpu-freq --cpus-per-gpu -d --dependency -D --chdir --deadline --delay-boot -e --error -E
	--epilog --export -G
	--gpus --gpu-bind --gpu-freq --gpus-per-node --gpus-per-socket --gpus-per-task --gres --gres-flags --het-group
	--hint -i --input -J
	--job-name --jobid -K -L --licenses -m --distribution -M --clusters --mail-type --mail-user --mcs-label --mem
	--mem-bind --mem-per-cpu
	--mem-per-gpu --mincpus --mpi --msg-timeout -n --ntasks -N --nodes --network --nice --ntasks-per-core
	--ntasks-per-gpu --ntasks-per-node
	--ntasks-per-socket --ntasks-per-tres --open-mode -o --output -p --partition --power --priority --profile --prolog
	--propagate -q --qos
	-r --relative --reservation --rsv -S --core-spec --signal --slurmd-debug --sockets-per-node --switches -t --time
	--task-epilog
	--task-prolog --thread-spec --threads --threads-per-core --time-min --tmp --tres-bind --tres-per-task -U --tres -w
	--nodelist -W --wait
	--wckey --wrap -x --exclude -F --nodefile -a --array`

// slurmNames maps the options that decide processes and GPUs to the variables by which Slurm hands them on.
func slurmNames() map[string]string {
	return map[string]string{
		"-N": "SLURM_NNODES", "--nodes": "SLURM_NNODES", "-n": "SLURM_NTASKS", "--ntasks": "SLURM_NTASKS",
		"--ntasks-per-node": "SLURM_NTASKS_PER_NODE", "-G": "SLURM_GPUS", "--gpus": "SLURM_GPUS",
		"--gpus-per-node": "SLURM_GPUS_PER_NODE",
		"--gpus-per-task": "SLURM_GPUS_PER_TASK", "--ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
	}
}

// slurmOptions turns options of srun and sbatch into the variables of the step or job.
func (r *reader) slurmOptions(options []wrapperOption, origin func(wrapperOption) string) {
	for _, o := range options {
		value := o.value
		name := slurmNames()[o.name]
		switch {
		case name == "SLURM_NNODES":
			if low, high, ranged := strings.Cut(value, "-"); ranged && low == high {
				value = low
			}
		case strings.HasPrefix(name, "SLURM_GPUS"):
			value = gpusOfSlurm(value)
		case o.name == "--gres":
			for resource := range strings.SplitSeq(value, ",") {
				if rest, ok := strings.CutPrefix(resource, "gpu"); ok {
					name, value = "SLURM_GPUS_PER_NODE", gpusOfSlurm(strings.TrimPrefix(rest, ":"))
				}
			}
		case o.name == "-D" || o.name == "--chdir":
			r.enter(o.value)
		case o.name == "--export":
			for pair := range strings.SplitSeq(value, ",") {
				r.takeVariables([]string{pair})
			}
		case o.name == "--container-image":
			r.hide("srun", value)
		}
		if name == "" {
			continue
		}
		r.setenvFrom(name, value, origin(o))
		if name == "SLURM_NNODES" {
			r.setenvFrom("SLURM_JOB_NUM_NODES", value, origin(o))
		}
		if name == "SLURM_GPUS_PER_NODE" {
			r.setenvFrom("SLURM_GPUS_ON_NODE", value, origin(o))
		}
	}
}

// gpusOfSlurm reads [type:]count: 8, a100:4, gpu alone is one.
func gpusOfSlurm(text string) string {
	count := text[strings.LastIndex(text, ":")+1:]
	if _, err := pythonInt(count); err == nil || strings.HasPrefix(count, "\x00") {
		return count
	}
	return "1"
}

// peelSrun reads srun. Its options win over the variables of the allocation that it runs in (srun's input environment).
func peelSrun(r *reader, word string, args []string, inside func([]string)) {
	options, rest := wrapperOptions(args, srunValues, "")
	r.slurmOptions(options, func(o wrapperOption) string { return o.origin(word) })
	t := r.slurmTasks()
	doubtTasks(&t, options)
	r.start(t)
	inside(rest)
}

// slurmTasks works out how many tasks srun starts: of nodes, tasks and tasks a node, two decide the third; nodes alone
// start one task each.
func (r *reader) slurmTasks() tasks {
	t := tasks{word: "srun"}
	nodes := r.variable("SLURM_NNODES")
	if nodes.text == "" {
		nodes = r.variable("SLURM_JOB_NUM_NODES")
	}
	total, each := r.variable("SLURM_NTASKS"), r.variable("SLURM_NTASKS_PER_NODE")
	if low, high, ranged := strings.Cut(nodes.text, "-"); ranged {
		t.nodes.Unknown(fmt.Sprintf("%s: between %s and %s nodes", nodes.origin, low, high))
		nodes.text = ""
	}
	n, all, per := r.count(nodes, &t.nodes), r.count(total, &t.world), r.count(each, &t.perNode)
	gpus := r.count(r.variable("SLURM_GPUS_PER_NODE"), &Setting[int]{})
	r.slurmGPUs(n, gpus)
	if perGPU := r.variable("SLURM_NTASKS_PER_GPU"); per == 0 && perGPU.text != "" && gpus > 0 {
		per, each = r.count(perGPU, &t.perNode)*gpus, perGPU
	}
	switch {
	case n > 0 && all > 0: // tasks a node are only a limit then
		per, each = (all+n-1)/n, total
	case n > 0 && per == 0 && t.perNode.Origin == "" && t.world.Origin == "":
		per, each = 1, sourced{origin: "default of srun: one task a node"}
	case n == 0 && t.nodes.Origin == "" && all > 0 && per > 0 && all%per == 0:
		n, nodes = all/per, total
	case n == 0 && t.nodes.Origin == "" && all == 0 && per == 0 && t.world.Origin == "":
		n, per, nodes, each = 1, 1, sourced{origin: "default of srun: one task"},
			sourced{origin: "default of srun: one task"}
	}
	if n > 0 {
		t.nodes.Offer(n, nodes.origin)
	}
	if per > 0 {
		t.perNode.Offer(per, each.origin)
	}
	if all > 0 {
		t.world.Offer(all, total.origin)
	}
	t.nodes.Unknown("srun is not told the number of nodes; give --nnodes")
	t.perNode.Unknown("srun is not told the number of tasks a node; give --nproc")
	return t
}

// slurmGPUs offers what each task will see of the GPUs.
func (r *reader) slurmGPUs(nodes, perNode int) {
	task, total := r.variable("SLURM_GPUS_PER_TASK"), r.variable("SLURM_GPUS")
	switch {
	case task.text != "":
		r.offerGPUs(r.count(task, &Setting[int]{}), task.origin)
	case perNode > 0:
		r.offerGPUs(perNode, r.variable("SLURM_GPUS_PER_NODE").origin)
	case nodes > 0 && total.text != "":
		if all := r.count(total, &Setting[int]{}); all%nodes == 0 {
			r.offerGPUs(all/nodes, total.origin)
		}
	}
}

// peelSbatch reads sbatch: a script with its #SBATCH lines, or --wrap. The batch script itself runs once, on the first
// node.
func peelSbatch(r *reader, word string, args []string, inside func([]string)) {
	options, rest := wrapperOptions(args, srunValues, "")
	r.slurmOptions(options, func(o wrapperOption) string { return o.origin(word) })
	for _, o := range options {
		if o.name == "--wrap" {
			r.readScript([]byte(o.value), "sbatch --wrap", "", nil, inside)
			return
		}
	}
	if len(rest) == 0 {
		r.blocked = word + " reads its script from its input"
		return
	}
	r.readScriptFile(rest[0], rest[1:], inside)
}

// batchDirectives are options of sbatch in the script; those on its command line and in the environment are stronger.
func (r *reader) batchDirectives(shown string, lines []shell.Directive) {
	for _, line := range lines {
		options, _ := wrapperOptions(line.Words, srunValues, "")
		var weaker []wrapperOption
		for _, o := range options {
			if name := slurmNames()[o.name]; name == "" || r.getenv(name) == "" {
				weaker = append(weaker, o)
			}
		}
		r.slurmOptions(weaker, func(o wrapperOption) string {
			return fmt.Sprintf("%s:%d #SBATCH %s %s", shown, line.Line, o.name, o.value)
		})
	}
	if len(lines) > 0 && r.getenv("SLURM_NNODES") == "" && r.getenv("SLURM_NTASKS") == "" {
		const origin = "default of sbatch: one node"
		r.setenvFrom("SLURM_NNODES", "1", origin)
		r.setenvFrom("SLURM_JOB_NUM_NODES", "1", origin)
	}
	r.slurmGPUs(r.count(r.variable("SLURM_NNODES"), &Setting[int]{}),
		r.count(r.variable("SLURM_GPUS_PER_NODE"), &Setting[int]{}))
}

// mpiValues and mpiPairs are the options of Open MPI 4 and 5, MPICH's Hydra, Intel MPI and horovodrun that take one and
// two words.
const (
	mpiValues = `-np --np -n --n -c -H --H -host --host -hosts --hosts -hostfile --hostfile -machinefile --machinefile
		-f -ppn --ppn -perhost
		-npernode --npernode -N -npersocket --npersocket --map-by -map-by --rank-by -rank-by --bind-to -bind-to -x -wdir
		--wdir -wd -rf --rankfile
		--output-filename -output-filename --output --prefix --tune -am --app -path --path -genvlist -envlist -bootstrap
		--bootstrap -iface
		-launcher -launcher-exec -rmk -configfile --stdin --timeout --launch-agent --personality --display -p --ssh-port
		--min-np --max-np
		--start-timeout --network-interface --cache-capacity --fusion-threshold-mb --cycle-time-ms --timeline-filename
		--log-level --slots-per-host
		-outfile-pattern -errfile-pattern -topolib -ordered-output --mpi-args --config-file`
	mpiPairs = "-mca --mca -gmca --gmca --omca --prtemca --pmixmca -genv -env --set-env"
)

// peelMPI reads mpirun, mpiexec and horovodrun.
func peelMPI(r *reader, word string, args []string, inside func([]string)) {
	options, rest := wrapperOptions(args, mpiValues, mpiPairs)
	t := tasks{word: "mpirun"}
	var total, each sourced
	var hosts []int // slots of each host; 0 where they are not said
	for _, o := range options {
		given := sourced{o.value, o.origin(word)}
		switch strings.TrimLeft(o.name, "-") {
		case "np", "n", "c":
			total = given
		case "npernode", "N", "ppn", "perhost", "slots-per-host":
			each = given
		case "map-by":
			if fields := strings.Split(o.value, ":"); len(fields) >= 3 && fields[0] == "ppr" && fields[2] == "node" {
				each = sourced{fields[1], given.origin}
			}
		case "H", "host", "hosts":
			hosts = hostList(o.value)
		case "hostfile", "machinefile", "f":
			hosts = r.mpiHosts(o.value)
		case "x", "genv", "env", "set-env":
			if name, value, set := strings.Cut(o.value, "="); set && name != "" {
				r.setenv(name, value)
			}
		case "wdir", "wd":
			r.enter(o.value)
		}
	}
	r.mpiTasks(&t, total, each, hosts)
	doubtTasks(&t, options)
	r.start(t)
	inside(rest)
}

// mpiTasks works out the ranks and where they go: by slot, host after host, unless a number a node is given.
func (r *reader) mpiTasks(t *tasks, total, each sourced, hosts []int) {
	all, per := r.count(total, &t.world), r.count(each, &t.perNode)
	slots := 0
	for _, s := range hosts {
		slots += max(s, 1)
	}
	switch {
	case per > 0 && all > 0 && all%per == 0:
		t.nodes.Offer(all/per, total.origin)
	case per > 0 && total.text == "" && len(hosts) > 0:
		t.nodes.Offer(len(hosts), "hosts of mpirun")
		all, total = per*len(hosts), each
	case all > 0 && per == 0 && each.text == "" && len(hosts) > 1:
		used, left := 0, all
		for _, s := range hosts {
			if left > 0 {
				used++
				left -= max(s, 1)
			}
		}
		t.nodes.Offer(used, "hosts of mpirun")
		per, each = max(hosts[0], (all+used-1)/used), total
	case all > 0 && per == 0 && each.text == "":
		t.nodes.Offer(1, "mpirun without a list of hosts starts all ranks here")
		per, each = all, total
	case total.text == "" && slots > 0 && each.text == "":
		t.nodes.Offer(len(hosts), "hosts of mpirun")
		all, total = slots, sourced{origin: "slots of mpirun's hosts"}
		per, each = max(hosts[0], 1), total
	}
	if per > 0 {
		t.perNode.Offer(per, each.origin)
	}
	if all > 0 {
		t.world.Offer(all, total.origin)
	}
	t.nodes.Unknown("mpirun is not told how the ranks spread over nodes; give --nnodes")
	t.perNode.Unknown("mpirun is not told the number of ranks a node; give --nproc")
}

// hostList reads host1:8,host2:8.
func hostList(text string) []int {
	var slots []int
	for host := range strings.SplitSeq(text, ",") {
		_, count, _ := strings.Cut(host, ":")
		n, err := pythonInt(count)
		if err != nil {
			n = 0
		}
		slots = append(slots, n)
	}
	return slots
}

// mpiHosts reads a hostfile: "host slots=8" (Open MPI), "host:8" (MPICH), one host a line.
func (r *reader) mpiHosts(name string) []int {
	data, err := document.Read(r.path(name), name)
	if err != nil {
		r.unusable(fmt.Errorf("hosts of mpirun: %w", err))
		return nil
	}
	var slots []int
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		_, count, _ := strings.Cut(fields[0], ":")
		for _, field := range fields[1:] {
			if value, ok := strings.CutPrefix(field, "slots="); ok {
				count = value
			}
		}
		n, err := pythonInt(count)
		if err != nil {
			n = 0
		}
		slots = append(slots, n)
	}
	return slots
}
