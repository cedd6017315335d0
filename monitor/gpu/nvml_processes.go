//go:build linux && cgo

package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	// pidLimit is the kernel's PID_MAX_LIMIT on 64 bits (include/linux/threads.h).
	pidLimit = 1 << 22
	// memoryUnavailable is NVML_VALUE_NOT_AVAILABLE (nvml.h): the process is there, its memory is not told.
	memoryUnavailable = ^uint64(0)
	// listInterval is how long a list of processes is kept while the memory in use on the device has not changed.
	// Listing costs three calls into the driver per device; memory, which is what a run is watched by, costs one.
	listInterval = time.Second
)

// processList is the last list of processes of a device.
type processList struct {
	processes []Process
	known     bool
	note      string
	why       string // it is not known, when it is not
	lost      string // as of Device
	usedBytes int64  // of the device when the list was read
	at        time.Time
}

// listing is one of NVML's lists of processes.
type listing struct {
	symbol   string
	required bool // without it the holders of memory are not known
	ask      func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)
}

// processLists are NVML's three lists. A driver has them in up to three versions, of which go-nvml takes the newest.
func processLists() []listing {
	return []listing{
		{"nvmlDeviceGetComputeRunningProcesses", true, nvml.Device.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", false, nvml.Device.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", false, nvml.Device.GetMPSComputeRunningProcesses},
	}
}

// readProcesses fills in who holds memory, from the last list if nothing can have changed since.
func (s *nvmlSource) readProcesses(u *unit, d *Device) {
	now := s.now()
	if last := u.listed; last.at.IsZero() || last.usedBytes != d.UsedBytes || now.Sub(last.at) >= listInterval {
		u.listed = s.listProcesses(u.handle, d.TotalBytes)
		u.listed.usedBytes, u.listed.at = d.UsedBytes, now
	}
	d.Processes, d.ProcessesKnown = slices.Clone(u.listed.processes), u.listed.known
	d.Unknown.Processes, d.Lost = u.listed.why, u.listed.lost
	d.Note = join(d.Note, join(u.listed.note, u.listed.why))
}

func (s *nvmlSource) listProcesses(h nvml.Device, totalBytes int64) processList {
	if s.hasWideProcessInfo() {
		return processList{why: "list its processes: this driver (R530 to R535) gives them in a form that cannot be " +
			"read safely: update the driver"}
	}
	byPID := map[uint32]Process{}
	for _, list := range processLists() {
		var infos []nvml.ProcessInfo
		ret := s.call(func() (ret nvml.Return) { infos, ret = list.ask(h); return ret }, list.symbol+"_v3",
			list.symbol+"_v2", list.symbol)
		if ret != nvml.SUCCESS && (list.required || loss(describe("", ret)) != "") {
			err := describe("list its processes", ret)
			return processList{why: err.Error(), lost: loss(err)}
		}
		if ret != nvml.SUCCESS {
			continue
		}
		for _, info := range infos {
			if err := plausible(info, totalBytes); err != nil {
				return processList{why: err.Error()}
			}
			byPID[info.Pid] = merge(byPID[info.Pid], info)
		}
	}
	listed := processList{known: true, processes: slices.Collect(maps.Values(byPID))}
	slices.SortFunc(listed.processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	if !s.hostPIDs {
		listed.note = "processes carry the host's PIDs, which mean nothing in this container, and the driver may " +
			"hide those of others"
		return listed
	}
	for i := range listed.processes {
		listed.processes[i].Name = processName(listed.processes[i].PID)
	}
	return listed
}

// hasWideProcessInfo recognises the drivers whose version 3 lists have entries of 32 bytes instead of the 24 in nvml.h:
// they came with the confidential-computing calls, and the repair came with the detailed list (go-nvml issue 75,
// nvitop's rule). They would write past the end of go-nvml's array.
func (s *nvmlSource) hasWideProcessInfo() bool {
	return s.has("nvmlDeviceGetConfComputeMemSizeInfo") && !s.has("nvmlDeviceGetRunningProcessDetailList")
}

// plausible refuses entries that are a sign of another layout than the one we read them with.
func plausible(info nvml.ProcessInfo, totalBytes int64) error {
	most := uint64(math.MaxInt64)
	if totalBytes > 0 {
		most = uint64(totalBytes)
	}
	if info.Pid > 0 && info.Pid < pidLimit && (info.UsedGpuMemory == memoryUnavailable || info.UsedGpuMemory <= most) {
		return nil
	}
	return fmt.Errorf("list its processes: dropped, because an entry cannot be (PID %d, %d bytes): the driver's "+
		"list may have another layout, update the driver",
		info.Pid, info.UsedGpuMemory)
}

// merge adds one entry: a process in several lists has the same memory in each, so the largest figure counts and they
// are not added.
func merge(p Process, info nvml.ProcessInfo) Process {
	p.PID = int(info.Pid)
	if info.UsedGpuMemory != memoryUnavailable {
		p.Known = true
		p.UsedBytes = max(p.UsedBytes, int64(info.UsedGpuMemory))
	}
	return p
}
