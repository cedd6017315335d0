package remedy

// deviceCauses are those for which memory on the device was short.
func deviceCauses() []string {
	return []string{"capacity", "fragmentation", "other-process", "model-load", "optimizer-init", "activation",
		"logits-loss", "eval-generate",
		"leak-growth", "single-huge-allocation", "nccl-oom", "cublas-alloc-failed", "cuda-context-oom", "hip/rocm"}
}

func always(s string) func(Case) string { return func(Case) string { return s } }

// free is the price of what only corrects a mistake.
func free() Price { return Price{Time: "nothing", Source: "it corrects a mistake"} }

// costs is the price of a cure, by what it visibly does.
func costs(what string) Price { return Price{Time: what, Source: "what it does"} }

// deviceRows cure one cause on the device and cost nothing or little.
func deviceRows() []Row {
	return append(allocatorRows(), []Row{
		{ID: "load-on-cpu", Title: "loading by way of the host", Causes: []string{"model-load"},
			Price: costs("a slower start, host memory for the checkpoint"),
			Why:   "a checkpoint that is read straight to the GPU stands there beside the model", Asked: true,
			How: always(`plain PyTorch: torch.load(path, map_location="cpu") and del the state dict before the first step; Hugging Face: ` +
				`from_pretrained(..., dtype=torch.bfloat16) without device_map, or with FSDP/ZeRO-3 active at load; ` +
				`DeepSpeed: build the model under deepspeed.zero.Init() with stage 3`)},
		{ID: "eval-accumulation", Title: "smaller evaluation", Causes: []string{"eval-generate"},
			Price: costs("a slower evaluation"),
			Why:   "evaluation keeps outputs on the GPU, or runs larger batches than training", Asked: true,
			How: always(`Hugging Face: --eval_accumulation_steps 1, --per_device_eval_batch_size 1, preprocess_logits_for_metrics to keep only the argmax, ` +
				`prediction_loss_only; plain PyTorch: torch.no_grad() around evaluation, .cpu() on what is kept; generation: smaller max_new_tokens or beam width`)},
		{ID: "find-leak", Title: "finding a leak", Causes: []string{"leak-growth"}, Finding: Leak, Price: free(),
			How: always(`append loss.item() or loss.detach(), never loss, to running figures; drop outputs and graphs at the end of a step; ` +
				`torch.no_grad() in evaluation; compare two torch.cuda.memory._dump_snapshot() files with oomguard postmortem; cap the length of samples`)},
		{ID: "split-request", Title: "splitting one request", Causes: []string{"single-huge-allocation"},
			Price: costs("none where attention is fused; chunks are a little slower"),
			Why:   "one request alone is too large", Asked: true,
			How: always(`find the tensor in the innermost frame: attention scores (attn_implementation="sdpa" or flash_attention_2), ` +
				`pairwise distances and masks (compute in chunks), an untruncated sample (cap the length)`)},
		{ID: "leave-room", Title: "room for libraries",
			Causes: []string{"nccl-oom", "cublas-alloc-failed", "cuda-context-oom", "other-process"},
			Unless: Strangers, Price: costs("1 to 2 GiB of the GPU; small NCCL buffers cost bandwidth"),
			Why: "libraries allocate outside PyTorch's cache: on a full card they find nothing, although PyTorch " +
				"may hold unused memory",
			How: always(`make the first call early (one tiny matmul and one all_reduce before loading), leave 1 to 2 GiB free, ` +
				`lower gpu_memory_utilization (vLLM) or NCCL_BUFFSIZE=1048576, check nvidia-smi for other processes; ` +
				`if an index-out-of-range assert stands earlier in the log, that is the cause instead`)},
		{ID: "driver-limits", Title: "limits of the driver", Causes: []string{"driver-unified-memory"}, Price: free(),
			Why: "the driver, not the size of the job, refused memory",
			How: always(`remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF on WSL and Tegra; Windows: switch off the sysmem fallback in the ` +
				`driver's settings; unified-memory boards: load straight to the device so that no second copy exists`)},
		{ID: "mps-xpu-limits", Title: "limits of MPS and XPU", Causes: []string{"mps/xpu"},
			Price: costs("0.0 may freeze the machine"),
			Why:   "the GPU shares memory with the host, or refuses single allocations above 4 GB",
			How: always(`close other programs; MPS: PYTORCH_MPS_HIGH_WATERMARK_RATIO may be raised, 0.0 removes the limit at the system's risk; ` +
				`XPU: split tensors above 4 GB`)},
		{ID: "preallocation", Title: "no preallocation", Causes: []string{"jax/tf"},
			Price: costs("fragmentation is more likely without preallocation"),
			Why:   "JAX and TensorFlow take most of the GPU at start, whatever they need",
			How: always(`JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false or XLA_PYTHON_CLIENT_MEM_FRACTION=.6; ` +
				`TensorFlow: tf.config.experimental.set_memory_growth; then a smaller batch`)},
	}...)
}

