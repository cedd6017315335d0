package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
)

// otherProcesses' tolerance is what NVIDIA's resiliency extension accepts as left over on a GPU before it restarts a
// job (512 MB); a desktop session usually stays below it.
func otherProcesses() check {
	return check{
		ID:       "other-processes",
		Title:    "Nobody else holds memory on the job's GPUs",
		After:    []string{"nvml-available"},
		Defaults: checklists.Params{"tolerate_mib": 512},
		Judge:    judgeOtherProcesses,
	}
}

func judgeOtherProcesses(f Facts, with checklists.Params) checklists.Verdict {
	if v, none := f.noDevices(); none {
		return v
	}
	tolerated := mib(with["tolerate_mib"])
	var held, unknown []string
	var most int64
	ours := false
	for _, d := range f.used() {
		most = max(most, d.UsedBytes)
		switch {
		case !d.MemoryKnown && listedBytes(d) <= tolerated:
			unknown = append(unknown, label(d)+" does not tell what is in use"+withNote(d.whyNoMemory()))
			continue
		case d.UsedBytes <= tolerated && listedBytes(d) <= tolerated:
			continue
		}
		held = append(held, fmt.Sprintf("%s: %s in use, %s", label(d), f.bytes(max(d.UsedBytes, listedBytes(d))),
			f.holders(d)))
		for _, p := range d.Processes {
			ours = ours || p.Ours
		}
	}
	if len(held) == 0 && len(unknown) > 0 {
		return skipped(strings.Join(unknown, "; "), "see what nvidia-smi shows")
	}
	if len(held) == 0 {
		return passed(fmt.Sprintf("at most %s in use on a GPU, %s tolerated", f.bytes(most), f.bytes(tolerated)))
	}
	remedy := "wait for these processes, ask their owners, or choose other GPUs (CUDA_VISIBLE_DEVICES)"
	if ours {
		remedy = "some are yours: if they are left over from an earlier run, stop them (kill PID); otherwise choose " +
			"other GPUs (CUDA_VISIBLE_DEVICES)"
	}
	return warned(strings.Join(append(held, unknown...), "; "), remedy)
}

func listedBytes(d Device) int64 {
	var sum int64
	for _, p := range d.Processes {
		sum += p.UsedBytes
	}
	return sum
}

// holders lists who holds a device's memory, as far as NVML says.
func (f Facts) holders(d Device) string {
	if len(d.Processes) == 0 {
		switch {
		case f.Host.PIDNamespace:
			return "by processes outside this container"
		case !d.ProcessesKnown:
			return "and NVML does not say by whom" + withNote(d.Unknown.Processes)
		}
		return "by no listed process (a dying process, or one in another container)"
	}
	var texts []string
	for _, p := range d.Processes {
		size := "size unknown"
		if p.Known {
			size = f.bytes(p.UsedBytes)
		}
		name := p.Name
		if name == "" {
			name = "name unknown"
		}
		texts = append(texts, fmt.Sprintf("pid %d (%s) %s", p.PID, name, size))
	}
	text := "by " + strings.Join(texts, ", ")
	if f.Host.PIDNamespace {
		text += " (pids of the host, not of this container)"
	}
	return text
}
