package preflight

import (
	"errors"
	"time"

	"oomguard/checklists"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// needBytes makes the estimate ask for this much, without doubt.
func needBytes(n int64) func(*Facts) {
	return func(f *Facts) {
		p := &f.Estimate.PerGPU
		p.DeviceBytes, p.LowBytes, p.HighBytes = n, n, &n
	}
}

// atLeast makes the estimate a lower bound of n bytes without activations.
func atLeast(n int64) func(*Facts) {
	return func(f *Facts) {
		e := f.Estimate
		e.Partial, e.Bottleneck, e.PerGPU.LowBytes, e.PerGPU.HighBytes = true, "", n, nil
		e.NotCounted = []estimate.NotCounted{{What: "activations", Why: "not known", Give: "--activations SIZE"}}
	}
}

// between makes it an interval of which the optimizer decides what holds.
func between(low, high int64) func(*Facts) {
	return func(f *Facts) {
		f.Estimate.Unsettled, f.Estimate.PerGPU.LowBytes, f.Estimate.PerGPU.HighBytes = []string{"optimizer"}, low,
			&high
	}
}

func both(a, b func(*Facts)) func(*Facts) {
	return func(f *Facts) { a(f); b(f) }
}

func noJob(f *Facts)      { f.Job = nil }
func noEstimate(f *Facts) { f.Estimate = nil }
func checkMode(f *Facts)  { f.Mode = ModeCheck }
func noDevice(f *Facts) {
	f.Devices, f.DevicesErr, f.Host.DriverFiles = nil, errors.New("libnvidia-ml.so.1 was not found"), nil
}
func onCPU(f *Facts) { noDevice(f); f.Estimate.GPU.Kind = "cpu" }
func declared(f *Facts) {
	noDevice(f)
	f.Mode, f.Declared = ModeCheck, "flag --gpu 8xH100-80GB"
	f.DeclaredGPUs = 8
}
func unknownGPU(f *Facts) { f.Estimate.GPU.TotalBytes = 0 }

func jobJudgements() []judgement {
	const pass, skip, warn, fail = checklists.Pass, checklists.Skip, checklists.Warn, checklists.Fail
	bottleneck := func(name string) func(*Facts) {
		return both(needBytes(78*gib), func(f *Facts) { f.Estimate.Bottleneck = name })
	}
	return []judgement{
		{"total-estimated", "known", func(*Facts) {}, pass,
			[]string{"40.00 GiB", "38.00 GiB and 44.00 GiB", "backward"}},
		{"total-estimated", "SI", func(f *Facts) { f.Units = SI }, pass, []string{"42.95 GB"}}, // 40 x 2^30 / 10^9
		{"total-estimated", "none", noEstimate, warn, []string{"no estimate was made", "--params"}},
		{"total-estimated", "error", func(f *Facts) { f.EstimateErr = errors.New("unknown model_type") }, warn,
			[]string{"unknown model_type"}},

		{"total-estimated", "in part", atLeast(12 * gib), warn,
			[]string{"at least 12.00 GiB", "activations not known", "give --activations SIZE"}},

		{"parts-measured", "estimated in part", atLeast(12 * gib), pass, []string{"estimated now: at least 12.00 GiB"}},
		{"parts-measured", "newest run", func(*Facts) {}, pass,
			[]string{"run r1 of 2026-03-01", "peak 41.00 GiB", "40.00 GiB"}},
		{"parts-measured", "first run", func(f *Facts) { f.History = nil }, skip,
			[]string{"none of 0", "this run records"}},
		{"parts-measured", "gate", func(f *Facts) { f.History = nil; f.Mode = ModeCheck }, skip, []string{"few steps"}},
		{"parts-measured", "other batch", func(f *Facts) { f.Job.MicroBatch = set(16) }, skip, []string{"none of 2"}},
		{"parts-measured", "no job", noJob, skip, nil},

		{"bottleneck-known", "measured", func(*Facts) {}, pass, []string{"logits, as measured in run r1"}},
		{"bottleneck-known", "estimated", func(f *Facts) { f.History = nil }, pass,
			[]string{"activations, 25.00 GiB of 40.00 GiB by the estimate"}},
		{"bottleneck-known", "neither", func(f *Facts) { f.History = nil; f.Estimate = nil }, skip, nil},
		{"bottleneck-known", "not named", func(f *Facts) { f.History = nil; f.Estimate.Bottleneck = "" }, skip,
			[]string{"config.json"}},

		{"bottleneck-known", "in part", both(atLeast(12*gib), func(f *Facts) { f.History = nil }), skip,
			[]string{"activations not known", "--activations SIZE"}},
		{"bottleneck-known", "measured, estimated in part", atLeast(12 * gib), pass, []string{"logits, as measured"}},

		{"remedy-chosen", "in part", atLeast(12 * gib), skip,
			[]string{"at least 12.00 GiB needed of 80.00 GiB", "activations not known"}},
		{"remedy-chosen", "in part and too much", atLeast(90 * gib), warn,
			[]string{"10.00 GiB more than there is", "activations not known"}},
		{"remedy-chosen", "either way", between(12*gib, 90*gib), skip,
			[]string{"between 12.00 GiB and 90.00 GiB", "give --optimizer"}},
		{"remedy-chosen", "not needed in any case", between(12*gib, 60*gib), pass, []string{"none is needed: 25.0 %"}},
		{"remedy-chosen", "not needed", func(*Facts) {}, pass, []string{"none is needed: 50.0 %"}},
		{"remedy-chosen", "own headroom", func(f *Facts) { f.HeadroomPercent = 60 }, warn, []string{"60 % are needed"}},
		{"remedy-chosen", "left", bottleneck("activations"), warn,
			[]string{"2.00 GiB (2.5 %) free at the peak",
				"activations (25.00 GiB) grad-accum is left, which saves 5.00 GiB", "take a smaller batch",
				"oomguard plan"}},
		{"remedy-chosen", "second of two", bottleneck("parameters"), warn, []string{"lora is left"}},
		{"remedy-chosen", "on already", both(bottleneck("gradients"), func(f *Facts) { f.Remedies = f.Remedies[:2] }),
			warn, []string{"against gradients is on already", "grad-accum, saves 5.00 GiB"}},
		{"remedy-chosen", "none for this part", bottleneck("context"), warn,
			[]string{"no setting is made for context", "smaller batch"}},
		{"remedy-chosen", "nothing helps", both(bottleneck("activations"), func(f *Facts) { f.Remedies = nil }), warn,
			[]string{"no single setting", "more GPUs"}},
		{"remedy-chosen", "unknown GPU", unknownGPU, skip, []string{"--gpu"}},
		{"remedy-chosen", "no estimate", noEstimate, skip, nil},

		{"headroom-kept", "in part", atLeast(12 * gib), skip, []string{"at least 12.00 GiB"}},
		{"headroom-kept", "in part and too much", atLeast(75 * gib), warn, []string{"5.00 GiB (6.2 %) free"}},
		{"headroom-kept", "either way", between(12*gib, 90*gib), skip, []string{"between"}},
		{"headroom-kept", "half", func(*Facts) {}, pass, []string{"of 80.00 GiB: 40.00 GiB (50.0 %) free"}},
		{"headroom-kept", "just", needBytes(72 * gib), pass, []string{"10.0 %"}},
		{"headroom-kept", "too little", needBytes(72*gib + 1), warn, []string{"oomguard plan"}},
		{"headroom-kept", "unknown GPU", unknownGPU, skip, nil},

		{"remedy-tried-small", "small", func(*Facts) {}, pass, []string{"run r1"}},
		{"remedy-tried-small", "fewer tokens",
			func(f *Facts) { f.History[0].Small = false; f.History[0].Tokens = 8*1024 - 1 }, pass, nil},
		{"remedy-tried-small", "as many tokens",
			func(f *Facts) { f.History[0].Small = false; f.History[0].Tokens = 8 * 1024 }, skip, nil},
		{"remedy-tried-small", "other settings", func(f *Facts) { f.Job.Optimizer = set("sgd") }, skip,
			[]string{"few steps"}},
		{"remedy-tried-small", "died", func(f *Facts) { f.History[0].Outcome = "oom" }, warn, []string{"(oom)"}},
		{"remedy-tried-small", "no job", noJob, skip, nil},

		{"job-consistent", "contradiction", func(f *Facts) { f.Job.WillFail = set("batch 7 is not 2 x 2 x 2") }, fail,
			[]string{"batch 7"}},
		{"job-consistent", "not read", func(f *Facts) { f.Job.Unreadable = []error{errors.New("$BS is not known")} },
			warn, []string{"not read: $BS is not known"}},
		{"job-consistent", "not here", func(f *Facts) { f.Job.Absent = []error{errors.New("model ./m: no such folder")} }, skip, []string{"not on this machine: model ./m"}},
		{"job-consistent", "both, and a contradiction", func(f *Facts) {
			f.Job.Absent, f.Job.Unreadable, f.Job.Problems = []error{errors.New("a")}, []error{errors.New("b")},
				[]error{errors.New("ds.json:3: bad")}
		}, fail, []string{"ds.json:3: bad"}},
		{"job-consistent", "refused", func(f *Facts) {
			f.Job.Problems = []error{errors.New("ds.json:3: bad"),
				errors.New("x.yaml: bad")}
		}, fail,
			[]string{"ds.json:3: bad; x.yaml: bad", "oomguard explain"}},
		{"job-consistent", "a contradiction said once", func(f *Facts) {
			f.Job.WillFail = set("ds.json:3: bad")
			f.Job.Problems = []error{errors.New("ds.json:3: bad"), errors.New("x.yaml: bad")}
		}, fail, []string{"at its start: ds.json:3: bad; x.yaml: bad"}},
		{"job-consistent", "will not fail", func(f *Facts) { f.Job.WillFail = set("") }, pass, nil},
		{"job-consistent", "no job", noJob, skip, nil},

		{"command-found", "found", func(*Facts) {}, pass, []string{"/venv/bin/torchrun"}},
		{"command-found", "missing", func(f *Facts) { f.Command.Err = errors.New("not in $PATH") }, fail,
			[]string{"torchrun", "not in $PATH", "activate"}},
		{"command-found", "missing at a gate",
			func(f *Facts) { f.Command.Err = errors.New("not in $PATH"); f.Mode = ModeCheck }, skip, nil},
		{"command-found", "none given", func(f *Facts) { f.Command = Lookup{} }, skip, nil},

		{"weights-complete", "whole", func(*Facts) {}, pass, []string{"4 files of 16.00 GiB"}},
		{"weights-complete", "a shard is missing", func(f *Facts) {
			f.Weights = Weights{Read: &model.Weights{Problems: []string{"model-00002-of-00004.safetensors is missing",
				"b", "c", "d"}}}
		}, fail, []string{"model-00002-of-00004.safetensors is missing", "and 1 more", "once more"}},
		{"weights-complete", "another vocabulary",
			func(f *Facts) { f.Weights.Mismatch = []string{"embed_tokens has 32008 rows"} }, warn,
			[]string{"32008 rows"}},
		{"weights-complete", "none", func(f *Facts) { f.Weights = Weights{Err: errors.New("models has no safetensors files")} }, skip, []string{"no safetensors"}},
		{"weights-complete", "hub name", func(f *Facts) { f.Weights = Weights{} }, skip, []string{"--model DIR"}},
		{"script-found", "missing", func(f *Facts) { f.Script.Err = errors.New("no such file") }, fail,
			[]string{"train.py", "no such file"}},
		{"script-found", "missing at a gate",
			func(f *Facts) { f.Script.Err = errors.New("no such file"); f.Mode = ModeCheck }, warn, nil},
		{"script-found", "missing, and another machine", func(f *Facts) {
			f.Script.Err = errors.New("no such file")
			f.Mode, f.Declared = ModeCheck, "flag --gpu"
		}, skip, []string{"not on this machine"}},
		{"script-found", "missing, and a container",
			func(f *Facts) { f.Script.Err, f.Job.Place = errors.New("no such file"), job.Elsewhere }, skip, nil},
		{"script-found", "module", func(f *Facts) { f.Script = Lookup{} }, skip, []string{"-m"}},

		{"interpreter-found", "both", func(*Facts) {}, pass, []string{"/venv/bin/python with torch 2.6.0"}},
		{"interpreter-found", "versions given", func(f *Facts) { f.Job.Interpreter = "" }, pass,
			[]string{"torch 2.6.0"}},
		{"interpreter-found", "no torch", func(f *Facts) { f.Job.Versions = nil }, warn,
			[]string{"/venv/bin/python has no torch", "--versions"}},
		{"interpreter-found", "nothing", func(f *Facts) { f.Job.Versions = nil; f.Job.Interpreter = "" }, warn,
			[]string{"is not known"}},
		{"interpreter-found", "gate", both(checkMode, func(f *Facts) { f.Job.Versions = nil }), skip, nil},
		{"interpreter-found", "no job", noJob, skip, nil},
	}
}

func hostJudgements() []judgement {
	const pass, skip, warn, fail = checklists.Pass, checklists.Skip, checklists.Warn, checklists.Fail
	available := func(n int64) func(*Facts) { return func(f *Facts) { f.Host.MemAvailableBytes = n } }
	offloaded := func(bytes, high int64) func(*Facts) {
		return func(f *Facts) {
			f.Estimate.Host = estimate.HostMemory{PerNodeBytes: bytes, PerNodeHighBytes: high,
				Parts: []estimate.HostPart{{What: "optimizer states"}}}
		}
	}
	shm := func(total, free int64) func(*Facts) {
		return func(f *Facts) { f.Host.ShmTotalBytes, f.Host.ShmFreeBytes = total, free }
	}
	return []judgement{
		// 2 ranks x 4e9 parameters x 2 bytes (bf16) = 16e9 bytes = 14.90 GiB.
		{"host-memory", "enough", func(*Facts) {}, pass,
			[]string{"500.00 GiB of host memory available", "2 ranks loading the whole model: 14.90 GiB"}},
		{"host-memory", "loading may not fit", available(14 * gib), warn,
			[]string{"14.00 GiB", "14.90 GiB at most", "low_cpu_mem_usage"}},
		{"host-memory", "fp32 checkpoint", func(f *Facts) { f.Job.Architecture = &model.Architecture{Dtype: "fp32"} },
			pass, []string{"29.80 GiB"}},
		{"host-memory", "loading known", both(available(14*gib), func(f *Facts) { f.RankLoadBytes = 8 * gib }), fail,
			[]string{"16.00 GiB"}},
		{"host-memory", "control group",
			func(f *Facts) { f.Host.CgroupLimitBytes, f.Host.CgroupUsageBytes = 10*gib, 2*gib }, warn,
			[]string{"8.00 GiB left of the control group's limit"}},
		{"host-memory", "control group full",
			both(onCPU, func(f *Facts) { f.Host.CgroupLimitBytes, f.Host.CgroupUsageBytes = 10*gib, 11*gib }), fail,
			nil},
		// CPU: 2 x 40 GiB.
		{"host-memory", "CPU", both(onCPU, available(79*gib)), fail,
			[]string{"79.00 GiB", "2 ranks training on the CPU: 80.00 GiB"}},
		// ZeRO-Offload as the estimate counts it: 45 GiB of states on the node, which pinning may round up to 64 GiB.
		{"host-memory", "offload", both(available(44*gib), offloaded(45*gib, 64*gib)), fail,
			[]string{"what is offloaded (optimizer states): 45.00 GiB"}},
		{"host-memory", "offload that pinning rounds up", both(available(70*gib), offloaded(45*gib, 64*gib)), warn,
			[]string{"rounding of pinned memory: 19.00 GiB at most"}},
		{"host-memory", "offload that fits", both(available(500*gib), offloaded(45*gib, 64*gib)), pass, nil},
		{"host-memory", "absurd size", func(f *Facts) { f.Estimate.Model.Parameters = 1 << 62 }, warn, nil},
		{"host-memory", "elsewhere", declared, skip, nil},
		{"host-memory", "unknown memory", func(f *Facts) { f.Host = Host{}; f.HostErr = errors.New("no /proc") }, skip,
			[]string{"no /proc"}},
		{"host-memory", "unknown processes", func(f *Facts) { f.Job.NProc.Known = false }, skip, []string{"--nproc"}},
		{"host-memory", "unknown model", func(f *Facts) { f.Estimate = nil; f.Job.ModelParams.Known = false }, skip,
			[]string{"--params"}},

		{"shm", "enough", func(*Facts) {}, pass, []string{"256.00 GiB free of 256.00 GiB", "2 processes"}},
		{"shm", "Docker's 64 MiB", shm(64<<20, 64<<20), warn, []string{"64.00 MiB free", "2.00 GiB", "--shm-size"}},
		{"shm", "Docker's 64 MiB with 8 processes", both(shm(64<<20, 64<<20), func(f *Facts) { f.Job.NProc = set(8) }),
			fail, []string{"80.00 MiB"}},
		{"shm", "8 processes on the CPU",
			both(onCPU, both(shm(64<<20, 64<<20), func(f *Facts) { f.Job.NProc = set(8) })), warn, nil},
		{"shm", "unknown", shm(0, 0), skip, []string{"df -h"}},
		{"shm", "unknown processes", func(f *Facts) { f.Job.NProc.Known = false }, skip, nil},
		{"shm", "elsewhere", declared, skip, nil},

		{"run-folder-writable", "writable", func(*Facts) {}, pass, []string{"100.00 GiB free"}},
		{"run-folder-writable", "space unknown", func(f *Facts) { f.RunFolder.FreeBytes = 0 }, pass,
			[]string{"oomguard-runs can be written"}},
		{"run-folder-writable", "not", func(f *Facts) { f.RunFolder.Err = errors.New("read-only file system") }, fail,
			[]string{"read-only", "OOMGUARD_DIR"}},
		{"run-folder-writable", "nearly full", func(f *Facts) { f.RunFolder.FreeBytes = 5 << 20 }, warn,
			[]string{"5.00 MiB free", "0.25 GiB are wanted"}},
		{"run-folder-writable", "none", func(f *Facts) { f.RunFolder = Folder{} }, skip, nil},

		{"parts-measured", "order of history",
			func(f *Facts) { f.History[1].When = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }, pass,
			[]string{"run r0 of 2027-01-01"}},
	}
}
