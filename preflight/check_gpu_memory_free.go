package preflight

import (
	"cmp"
	"fmt"
	"strings"

	"oomguard/checklists"
)

func gpuMemoryFree() check {
	return check{
		ID:    "gpu-memory-free",
		Title: "Each GPU has free now what a rank will need",
		After: []string{"nvml-available"},
		Judge: judgeGPUMemoryFree,
	}
}

func judgeGPUMemoryFree(f Facts, _ checklists.Params) checklists.Verdict {
	if v, none := f.noDevices(); none {
		return v
	}
	if v, missing := f.noEstimate(skipped); missing {
		return v
	}
	need, high := f.Estimate.Least(), f.Estimate.PerGPU.HighBytes
	var short, tight, unknown []string
	least := int64(-1)
	for _, d := range f.used() {
		switch {
		case !d.MemoryKnown:
			unknown = append(unknown, label(d)+" does not tell its free memory"+withNote(d.whyNoMemory()))
			continue
		case d.FreeBytes < need:
			short = append(short, fmt.Sprintf("%s has %s free of %s", label(d), f.bytes(d.FreeBytes),
				f.bytes(d.TotalBytes)))
		case high != nil && d.FreeBytes < *high:
			tight = append(tight, fmt.Sprintf("%s has %s free", label(d), f.bytes(d.FreeBytes)))
		}
		if least < 0 || d.FreeBytes < least {
			least = d.FreeBytes
		}
	}
	switch {
	case len(short) > 0:
		return failed(fmt.Sprintf("%s; %s needed", strings.Join(short, "; "), f.needed()),
			"free the memory (other-processes says who holds it), choose other GPUs (CUDA_VISIBLE_DEVICES), or see "+
				"oomguard plan")
	case f.Estimate.Open() && len(tight) > 0:
		return f.open()
	case len(tight) > 0:
		return warned(fmt.Sprintf("%s; %s needed, perhaps up to %s", strings.Join(tight, "; "), f.bytes(need),
			f.bytes(*high)),
			"narrow the estimate, or free memory first (see other-processes)")
	case len(unknown) > 0:
		return warned(fmt.Sprintf("%s; %s needed", strings.Join(unknown, "; "), f.needed()),
			"see what nvidia-smi shows; a GPU that shares the host's memory has none of its own: look at "+
				"MemAvailable (free -h)")
	case f.Estimate.Partial:
		return f.open()
	}
	return passed(fmt.Sprintf("at least %s free on each GPU of the job (%d); %s needed", f.bytes(least), len(f.used()),
		f.needed()))
}

// whyNoMemory is why a device's memory is not known.
func (d Device) whyNoMemory() string { return cmp.Or(d.Lost, d.Unknown.Memory, d.Note) }

// label names a device as nvidia-smi numbers it.
func label(d Device) string {
	if d.Name == "" {
		return fmt.Sprintf("GPU %d", d.Index)
	}
	return fmt.Sprintf("GPU %d (%s)", d.Index, d.Name)
}

func withNote(note string) string {
	if note == "" {
		return ""
	}
	return " (" + note + ")"
}
