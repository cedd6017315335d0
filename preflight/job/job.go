// Package job reads what will be trained and how: the wrapped command line, the files it names, the environment, and
// oomguard's own flags become one Job in which every setting carries its origin. It never runs Python, never touches the
// network, and never guesses in silence: what cannot be determined stays unknown and says why.
package job

import "oomguard/preflight/model"

// Job is what was understood of a training command. Field order is the order in which explain prints; the JSON names are the
// contract's keys (design: explain), and each flag of the command line is the key with dashes.
type Job struct {
	Launcher    Setting[string] `json:"launcher"`  // torchrun, torch.distributed.launch, accelerate, deepspeed, python, ...
	Outer       Setting[string] `json:"outer"`     // srun, mpirun, bash; known and empty: none
	Framework   Setting[string] `json:"framework"` // hf-trainer, trl, deepspeed, custom, ...
	Task        Setting[string] `json:"task"`      // pretrain, sft, dpo, ...
	NNodes      Setting[int]    `json:"nnodes"`
	NProc       Setting[int]    `json:"nproc"` // processes a node
	WorldSize   Setting[int]    `json:"world_size"`
	Script      Setting[string] `json:"script"` // path, or "-m module"
	Model       Setting[string] `json:"model"`
	ModelParams Setting[int64]  `json:"model_params"` // total parameters

	ParamDtype Setting[string] `json:"param_dtype"` // fp32, bf16, fp16: dtype in which trainable weights live between steps
	BaseDtype  Setting[string] `json:"base_dtype"`  // dtype of frozen weights (LoRA), non-quantised part
	Precision  Setting[string] `json:"precision"`   // compute: fp32, bf16, fp16, fp8
	MasterFP32 Setting[bool]   `json:"master_fp32"` // an extra fp32 copy beside lower-precision weights

	Optimizer   Setting[string] `json:"optimizer"` // adamw (PyTorch's default implementation), adamw_fused, adamw_loop, adamw_8bit, sgd, ...
	MicroBatch  Setting[int]    `json:"micro_batch"`
	GradAccum   Setting[int]    `json:"grad_accum"`
	GlobalBatch Setting[int]    `json:"global_batch"`
	SeqLen      Setting[int]    `json:"seq_len"`
	Packing     Setting[bool]   `json:"packing"`

	Checkpointing     Setting[string] `json:"checkpointing"` // none, full, selective, selective:N, offload
	ActivationOffload Setting[bool]   `json:"activation_offload"`

	Method Setting[string] `json:"method"` // full, lora, qlora, lora8bit, ...
	LoRA   Setting[*LoRA]  `json:"lora"`
	Quant  Setting[*Quant] `json:"quant"`

	Sharding    Setting[string]  `json:"sharding"` // none, ddp, dp, zero1, zero2, zero3, fsdp-full, fsdp-grad, fsdp-hybrid, dist-optim
	FSDPVersion Setting[int]     `json:"fsdp_version"`
	FSDPWrap    Setting[string]  `json:"fsdp_wrap"` // layers: one unit a block; size; whole: the whole model is one unit, gathered at once
	Offload     Setting[Offload] `json:"offload"`
	TP          Setting[int]     `json:"tp"`
	PP          Setting[int]     `json:"pp"`
	CP          Setting[int]     `json:"cp"`
	EP          Setting[int]     `json:"ep"`

	Attention Setting[string]     `json:"attention"`  // eager, sdpa, flash_attention_2, ...
	FusedLoss Setting[string]     `json:"fused_loss"` // none, chunked, liger-flce, cut-ce, ...
	RefModel  Setting[bool]       `json:"ref_model"`
	DeepSpeed Setting[*DeepSpeed] `json:"ds_resolved"`

	// WillFail says why the job would die at start because its configuration contradicts itself; known and empty: it will not.
	WillFail Setting[string] `json:"will_fail"`

	// Architecture is the model that was loaded for Model (or made from --params); nil when there is none.
	Architecture *model.Architecture `json:"-"`
	// Problems are inputs that could not be read or that contradict each other: one clear error each (file, place, remedy).
	Problems []error `json:"-"`
	// Versions are the package versions of the interpreter that will run (torch, transformers, ...), as far as they are known.
	Versions map[string]string `json:"-"`
	// Argv is the wrapped command, as given.
	Argv []string `json:"-"`
	// ScriptArgs are the arguments that belong to the training script.
	ScriptArgs []string `json:"-"`
	// Interpreter is the Python that will run, as far as it is known ("" otherwise).
	Interpreter string `json:"-"`
}

// LoRA is a low-rank adapter as PEFT describes it.
type LoRA struct {
	R             int      `json:"r"`
	Alpha         int      `json:"alpha"`
	Dropout       float64  `json:"dropout"`
	Targets       []string `json:"targets"` // module names; "all-linear" is one; empty: PEFT's default for the architecture
	ModulesToSave []string `json:"modules_to_save"`
	DoRA          bool     `json:"dora"`
	RSLoRA        bool     `json:"rslora"`
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

// Offload says what lives in host memory or on disk instead of the GPU.
type Offload struct {
	Optimizer string `json:"optimizer"` // none, cpu, nvme
	Params    string `json:"params"`    // none, cpu, nvme
}

// DeepSpeed holds the numbers of a DeepSpeed configuration after "auto" and defaults are resolved. Bucket sizes count elements;
// UnknownSize where "auto" depends on something that is not known.
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
