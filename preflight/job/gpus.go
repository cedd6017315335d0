package job

import (
	"strings"

	"oomguard/preflight/job/shell"
)

// offerGPUs records how many GPUs a wrapper gives to the command; a number below zero says nothing.
func (r *reader) offerGPUs(n int, origin string) {
	if n >= 0 {
		r.given.Offer(n, origin)
	}
}

// visibleGPUs is how many GPUs the ranks of a node can see; -1 when it is not known. Sources.GPUs already obeys a
// CUDA_VISIBLE_DEVICES that the command inherits; one that the command sets itself counts here, and so does what srun
// or docker give.
func (r *reader) visibleGPUs() int {
	there := r.src.GPUs
	if r.given.Known {
		there = r.given.Value
	}
	set, own := r.env[visibleDevices]
	if !own {
		return there
	}
	if _, unknown := shell.Unknown(set.text); unknown {
		return -1
	}
	if set == (sourced{}) { // env -u: all devices, whose number only an unrestricted count tells
		if r.src.Getenv(visibleDevices) != "" {
			return -1
		}
		return there
	}
	// Numbers beyond the machine's end the list, but only an unrestricted count says where that is.
	limit := -1
	if r.src.Getenv(visibleDevices) == "" {
		limit = there
	}
	return visibleCount(set.text, limit)
}

// countedGPUs is how many GPUs a script counts: those that a list of CUDA_VISIBLE_DEVICES leaves, or without one all
// that are there.
func (r *reader) countedGPUs(list string, set bool) (count int, known bool) {
	if set {
		return visibleCount(list, -1), list != ""
	}
	if r.given.Known {
		return r.given.Value, true
	}
	return r.src.GPUs, r.src.GPUs > 0 && r.src.Getenv(visibleDevices) == ""
}

// countedCPUs is how many CPUs a script counts; 0 when it is not known.
func (r *reader) countedCPUs() int {
	if r.src.Place == Elsewhere {
		return 0
	}
	return r.src.CPUs
}

const visibleDevices = "CUDA_VISIBLE_DEVICES"

// visibleCount is how many devices CUDA shows for a list: names up to the first that is none of the limit devices (-1:
// any number).
func visibleCount(list string, limit int) int {
	count := 0
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		n, err := pythonInt(name)
		switch {
		case name == "", err == nil && (n < 0 || limit >= 0 && n >= limit):
			return count
		}
		count++
	}
	return count
}
