package oom

import (
	"fmt"
	"slices"
)

// remedy is one row of the table: for which causes it is named, and what it says with the numbers of this log.
type remedy struct {
	id     string
	causes []Cause
	// applies narrows the causes, nil: always; also adds cases outside the causes.
	applies func(q *inquest) bool
	why     func(q *inquest) string
	how     func(q *inquest) string
}

// remedies walks the table in order: what costs nothing stands first.
func (q *inquest) remedies(cause Cause) []Remedy {
	list := []Remedy{}
	for _, r := range remedyTable() {
		if !hasCause(r.causes, cause) || r.applies != nil && !r.applies(q) {
			continue
		}
		list = append(list, Remedy{ID: r.id, Why: r.why(q), How: r.how(q)})
	}
	return list
}

func hasCause(list []Cause, c Cause) bool {
	return slices.Contains(list, c)
}

func remedyTable() []remedy { return append(specificRemedies(), generalRemedies()...) }

func fixed(s string) func(*inquest) string { return func(*inquest) string { return s } }

// deviceCauses are those for which memory on the device was short.
func deviceCauses() []Cause {
	return []Cause{Capacity, FragmentationCause, OtherProcess, ModelLoad, OptimizerInit, Activation, LogitsLoss, EvalGenerate, LeakGrowth, SingleHugeAllocation,
		NCCLOOM, CublasAllocFailed, CudaContextOOM, HIPROCm}
}

