// Package preflight is what is asked before a run. Gather reads this machine once (all the I/O is there, and a failure
// to read is a fact, not an error); Checks judges the facts with pure functions, one file a check. What the job is,
// what it needs and which GPUs there are comes from the caller: this package opens no device and runs no Python.
package preflight

import (
	"cmp"
	"encoding/json"
	"time"

	"oomguard/checklists"
	"oomguard/launcher/fence"
	"oomguard/preflight/allocconf"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/plan"
)

// Mode says what the checks are for.
type Mode string

// The modes. ModeRun: the command starts on this machine right afterwards. ModeCheck: a gate, perhaps on a machine
// without GPUs.
const (
	ModeRun   Mode = "run"
	ModeCheck Mode = "check"
)

// Facts is all that the checks judge. Zero values mean unknown. The first group is the caller's to fill in, the second
// Gather's.
type Facts struct {
	Mode  Mode
	Units Units
	// HeadroomPercent is the share of a GPU that must stay free (flag --headroom); 0: the checklist decides.
	HeadroomPercent float64

	Job         *job.Job // nil: no command was given
	Estimate    *estimate.Estimate
	EstimateErr error
	// Remedies is what the planner offers for the job, cheapest first.
	Remedies []plan.Remedy
	// RankLoadBytes is the host memory that one rank takes while it loads the model, where that is known; 0: a full
	// copy is assumed.
	RankLoadBytes int64

	// Declared is how the user described the GPU ("flag --gpu 8xH100-80GB"); "" when this machine's GPUs are meant.
	Declared string
	// DeclaredGPUs is how many of them a node has; 0: not said.
	DeclaredGPUs int
	Devices      []Device
	// DevicesErr says why Devices is empty; DriverFault that a driver is there and broken, rather than absent.
	DevicesErr  error
	DriverFault bool
	// History is the earlier runs of the run folder, in any order.
	History []Earlier

	Env map[string]string // allow-listed names only, see AllowedEnv
	// Alloc is the allocator setting that torch will obey, AllocProblems what is wrong with it.
	Alloc         allocconf.Effective
	AllocProblems []allocconf.Problem
	Command       Lookup // the program that will be started
	Script        Lookup // the training script; Name "" when there is no file to look for
	RunFolder     Folder
	Weights       Weights // of the model, where it is a folder here
	Host          Host
	// HostErr lists what could not be read of the host.
	HostErr error
	// Faults are oomguard's own failures in gathering; unseen has them by the checks that judge what was to be
	// gathered.
	Faults []*fence.Fault
	unseen map[string]*fence.Fault
}

// Device is one GPU (or MIG device) as it is before the run.
type Device struct {
	Index int // NVML's order (PCI bus)
	UUID  string
	Name  string
	// TotalBytes, FreeBytes and UsedBytes are 0 when MemoryKnown is false; Note then says why.
	TotalBytes, FreeBytes, UsedBytes int64
	MemoryKnown                      bool
	Processes                        []Process
	ProcessesKnown                   bool
	ComputeMode                      string // default, prohibited, exclusive-process; "" unknown
	MIG                              bool
	Note                             string
	// Unknown says of what could not be read why; Lost why no program can use the device, "" for one that answers.
	Unknown DeviceUnknown
	Lost    string
}

// DeviceUnknown holds the reason for each quantity of a Device that could not be read.
type DeviceUnknown struct{ Memory, Processes, ComputeMode string }

// Process holds memory on a device.
type Process struct {
	PID       int // in the host's numbering
	Name      string
	UsedBytes int64
	Known     bool // UsedBytes is known
	// Ours: it belongs to the user who runs oomguard (see OwnedBy), so it may be left over from an earlier run.
	Ours bool
}

// Lookup is the search for a program or a file.
type Lookup struct {
	Name string // as the command says it
	Path string // where it was found
	Err  error  // why it was not
}

// Folder is the place where the run will be recorded.
type Folder struct {
	Path      string // "" when nothing will be recorded
	FreeBytes int64  // 0 unknown
	Err       error  // why nothing can be written there
}

// SummarySchema names the document of one recorded run in few words, as later runs read it.
const SummarySchema = "oomguard.summary/v1"

