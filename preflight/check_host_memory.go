package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
)

func hostMemory() check {
	return check{
		ID:    "host-memory",
		Title: "The host has the memory that the ranks take outside the GPUs",
		Judge: judgeHostMemory,
	}
}

// hostNeed is one claim on host memory. Sure claims fail the check; the others are upper bounds and only warn.
type hostNeed struct {
	what  string
	bytes int64
	sure  bool
}

func judgeHostMemory(f Facts, _ checklists.Params) checklists.Verdict {
	if f.elsewhere() {
		return skipped("the job will run on another machine than this one",
			"nothing to do here; this is judged where the job starts")
	}
	available, bound := f.Host.availableBytes()
	if available == 0 {
		detail := "the host's available memory is unknown"
		if f.HostErr != nil {
			detail += ": " + f.HostErr.Error()
		}
		return skipped(detail, "look at free -h before a run that loads a large model")
	}
	n, known := f.processes()
	if !known {
		return skipped("the number of processes on a node is not known", "give --nproc")
	}
	needs := f.hostNeeds(int64(n))
	if len(needs) == 0 {
		return skipped("the size of the model is not known",
			"name the model: --model DIR|CONFIG.json, or its number of parameters: --params")
	}
	var sure, all int64
	var texts []string
	for _, need := range needs {
		all += need.bytes
		if need.sure {
			sure += need.bytes
		}
		texts = append(texts, fmt.Sprintf("%s: %s", need.what, f.bytes(need.bytes)))
	}
	detail := fmt.Sprintf("%s %s; needed for %s", f.bytes(available), bound, strings.Join(texts, ", "))
	switch {
	case sure > available:
		return failed(detail, "start fewer processes on the node, choose a smaller model, or raise the memory limit "+
			"of the container or job")
	case all > available:
		return warned(detail+" at most",
			"load the weights by one rank or straight to the GPU (low_cpu_mem_usage, cpu_ram_efficient_loading, "+
				"meta device)")
	}
	return passed(detail)
}

// hostNeeds lists what n ranks of one node take of host memory, as far as it is known.
func (f Facts) hostNeeds(n int64) []hostNeed {
	if f.onCPU() {
		return []hostNeed{{fmt.Sprintf("%d ranks training on the CPU", n), saturate(n, f.Estimate.Least()), true}}
	}
	var needs []hostNeed
	load, sure := f.RankLoadBytes, true
	if load == 0 && f.Job != nil {
		load, sure = saturate(f.parameters(), loadBytesPerParameter(f)), false
	}
	if load > 0 {
		needs = append(needs, hostNeed{fmt.Sprintf("%d ranks loading the whole model", n), saturate(n, load), sure})
	}
	if f.Estimate != nil && f.Estimate.Host.PerNodeBytes > 0 {
		host := f.Estimate.Host
		names := make([]string, len(host.Parts))
		for i, p := range host.Parts {
			names[i] = p.What
		}
		needs = append(needs, hostNeed{"what is offloaded (" + strings.Join(names, ", ") + ")", host.PerNodeBytes,
			true})
		// CachingHostAllocator rounds pinned blocks up to powers of two
		if more := host.PerNodeHighBytes - host.PerNodeBytes; more > 0 {
			needs = append(needs, hostNeed{"rounding of pinned memory", more, false})
		}
	}
	return needs
}

func (f Facts) parameters() int64 {
	if f.Estimate != nil && f.Estimate.Model.Parameters > 0 {
		return f.Estimate.Model.Parameters
	}
	if f.Job == nil {
		return 0
	}
	return max(f.Job.ModelParams.Or(0), 0)
}

// loadBytesPerParameter is the width in which the checkpoint is stored, or else that of the weights; fp32 when neither
// is known.
func loadBytesPerParameter(f Facts) int64 {
	dtype := f.Job.BaseDtype.Or(f.Job.ParamDtype.Or(""))
	if a := f.Job.Architecture; a != nil && a.Dtype != "" {
		dtype = a.Dtype
	}
	switch dtype {
	case "bf16", "fp16":
		return 2
	}
	return 4
}

// saturate multiplies counts without wrapping: absurd input must stay absurdly large.
func saturate(a, b int64) int64 {
	if a > 0 && b > (1<<62)/a {
		return 1 << 62
	}
	return a * b
}
