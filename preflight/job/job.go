// Package job reads what will be trained and how: the wrapped command line, the files it names, the environment, and
// oomguard's own flags become one Job in which every setting carries its origin. It never runs Python, never touches
// the network, and never guesses in silence: what cannot be determined stays unknown and says why.
package job

import (
	"encoding/json"
	"strings"

	"oomguard/launcher/fence"
	"oomguard/preflight/model"
)

// Job is what was understood of a training command. Field order is the order in which explain prints; the JSON names
// are the contract's keys (design: explain), and each flag of the command line is the key with dashes.
type Job struct {
	// torchrun, torch.distributed.launch, accelerate, deepspeed, python, ...
	Launcher    Setting[string] `json:"launcher"`
	Outer       Setting[string] `json:"outer"`     // srun, mpirun, bash; known and empty: none
	Framework   Setting[string] `json:"framework"` // hf-trainer, trl, deepspeed, custom, ...
	Task        Setting[string] `json:"task"`      // pretrain, sft, dpo, ...
	NNodes      Setting[int]    `json:"nnodes"`
	NProc       Setting[int]    `json:"nproc"` // processes a node
	WorldSize   Setting[int]    `json:"world_size"`
	Script      Setting[string] `json:"script"` // path, or "-m module"
	Model       Setting[string] `json:"model"`
	ModelParams Setting[int64]  `json:"model_params"` // total parameters

	// fp32, bf16, fp16: dtype in which trainable weights live between steps
	ParamDtype Setting[string] `json:"param_dtype"`
	BaseDtype  Setting[string] `json:"base_dtype"` // dtype of frozen weights (LoRA), non-quantised part
	Precision  Setting[string] `json:"precision"`  // compute: fp32, bf16, fp16, fp8
	// Autocast: torch.autocast chooses the dtype of each operation, whatever the weights have.
	Autocast   Setting[bool] `json:"autocast"`
	MasterFP32 Setting[bool] `json:"master_fp32"` // an extra fp32 copy beside lower-precision weights
	// GradDtype is the dtype of gradients where the engine gives them one of their own: fp32, bf16, fp16.
	GradDtype Setting[string] `json:"grad_dtype"`

	// adamw (PyTorch's default implementation), adamw_fused, adamw_loop, adamw_8bit, sgd, ...
	Optimizer Setting[string] `json:"optimizer"`
	// OptimizerInBackward: each parameter is updated as soon as its gradient is there, so that no gradients are kept.
	OptimizerInBackward Setting[bool] `json:"optimizer_in_backward"`
	// ProjectionRank is the rank that GaLore and APOLLO project gradients to.
	ProjectionRank Setting[int] `json:"projection_rank"`
	MicroBatch     Setting[int] `json:"micro_batch"`
	GradAccum      Setting[int] `json:"grad_accum"`
	GlobalBatch    Setting[int] `json:"global_batch"`
	// EvalBatch is how many rows a GPU evaluates at a time; 0: nothing is evaluated.
	EvalBatch  Setting[int]  `json:"eval_batch"`
	Evaluation Setting[bool] `json:"evaluation"` // the training evaluates, with however many rows
	// EvalGenerates: an evaluation lets the model write answers (predict_with_generate).
	EvalGenerates Setting[bool] `json:"eval_generates"`
	SeqLen        Setting[int]  `json:"seq_len"`
	Packing       Setting[bool] `json:"packing"`

	Checkpointing Setting[string] `json:"checkpointing"` // none, full, selective, selective:N, offload
	// Reentrant: a checkpointed layer runs on detached copies of its inputs (use_reentrant=True of
	// torch.utils.checkpoint).
	Reentrant         Setting[bool] `json:"checkpointing_reentrant"`
	ActivationOffload Setting[bool] `json:"activation_offload"`

	Method Setting[string] `json:"method"` // full, lora, qlora, lora8bit, ...
	// TrainableLayers is how many decoder layers method freeze trains: the last ones, or with a minus the first ones.
	TrainableLayers Setting[int]    `json:"trainable_layers"`
	LoRA            Setting[*LoRA]  `json:"lora"`
	Quant           Setting[*Quant] `json:"quant"`

	// none, ddp, dp, zero1, zero2, zero3, fsdp-full, fsdp-grad, fsdp-hybrid, dist-optim
	Sharding    Setting[string] `json:"sharding"`
	FSDPVersion Setting[int]    `json:"fsdp_version"`
	// layers: one unit a block; size; whole: the whole model is one unit, gathered at once
	FSDPWrap Setting[string] `json:"fsdp_wrap"`
	// of FSDP's checkpoints. full: whole on rank 0; sharded: each rank its own shards
	StateDict Setting[string] `json:"state_dict"`
	// BucketView: DDP's gradients are views of its buckets instead of a second copy (gradient_as_bucket_view).
	BucketView Setting[bool]    `json:"gradient_as_bucket_view"`
	Offload    Setting[Offload] `json:"offload"`
	TP         Setting[int]     `json:"tp"`
	PP         Setting[int]     `json:"pp"`
	CP         Setting[int]     `json:"cp"`
	EP         Setting[int]     `json:"ep"`
	ETP        Setting[int]     `json:"etp"` // ranks that split one expert's matrices
	// SequenceParallel: what lies between tensor-parallel layers is split too, along the sequence.
	SequenceParallel Setting[bool] `json:"sequence_parallel"`
	// VirtualStages is how many chunks an interleaved schedule cuts a pipeline stage's layers into; 1: not interleaved.
	VirtualStages Setting[int] `json:"virtual_stages"`

	Attention Setting[string] `json:"attention"` // eager, sdpa, flash_attention_2, ...
	// Compile says that torch.compile compiles the model, or each of its layers, and with it the loss.
	Compile   Setting[bool]   `json:"compile"`
	FusedLoss Setting[string] `json:"fused_loss"` // none, chunked, liger-flce, cut-ce, ...
	// LayerKernels are fused kernels in place of the layers' own code: none, liger (all that it has for the model), or
	// some of them, as in liger:rope+rms_norm+glu.
	LayerKernels Setting[string] `json:"layer_kernels"`
	RefModel     Setting[bool]   `json:"ref_model"`
	// SecondModels are those held beside the model, but for the reference that is a copy of it (RefModel); known and
	// empty: none.
	SecondModels Setting[SecondModels] `json:"second_models"`
	// InferenceShare is the part of each GPU's memory that an inference engine in the training processes takes (vLLM,
	// colocated); 0: none.
	InferenceShare Setting[float64]    `json:"inference_share"`
	DeepSpeed      Setting[*DeepSpeed] `json:"ds_resolved"`

	// WillFail says why the job would die at start because its configuration contradicts itself; known and empty: it
	// will not.
	WillFail Setting[string] `json:"will_fail"`

	// Architecture is the model that was loaded for Model (or made from --params); nil when there is none.
	Architecture *model.Architecture `json:"-"`
	// Problems would end the job at its start: settings that contradict each other, and files that the program would
	// refuse too. One clear error each (file, place, remedy).
	Problems []error `json:"-"`
	// Unreadable are words and files that could not be read here; they say nothing about the job. Absent are files that
	// are not on this machine and may be on the one where the job runs.
	Unreadable []error `json:"-"`
	Absent     []error `json:"-"`
	// Place is where the command runs: also a container or a cluster that it starts on the way.
	Place Place `json:"-"`
	// Faults are oomguard's own failures in reading: what they left open is unknown.
	Faults []*fence.Fault `json:"-"`
	// Versions are the package versions of the interpreter that will run (torch, transformers, ...), as far as they are
	// known.
	Versions map[string]string `json:"-"`
	// Argv is the wrapped command, as given.
	Argv []string `json:"-"`
	// Rendezvous is torchrun's; zero for other launchers.
	Rendezvous Rendezvous `json:"-"`
	// ScriptArgs are the arguments that belong to the training script.
	ScriptArgs []string `json:"-"`
	// OneProcess: a launcher starts one process without a rendezvous, which has neither RANK nor LOCAL_RANK.
	OneProcess bool `json:"-"`
	// Interpreter is the Python that will run, as far as it is known ("" otherwise).
	Interpreter string `json:"-"`
}

