package preflight

import (
	"fmt"

	"oomguard/checklists"
)

// sharedMemory's thresholds count per process. NCCL's shared-memory transport takes segments of about 9.6 MB
// (NVIDIA/nccl#1518), so below 10 MiB a process the ranks cannot even connect; DataLoader workers pass whole batches
// through /dev/shm, for which 1 GiB a process is a rule of thumb (Docker gives 64 MiB in all; see pytorch#5040 for the
// bus errors that follow).
func sharedMemory() check {
	return check{
		ID:       "shm",
		Title:    "/dev/shm is large enough for NCCL and data loaders",
		Defaults: checklists.Params{"fail_mib": 10, "warn_mib": 1024},
		Judge:    judgeSharedMemory,
	}
}

func judgeSharedMemory(f Facts, with checklists.Params) checklists.Verdict {
	n, known := f.processes()
	free, total := f.Host.ShmFreeBytes, f.Host.ShmTotalBytes
	switch {
	case f.elsewhere():
		return skipped("the job will run on another machine than this one",
			"nothing to do here; this is judged where the job starts")
	case total == 0:
		return skipped("the size of /dev/shm is unknown", "look at df -h /dev/shm")
	case !known:
		return skipped("the number of processes on a node is not known", "give --nproc")
	}
	need, better := saturate(int64(n), mib(with["fail_mib"])), saturate(int64(n), mib(with["warn_mib"]))
	detail := fmt.Sprintf("%s free of %s in /dev/shm for %d processes", f.bytes(free), f.bytes(total), n)
	const remedy = "start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir with medium " +
		"Memory on /dev/shm)"
	switch {
	case n > 1 && !f.onCPU() && free < need:
		return failed(fmt.Sprintf("%s; NCCL needs about %s", detail, f.bytes(need)), remedy)
	case free < better:
		return warned(fmt.Sprintf("%s; data loaders with workers may need %s", detail, f.bytes(better)), remedy)
	}
	return passed(detail)
}