// specificRemedies cure one cause and cost nothing or little.
func specificRemedies() []remedy {
	return []remedy{
		{"fix-alloc-conf", []Cause{AllocatorConfigError}, nil,
			func(q *inquest) string {
				return fmt.Sprintf("PyTorch does not accept the setting%s: line %d: %s", quoted(q.facts.AllocConf), q.signLine(SignAllocatorConfig), q.signText(SignAllocatorConfig))
			},
			fixed("unset PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, or give key:value pairs that this torch knows, e.g. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (torch 2.1 or newer)")},
		{"free-gpu", deviceCauses(), (*inquest).strangers, (*inquest).freeGPUWhy,
			fixed("end these processes (nvidia-smi shows them; left-over ranks of an earlier run are the usual ones) or choose another GPU with CUDA_VISIBLE_DEVICES; in distributed jobs call torch.cuda.set_device(local_rank) before the first CUDA call, so that no rank opens a context on GPU 0")},
		{"raise-fraction", []Cause{Capacity, HIPROCm}, (*inquest).limited,
			func(q *inquest) string {
				return fmt.Sprintf("a memory fraction allows this process %s of %s, and %s are free", size(q.msg.AllowedBytes), size(q.msg.TotalBytes), size(q.msg.FreeBytes))
			},
			fixed("remove torch.cuda.set_per_process_memory_fraction(...) or per_process_memory_fraction from the allocator setting, or raise it")},
		{"alloc-conf", []Cause{FragmentationCause}, func(q *inquest) bool { return !q.expandableOn() }, (*inquest).holesWhy, (*inquest).allocConfHow},
		{"empty-cache", []Cause{FragmentationCause}, nil, (*inquest).holesWhy,
			fixed("pad batches to a few fixed lengths so that freed blocks fit again (HF: group_by_length=True or pad_to_multiple_of=64 in the collator; plain PyTorch: the same in collate_fn); call torch.cuda.empty_cache() between training and evaluation")},
		{"native-allocator", []Cause{FragmentationCause}, func(q *inquest) bool { return q.msg != nil && q.msg.Form == FormAsync },
			fixed("the cudaMallocAsync backend holds memory that it cannot give to this request"),
			fixed("remove backend:cudaMallocAsync from PYTORCH_CUDA_ALLOC_CONF")},
		{"load-on-cpu", []Cause{ModelLoad}, nil,
			func(q *inquest) string {
				return "a checkpoint that is read straight to the GPU stands there beside the model" + q.asked()
			},
			fixed("plain PyTorch: torch.load(path, map_location=\"cpu\") and del the state dict before the first step; HF: from_pretrained(..., torch_dtype=torch.bfloat16, low_cpu_mem_usage=True) without device_map, or with FSDP/ZeRO-3 active at load; DeepSpeed: build the model under deepspeed.zero.Init() with stage 3")},
		{"eval-accumulation", []Cause{EvalGenerate}, nil,
			func(q *inquest) string {
				return "evaluation keeps outputs on the GPU, or runs larger batches than training" + q.asked()
			},
			fixed("HF: --eval_accumulation_steps 1, --per_device_eval_batch_size 1, preprocess_logits_for_metrics to keep only the argmax, prediction_loss_only=True; plain PyTorch: torch.no_grad() around evaluation, .cpu() on what is kept; generation: smaller max_new_tokens or beam width")},
		{"find-leak", []Cause{LeakGrowth}, nil,
			func(q *inquest) string {
				if _, first, last, ok := q.growth(); ok {
					return fmt.Sprintf("memory in use rose from %g to %g in the log's own unit while the work per step stayed the same", first, last)
				}
				return fmt.Sprintf("it ran %d steps before memory ran out: something is kept, or one batch was much longer than the others", q.log.LastStep)
			},
			fixed("append loss.item() or loss.detach(), never loss, to running figures; drop outputs and graphs at the end of a step; torch.no_grad() in evaluation; look at torch.cuda.memory._record_memory_history() snapshots of two steps; cap the length of samples")},
		{"split-request", []Cause{SingleHugeAllocation}, nil,
			func(q *inquest) string { return "one request alone is too large" + q.asked() },
			fixed("find the tensor in the innermost frame: attention scores (use --attn_implementation sdpa or flash_attention_2), pairwise distances and masks (compute in chunks), an untruncated sample (cap the length)")},
		{"bigger-shm", []Cause{ShmBusError}, nil,
			fixed("DataLoader workers and NCCL pass data through /dev/shm, which is 64 MB in a Docker container by default"),
			fixed("docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm; until then --dataloader_num_workers 0 (HF) or num_workers=0, and NCCL_SHM_DISABLE=1")},
		{"more-host-memory", []Cause{HostOOMKill}, nil, (*inquest).killWhy,
			fixed("raise the limit: Slurm --mem, Kubernetes resources.limits.memory, docker --memory, WSL: memory= in .wslconfig")},
		{"fewer-loader-workers", []Cause{HostOOMKill}, nil,
			fixed("every DataLoader worker of every rank holds its own copy of Python objects and prefetched batches"),
			fixed("HF: --dataloader_num_workers 2 and --dataloader_pin_memory False; plain PyTorch: DataLoader(num_workers=2, prefetch_factor=2); keep datasets in arrays or memory maps, not in Python lists")},
		{"low-cpu-mem", []Cause{HostOOMKill}, nil,
			fixed("every rank that loads the whole model takes its size in host memory, ranks times over"),
			fixed("HF: from_pretrained(..., low_cpu_mem_usage=True, torch_dtype=torch.bfloat16), FSDP: --fsdp_config with cpu_ram_efficient_loading: true and sync_module_states: true; DeepSpeed: zero.Init() with stage 3, offload to nvme instead of cpu; plain PyTorch: torch.load(mmap=True), load on rank 0 and broadcast")},
		{"leave-room", []Cause{NCCLOOM, CublasAllocFailed, CudaContextOOM, OtherProcess}, func(q *inquest) bool { return q.msg == nil || !q.strangers() },
			fixed("libraries allocate outside PyTorch's cache: on a full card they find nothing, although PyTorch may hold unused memory"),
			fixed("make the first call early (one tiny matmul and one all_reduce before loading), leave 1 to 2 GiB free, lower gpu_memory_utilization (vLLM) or NCCL_BUFFSIZE=1048576, check nvidia-smi for other processes; if an index-out-of-range assert stands earlier in the log, that is the cause instead")},
		{"driver-limits", []Cause{DriverUnifiedMemory}, nil,
			fixed("the driver, not the size of the job, refused memory"),
			fixed("remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF on WSL and Tegra; Windows: switch off the sysmem fallback in the driver's settings; unified-memory boards: load straight to the device so that no second copy exists")},
		{"mps-xpu-limits", []Cause{MPSXPU}, nil,
			fixed("the GPU shares memory with the host, or refuses single allocations above 4 GB"),
			fixed("close other programs; MPS: PYTORCH_MPS_HIGH_WATERMARK_RATIO may be raised, 0.0 removes the limit at the system's risk; XPU: split tensors above 4 GB")},
		{"preallocation", []Cause{JAXTF}, nil,
			fixed("JAX and TensorFlow take most of the GPU at start, whatever they need"),
			fixed("JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false or XLA_PYTHON_CLIENT_MEM_FRACTION=.6; TensorFlow: tf.config.experimental.set_memory_growth; then a smaller batch")},
	}
}

