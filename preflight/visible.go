package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// visibility is what CUDA will make of CUDA_VISIBLE_DEVICES.
type visibility struct {
	devices []Device // in CUDA's order; empty when this machine's devices are not known
	names   int      // valid entries of the variable, whether or not devices are known
	faults  []string // entries that make CUDA see fewer GPUs than were written down
	doubts  []string
}

// visible reads the variable as PyTorch does (torch/cuda/__init__.py, _parse_visible_devices and
// _transform_uuid_to_ordinals, which follow the driver): the first entry decides between numbers and identifiers, an
// entry that means nothing hides itself and all that follow, and a repeated one hides every GPU.
func visible(env map[string]string, devices []Device) visibility {
	v := visibility{}
	value, set := env["CUDA_VISIBLE_DEVICES"]
	if !set {
		v.devices, v.names = devices, len(devices)
		return v
	}
	if t := strings.TrimSpace(value); t == "" || strings.HasPrefix(t, "-") {
		v.faults = append(v.faults, fmt.Sprintf("%q hides every GPU", value))
		return v
	}
	find := byIndex
	for _, prefix := range []string{"GPU-", "MIG-"} {
		if strings.HasPrefix(value, prefix) {
			find = byUUID(prefix)
		}
	}
	entries := strings.Split(value, ",")
	if last := len(entries) - 1; last > 0 && strings.TrimSpace(entries[last]) == "" {
		entries = entries[:last]
		v.doubts = append(v.doubts, "it ends in a comma")
	}
	var seen []string
	for _, entry := range entries {
		key, device, fault := find(entry, devices)
		if fault == "" && strings.TrimSpace(entry) != entry {
			v.doubts = append(v.doubts, fmt.Sprintf("entry %q has spaces around it", entry))
		}
		if fault == "" && slices.Contains(seen, key) {
			v.devices, v.names = nil, 0
			v.faults = append(v.faults, fmt.Sprintf("entry %q repeats a GPU, which hides every GPU", entry))
			return v
		}
		if fault != "" {
			v.faults = append(v.faults, fmt.Sprintf("entry %q %s; it hides itself and every GPU after it", entry,
				fault))
			return v
		}
		seen = append(seen, key)
		v.names++
		if device != nil {
			v.devices = append(v.devices, *device)
		}
	}
	return v
}

// byIndex finds a GPU by its number, around which spaces do no harm. Without known devices any number from 0 is
// accepted.
func byIndex(entry string, devices []Device) (key string, device *Device, fault string) {
	n, err := strconv.Atoi(strings.TrimSpace(entry))
	if err != nil || n < 0 {
		return "", nil, "is not the number of a GPU"
	}
	if len(devices) == 0 {
		return strconv.Itoa(n), nil, ""
	}
	i := slices.IndexFunc(devices, func(d Device) bool { return d.Index == n })
	if i < 0 {
		return "", nil, fmt.Sprintf("is out of range: this machine has %d (0 to %d)", len(devices), len(devices)-1)
	}
	return strconv.Itoa(n), &devices[i], ""
}

// byUUID finds a GPU by its identifier or an unambiguous beginning of it; a space makes it another one.
func byUUID(prefix string) func(string, []Device) (string, *Device, string) {
	return func(entry string, devices []Device) (string, *Device, string) {
		if !strings.HasPrefix(entry, prefix) {
			return "", nil, "does not begin with " + prefix + " as the first entry does"
		}
		if len(devices) == 0 {
			return entry, nil, ""
		}
		var found *Device
		for i, d := range devices {
			if !strings.HasPrefix(d.UUID, entry) {
				continue
			}
			if found != nil {
				return "", nil, "fits more than one GPU of this machine"
			}
			found = &devices[i]
		}
		if found == nil {
			return "", nil, "is not a GPU of this machine"
		}
		return found.UUID, found, ""
	}
}
