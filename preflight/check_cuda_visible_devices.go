package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"oomguard/checklists"
)

func cudaVisibleDevices() check {
	return check{
		ID:    "cuda-visible-devices",
		Title: "CUDA_VISIBLE_DEVICES means what it says",
		Judge: judgeCUDAVisibleDevices,
	}
}

func judgeCUDAVisibleDevices(f Facts, _ checklists.Params) checklists.Verdict {
	value, set := f.Env["CUDA_VISIBLE_DEVICES"]
	devices := f.Devices
	if f.elsewhere() {
		devices = nil // the variable can only be judged by its form
	}
	v := visible(f.Env, devices)
	const spell = "write the numbers or identifiers that nvidia-smi -L shows, each once, with commas and no spaces; " +
		"or unset it"
	doubts, remedies := v.doubts, []string{}
	if len(doubts) > 0 {
		remedies = append(remedies, spell)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Env)) {
		if misspelt(name) {
			doubts = append(doubts, name+" is set, which CUDA does not read")
			remedies = append(remedies, "rename it to CUDA_VISIBLE_DEVICES, or unset it")
		}
	}
	if mixed(devices) && f.Env["CUDA_DEVICE_ORDER"] != "PCI_BUS_ID" {
		// CUDA's default order is fastest first, NVML's is by bus: numbers may mean different GPUs.
		doubts = append(doubts, fmt.Sprintf("the GPUs differ (%s) and CUDA numbers them by speed, nvidia-smi by bus",
			deviceNames(devices)))
		remedies = append(remedies, "export CUDA_DEVICE_ORDER=PCI_BUS_ID")
	}
	found := fmt.Sprintf("CUDA_VISIBLE_DEVICES: %s. GPUs left to the job: %d", strings.Join(v.faults, "; "), v.names)
	switch {
	case len(v.faults) > 0 && f.onCPU() && v.names == 0:
		return passed("no GPU is visible, and the job runs on the CPU")
	case len(v.faults) > 0 && f.Mode == ModeCheck && len(devices) == 0:
		return warned(found+" (no GPU of the job is known here, so only the form was judged)", spell)
	case len(v.faults) > 0:
		return failed(found, spell)
	case len(doubts) > 0:
		return warned(strings.Join(doubts, "; "), strings.Join(remedies, "; "))
	case !set:
		return passed("not set: every GPU of the machine is visible")
	}
	return passed(fmt.Sprintf("%q, GPUs left to the job: %d", value, v.names))
}

// mixed: not all GPUs are the same, so it matters which number means which.
func mixed(devices []Device) bool {
	return slices.ContainsFunc(devices, func(d Device) bool {
		return !d.MIG && (d.Name != devices[0].Name || d.TotalBytes != devices[0].TotalBytes)
	})
}
