package oom

import "regexp"

// SignKind is what a line is evidence of.
type SignKind string

// The kinds of signs.
const (
	SignAllocatorConfig SignKind = "allocator-config" // PyTorch refused the allocator setting
	SignNCCL            SignKind = "nccl"             // NCCL or RCCL could not allocate on the device
	SignLibrary         SignKind = "gpu-library"      // cuBLAS or cuDNN could not get their workspace
	// a GPU library could not be started: a full card, a bad index before it, or a broken installation
	SignLibraryStart SignKind = "gpu-library-start"
	SignDriver       SignKind = "driver" // a driver of shared system memory could not allocate
	SignShm          SignKind = "shm"    // /dev/shm is full
	// the kernel, Slurm, Kubernetes or Ray says that host memory ran out
	SignOOMKiller SignKind = "oom-killer"
	SignKilled    SignKind = "killed"     // SIGKILL, by whom is not said
	SignAgentKill SignKind = "agent-kill" // torchrun's own SIGKILL after its grace
	SignStopped   SignKind = "stopped"    // asked to stop: time limit, preemption, a signal to the agent
	// malloc, fork or numpy refused: host memory, but nobody was killed
	SignHostAllocation SignKind = "host-allocation"
	SignFinished       SignKind = "finished" // a trainer says that it is done
	SignFault          SignKind = "fault"    // a defect that has nothing to do with memory size
)

// signRule: a line with word is a sign of kind when the whole line matches pattern (nil: always) and, with raised, when
// only the name of an exception stands before the word.
type signRule struct {
	kind    SignKind
	word    string
	pattern *regexp.Regexp
	raised  bool
}

