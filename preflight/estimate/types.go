package estimate

import (
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// Component is one kind of memory.
type Component int

// The components, in the order in which tables list them.
const (
	Parameters Component = iota
	MasterWeights
	Gradients
	Optimizer
	Activations
	Logits
	Temporaries
	Communication
	Context
	Fragmentation
	NumComponents
)

// Components holds bytes by component. Its JSON form is an object keyed by the components' names.
type Components [NumComponents]int64

// Stage is a part of a training run; prediction and measurement use the same names.
type Stage string

// The stages in the order in which a run meets them. OptimizerInit is the first optimizer step, where lazy state
// appears.
const (
	Start          Stage = "start"
	ModelLoad      Stage = "model-load"
	OptimizerInit  Stage = "optimizer-init"
	Forward        Stage = "forward"
	Backward       Stage = "backward"
	OptimizerStep  Stage = "optimizer-step"
	Eval           Stage = "eval"
	CheckpointSave Stage = "checkpoint-save"
)

// Hardware is the device one rank runs on.
type Hardware struct {
	// Kind is "cuda", "cpu" (the rank's resident host memory) or "" when nothing is known of the machine.
	Kind  string
	Name  string // "H100 SXM 80GB"
	Count int    // GPUs a node; 0 unknown
	// TotalBytes is what CUDA can give out on one device (NVML total less the driver's reserve); 0 unknown.
	TotalBytes int64
	// ContextBytes is what a process holds outside PyTorch's allocator (CUDA context, kernels, handles) and NCCLBytes
	// what one more communicator costs; negative: unknown, a class default is assumed and said.
	ContextBytes, NCCLBytes int64
	// ComputeCapability such as "9.0" decides the size of cuBLAS workspaces; "" unknown.
	ComputeCapability string
	// Origin says where these facts come from: "NVML", "flag --gpu 8xH100-80GB", "host memory".
	Origin string
}

// Options are what the user pins.
type Options struct {
	// ActivationFactor > 0 replaces the activation model by batch x seq x hidden x layers x factor bytes, a rough rule.
	ActivationFactor float64
	// ActivationBytes >= 0 replaces activations and logits by a known number; ContextBytes >= 0 the context. Negative:
	// not pinned.
	ActivationBytes, ContextBytes int64
	// SecondModelBytes >= 0 is what the models beside the trained one take, but for a reference that is a copy of it.
	// Negative: not pinned.
	SecondModelBytes int64
	// InferenceShare > 0 is the part of each GPU that an inference engine in the training processes keeps (vLLM's
	// gpu_memory_utilization); otherwise the job's inference_share counts.
	InferenceShare float64
	// HeadroomPercent of the device's total must stay free (default 10).
	HeadroomPercent float64
}

// Input is all that an estimate depends on.
type Input struct {
	Job      *job.Job
	Model    *model.Architecture
	Hardware Hardware
	Options  Options
}

// StageMemory is the peak of one stage.
type StageMemory struct {
	Stage          Stage      `json:"stage"`
	AllocatedBytes int64      `json:"allocated_bytes"`
	DeviceBytes    int64      `json:"device_bytes"`
	Components     Components `json:"components"`
}

// PerGPU is the peak of the worst rank.
type PerGPU struct {
	AllocatedBytes int64      `json:"allocated_bytes"` // as torch.cuda.max_memory_allocated: the most of any stage
	ReservedBytes  int64      `json:"reserved_bytes"`  // as torch.cuda.max_memory_reserved
	DeviceBytes    int64      `json:"device_bytes"`    // as nvidia-smi: context and NCCL included
	LowBytes       int64      `json:"low_bytes"`       // bounds of DeviceBytes
	HighBytes      *int64     `json:"high_bytes"`      // nil: there is none, the estimate is partial
	PeakStage      Stage      `json:"peak_stage"`
	Components     Components `json:"components"` // of the peak stage; they sum to DeviceBytes
}

// Assumption is something the estimate took for granted. Widens says whether it widened the interval.
type Assumption struct {
	What   string `json:"what"`
	Origin string `json:"origin"`
	Widens bool   `json:"widens"`
}

// NotCounted is something that the job takes memory for and the estimate does not count, or counts at its least.
type NotCounted struct {
	What string `json:"what"`           // activations, micro_batch, vae stabilityai/sd-vae-ft-mse
	Why  string `json:"why"`            // "not known: nothing sets it", "not counted: --vae names it"
	Give string `json:"give,omitempty"` // what would make it count
}

// ModelSize names the model and counts it.
type ModelSize struct {
	Name                string `json:"name"`
	Parameters          int64  `json:"parameters"`
	TrainableParameters int64  `json:"trainable_parameters"`
}

// GPUSize is the device the verdict is about.
type GPUSize struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Count      int    `json:"count"`
	TotalBytes int64  `json:"total_bytes"`
	Origin     string `json:"origin"`
}

// Rank is the memory of one pipeline stage.
type Rank struct {
	PipelineStage  int   `json:"pipeline_stage"`
	AllocatedBytes int64 `json:"allocated_bytes"`
	DeviceBytes    int64 `json:"device_bytes"`
	// Why says what makes the worst rank the worst; "" for the others, and where there is one stage.
	Why string `json:"why,omitempty"`
}

// Estimate is the predicted memory of one GPU (schema oomguard.estimate/v1).
type Estimate struct {
	Schema string        `json:"schema"`
	Model  ModelSize     `json:"model"`
	Job    *job.Job      `json:"job"`
	GPU    GPUSize       `json:"gpu"`
	PerGPU PerGPU        `json:"per_gpu"`
	Stages []StageMemory `json:"stages"`
	Ranks  []Rank        `json:"ranks"`
	// Host is what offloading takes of host memory.
	Host HostMemory `json:"host"`
	// Bottleneck is the largest component of the peak stage; "" when it depends on what is not known (Open).
	Bottleneck string `json:"bottleneck"`
	// Fits is judged on Least and Most against the device's total less the headroom; nil when they do not decide, or
	// the device is unknown.
	Fits *bool `json:"fits"`
	// total less DeviceBytes; nil when the device is unknown or the estimate partial
	HeadroomBytes *int64       `json:"headroom_bytes"`
	Assumptions   []Assumption `json:"assumptions"`
	// Partial: something is not counted, so that LowBytes is all that is known of the need. It may say "does not fit",
	// never "fits".
	Partial    bool         `json:"partial"`
	NotCounted []NotCounted `json:"not_counted"`
	// Unsettled are settings that nothing tells of a program that is not known: the whole interval is judged, not what
	// was assumed.
	Unsettled []string `json:"unsettled"`
}
