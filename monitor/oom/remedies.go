package oom

import "slices"

// remedy is one row of the tables: for which causes it is named, and what it says with the numbers of this case. how nil: the row of
// settingsTable with this id.
type remedy struct {
	id     string
	causes []Cause
	// applies narrows the causes, nil: always.
	applies func(q *inquest) bool
	why     func(q *inquest) string
	how     func(q *inquest) string
	cost    string
}

// remedies walks the tables in order: what costs nothing stands first.
func (q *inquest) remedies(cause Cause) []Remedy {
	list := []Remedy{}
	for _, r := range append(append(specificRemedies(), hostRemedies()...), generalRemedies()...) {
		if !slices.Contains(r.causes, cause) || r.applies != nil && !r.applies(q) {
			continue
		}
		out := Remedy{ID: r.id, Why: r.why(q), Cost: r.cost}
		if r.how != nil {
			out.How = r.how(q)
		} else {
			out.How = q.apply(r.id)
		}
		list = append(list, out)
	}
	return list
}

func fixed(s string) func(*inquest) string { return func(*inquest) string { return s } }

// deviceCauses are those for which memory on the device was short.
func deviceCauses() []Cause {
	return []Cause{Capacity, FragmentationCause, OtherProcess, ModelLoad, OptimizerInit, Activation, LogitsLoss, EvalGenerate, LeakGrowth, SingleHugeAllocation,
		NCCLOOM, CublasAllocFailed, CudaContextOOM, HIPROCm}
}

const nothing = "nothing"