// allocatorRows are about who holds the GPU's memory and what PyTorch's allocator makes of it.
func allocatorRows() []Row {
	return []Row{
		{ID: "fix-alloc-conf", Title: "a valid allocator setting", Causes: []string{"allocator-config-error"},
			Finding: BadAllocConf, Price: free(),
			How: always(`unset PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, or give key:value pairs that this torch knows (oomguard check judges them), ` +
				`e.g. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True with torch 2.1 or newer`)},
		{ID: "free-gpu", Title: "a GPU of one's own", Causes: deviceCauses(), Finding: Strangers, Price: free(),
			How: always(`end these processes (nvidia-smi shows them; left-over ranks of an earlier run are the usual ones) or choose another GPU with ` +
				`CUDA_VISIBLE_DEVICES; in distributed jobs call torch.cuda.set_device(local_rank) before the first CUDA call, so that no rank opens a context on GPU 0`)},
		{ID: "raise-fraction", Title: "a larger memory fraction", Causes: []string{"capacity", "hip/rocm"},
			Finding: Fraction, Price: free(),
			How: always(`remove torch.cuda.set_per_process_memory_fraction(...) or per_process_memory_fraction from the allocator setting, or raise it`)},
		{ID: "clear-gradients", Title: "clearing gradients", Causes: deviceCauses(), Finding: GradientsKept,
			Price: free(),
			How: always(`plain PyTorch: optimizer.zero_grad(set_to_none=True) right after optimizer.step(); Lightning with manual optimization and Accelerate: ` +
				`the same call on the prepared optimizer; trainers do it themselves`)},
		{ID: "alloc-conf", Title: "an allocator setting", Causes: []string{"fragmentation"}, Finding: SegmentsOff,
			Price: Price{Time: "nothing in results; a first step that is a little slower",
				Source: "docs.pytorch.org, CUDA semantics, memory management"}, How: allocConf},
		{ID: "empty-cache", Title: "steady shapes", Causes: []string{"fragmentation"}, Finding: Holes,
			How:   steadyShapes,
			Price: costs("some padding; empty_cache between phases costs milliseconds, in every step it costs speed")},
		{ID: "native-allocator", Title: "PyTorch's own allocator", Causes: []string{"fragmentation"},
			Finding: AsyncAllocator, Price: free(),
			Why: "the cudaMallocAsync backend holds memory that it cannot give to this request",
			How: always("remove backend:cudaMallocAsync from PYTORCH_CUDA_ALLOC_CONF")},
	}
}

// hostRows are for memory of the host.
func hostRows() []Row {
	killed := []string{"host-oom-kill"}
	return []Row{
		{ID: "bigger-shm", Title: "a larger /dev/shm", Causes: []string{"shm-bus-error"},
			Price: costs("counts as host memory of the container"),
			Why: "DataLoader workers and NCCL pass data through /dev/shm, which is 64 MB in a Docker container by " +
				"default",
			How: always(`docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm; ` +
				`until then num_workers=0 (Hugging Face: --dataloader_num_workers 0) and NCCL_SHM_DISABLE=1`)},
		{ID: "more-host-memory", Title: "more host memory", Causes: killed, Finding: Killed,
			Price: costs("host memory"),
			How: always("raise the limit: Slurm --mem, Kubernetes resources.limits.memory, docker --memory, WSL: " +
				"memory= in .wslconfig")},
		{ID: "fewer-loader-workers", Title: "fewer DataLoader workers", Causes: killed,
			Price: costs("slower input where reading is the bottleneck"),
			Why:   "every DataLoader worker of every rank holds its own copy of Python objects and prefetched batches",
			How: always(`Hugging Face: --dataloader_num_workers 2 --dataloader_pin_memory False; plain PyTorch: DataLoader(num_workers=2, prefetch_factor=2); ` +
				`keep datasets in arrays or memory maps, not in Python lists`)},
		{ID: "low-cpu-mem", Title: "loading with little host memory", Causes: killed,
			Price: costs("nothing; NVMe is slower than host memory"),
			Why:   "every rank that loads the whole model takes its size in host memory, ranks times over",
			How: always(`Hugging Face: from_pretrained(..., dtype=torch.bfloat16), FSDP: cpu_ram_efficient_loading and sync_module_states in fsdp_config; ` +
				`DeepSpeed: zero.Init() with stage 3, offload to nvme instead of cpu; plain PyTorch: torch.load(mmap=True), load on rank 0 and broadcast`)},
	}
}

// allocConf names the variable and the option that this torch and this platform obey. Expandable segments exist from
// 2.1 on; 2.9 ignores them when given through the new name (pytorch issue 183387), so the old name is the one to use.
func allocConf(c Case) string {
	var a Allocator
	if c.Evidence != nil {
		a = c.Evidence.Allocator
	}
	variable := "PYTORCH_CUDA_ALLOC_CONF"
	if a.HIP {
		variable = "PYTORCH_HIP_ALLOC_CONF"
	}
	switch {
	case a.Old:
		return "export " + variable + "=max_split_size_mb:128 (torch 1.10 or newer; this torch has no " +
			"expandable_segments, which would end it at start: they need 2.1)"
	case a.NoExpandable != "":
		return "export " + variable + "=max_split_size_mb:128,garbage_collection_threshold:0.8; not " +
			"expandable_segments: this is " + a.NoExpandable
	}
	return "export " + variable + "=expandable_segments:True before the program starts (torch 2.1 or newer, Linux, " +
		"not WSL or Tegra; not with tensors that are " +
		"shared between processes over CUDA IPC before torch 2.6); keep to this name: torch 2.9 ignores the option " +
		"under the new name " +
		"PYTORCH_ALLOC_CONF; drop max_split_size_mb, which has no use beside it"
}

// steadyShapes: batches of equal lengths leave holes that fit again.
func steadyShapes(c Case) string {
	how := "pad batches to a few fixed lengths so that freed blocks fit again (pad_to_multiple_of=64 in the collator)"
	if c.takesArguments() {
		how += "; Hugging Face: --group_by_length True (transformers 5: --train_sampling_strategy group_by_length), " +
			"--torch_empty_cache_steps 100"
	}
	return how + "; call torch.cuda.empty_cache() between training and evaluation"
}
