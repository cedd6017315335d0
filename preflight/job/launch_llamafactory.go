package job

import (
	"fmt"
	"strconv"
	"strings"
)

// readLlamafactory reads llamafactory-cli, short lmf: `train` starts torchrun by itself when FORCE_TORCHRUN is set or
// several GPUs are visible (llamafactory/launcher.py).
func (r *reader) readLlamafactory(prog string, args []string) {
	if len(args) == 0 || args[0] != "train" {
		r.blocked = prog + " without train does not train; give the command that trains"
		return
	}
	if r.enabled("USE_V1") {
		r.blocked = "USE_V1 selects LLaMA-Factory's new configuration, which is not read yet"
		return
	}
	r.setScript("train", args[1:])
	j := r.job
	switch {
	case r.enabled("USE_MCA") || r.enabled("USE_MEGATRON_BRIDGE"):
		r.lostSharding("Megatron trains (USE_MCA, USE_MEGATRON_BRIDGE), and its settings are not read here; give " +
			"--sharding, --tp and --pp")
		r.setenv("FORCE_TORCHRUN", "1")
	case r.enabled("USE_RAY"):
		j.NNodes.Unknown("Ray places the processes (USE_RAY); give --nnodes")
		j.NProc.Unknown("Ray places the processes (USE_RAY); give --nproc")
		return
	}
	gpus := r.visibleGPUs()
	forced := r.enabled("FORCE_TORCHRUN")
	switch {
	case !forced && gpus < 0:
		j.NNodes.Offer(1, "one node unless FORCE_TORCHRUN is set")
		j.NProc.Unknown("llamafactory-cli starts a process for each visible GPU, and their number is not known; " +
			"give --nproc")
	case !forced && gpus <= 1:
		j.NNodes.Offer(1, "one visible GPU, so that llamafactory-cli starts one process")
		j.NProc.Offer(1, "one visible GPU, so that llamafactory-cli starts one process")
	default:
		r.torchrunOfLlamafactory(gpus)
	}
}

// torchrunOfLlamafactory: the variables that llamafactory-cli passes on to torchrun.
func (r *reader) torchrunOfLlamafactory(gpus int) {
	j := r.job
	least, most := r.getenv("MIN_NNODES"), r.getenv("MAX_NNODES")
	if r.getenv("RDZV_ID") != "" && least != "" && most != "" && least != most {
		j.NNodes.Unknown(fmt.Sprintf("elastic (MIN_NNODES %s, MAX_NNODES %s); give --nnodes for the number to judge",
			least, most))
	}
	r.countFrom("NNODES", &j.NNodes)
	if j.NNodes.Origin == "" {
		j.NNodes.Offer(1, "NNODES is not set")
	}
	r.countFrom("NPROC_PER_NODE", &j.NProc)
	switch {
	case j.NProc.Origin != "":
	case gpus > 0:
		j.NProc.Offer(gpus, "llamafactory-cli starts torchrun with a process for each visible GPU")
	case gpus < 0:
		j.NProc.Unknown("a process for each visible GPU, and their number is not known; give --nproc")
	}
}

// countFrom reads a number of processes or nodes from a variable.
func (r *reader) countFrom(variable string, set *Setting[int]) {
	text := r.getenv(variable)
	if text == "" || set.Origin != "" {
		return
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		why := fmt.Sprintf("environment %s is %q, need a whole number from 1", variable, text)
		set.Unknown(why)
		r.unread(fmt.Errorf("%s", why))
		return
	}
	set.Offer(n, "environment "+variable)
}
