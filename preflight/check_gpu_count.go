package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
	"oomguard/preflight/job"
)

func gpuCount() check {
	return check{
		ID:    "gpu-count",
		Title: "There is a GPU for every process",
		Judge: judgeGPUCount,
	}
}

func judgeGPUCount(f Facts, _ checklists.Params) checklists.Verdict {
	there, where, known := f.visibleGPUs()
	if f.cudaSeesNone() {
		// torch/distributed/run.py, determine_local_world_size: gpu without CUDA is an error, auto counts CPUs instead.
		switch word := processWord(f.Job, f.Env); word {
		case "gpu":
			return failed("one process for each GPU was asked for and none is visible: torchrun would stop with "+
				"\"Cuda is not available\"",
				"make the GPUs visible (see nvml-available and cuda-visible-devices), or give "+
					"--nproc-per-node a number")
		case "auto":
			return warned("one process for each GPU was asked for and none is visible: torchrun would start one for "+
				"each CPU instead",
				"make the GPUs visible (see nvml-available and cuda-visible-devices), or give "+
					"--nproc-per-node a number")
		}
	}
	n, asked := f.processes()
	switch {
	case f.onCPU():
		return skipped("the job runs on the CPU", "nothing to do for a job without GPUs")
	case !asked:
		return skipped("the number of processes on a node is not known", "give --nproc")
	case !known:
		return skipped("how many GPUs there will be is not known", giveGPU)
	case there < n:
		return failed(fmt.Sprintf("%d processes on this node and %s: %d. The others would fail with \"invalid "+
			"device ordinal\"", n, where, there),
			fmt.Sprintf("start at most %d processes (--nproc-per-node), or make more GPUs visible", there))
	}
	return passed(fmt.Sprintf("%d processes on a node, %s: %d", n, where, there))
}

// visibleGPUs is how many GPUs of a node the job can use, and whose count that is.
func (f Facts) visibleGPUs() (n int, where string, known bool) {
	switch {
	case f.elsewhere():
		return f.DeclaredGPUs, "GPUs by " + f.Declared, f.DeclaredGPUs > 0
	case len(f.Devices) > 0:
		return len(visible(f.Env, f.Devices).devices), "visible GPUs", true
	}
	return 0, "", false
}

// cudaSeesNone: the job will find no GPU here. That NVML shows none is not enough: its driver may be broken, or the
// GPUs not NVIDIA's; and a gate may stand on a machine that is not the job's.
func (f Facts) cudaSeesNone() bool {
	if len(f.Devices) > 0 {
		return !f.elsewhere() && len(visible(f.Env, f.Devices).devices) == 0
	}
	return f.Mode == ModeRun && !f.DriverFault && len(f.Host.DriverFiles)+len(f.Host.OtherAccelerators) == 0
}

// processWord is the word that stands where torchrun expects a number of processes ("auto", "gpu", "cpu"), or "".
func processWord(j *job.Job, env map[string]string) string {
	if j == nil || len(j.ScriptArgs) > len(j.Argv) {
		return ""
	}
	word := env["PET_NPROC_PER_NODE"]
	own := j.Argv[:len(j.Argv)-len(j.ScriptArgs)]
	for i, arg := range own {
		name, value, joined := strings.Cut(strings.ReplaceAll(arg, "_", "-"), "=")
		// Python's argparse takes any beginning that no other option shares.
		if !strings.HasPrefix(name, "--nproc-") || !strings.HasPrefix("--nproc-per-node", name) {
			continue
		}
		if !joined && i+1 < len(own) {
			value = own[i+1]
		}
		word = value
	}
	if strings.Trim(word, "0123456789") == "" {
		return ""
	}
	return word
}