// HasCommand says that the job was read from a command.
func (j *Job) HasCommand() bool { return len(j.Argv) > 0 }

// LoRA is a low-rank adapter as PEFT describes it.
type LoRA struct {
	R             int      `json:"r"`
	Alpha         int      `json:"alpha"`
	Dropout       float64  `json:"dropout"`
	Targets       Targets  `json:"targets"` // empty: PEFT's default for the architecture
	ModulesToSave []string `json:"modules_to_save"`
	DoRA          bool     `json:"dora"`
	RSLoRA        bool     `json:"rslora"`
	// Bias says which biases are trained too: all, lora_only; "" none.
	Bias string `json:"bias,omitempty"`
	// RankPattern has the rank of modules whose rank is not R.
	RankPattern map[string]int `json:"rank_pattern,omitempty"`
	// Modules are the targets by the names that Hugging Face's implementation of the model gives them, where the
	// framework has names of its own (torchtune's output_proj, LitGPT's query); nil: Targets are such names.
	Modules []string `json:"-"`
}

// Names are the modules that get adapters, by their names in Hugging Face's implementation of the model.
func (l *LoRA) Names() []string {
	if l.Modules != nil {
		return l.Modules
	}
	return l.Targets
}

// Targets are the modules that get adapters: their names, or one text that is "all-linear" or a regular expression of
// full names. In JSON such a text stands without a list, as PEFT writes it.
type Targets []string