// specificRemedies cure one cause on the device and cost nothing or little.
func specificRemedies() []remedy {
	return []remedy{
		{"fix-alloc-conf", []Cause{AllocatorConfigError}, nil, (*inquest).badAllocConfWhy, fixed(
			"unset PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, or give key:value pairs that this torch knows (oomguard check judges them), e.g. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True with torch 2.1 or newer"), nothing},
		{"free-gpu", deviceCauses(), (*inquest).strangers, (*inquest).freeGPUWhy, fixed(
			"end these processes (nvidia-smi shows them; left-over ranks of an earlier run are the usual ones) or choose another GPU with CUDA_VISIBLE_DEVICES; in distributed jobs call torch.cuda.set_device(local_rank) before the first CUDA call, so that no rank opens a context on GPU 0"), nothing},
		{"raise-fraction", []Cause{Capacity, HIPROCm}, (*inquest).limited, (*inquest).fractionWhy, fixed(
			"remove torch.cuda.set_per_process_memory_fraction(...) or per_process_memory_fraction from the allocator setting, or raise it"), nothing},
		{"clear-gradients", deviceCauses(), func(q *inquest) bool { return q.facts.Run.gradientsKept() != "" }, func(q *inquest) string { return q.facts.Run.gradientsKept() }, fixed(
			"plain PyTorch: optimizer.zero_grad(set_to_none=True) right after optimizer.step(); Lightning with manual optimization and Accelerate: the same call on the prepared optimizer; trainers do it themselves"), nothing},
		{"alloc-conf", []Cause{FragmentationCause}, (*inquest).allocConfHelps, (*inquest).holesWhy, (*inquest).allocConfHow,
			"nothing in results; a first step that is a little slower"},
		{"empty-cache", []Cause{FragmentationCause}, nil, (*inquest).holesWhy, (*inquest).steadyShapesHow, "some padding; empty_cache between phases costs milliseconds, in every step it costs speed"},
		{"native-allocator", []Cause{FragmentationCause}, func(q *inquest) bool { return q.msg != nil && q.msg.Form == FormAsync },
			fixed("the cudaMallocAsync backend holds memory that it cannot give to this request"), fixed("remove backend:cudaMallocAsync from PYTORCH_CUDA_ALLOC_CONF"), nothing},
		{"load-on-cpu", []Cause{ModelLoad}, nil, func(q *inquest) string {
			return "a checkpoint that is read straight to the GPU stands there beside the model" + q.asked()
		}, fixed("plain PyTorch: torch.load(path, map_location=\"cpu\") and del the state dict before the first step; Hugging Face: from_pretrained(..., dtype=torch.bfloat16) without device_map, or with FSDP/ZeRO-3 active at load; DeepSpeed: build the model under deepspeed.zero.Init() with stage 3"),
			"a slower start, host memory for the checkpoint"},
		{"eval-accumulation", []Cause{EvalGenerate}, nil, func(q *inquest) string {
			return "evaluation keeps outputs on the GPU, or runs larger batches than training" + q.asked()
		}, fixed("Hugging Face: --eval_accumulation_steps 1, --per_device_eval_batch_size 1, preprocess_logits_for_metrics to keep only the argmax, prediction_loss_only; plain PyTorch: torch.no_grad() around evaluation, .cpu() on what is kept; generation: smaller max_new_tokens or beam width"),
			"a slower evaluation"},
		{"find-leak", []Cause{LeakGrowth}, nil, (*inquest).leakWhy, fixed(
			"append loss.item() or loss.detach(), never loss, to running figures; drop outputs and graphs at the end of a step; torch.no_grad() in evaluation; compare two torch.cuda.memory._dump_snapshot() files with oomguard postmortem; cap the length of samples"), nothing},
		{"split-request", []Cause{SingleHugeAllocation}, nil, func(q *inquest) string { return "one request alone is too large" + q.asked() }, fixed(
			"find the tensor in the innermost frame: attention scores (attn_implementation=\"sdpa\" or flash_attention_2), pairwise distances and masks (compute in chunks), an untruncated sample (cap the length)"), "none where attention is fused; chunks are a little slower"},
		{"leave-room", []Cause{NCCLOOM, CublasAllocFailed, CudaContextOOM, OtherProcess}, func(q *inquest) bool { return q.msg == nil || !q.strangers() },
			fixed("libraries allocate outside PyTorch's cache: on a full card they find nothing, although PyTorch may hold unused memory"),
			fixed("make the first call early (one tiny matmul and one all_reduce before loading), leave 1 to 2 GiB free, lower gpu_memory_utilization (vLLM) or NCCL_BUFFSIZE=1048576, check nvidia-smi for other processes; if an index-out-of-range assert stands earlier in the log, that is the cause instead"),
			"1 to 2 GiB of the GPU; small NCCL buffers cost bandwidth"},
		{"driver-limits", []Cause{DriverUnifiedMemory}, nil, fixed("the driver, not the size of the job, refused memory"), fixed(
			"remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF on WSL and Tegra; Windows: switch off the sysmem fallback in the driver's settings; unified-memory boards: load straight to the device so that no second copy exists"), nothing},
		{"mps-xpu-limits", []Cause{MPSXPU}, nil, fixed("the GPU shares memory with the host, or refuses single allocations above 4 GB"), fixed(
			"close other programs; MPS: PYTORCH_MPS_HIGH_WATERMARK_RATIO may be raised, 0.0 removes the limit at the system's risk; XPU: split tensors above 4 GB"), "0.0 may freeze the machine"},
		{"preallocation", []Cause{JAXTF}, nil, fixed("JAX and TensorFlow take most of the GPU at start, whatever they need"), fixed(
			"JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false or XLA_PYTHON_CLIENT_MEM_FRACTION=.6; TensorFlow: tf.config.experimental.set_memory_growth; then a smaller batch"), "fragmentation is more likely without preallocation"},
	}
}

// hostRemedies are for memory of the host.
func hostRemedies() []remedy {
	return []remedy{
		{"bigger-shm", []Cause{ShmBusError}, nil, fixed("DataLoader workers and NCCL pass data through /dev/shm, which is 64 MB in a Docker container by default"), fixed(
			"docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm; until then num_workers=0 (Hugging Face: --dataloader_num_workers 0) and NCCL_SHM_DISABLE=1"), "counts as host memory of the container"},
		{"more-host-memory", []Cause{HostOOMKill}, nil, (*inquest).killWhy, fixed(
			"raise the limit: Slurm --mem, Kubernetes resources.limits.memory, docker --memory, WSL: memory= in .wslconfig"), "host memory"},
		{"fewer-loader-workers", []Cause{HostOOMKill}, nil, fixed("every DataLoader worker of every rank holds its own copy of Python objects and prefetched batches"), fixed(
			"Hugging Face: --dataloader_num_workers 2 --dataloader_pin_memory False; plain PyTorch: DataLoader(num_workers=2, prefetch_factor=2); keep datasets in arrays or memory maps, not in Python lists"), "slower input where reading is the bottleneck"},
		{"low-cpu-mem", []Cause{HostOOMKill}, nil, fixed("every rank that loads the whole model takes its size in host memory, ranks times over"), fixed(
			"Hugging Face: from_pretrained(..., dtype=torch.bfloat16), FSDP: cpu_ram_efficient_loading and sync_module_states in fsdp_config; DeepSpeed: zero.Init() with stage 3, offload to nvme instead of cpu; plain PyTorch: torch.load(mmap=True), load on rank 0 and broadcast"), "nothing; NVMe is slower than host memory"},
	}
}