// signRules: the texts of PyTorch's allocator are those of c10/cuda/CUDAAllocatorConfig.cpp and
// c10/core/AllocatorConfig.cpp.
func signRules() []signRule {
	re := regexp.MustCompile
	return []signRule{
		{SignAllocatorConfig, "Unrecognized CachingAllocator option", nil, true},
		{SignAllocatorConfig, "CachingAllocator option ", re(`must be|too small`), true},
		{SignAllocatorConfig, "Unrecognized key '", re(`allocator config`), true},
		{SignAllocatorConfig, "garbage_collect_threshold ", re(`too big|is invalid`), true},
		{SignAllocatorConfig, "per_process_memory_fraction is invalid", nil, true},
		{SignAllocatorConfig, "Error, expecting ", re(`expecting \S+ value|expecting`), true},
		{SignAllocatorConfig, "Expected a single True/False argument", nil, true},
		{SignAllocatorConfig, "Expected 'True' or 'False'", re(`ConfigTokenizer`), true},
		{SignAllocatorConfig, "Error parsing CachingAllocator", nil, true},
		{SignAllocatorConfig, "Index out of bounds in ConfigTokenizer", nil, false},
		// a value that ends too early
		{SignAllocatorConfig, "AllocatorConfig.", re(`INTERNAL ASSERT FAILED at .*AllocatorConfig\.(?:h|cpp)\b`),
			false},
		{SignAllocatorConfig, "Unknown allocator backend", nil, true},
		{SignAllocatorConfig, "backend:cudaMallocAsync requires", nil, true},
		{SignAllocatorConfig, "For roundups, the", nil, true},
		{SignAllocatorConfig, "Number of register threads has to", nil, true},
		{SignAllocatorConfig, "Pinned reserve segment size has to", nil, true},
		{SignAllocatorConfig, "Allocator backend parsed at runtime", nil, false},

		{SignNCCL, "Failed to CUDA calloc", nil, false},
		{SignLibrary, "STATUS_ALLOC_FAILED", nil, false},
		{SignLibraryStart, "CUBLAS_STATUS_NOT_INITIALIZED", re(`when calling|cublas handle`), false},
		{SignLibraryStart, "CUDNN_STATUS_NOT_INITIALIZED", nil, false},
		{SignLibraryStart, "create cudnn handle: ", nil, false},              // TensorFlow
		{SignLibraryStart, "because cuDNN failed to initialize", nil, false}, // TensorFlow
		{SignLibraryStart, "gpusolverDnCreate", re(`failed`), false},         // JAX
		{SignLibrary, "find a valid cuDNN algorithm", nil, false},
		{SignLibrary, "unable to find an engine to execute", nil, false},
		{SignLibrary, "the resource allocation failed", re(`(?i)cublas`), false}, // CUBLAS_STATUS_ALLOC_FAILED in words
		{SignLibrary, "CUFFT_ALLOC_FAILED", nil, false},
		{SignLibrary, "insufficient resources when calling", re(`cusparse`), false},

		{SignDriver, "dxgkio_make_resident", re(`failed: -12`), false}, // WSL's driver in dmesg
		{SignDriver, "MemAllocInternalTagged", re(`error 12`), false},  // Tegra's

		{SignShm, "insufficient shared memory", nil, false},
		{SignShm, "nexpected bus error encountered", nil, false},
		{SignShm, "nexpected BUS error encountered", nil, false}, // Paddle
		// a hard wrap may stand before "memory"
		{SignShm, "It is possible that dataloader", re(`out of shared`), false},
		// torch up to 1.7 without the reason
		{SignShm, "unable to write to file </", re(`No space left|</torch_\d`), false},
		{SignShm, "unable to mmap ", re(`</torch_\d.*Cannot allocate memory`), false},
		{SignShm, "device: '/psm_", re(`No space left`), false}, // Python's multiprocessing.shared_memory
		{SignShm, "failed to extend /dev/shm", nil, false},
		{SignShm, "creating shared memory segment", nil, false},
		{SignShm, "posix_fallocate failed", nil, false},
		{SignShm, "shared memory object", re(`No space left|\(28\)|Cannot allocate`), false},
		{SignShm, "总线错误", re(`^总线错误|核心已转储|\d\s+总线错误`), false},
		{SignShm, "Bus error", re(`(?i)signal|core dumped|EXIT STRING|encountered|killed|Fatal Python error`), false},
		{SignShm, "/dev/shm", re(`No space left on device|is full`), false},

		{SignOOMKiller, "Out of memory: Kill", re(`Out of memory: Kill(?:ed)? process`), false},
		{SignOOMKiller, "cgroup out of memory", nil, false},
		{SignOOMKiller, "oom-kill:", nil, false},
		{SignOOMKiller, "oom-kill event", nil, false},
		{SignOOMKiller, "oom_kill event", nil, false},
		{SignOOMKiller, "oom_reaper: ", nil, false},
		{SignOOMKiller, "invoked oom-killer", nil, false},
		{SignOOMKiller, "killed by the OOM killer", re(`A process of this unit`), false},
		{SignOOMKiller, "systemd-oomd[", re(`Killed`), false},
		{SignOOMKiller, "result 'oom-kill'", nil, false},
		{SignOOMKiller, "earlyoom[", re(`sending SIG`), false},
		{SignOOMKiller, "exceeded memory limit", re(`being killed|slurm`), false},
		{SignOOMKiller, "OUT_OF_ME", re(`(?:^|[\s,|])OUT_OF_ME(?:\+|MORY\b)`), false},
		{SignOOMKiller, "job killed: ", re(`job killed: p?v?mem`), false},
		{SignOOMKiller, "TERM_MEMLIMIT", nil, false},
		{SignOOMKiller, "low on resource: memory", nil, false},
		{SignOOMKiller, "killed due to memory pressure", nil, false},
		{SignOOMKiller, ": Out Of Memory", re(`srun|task`), false},
		{SignOOMKiller, "OOMKilled", re(`(?i)reason|status|state|exit|terminated|^\W*OOMKilled\W*$|\d/\d+\s+OOMKilled|OOMKilled": ?true`), false},
		{SignOOMKiller, "due to the node running low on memory", nil, false},
		{SignOOMKiller, "ran out-of-memory and exited", nil, false},            // Vertex AI
		{SignOOMKiller, "Container killed due to memory usage", nil, false},    // AWS Batch, ECS
		{SignOOMKiller, "for exceeding memory limits", re(`[Kk]illed`), false}, // YARN
		{SignOOMKiller, "running beyond ", re(`beyond (?:physical|virtual) memory limits`), false},
		{SignOOMKiller, "has gone over ", re(`over (?:cgroup )?memory limit of \d`), false}, // HTCondor
		{SignOOMKiller, "System OOM encountered", nil, false},                               // kubelet
		{SignOOMKiller, "crashed after using all available RAM", nil, false},                // Colab
		{SignOOMKiller, "allocate more memory than is available", re(`notebook`), false},    // Kaggle

		{SignKilled, " Killed", re(`line \d+:\s+\d+ Killed\s|^\[?\d*\]?[-+]?\s*Killed\b`), false},
		{SignKilled, "Killed\n", re(`^Killed\s*$`), false},
		{SignKilled, `"Killed\n`, nil, false},                 // inside docker's JSON
		{SignKilled, "Killed: 9", re(`Killed: 9\s*$`), false}, // macOS
		{SignKilled, "已杀死", re(`(?:^|\d\s+)已杀死(?:\s|$)`), false},
		{SignKilled, "Getötet", re(`(?:^|\d\s+)Getötet(?:\s|$)`), false},
		{SignKilled, "terminated by signal SIGKILL", nil, false},   // fish
		{SignKilled, "Command terminated by signal 9", nil, false}, // GNU time
		{SignKilled, "Killed**", re(`^Killed\W*$`), false},         // as threads print it
		{SignKilled, "zsh: killed", nil, false},
		{SignKilled, "status=9/KILL", re(`code=killed`), false},             // systemd
		{SignKilled, "(terminated by SIGKILL", nil, false},                  // supervisord
		{SignKilled, "SIGKILL(-9)", re(`exit codes of the workers`), false}, // joblib's loky
		{SignKilled, "is killed by signal", re(`(?i)signal: *killed`), false},
		// Ray: one of the reasons that it thinks of
		{SignKilled, "killed by SIGKILL by OOM killer", re(`Worker (?:exit|unexpectedly)`), false},
		{SignAgentKill, "Unable to shutdown process", nil, false},
		{SignStopped, "DUE TO TIME LIMIT", nil, false},
		{SignStopped, "Preempt", re(`^Reason:\s+Preempt|Preempted in order`), false},
		// behind a task's death a cancelled step is its echo
		{SignStopped, " CANCELLED AT ", re(`JOB \S+ |STEP \S+ |DUE TO`), false},
		{SignStopped, "death signal, shutting down", nil, false},
		{SignStopped, " got signal: ", re(`SignalException`), false},

		{SignHostAllocation, "Cannot allocate memory", nil, false},
		{SignHostAllocation, "std::bad_alloc", nil, false},
		{SignHostAllocation, "MemoryError: Unable to allocate", nil, false},
		{SignHostAllocation, "can't allocate memory: you tried", nil, false},

		{SignFinished, "train_runtime", re(`train_runtime(?:'|\s+=)`), false},
		{SignFinished, "raining completed", re(`^[Tt]raining completed`), false},
		{SignFinished, "Trainer.fit` stopped: ", nil, false},
		{SignFinished, "done training in ", nil, false},

		{SignFault, "device-side assert triggered", nil, false},
		{SignFault, "Assertion `", re(`failed\.?$`), false}, // the kernel's own line
		{SignFault, "illegal memory access", nil, false},
		{SignFault, "uncorrectable ECC error", nil, false},
		{SignFault, timeoutText, nil, false},
		{SignFault, "out of resource: shared memory", nil, false},
		{SignFault, "exceeded scoped vmem limit", nil, false}, // on-chip memory of a TPU's kernel
		{SignFault, "shm_open failed", re(`Permission denied`), false},
		{SignFault, "Disk quota exceeded", nil, false},
		{SignFault, "No space left on device", nil, false},
		{SignFault, "Too many open files", nil, false},
		{SignFault, "Segmentation fault", nil, false},
		{SignFault, "Cuda failure 999", nil, false},
		{SignFault, "unspecified launch failure", nil, false},
		// TensorFlow, behind a library that did not start
		{SignFault, "possibly insufficient driver version", nil, false},
	}
}

// read takes the line as a sign if the rule holds.
func (r signRule) read(s *scanner, p place) {
	segment := p.segment()
	if r.pattern != nil && !r.pattern.MatchString(segment.string) {
		return
	}
	lead := p.lead().string
	if r.raised && !raised(lead) {
		return
	}
	if j := judge(); j.code.MatchString(lead) || (lead != "" && !raised(lead) && j.talk.MatchString(lead)) {
		return
	}
	s.log.addSign(p.sign(r.kind))
}

func (p place) sign(kind SignKind) Sign {
	t := p.segment()
	return Sign{Kind: kind, Rank: t.rank, GPU: deviceOf(t.string), PID: -1, Line: p.line, Text: excerpt(t.string)}
}
