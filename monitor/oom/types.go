// Package oom reads out-of-memory messages of PyTorch 1.10 to today out of any log, classifies why a run died, and
// names remedies, cheapest first. It is pure: text and facts in, a Diagnosis out.
package oom

import "time"

// Cause is a class of death; the contract lists them.
type Cause string

// The causes this package can tell.
const (
	Capacity             Cause = "capacity"
	FragmentationCause   Cause = "fragmentation"
	OtherProcess         Cause = "other-process"
	ModelLoad            Cause = "model-load"
	OptimizerInit        Cause = "optimizer-init"
	Activation           Cause = "activation"
	LogitsLoss           Cause = "logits-loss"
	EvalGenerate         Cause = "eval-generate"
	LeakGrowth           Cause = "leak-growth"
	SingleHugeAllocation Cause = "single-huge-allocation"
	HostOOMKill          Cause = "host-oom-kill"
	ShmBusError          Cause = "shm-bus-error"
	NCCLOOM              Cause = "nccl-oom"
	CublasAllocFailed    Cause = "cublas-alloc-failed"
	CudaContextOOM       Cause = "cuda-context-oom"
	DriverUnifiedMemory  Cause = "driver-unified-memory"
	AllocatorConfigError Cause = "allocator-config-error"
	HIPROCm              Cause = "hip/rocm"
	MPSXPU               Cause = "mps/xpu"
	JAXTF                Cause = "jax/tf"
	NotOOM               Cause = "not-oom" // something else shows as the cause
	NoCause              Cause = "unknown" // nothing shows: neither that memory ran out, nor what else it was
)

// Unknown marks a size that the message does not give (or gives as garbage such as 17179869184.00 GiB).
const Unknown int64 = -1

// Message is one out-of-memory message; sizes are bytes, Unknown where it does not say.
type Message struct {
	// G1, G2, G3, ... of reference: oom message generations
	Generation               string            `json:"generation"`
	GPU                      int               `json:"gpu"`  // index inside the process; -1 unknown
	Rank                     int               `json:"rank"` // -1 unknown
	TriedBytes               int64             `json:"tried_bytes"`
	TotalBytes               int64             `json:"total_bytes"`
	FreeBytes                int64             `json:"free_bytes"`
	AllocatedBytes           int64             `json:"allocated_bytes"`
	ReservedBytes            int64             `json:"reserved_bytes"` // in total: allocated and not
	ReservedUnallocatedBytes int64             `json:"reserved_unallocated_bytes"`
	PrivatePoolBytes         int64             `json:"private_pool_bytes"`
	AllowedBytes             int64             `json:"allowed_bytes"` // limit set by a memory fraction
	ProcessBytes             int64             `json:"process_bytes"` // this process, as the driver sees it
	OtherProcesses           []OtherProcessUse `json:"other_processes"`
	Line                     int               `json:"line"`           // 1-based line in the text
	File                     string            `json:"file,omitempty"` // when the log was read from several files
	Text                     string            `json:"text"`
	ExpandableHint           bool              `json:"-"`

	// Form is the family of the message (see messages.go), Logged says that it stands in a log line below error level
	// (it was caught), Traceback is what stood around it.
	Form      Form `json:"-"`
	BogusSize bool `json:"-"` // a size was asked for that no computer has: not a shortage but a defect
	// this process as the host numbers it, when it stood in the list of the others; 0: it did not
	OwnPID    int       `json:"-"`
	Logged    bool      `json:"-"`
	Traceback Traceback `json:"-"`

	when        time.Time // the logger's time before it, zero: none
	zone        string
	lastLine    int  // where it was printed last; Line is where it was printed first
	ownPartSeen bool // the message has a part on this process, even if its size is garbage
}

// OtherProcessUse is one "Process P has S memory in use".
type OtherProcessUse struct {
	PID   int   `json:"pid"`
	Bytes int64 `json:"bytes"`
}

