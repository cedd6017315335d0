package preflight

import (
	"errors"

	"oomguard/checklists"
	"oomguard/preflight/allocconf"
)

func visibleAs(value string) func(*Facts) {
	return func(f *Facts) { f.Env["CUDA_VISIBLE_DEVICES"] = value }
}

func nproc(n int) func(*Facts) { return func(f *Facts) { f.Job.NProc = set(n) } }

func argument(arg string) func(*Facts) { return func(f *Facts) { f.Job.Argv[1] = arg } }

func second(change func(*Device)) func(*Facts) { return func(f *Facts) { change(&f.Devices[1]) } }

func gpuJudgements() []judgement {
	const pass, skip, warn, fail = checklists.Pass, checklists.Skip, checklists.Warn, checklists.Fail
	highBytes := func(n int64) func(*Facts) { return func(f *Facts) { f.Estimate.PerGPU.HighBytes = &n } }
	holding := func(n int64, p ...Process) func(*Facts) {
		return second(func(d *Device) { d.UsedBytes, d.Processes = n, p })
	}
	problem := func(severity allocconf.Severity) func(*Facts) {
		return func(f *Facts) {
			f.Alloc.Variable, f.Alloc.Text = "PYTORCH_CUDA_ALLOC_CONF", "x:1"
			f.AllocProblems = append(f.AllocProblems,
				allocconf.Problem{Severity: severity, Key: "x", Text: "is odd", Remedy: "drop it"})
		}
	}
	return []judgement{
		{"nvml-available", "two", func(*Facts) {}, pass, []string{"2 visible: 2 x NVIDIA H100"}},
		{"nvml-available", "driver files without NVML",
			func(f *Facts) { f.Devices, f.DevicesErr = nil, errors.New("library not found") }, fail,
			[]string{"library not found", "/dev/nvidia0", "nvidia-smi"}},
		{"nvml-available", "driver fault",
			both(noDevice, func(f *Facts) {
				f.DriverFault, f.DevicesErr = true, errors.New("driver/library version mismatch")
			}), fail,
			[]string{"version mismatch", "reboot"}},
		{"nvml-available", "driver without GPU", func(f *Facts) { f.Devices = nil }, fail, []string{"lists no GPU"}},
		{"nvml-available", "CPU job", onCPU, skip, []string{"runs on the CPU"}},
		{"nvml-available", "declared", declared, skip, []string{"flag --gpu 8xH100-80GB"}},
		{"nvml-available", "run without GPU", noDevice, warn, []string{"was not found"}},
		{"nvml-available", "AMD", both(noDevice, func(f *Facts) { f.Host.OtherAccelerators = []string{"/dev/kfd"} }),
			skip, []string{"/dev/kfd", "rocm-smi"}},
		{"nvml-available", "gate without GPU", both(noDevice, checkMode), skip, []string{"--gpu"}},

		{"cuda-visible-devices", "unset", func(*Facts) {}, pass, []string{"not set"}},
		{"cuda-visible-devices", "numbers", visibleAs("1,0"), pass, []string{"left to the job: 2"}},
		{"cuda-visible-devices", "identifiers", visibleAs("GPU-11,GPU-0"), pass, []string{"left to the job: 2"}},
		{"cuda-visible-devices", "out of range", visibleAs("0,2"), fail,
			[]string{`"2" is out of range`, "0 to 1", "left to the job: 1", "nvidia-smi -L"}},
		{"cuda-visible-devices", "repeated", visibleAs("0,0"), fail, []string{"hides every GPU", "left to the job: 0"}},
		{"cuda-visible-devices", "same by two beginnings", visibleAs("GPU-1,GPU-11"), fail,
			[]string{"hides every GPU"}},
		{"cuda-visible-devices", "mixed", visibleAs("0,GPU-11"), fail,
			[]string{`"GPU-11" is not the number`, "left to the job: 1"}},
		{"cuda-visible-devices", "mixed the other way", visibleAs("GPU-11,0"), fail,
			[]string{"does not begin with GPU-"}},
		{"cuda-visible-devices", "unknown identifier", visibleAs("GPU-ab"), fail,
			[]string{"is not a GPU of this machine"}},
		{"cuda-visible-devices", "ambiguous identifier", visibleAs("GPU-"), fail, []string{"more than one GPU"}},
		{"cuda-visible-devices", "empty", visibleAs(""), fail, []string{`"" hides every GPU`}},
		{"cuda-visible-devices", "-1", visibleAs("-1"), fail, []string{`"-1" hides every GPU`}},
		{"cuda-visible-devices", "-1 after a GPU", visibleAs("0,-1"), fail, []string{`"-1"`}},
		{"cuda-visible-devices", "hidden for a CPU job", both(onCPU, visibleAs("")), pass, []string{"on the CPU"}},
		{"cuda-visible-devices", "spaces", visibleAs("0, 1"), warn, []string{`" 1" has spaces`}},
		{"cuda-visible-devices", "space before an identifier", visibleAs("GPU-0, GPU-1"), fail,
			[]string{`" GPU-1" does not begin`, "left to the job: 1"}},
		{"cuda-visible-devices", "last comma", visibleAs("0,1,"), warn, []string{"ends in a comma"}},
		{"cuda-visible-devices", "misspelt", func(f *Facts) { f.Env["CUDA__VISIBLE_DEVICES"] = "0" }, warn,
			[]string{"CUDA__VISIBLE_DEVICES is set"}},
		{"cuda-visible-devices", "different GPUs", second(func(d *Device) { d.Name = "NVIDIA T4" }), warn,
			[]string{"1 x NVIDIA H100, 1 x NVIDIA T4", "PCI_BUS_ID"}},
		{"cuda-visible-devices", "different GPUs by bus", both(second(func(d *Device) { d.Name = "NVIDIA T4" }),
			func(f *Facts) { f.Env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID" }), pass, nil},
		{"cuda-visible-devices", "form only", both(declared, visibleAs("0,7")), pass, []string{"left to the job: 2"}},
		{"cuda-visible-devices", "bad form at a gate", both(declared, visibleAs("0,x")), warn,
			[]string{"only the form"}},

		{"gpu-count", "enough", func(*Facts) {}, pass, []string{"2 processes on a node, visible GPUs: 2"}},
		{"gpu-count", "too few", nproc(4), fail, []string{"4 processes", "visible GPUs: 2", "at most 2"}},
		{"gpu-count", "too few visible", visibleAs("1"), fail, []string{"visible GPUs: 1"}},
		{"gpu-count", "declared", both(declared, nproc(8)), pass, []string{"GPUs by flag --gpu 8xH100-80GB: 8"}},
		{"gpu-count", "declared too few", both(declared, nproc(9)), fail, []string{"9 processes"}},
		{"gpu-count", "declared without count", both(declared, func(f *Facts) { f.DeclaredGPUs = 0 }), skip,
			[]string{"--gpu"}},
		{"gpu-count", "declared, and the model is not known", both(declared, both(nproc(8), noEstimate)), pass,
			[]string{"GPUs by flag --gpu 8xH100-80GB: 8"}},
		{"gpu-count", "declared too few, and the model is not known", both(declared, both(nproc(9), noEstimate)), fail,
			[]string{"9 processes"}},
		{"gpu-count", "gpu without GPU", both(noDevice, argument("--nproc-per-node=gpu")), fail,
			[]string{"Cuda is not available"}},
		{"gpu-count", "auto without GPU", both(onCPU, argument("--nproc_per_node=auto")), warn,
			[]string{"one for each CPU"}},
		{"gpu-count", "auto from the environment",
			both(onCPU, both(argument("--standalone"), func(f *Facts) { f.Env["PET_NPROC_PER_NODE"] = "auto" })), warn,
			nil},
		{"gpu-count", "flag before environment", both(onCPU, func(f *Facts) { f.Env["PET_NPROC_PER_NODE"] = "auto" }),
			skip, nil},
		{"gpu-count", "the script's own flag",
			both(onCPU, func(f *Facts) {
				f.Job.ScriptArgs[0], f.Job.Argv[3] = "--nproc-per-node=gpu",
					"--nproc-per-node=gpu"
			}), skip, nil},
		{"gpu-count", "auto with GPUs", argument("--nproc-per-node=auto"), pass, nil},
		{"gpu-count", "auto at a gate without GPUs", both(both(noDevice, checkMode), argument("--nproc-per-node=auto")),
			skip, nil},
		{"gpu-count", "auto on AMD", both(both(noDevice,
			func(f *Facts) { f.Host.OtherAccelerators = []string{"/dev/kfd"} }), argument("--nproc-per-node=auto")),
			skip, nil},
		{"gpu-count", "number without GPU", noDevice, skip, []string{"--gpu"}},
		{"gpu-count", "hidden GPUs", both(visibleAs("-1"), argument("--nproc-per-node=gpu")), fail,
			[]string{"Cuda is not available"}},
		{"gpu-count", "CPU job", onCPU, skip, []string{"runs on the CPU"}},
		{"gpu-count", "broken driver", func(f *Facts) { f.Devices = nil }, skip, nil},
		{"gpu-count", "unknown processes", func(f *Facts) { f.Job.NProc.Known = false }, skip, []string{"--nproc"}},

		{"gpu-memory-free", "enough", second(func(d *Device) { d.FreeBytes = 50 * gib }), pass,
			[]string{"at least 50.00 GiB free on each GPU of the job (2); 40.00 GiB needed"}},
		{"gpu-memory-free", "short", second(func(d *Device) { d.FreeBytes = 39 * gib }), fail,
			[]string{"GPU 1 (NVIDIA H100) has 39.00 GiB free of 80.00 GiB", "40.00 GiB needed",
				"CUDA_VISIBLE_DEVICES"}},
		{"gpu-memory-free", "perhaps short", second(func(d *Device) { d.FreeBytes = 42 * gib }), warn,
			[]string{"42.00 GiB free", "up to 44.00 GiB"}},
		{"gpu-memory-free", "short where no rank is", both(nproc(1), second(func(d *Device) { d.FreeBytes = 0 })), pass,
			[]string{"GPU of the job (1)"}},
		{"gpu-memory-free", "DataParallel uses all",
			both(both(nproc(1), func(f *Facts) { f.Job.Sharding = set("dp") }),
				second(func(d *Device) { d.FreeBytes = 0 })), fail, nil},
		{"gpu-memory-free", "CUDA's order",
			both(both(nproc(1), visibleAs("1,0")), second(func(d *Device) { d.FreeBytes = 0 })), fail,
			[]string{"GPU 1"}},
		{"gpu-memory-free", "unified memory",
			second(func(d *Device) { d.MemoryKnown, d.Note = false, "not supported" }), warn,
			[]string{"GPU 1 (NVIDIA H100) does not tell its free memory (not supported)", "MemAvailable"}},
		{"gpu-memory-free", "in part", atLeast(12 * gib), skip,
			[]string{"at least 12.00 GiB needed; activations not known"}},
		{"gpu-memory-free", "in part and short",
			both(atLeast(42*gib), second(func(d *Device) { d.FreeBytes = 39 * gib })), fail,
			[]string{"39.00 GiB free", "at least 42.00 GiB needed"}},
		{"gpu-memory-free", "either way",
			both(between(12*gib, 50*gib), second(func(d *Device) { d.FreeBytes = 39 * gib })), skip,
			[]string{"at least 12.00 GiB", "optimizer not known"}},
		{"gpu-memory-free", "in any case", between(12*gib, 50*gib), pass, []string{"at least 12.00 GiB needed"}},
		{"gpu-memory-free", "no estimate", noEstimate, skip, nil},
		{"gpu-memory-free", "declared", declared, skip, nil},
		{"gpu-memory-free", "CPU job", onCPU, skip, nil},
		{"gpu-memory-free", "hidden", visibleAs(""), skip, []string{"cuda-visible-devices"}},

		{"headroom", "in part", atLeast(12 * gib), skip,
			[]string{"at least 12.00 GiB needed of 80.00 GiB (H100 SXM 80GB); activations not known",
				"give --activations SIZE"}},
		{"headroom", "in part and too much", atLeast(90 * gib), fail,
			[]string{"at least 90.00 GiB needed", "10.00 GiB more than there is"}},
		{"headroom", "in part, and less than a tenth left", atLeast(73 * gib), fail,
			[]string{"at least 73.00 GiB needed"}},
		{"headroom", "in part on an unknown GPU", both(atLeast(12*gib), unknownGPU), skip,
			[]string{"at least 12.00 GiB needed", "--gpu"}},
		{"headroom", "either way", between(12*gib, 90*gib), skip,
			[]string{"between 12.00 GiB and 90.00 GiB needed of 80.00 GiB", "optimizer not known", "give --optimizer"}},
		{"headroom", "too much in any case", between(85*gib, 90*gib), fail, []string{"at least 85.00 GiB needed"}},
		{"headroom", "little enough in any case", between(12*gib, 60*gib), pass, []string{"at most 60.00 GiB needed"}},
		{"headroom", "half", func(*Facts) {}, pass,
			[]string{"40.00 GiB needed of 80.00 GiB", "40.00 GiB (50.0 %) free", "at least 10 %"}},
		{"headroom", "exactly a fifth", needBytes(64 * gib), pass, []string{"20.0 %"}},
		{"headroom", "less than a fifth", needBytes(64*gib + 1), warn, []string{"20 % are better", "oomguard plan"}},
		{"headroom", "exactly a tenth", needBytes(72 * gib), warn, []string{"10.0 %"}},
		{"headroom", "less than a tenth", needBytes(72*gib + 1), fail, []string{"oomguard plan"}},
		{"headroom", "does not fit", needBytes(100 * gib), fail, []string{"20.00 GiB more than there is"}},
		{"headroom", "interval crosses", highBytes(73 * gib), warn,
			[]string{"as high as 73.00 GiB", "oomguard explain"}},
		{"headroom", "own number", func(f *Facts) { f.HeadroomPercent = 55 }, fail, []string{"at least 55 %"}},
		{"headroom", "own number below the rule", both(needBytes(75*gib), func(f *Facts) { f.HeadroomPercent = 5 }),
			warn, []string{"at least 5 %"}},
		{"headroom", "unknown GPU", unknownGPU, skip, []string{"40.00 GiB", "--gpu"}},
		{"headroom", "no estimate", noEstimate, skip, nil},

		{"other-processes", "desktop", holding(gib/2, Process{PID: 9, Name: "Xorg", UsedBytes: gib / 2, Known: true}),
			pass, []string{"0.50 GiB in use", "0.50 GiB tolerated"}},
		{"other-processes", "somebody else's",
			holding(3*gib, Process{PID: 9, Name: "python", UsedBytes: 2 * gib, Known: true}, Process{PID: 10}), warn,
			[]string{"GPU 1 (NVIDIA H100): 3.00 GiB in use", "pid 9 (python) 2.00 GiB",
				"pid 10 (name unknown) size unknown", "ask their owners"}},
		{"other-processes", "ours", holding(3*gib,
			Process{PID: 9, Name: "python", UsedBytes: 2 * gib, Known: true, Ours: true}), warn,
			[]string{"left over", "kill PID"}},
		{"other-processes", "nobody listed", holding(3 * gib), warn, []string{"by no listed process"}},
		{"other-processes", "list unknown", both(holding(3*gib), second(func(d *Device) { d.ProcessesKnown = false })),
			warn, []string{"does not say by whom"}},
		{"other-processes", "in a container", both(holding(3*gib), func(f *Facts) { f.Host.PIDNamespace = true }), warn,
			[]string{"outside this container"}},
		{"other-processes", "listed in a container",
			both(holding(3*gib, Process{PID: 9}), func(f *Facts) { f.Host.PIDNamespace = true }), warn,
			[]string{"pids of the host"}},
		{"other-processes", "not on our GPUs", both(nproc(1), holding(3*gib)), pass, nil},
		{"other-processes", "declared", declared, skip, nil},

		{"compute-mode", "default", func(*Facts) {}, pass, []string{"GPU of the job (2)"}},
		{"compute-mode", "prohibited", second(func(d *Device) { d.ComputeMode = "prohibited" }), fail,
			[]string{"GPU 1", "nvidia-smi -c DEFAULT"}},
		{"compute-mode", "exclusive and free", second(func(d *Device) { d.ComputeMode = "exclusive-process" }), pass,
			nil},
		{"compute-mode", "exclusive and taken",
			second(func(d *Device) { d.ComputeMode = "exclusive-process"; d.Processes = []Process{{PID: 77}} }), fail,
			[]string{"pid 77"}},
		{"compute-mode", "unknown", second(func(d *Device) { d.ComputeMode = "" }), skip, []string{"GPU 1"}},
		{"compute-mode", "CPU job", onCPU, skip, nil},

		{"alloc-conf", "none", func(*Facts) {}, pass, []string{"none set"}},
		{"alloc-conf", "failure before warning", both(problem("warn"), problem("fail")), fail,
			[]string{"is odd", "drop it"}},
		{"alloc-conf", "warning", problem("warn"), warn, []string{"is odd", "drop it"}},
		// 0.4 x 80 GiB = 32 GiB.
		{"alloc-conf", "capped too low", func(f *Facts) { f.Alloc.MemoryFraction = 0.4 }, fail,
			[]string{"40 % of the GPU (32.00 GiB)", "38.50 GiB"}},
		{"alloc-conf", "capped, and needed in part",
			both(atLeast(12*gib), func(f *Facts) { f.Alloc.MemoryFraction = 0.4 }), pass, nil},
		{"alloc-conf", "capped below a part", both(atLeast(36*gib), func(f *Facts) { f.Alloc.MemoryFraction = 0.4 }),
			fail, []string{"36.00 GiB"}},
		{"alloc-conf", "capped high enough", func(f *Facts) { f.Alloc.MemoryFraction = 0.5 }, pass, nil},
		{"alloc-conf", "capped on an unknown GPU", both(unknownGPU, func(f *Facts) { f.Alloc.MemoryFraction = 0.1 }),
			pass, nil},
		{"alloc-conf", "remark", problem("info"), pass, []string{"PYTORCH_CUDA_ALLOC_CONF=x:1", "is odd"}},
	}
}