// text is the regular expression or "all-linear"; ok is false for names.
func (t Targets) text() (text string, ok bool) {
	if len(t) != 1 || t[0] != "all-linear" && !strings.ContainsAny(t[0], `*+?()[]{}|^$\`) {
		return "", false
	}
	return t[0], true
}

// MarshalJSON writes a list of names, or a text.
func (t Targets) MarshalJSON() ([]byte, error) {
	if text, ok := t.text(); ok {
		return json.Marshal(text)
	}
	return json.Marshal([]string(t))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Targets) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil && text != "" {
		*t = Targets{text}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Quant says how frozen weights are stored.
type Quant struct {
	Method       string `json:"method"` // bnb, gptq, awq, ...
	Bits         int    `json:"bits"`
	Type         string `json:"type"`          // nf4, fp4, int8, ...
	Double       bool   `json:"double"`        // nested quantisation of the scales
	ComputeDtype string `json:"compute_dtype"` // bf16, fp16, fp32
	Storage      string `json:"storage"`
}

// integers reports whether the weights are held as integers: bitsandbytes' 8 bits, and its 4 bits unless a dtype holds
// them.
func (q *Quant) integers() bool {
	return q.Method == "bnb" && (q.Bits == 8 || q.Storage == "" || strings.HasSuffix(q.Storage, "int8"))
}

// MarshalJSON writes words that are not known as null.
func (q Quant) MarshalJSON() ([]byte, error) {
	type plain Quant
	known := func(word string) *string {
		if word == "" {
			return nil
		}
		return &word
	}
	return json.Marshal(struct {
		plain
		Type         *string `json:"type"`
		Double       bool    `json:"double"`
		ComputeDtype *string `json:"compute_dtype"`
		Storage      *string `json:"storage"`
	}{plain(q), known(q.Type), q.Double, known(q.ComputeDtype), known(q.Storage)})
}

// Offload says what lives in host memory or on disk instead of the GPU.
type Offload struct {
	Optimizer string `json:"optimizer"` // none, cpu, nvme
	Params    string `json:"params"`    // none, cpu, nvme
	// Idle: what is offloaded is on the GPU again while the model is trained (verl moves it away while the answers are
	// generated).
	Idle bool `json:"-"`
}

// DeepSpeed holds the numbers of a DeepSpeed configuration after "auto" and defaults are resolved. Bucket sizes count
// elements; UnknownSize where "auto" depends on something that is not known.
type DeepSpeed struct {
	Stage                     int     `json:"stage"`
	TrainMicroBatchSizePerGPU int     `json:"train_micro_batch_size_per_gpu"`
	GradientAccumulationSteps int     `json:"gradient_accumulation_steps"`
	TrainBatchSize            int     `json:"train_batch_size"`
	ReduceBucketSize          int64   `json:"reduce_bucket_size"`
	AllgatherBucketSize       int64   `json:"allgather_bucket_size"`
	PrefetchBucketSize        int64   `json:"stage3_prefetch_bucket_size"`
	ParamPersistenceThreshold int64   `json:"stage3_param_persistence_threshold"`
	MaxLiveParameters         int64   `json:"stage3_max_live_parameters"`
	MaxReuseDistance          int64   `json:"stage3_max_reuse_distance"`
	SubGroupSize              int64   `json:"sub_group_size"`
	OverlapComm               bool    `json:"overlap_comm"`
	ContiguousGradients       bool    `json:"contiguous_gradients"`
	BF16Enabled               bool    `json:"bf16_enabled"`
	FP16Enabled               bool    `json:"fp16_enabled"`
	GradAccumDtype            string  `json:"grad_accum_dtype"` // "" = the model's dtype
	OffloadOptimizer          string  `json:"offload_optimizer"`
	OffloadParam              string  `json:"offload_param"`
	OffloadOptimizerRatio     float64 `json:"offload_optimizer_ratio"`
	File                      string  `json:"file"`
}

// Rendezvous is how torchrun's agents on several nodes find each other, as far as it was given.
type Rendezvous struct {
	// LeastNodes and MostNodes differ for an elastic run; 0: unknown.
	LeastNodes, MostNodes int
	// ID is --rdzv-id, "" when it is torchrun's default ("none"), which names nothing.
	ID string
	// Endpoint is the address of the node where they meet: --rdzv-endpoint, or --master-addr and --master-port.
	Endpoint string
	// NodeRank is --node-rank; -1 when it was not given: then the rendezvous gives the ranks.
	NodeRank int
}

// UnknownSize stands in DeepSpeed for a number that depends on something unknown.
const UnknownSize = -1