// generalRemedies make a job smaller, cheapest first: what changes no result, what costs time, what changes the training. Costs: one more
// forward pass with checkpointing is Chen et al. 2016 ("sublinear memory cost"), 1.5 times the communication of ZeRO-3 Rajbhandari et al.
// 2020, blockwise 8-bit states Dettmers et al. 2022.
func generalRemedies() []remedy {
	step := []Cause{Capacity, FragmentationCause, Activation, LogitsLoss, SingleHugeAllocation, NCCLOOM, CublasAllocFailed, HIPROCm, MPSXPU}
	states := []Cause{Capacity, FragmentationCause, OptimizerInit, ModelLoad, Activation, LogitsLoss, NCCLOOM, CublasAllocFailed, HIPROCm}
	both := append(append([]Cause{}, step...), OptimizerInit, ModelLoad, EvalGenerate)
	// about adds to a reason what speaks for it in this case: the parts that it makes smaller, or the stage in which they are alive.
	about := func(reason string, parts ...string) func(*inquest) string {
		return func(q *inquest) string { return reason + q.because(parts) }
	}
	inPass, inLoss, kept := []string{"activations", "logits"}, []string{"logits"}, []string{"parameters", "master_weights", "gradients", "optimizer"}
	return []remedy{
		{"amp", append([]Cause{OptimizerInit, ModelLoad}, step...), nil, about("16-bit activations and logits take half of what 32-bit ones take", inPass...), nil,
			"none in speed on GPUs with tensor cores, mostly it is faster; bf16 keeps 8 bits of precision, fp16 needs loss scaling"},
		{"grad-accum", step, nil, about("activations grow with the micro-batch; accumulation keeps the global batch", inPass...), nil,
			"some speed, as kernels get smaller; the same result for the same global batch, batch norm aside"},
		{"checkpointing", step, nil, about("recomputing activations in backward keeps one layer's instead of all", "activations"), nil,
			"about a third more compute (one more forward pass); the result is the same"},
		{"fused-loss", []Cause{LogitsLoss, Activation, Capacity, SingleHugeAllocation}, nil, about("logits of batch x sequence x vocabulary exist several times over in the loss, often in 32 bits", inLoss...), nil,
			"none, often it is faster; another package"},
		{"sharding", states, nil, about("optimizer state, gradients and weights need not be whole on every GPU", kept...), nil,
			"needs several GPUs; ZeRO-1 and 2 cost next to nothing, ZeRO-3 and full sharding 1.5 times the communication"},
		{"optimizer-8bit", []Cause{Capacity, OptimizerInit, Activation, FragmentationCause}, nil, about("Adam's two 32-bit moments take 8 bytes a parameter, 8-bit ones 2", "optimizer"), nil,
			"no speed to speak of; states are quantised in blocks, so results are close, not equal"},
		{"lora", []Cause{Capacity, OptimizerInit, Activation, ModelLoad, LogitsLoss}, nil, about("with adapters there are gradients and optimizer state for about 1 % of the weights", "gradients", "optimizer"), nil,
			"another training: fewer weights learn, which is enough for many fine-tunings and not for pretraining"},
		{"offload", states, nil, about("host memory can hold optimizer state and weights", kept...), nil,
			"transfers over PCIe in every step, often 1.5 times to several times slower; as much host memory"},
		{"model-parallel", states, nil, about("layers or the insides of layers can be spread over several GPUs", kept...), nil,
			"several GPUs with fast links, communication in every layer, changes to the code"},
		{"shorter-seq", both, nil, about("activations and logits grow with the sequence; this changes what the model sees, so it comes last", inPass...), nil,
			"long samples are cut"},
	}
}