// Earlier is one recorded run.
type Earlier struct {
	Schema    string    `json:"schema"`
	Run       string    `json:"run"` // its name in the run folder
	When      time.Time `json:"when"`
	JobKey    string    `json:"job_key"` // JobKey and RemedyKey of its job
	RemedyKey string    `json:"remedy_key"`
	Model     string    `json:"model"` // the job's model as given; "" unknown
	// Measured: its stages were measured, not only its devices sampled.
	Measured   bool   `json:"measured"`
	PeakBytes  int64  `json:"peak_bytes"` // highest device memory of a rank; 0 unknown
	Bottleneck string `json:"bottleneck"` // largest component or stage measured; "" unknown
	Outcome    string `json:"outcome"`    // OutcomeOK, or in a word how it ended
	// Small: a demo-size run or one of few steps. Tokens is micro-batch times sequence length; 0 unknown.
	Small  bool  `json:"small"`
	Tokens int64 `json:"tokens"`
}

// UnmarshalJSON also reads summaries without a schema, whose names of two words are JobKey, RemedyKey and PeakBytes.
func (e *Earlier) UnmarshalJSON(data []byte) error {
	type plain Earlier
	file := struct {
		*plain
		OldJobKey    string `json:"JobKey"`
		OldRemedyKey string `json:"RemedyKey"`
		OldPeakBytes int64  `json:"PeakBytes"`
	}{plain: (*plain)(e)}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	e.JobKey, e.RemedyKey = cmp.Or(e.JobKey, file.OldJobKey), cmp.Or(e.RemedyKey, file.OldRemedyKey)
	e.PeakBytes = cmp.Or(e.PeakBytes, file.OldPeakBytes)
	return nil
}

// OutcomeOK is the Outcome of a run whose command ended with status 0.
const OutcomeOK = "ok"

type check = checklists.Check[Facts]

// elsewhere: the job will not run on this machine, so this machine's devices and memory say nothing about it.
func (f Facts) elsewhere() bool { return f.Mode == ModeCheck && f.Declared != "" }

// onCPU: the estimate is about host memory.
func (f Facts) onCPU() bool { return f.Estimate != nil && f.Estimate.GPU.Kind == "cpu" }

// device is whose memory the estimate is about, in words.
func (f Facts) device() string {
	if f.onCPU() {
		return "the host memory for a rank"
	}
	return "the GPU"
}

// moreMemory is what is left to do where no setting helps.
func (f Facts) moreMemory() string {
	if f.onCPU() {
		return "take a machine with more memory, fewer processes, or a smaller model"
	}
	return "take a GPU with more memory, more GPUs, or a smaller model"
}

// processes is the number of ranks on this node.
func (f Facts) processes() (int, bool) {
	if f.Job == nil || !f.Job.NProc.Known || f.Job.NProc.Value < 1 {
		return 0, false
	}
	return f.Job.NProc.Value, true
}

// used is the devices that the job will touch: one for each rank in CUDA's order, all visible ones for nn.DataParallel
// or when the number of ranks is unknown.
func (f Facts) used() []Device {
	devices := visible(f.Env, f.Devices).devices
	n, known := f.processes()
	if !known || n > len(devices) || f.Job.Sharding.Or("") == "dp" {
		return devices
	}
	return devices[:n]
}

// usesCertainly: the devices of used are those that the job will touch, not only those that it may.
func (f Facts) usesCertainly() bool {
	_, known := f.processes()
	return known
}

// noDevices is the skip of a check about this machine's GPUs when there is nothing to judge.
func (f Facts) noDevices() (checklists.Verdict, bool) {
	switch {
	case f.elsewhere():
		return skipped("judged against "+f.Declared+", not against this machine",
			"nothing to do here; this is judged where the job starts"), true
	case f.onCPU():
		return skipped("the job runs on the CPU", "nothing to do for a job without GPUs"), true
	case len(f.Devices) == 0:
		return skipped("no GPU is visible on this machine", "run this where the job will run, or give --gpu"), true
	case len(f.used()) == 0:
		return skipped("CUDA_VISIBLE_DEVICES leaves no GPU to the job", "see cuda-visible-devices"), true
	}
	return checklists.Verdict{}, false
}

func passed(detail string) checklists.Verdict {
	return checklists.Verdict{Status: checklists.Pass, Detail: detail}
}

func skipped(detail, remedy string) checklists.Verdict {
	return checklists.Verdict{Status: checklists.Skip, Detail: detail, Remedy: remedy}
}

func warned(detail, remedy string) checklists.Verdict {
	return checklists.Verdict{Status: checklists.Warn, Detail: detail, Remedy: remedy}
}

func failed(detail, remedy string) checklists.Verdict {
	return checklists.Verdict{Status: checklists.Fail, Detail: detail, Remedy: remedy}
}
