package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
)

func computeMode() check {
	return check{
		ID:    "compute-mode",
		Title: "The GPUs accept the job's processes",
		After: []string{"nvml-available"},
		Judge: judgeComputeMode,
	}
}

func judgeComputeMode(f Facts, _ checklists.Params) checklists.Verdict {
	if v, none := f.noDevices(); none {
		return v
	}
	var refused, unknown []string
	for _, d := range f.used() {
		switch {
		case d.ComputeMode == "prohibited":
			refused = append(refused, label(d)+" is in compute mode prohibited")
		case d.ComputeMode == "exclusive-process" && len(d.Processes) > 0:
			refused = append(refused, fmt.Sprintf("%s admits one process (exclusive-process) and pid %d has it",
				label(d), d.Processes[0].PID))
		case d.ComputeMode == "exclusive-process" && !d.ProcessesKnown:
			unknown = append(unknown, fmt.Sprintf("%s admits one process (exclusive-process) and whether one has it "+
				"is not known%s", label(d), withNote(d.Unknown.Processes)))
		case d.ComputeMode == "":
			unknown = append(unknown, "the compute mode of "+label(d)+" is not known"+withNote(d.Unknown.ComputeMode))
		}
	}
	switch {
	case len(refused) > 0:
		return failed(strings.Join(refused, "; ")+"; CUDA would say that the device is busy or unavailable",
			"nvidia-smi -c DEFAULT (needs root) admits processes again; or choose other GPUs (CUDA_VISIBLE_DEVICES)")
	case len(unknown) > 0:
		return skipped(strings.Join(unknown, "; "), "nvidia-smi -q -d COMPUTE may show it")
	}
	return passed(fmt.Sprintf("each GPU of the job (%d) admits its processes", len(f.used())))
}
