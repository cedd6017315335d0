// Package gpu sees devices: one snapshot of all of them from NVML (in a process of its own, because a missing symbol
// kills and a hung driver hangs whoever calls it), from its absent twin, or from a recorded file; and a catalogue of
// known GPUs for machines that have none. No NVML type leaves it.
package gpu

import (
	"context"
	"time"
)

// Device is one GPU (or MIG device) at one moment.
type Device struct {
	Index             int    `json:"index"` // NVML's order (PCI bus)
	UUID              string `json:"uuid"`
	Name              string `json:"name"`
	PCIBusID          string `json:"pci_bus_id,omitempty"`
	ComputeCapability string `json:"compute_capability,omitempty"`
	ComputeMode       string `json:"compute_mode,omitempty"` // default, prohibited, exclusive-process
	MIG               bool   `json:"mig,omitempty"`
	// Unified devices have no memory of their own: total and free are the host's (MemTotal and MemAvailable of
	// /proc/meminfo).
	Unified bool `json:"unified,omitempty"`
	// TotalBytes is NVML's total; the driver's ReservedBytes are part of it and never free. All are 0 when MemoryKnown
	// is false.
	TotalBytes    int64 `json:"total_bytes"`
	FreeBytes     int64 `json:"free_bytes"`
	UsedBytes     int64 `json:"used_bytes"`
	ReservedBytes int64 `json:"reserved_bytes"`
	MemoryKnown   bool  `json:"memory_known"`
	// Processes hold memory on the device; PIDs are host PIDs. ProcessesKnown is false when NVML could not list them.
	// While UsedBytes stays the same the list may be a second old: listing costs three calls into the driver, memory
	// one.
	Processes      []Process `json:"processes,omitempty"`
	ProcessesKnown bool      `json:"processes_known"`
	// Note says what could not be read and why, for people; Unknown says it by quantity.
	Note    string  `json:"note,omitempty"`
	Unknown Unknown `json:"unknown,omitzero"`
	// Lost says why no program can use the device as it is: it fell off the bus or must be reset. "" for one that
	// answers.
	Lost string `json:"lost,omitempty"`
}

// Unknown holds the reason for each quantity that could not be read; "" for one that is known, or of which nobody says
// why it is not.
type Unknown struct {
	Memory      string `json:"memory,omitempty"`
	Processes   string `json:"processes,omitempty"`
	ComputeMode string `json:"compute_mode,omitempty"`
}

// withoutProcesses is the device as it is when its list of processes cannot be had.
func (d Device) withoutProcesses(reason string) Device {
	d.Processes, d.ProcessesKnown, d.Unknown.Processes = nil, false, reason
	d.Note = join(d.Note, reason)
	return d
}

// Process is one holder of device memory.
type Process struct {
	PID       int    `json:"pid"`
	Name      string `json:"name,omitempty"`
	UsedBytes int64  `json:"used_bytes"`
	// Known is false when NVML lists the process but not its memory (WSL, MIG, vGPU).
	Known bool `json:"known"`
}

// Snapshot is all devices at one moment.
type Snapshot struct {
	Time    time.Time `json:"time"`
	Driver  string    `json:"driver,omitempty"`
	CUDA    string    `json:"cuda,omitempty"` // the driver's CUDA version, "12.8"
	Devices []Device  `json:"devices"`
}

// Source gives snapshots. Snapshot returns an error that says what is wrong and what to do (no driver, a hung driver,
// ...).
type Source interface {
	Snapshot(ctx context.Context) (Snapshot, error)
	Close() error
}
