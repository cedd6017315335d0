package preflight

import (
	"slices"
	"strings"

	"oomguard/preflight/allocconf"
)

// allowedEnv is the variables that decide about devices, memory and the launch. None of them carries secrets, so they
// may be recorded; nothing else of the environment is.
func allowedEnv() []string {
	return []string{
		"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_LAUNCH_BLOCKING",
		"NVIDIA_VISIBLE_DEVICES",
		allocconf.OldName, allocconf.NewName, allocconf.ROCmName, allocconf.NoCaching,
		"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_STANDALONE", "PET_MAX_RESTARTS",
		"NCCL_BUFFSIZE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "OMP_NUM_THREADS",
		"SLURM_JOB_ID", "SLURM_NNODES", "SLURM_NTASKS_PER_NODE",
	}
}

// AllowedEnv keeps what may be judged and recorded of an environment ("NAME=value" strings; the last of a name wins, as
// it does for the child): the allow-listed names, and misspellings of CUDA_VISIBLE_DEVICES.
func AllowedEnv(environ []string) map[string]string {
	allowed := allowedEnv()
	out := map[string]string{}
	for _, pair := range environ {
		name, value, ok := strings.Cut(pair, "=")
		if ok && (slices.Contains(allowed, name) || misspelt(name)) {
			out[name] = value
		}
	}
	return out
}

// misspelt: a name that someone meant as CUDA_VISIBLE_DEVICES and that CUDA ignores, such as CUDA__VISIBLE_DEVICES or
// CUDA_VISIBLE_DEVICE.
func misspelt(name string) bool {
	if name == "CUDA_VISIBLE_DEVICES" {
		return false
	}
	letters := strings.ToUpper(strings.NewReplacer("_", "", "-", "").Replace(name))
	return slices.Contains([]string{"CUDAVISIBLEDEVICE", "CUDAVISIBLEDEVICES", "CUDAVISABLEDEVICES",
		"CUDAVISBLEDEVICES"}, letters)
}
