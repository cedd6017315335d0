// Package monitor watches a run without touching it: device memory through monitor/gpu, the memory of every training
// stage through the probe's files. Everything goes to append-only files of the run folder as it comes; a Recording is
// always rebuilt from those files, so that the report of a run that ended well and of one that was killed are made the
// same way.
package monitor

import (
	"time"

	"oomguard/monitor/gpu"
)

// Recording is what was seen of a run.
type Recording struct {
	// Memory says what the ranks' numbers are: "cuda" (PyTorch's allocator), "rss" (resident host memory, when there is
	// no GPU), or "" when no rank reported.
	Memory  string         `json:"memory"`
	Ranks   []Rank         `json:"ranks"`
	Devices []DeviceRecord `json:"devices"`
	Stages  []StagePeak    `json:"stages"` // the worst rank of each stage
	// Missing says what was not seen and why (no probe, NVML gone, samples lost).
	Missing []string `json:"missing"`
	// LastSeen is the time of the last record of any kind.
	LastSeen time.Time `json:"last_seen"`
}

// Rank is one training process of one attempt.
type Rank struct {
	Rank      int    `json:"rank"`
	Node      string `json:"node,omitempty"` // of a run of several nodes
	LocalRank int    `json:"local_rank"`
	Attempt   int    `json:"attempt"`
	PID       int    `json:"pid"`
	Torch     string `json:"torch"`
	Memory    string `json:"memory"`
	Device    int    `json:"device"` // CUDA index inside the process; -1 unknown
	// BaselineBytes is what the process held when torch had just been imported (rss: interpreter and libraries; cuda:
	// 0). Stage peaks of an "rss" rank are given above it, as allocated bytes; add it for the resident size.
	BaselineBytes int64       `json:"baseline_bytes"`
	Stages        []StagePeak `json:"stages"`
	Steps         int         `json:"steps"` // optimizer steps completed
	// Course is the rank's memory step by step, bounded; Turnover what became of its gradients; UUID its GPU.
	Course   []StepMemory `json:"course,omitempty"`
	Turnover *Turnover    `json:"turnover,omitempty"`
	UUID     string       `json:"uuid,omitempty"`
	// ParamBytes, GradBytes and OptimizerBytes are exact sizes after the first step; 0 unknown.
	ParamBytes     int64 `json:"parameter_bytes"`
	GradBytes      int64 `json:"gradient_bytes"`
	OptimizerBytes int64 `json:"optimizer_bytes"`
	// AllocatorRetries counts cudaMalloc retries after freeing cached blocks: pressure or fragmentation.
	AllocatorRetries int64      `json:"allocator_retries"`
	OOMs             []OOMEvent `json:"ooms,omitempty"`
	Exception        *Exception `json:"exception,omitempty"`
	Ended            bool       `json:"ended"` // said goodbye
	LostEvents       int64      `json:"lost_events"`
	ProbeSeconds     float64    `json:"probe_seconds"`
	Notes            []string   `json:"notes,omitempty"`
}

// StagePeak is the highest memory of one stage.
type StagePeak struct {
	Stage          string `json:"stage"`
	AllocatedBytes int64  `json:"allocated_bytes"` // peak allocated (rss: peak resident above the baseline)
	ReservedBytes  int64  `json:"reserved_bytes"`  // peak reserved; 0 for rss
	Rank           int    `json:"rank"`
	Windows        int    `json:"windows"`
	FirstStep      int    `json:"first_step"`
	PeakStep       int    `json:"peak_step"`
}

// OOMEvent is one failed allocation as the allocator's observer saw it; the program may have caught it.
type OOMEvent struct {
	Stage          string `json:"stage"`
	Step           int    `json:"step"`
	Device         int    `json:"device"`
	WantBytes      int64  `json:"want_bytes"`
	TotalBytes     int64  `json:"total_bytes"`
	FreeBytes      int64  `json:"free_bytes"`
	AllocatedBytes int64  `json:"allocated_bytes"`
	ReservedBytes  int64  `json:"reserved_bytes"`
}

// Exception is the uncaught exception that ended a rank.
type Exception struct {
	Type      string    `json:"type"`
	Message   string    `json:"message"`
	Traceback string    `json:"traceback"`
	OOM       bool      `json:"oom"`
	Stage     string    `json:"stage"`
	Step      int       `json:"step"`
	Where     string    `json:"where"`
	Time      time.Time `json:"time"`
}

// DeviceRecord is one device over the whole run.
type DeviceRecord struct {
	Index         int           `json:"index"`
	Node          string        `json:"node,omitempty"` // of a run of several nodes
	UUID          string        `json:"uuid"`
	Name          string        `json:"name"`
	TotalBytes    int64         `json:"total_bytes"`
	StartBytes    int64         `json:"start_bytes"`     // used before the command started
	PeakUsedBytes int64         `json:"peak_used_bytes"` // whole device
	MinFreeBytes  int64         `json:"min_free_bytes"`
	OwnPeakBytes  int64         `json:"own_peak_bytes"` // processes of our tree, where NVML says; 0 unknown
	Samples       int64         `json:"samples"`
	Others        []gpu.Process `json:"others,omitempty"` // processes that are not ours, at their highest
	// Points is the device's memory over time, bounded.
	Points []DevicePoint `json:"points,omitempty"`
}