// RankDeath is what is known of one rank that ended badly.
type RankDeath struct {
	Rank     int    // -1 unknown
	ExitCode int    // negative: -signal
	Stage    string // stage in which it died, "" unknown
}

// Facts are what a diagnosis may use beside the text; zero values mean unknown.
type Facts struct {
	Deaths []RankDeath
	// Stage, Rank and GPU as the probe saw them at the fatal exception; Stage "" and -1 unknown.
	Stage string
	Rank  int
	GPU   int
	// Simulated says the message was raised on purpose by oomguard demo --oom without a GPU.
	Simulated bool
	// CgroupOOMKills is the rise of the cgroup's oom_kill counter during the run; -1 unknown.
	CgroupOOMKills int
	// AllocConf is the allocator setting in force, "" none.
	AllocConf string
	// ExitCode of the command; -1 unknown.
	ExitCode int
	// TorchVersion decides which allocator variable and options a remedy may name, "" unknown.
	TorchVersion string
	// PeaksByStage are measured peaks (bytes), for evidence.
	PeaksByStage map[string]int64
	// Observations are further sentences of evidence, such as what a memory snapshot of the run shows.
	Observations []string
	// Unread says what of the logs could not be read, and why.
	Unread []string
	// Run is what a run folder tells; nil: a bare log.
	Run *RunFacts
	// NoExpandable says why expandable segments must not be advised on the machine of the run ("WSL"), "" nothing known
	// against them.
	NoExpandable string
}

// NoFacts are the facts of a run that nobody watched: a bare log.
func NoFacts() Facts {
	return Facts{Rank: -1, GPU: -1, CgroupOOMKills: -1, ExitCode: -1}
}

// Remedy is one thing to change.
type Remedy struct {
	ID  string `json:"id"`
	Why string `json:"why"`
	How string `json:"how"`
	// Cost is what it costs in speed, accuracy or hardware.
	Cost string `json:"cost"`
	// SavesBytes is what it would save on this job according to the estimate; nil: not a matter of bytes, or unknown.
	SavesBytes *int64 `json:"saves_bytes"`
	// NewDeviceBytes is what a GPU then needs at its highest stage, Fits whether that is little enough; nil: unknown.
	NewDeviceBytes *int64 `json:"new_device_bytes"`
	Fits           *bool  `json:"fits"`
}

// Combination is the cheapest set of remedies with which the run fits, or, where none does, what all of them together
// reach.
type Combination struct {
	IDs         []string `json:"ids"`
	How         []string `json:"how"`
	DeviceBytes int64    `json:"device_bytes"`
	TotalBytes  int64    `json:"total_bytes"`
	Fits        bool     `json:"fits"`
}

// Schema names the JSON form of a Diagnosis.
const Schema = "oomguard.postmortem/v1"

// Diagnosis is why a run died (schema oomguard.postmortem/v1).
type Diagnosis struct {
	Schema     string    `json:"schema"`
	Cause      Cause     `json:"cause"`
	Confidence string    `json:"confidence"` // high, medium, low
	Stage      string    `json:"stage"`      // "" unknown
	Rank       int       `json:"rank"`       // -1 unknown
	GPU        int       `json:"gpu"`        // -1 unknown
	Simulated  bool      `json:"simulated,omitempty"`
	Summary    string    `json:"summary"` // one sentence for people
	Evidence   []string  `json:"evidence"`
	NotCauses  []string  `json:"not_causes"`       // what is known not to be the cause, and why
	Unread     []string  `json:"unread,omitempty"` // what of the logs could not be read, and why
	OOMs       []Message `json:"ooms"`
	Remedies   []Remedy  `json:"remedies"`
	// Situations are the known patterns that hold, Framework is whose settings the remedies name ("" none was
	// recognised), Combination what fits together; nil: the job is not known.
	Situations  []Situation  `json:"situations"`
	Framework   string       `json:"framework"`
	Combination *Combination `json:"combination"`
}