// generalRemedies make a job smaller, cheapest first: what changes no result, what costs time, what changes the training.
func generalRemedies() []remedy {
	step := []Cause{Capacity, FragmentationCause, Activation, LogitsLoss, SingleHugeAllocation, NCCLOOM, CublasAllocFailed, HIPROCm, MPSXPU}
	states := []Cause{Capacity, FragmentationCause, OptimizerInit, ModelLoad, Activation, LogitsLoss, NCCLOOM, CublasAllocFailed, HIPROCm}
	both := append(append([]Cause{}, step...), OptimizerInit, ModelLoad, EvalGenerate)
	asked := func(s string) func(*inquest) string {
		return func(q *inquest) string { return s + q.asked() }
	}
	return []remedy{
		{"amp", append([]Cause{OptimizerInit, ModelLoad}, step...), nil, asked("16-bit activations and logits take half of what 32-bit ones take"),
			fixed("HF: --bf16 (A100, RTX 30 or newer) or --fp16; DeepSpeed: \"bf16\": {\"enabled\": true}; plain PyTorch: with torch.autocast(\"cuda\", torch.bfloat16)")},
		{"grad-accum", step, nil, asked("activations grow with the micro-batch; accumulation keeps the global batch"),
			fixed("halve the micro-batch, double the accumulation. HF: --per_device_train_batch_size 1 --gradient_accumulation_steps N; DeepSpeed: train_micro_batch_size_per_gpu and gradient_accumulation_steps; plain PyTorch: (loss / N).backward() and optimizer.step() every N micro-batches")},
		{"checkpointing", step, nil, asked("recomputing activations in backward keeps one layer's instead of all, for about a third more time"),
			fixed("HF: --gradient_checkpointing True; DeepSpeed: activation_checkpointing in the config and deepspeed.checkpointing.checkpoint in the model; plain PyTorch: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)")},
		{"fused-loss", []Cause{LogitsLoss, Activation, Capacity, SingleHugeAllocation}, nil, asked("logits of batch x sequence x vocabulary exist several times over in the loss, often in 32 bits"),
			fixed("HF: --use_liger_kernel True; plain PyTorch and DeepSpeed: LigerFusedLinearCrossEntropyLoss or cut_cross_entropy in place of lm_head and cross_entropy, or compute the loss in chunks of the sequence")},
		{"sharding", states, nil, asked("optimizer state, gradients and weights need not be whole on every GPU"),
			fixed("HF: --fsdp \"full_shard auto_wrap\" or --deepspeed zero2.json; DeepSpeed: \"zero_optimization\": {\"stage\": 2}, then 3; plain PyTorch: torch.distributed.fsdp.fully_shard, or ZeroRedundancyOptimizer for the state alone")},
		{"optimizer-8bit", []Cause{Capacity, OptimizerInit, Activation, FragmentationCause}, nil, asked("Adam's two 32-bit moments take 8 bytes a parameter, 8-bit ones 2"),
			fixed("HF: --optim adamw_bnb_8bit; plain PyTorch: bitsandbytes.optim.AdamW8bit, or foreach=False or fused=True on torch's AdamW against its temporaries; DeepSpeed: pass the 8-bit optimizer to deepspeed.initialize")},
		{"lora", []Cause{Capacity, OptimizerInit, Activation, ModelLoad, LogitsLoss}, nil, asked("with adapters there are gradients and optimizer state for about 1 % of the weights"),
			fixed("peft: get_peft_model(model, LoraConfig(r=16, target_modules=\"all-linear\")); with 4-bit base weights: BitsAndBytesConfig(load_in_4bit=True) as well")},
		{"offload", states, nil, asked("host memory can hold optimizer state and weights, at the price of transfers every step"),
			fixed("DeepSpeed: \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}, then offload_param with stage 3; HF: the same through --deepspeed, or --fsdp \"full_shard offload\"; plain PyTorch: fully_shard(offload_policy=CPUOffloadPolicy())")},
		{"model-parallel", states, nil, asked("layers or the insides of layers can be spread over several GPUs"),
			fixed("tensor or pipeline parallelism: Megatron --tensor-model-parallel-size, --pipeline-model-parallel-size; HF: tp_plan=\"auto\" under torchrun; plain PyTorch: torch.distributed.tensor.parallel; or a GPU with more memory")},
		{"shorter-seq", both, nil, asked("activations and logits grow with the sequence; this changes what the model sees, so it comes last"),
			fixed("HF/TRL: --max_length or --max_seq_length; plain PyTorch and DeepSpeed: truncate in the tokenizer (max_length=..., truncation=True)")},
	}
}
