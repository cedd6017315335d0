package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is something in CUDA_VISIBLE_DEVICES that hides GPUs or is probably not meant, and what to do about it.
type Problem struct{ Text, Remedy string }

const (
	remedyUnset = "unset CUDA_VISIBLE_DEVICES to use every GPU, or list their indices, like 0,1"
	remedyList  = "write indices, or UUIDs as nvidia-smi -L prints them, separated by commas"
	remedyTwice = "name each GPU once"
	remedyMIG   = "give each process its own MIG device: one MIG-... UUID in CUDA_VISIBLE_DEVICES"
)

// Visible is what CUDA shows a process of these devices, in the order in which it numbers them, given the value of
// CUDA_VISIBLE_DEVICES and whether it is set at all. Indices count the GPUs in the order of devices; that is CUDA's order when
// CUDA_DEVICE_ORDER=PCI_BUS_ID or when all GPUs are alike.
//
// The rules are CUDA's (CUDA C++ Programming Guide, "CUDA Environment Variables") as PyTorch repeats them in
// torch/cuda/__init__.py, _parse_visible_devices and _transform_uuid_to_ordinals: a list is read up to its first invalid entry, its
// first entry decides whether it holds indices or UUIDs, an index is the number that an entry begins with, a UUID may be cut
// short as long as it is unique, and an entry named twice hides everything. Of MIG devices CUDA shows a process only one, and no
// full GPU beside it (NVIDIA MIG User Guide, "CUDA Device Enumeration").
func Visible(devices []Device, cvd string, set bool) ([]Device, []Problem) {
	if !set {
		return oneMIG(devices, nil)
	}
	if strings.TrimSpace(cvd) == "" {
		return nil, []Problem{{"CUDA_VISIBLE_DEVICES is set and empty: no GPU is visible", remedyUnset}}
	}
	entries := strings.Split(cvd, ",")
	for i := range entries {
		entries[i] = strings.TrimSpace(entries[i])
	}
	find := finder{devices: devices, gpus: firstOfEach(devices), prefix: prefixOf(entries[0])}
	var shown []int
	var problems []Problem
	for i, entry := range entries {
		found, odd := find.entry(entry)
		if found >= 0 && slices.Contains(shown, found) {
			return nil, append(problems, Problem{fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s names a GPU twice (%q): CUDA then shows none", cvd, entry), remedyTwice})
		}
		if odd != "" {
			problems = append(problems, Problem{fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s: %s%s", cvd, odd, effect(found, i, entries)), remedyList})
		}
		if found < 0 {
			break
		}
		shown = append(shown, found)
	}
	var visible []Device
	for _, i := range shown {
		visible = append(visible, devices[i])
	}
	return oneMIG(visible, problems)
}

// firstOfEach gives the positions of the GPUs in devices; the MIG devices of one GPU share its index and count once.
func firstOfEach(devices []Device) []int {
	var first []int
	for i, d := range devices {
		if i == 0 || !d.MIG || !devices[i-1].MIG || devices[i-1].Index != d.Index {
			first = append(first, i)
		}
	}
	return first
}

func prefixOf(entry string) string {
	for _, prefix := range []string{"GPU-", "MIG-"} {
		if strings.HasPrefix(entry, prefix) {
			return prefix
		}
	}
	return ""
}

// finder resolves the entries of one list.
type finder struct {
	devices []Device
	gpus    []int  // position in devices of the n-th GPU
	prefix  string // GPU-, MIG-, or empty for a list of indices
}

// entry gives the position in devices that the entry names, or -1, and what is wrong or odd about it.
func (f finder) entry(entry string) (position int, odd string) {
	switch prefix := prefixOf(entry); {
	case entry == "":
		return -1, "an entry is empty"
	case prefix != f.prefix:
		return -1, fmt.Sprintf("%q is of another kind than the first entry", entry)
	case prefix != "":
		return f.uuid(entry)
	}
	digits := leadingNumber(entry)
	index, err := strconv.Atoi(digits)
	switch {
	case digits == "":
		return -1, fmt.Sprintf("%q is neither an index nor a UUID", entry)
	case err != nil || index >= len(f.gpus):
		return -1, fmt.Sprintf("there is no GPU %s, only %d", digits, len(f.gpus))
	case index < 0:
		return -1, fmt.Sprintf("%q ends the list", entry)
	case digits != entry:
		return f.gpus[index], fmt.Sprintf("%q is read as %d", entry, index)
	}
	return f.gpus[index], ""
}

func (f finder) uuid(start string) (position int, odd string) {
	position = -1
	for i, d := range f.devices {
		if !strings.HasPrefix(d.UUID, start) {
			continue
		}
		if position >= 0 {
			return -1, fmt.Sprintf("%q fits more than one device", start)
		}
		position = i
	}
	if position < 0 {
		return -1, fmt.Sprintf("no device has a UUID that begins with %q", start)
	}
	return position, ""
}

// leadingNumber is the integer that text begins with, as C's strtol would read it, or nothing.
func leadingNumber(text string) string {
	end := 0
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		end = 1
	}
	sign := end
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	if end == sign {
		return ""
	}
	return text[:end]
}

// effect says what CUDA does about an entry that it does not accept.
func effect(found, i int, entries []string) string {
	switch {
	case found >= 0:
		return ""
	case i == 0:
		return ": no GPU is visible"
	case i == len(entries)-1:
		return ": it is ignored"
	}
	return fmt.Sprintf(": it is ignored, and so is all after it (%s)", strings.Join(entries[i+1:], ","))
}

// oneMIG cuts the list down to its first MIG device if there is one.
func oneMIG(visible []Device, problems []Problem) ([]Device, []Problem) {
	first := slices.IndexFunc(visible, func(d Device) bool { return d.MIG })
	if first < 0 || len(visible) == 1 {
		return slices.Clone(visible), problems
	}
	text := fmt.Sprintf("of %d devices CUDA shows a process only one, the MIG device %s", len(visible), visible[first].UUID)
	return []Device{visible[first]}, append(problems, Problem{text, remedyMIG})
}
