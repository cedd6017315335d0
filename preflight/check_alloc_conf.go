package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
	"oomguard/preflight/allocconf"
	"oomguard/preflight/estimate"
)

func allocConf() check {
	return check{
		ID:    "alloc-conf",
		Title: "PyTorch's allocator settings are valid and take effect",
		Judge: judgeAllocConf,
	}
}

func judgeAllocConf(f Facts, _ checklists.Params) checklists.Verdict {
	problems := append(f.fraction(), f.AllocProblems...)
	for _, severity := range []allocconf.Severity{allocconf.Fail, allocconf.Warn} {
		var texts, remedies []string
		for _, p := range problems {
			if p.Severity == severity {
				texts = append(texts, allocText(p))
				remedies = append(remedies, p.Remedy)
			}
		}
		if len(texts) > 0 {
			return checklists.Verdict{Status: checklists.Status(severity), Detail: strings.Join(texts, "; "),
				Remedy: strings.Join(remedies, "; ")}
		}
	}
	texts := []string{"none set: the allocator's defaults hold"}
	if f.Alloc.Variable != "" {
		texts[0] = f.Alloc.Variable + "=" + f.Alloc.Text
	}
	for _, p := range problems { // remarks
		texts = append(texts, allocText(p))
	}
	return passed(strings.Join(texts, "; "))
}

// fraction: a cap on the allocator below what it will have to reserve fails the job however large the GPU is.
func (f Facts) fraction() []allocconf.Problem {
	share := f.Alloc.MemoryFraction
	if f.Estimate == nil || f.Estimate.GPU.TotalBytes <= 0 || f.onCPU() || share <= 0 || share >= 1 {
		return nil
	}
	limit, need := int64(share*float64(f.Estimate.GPU.TotalBytes)), f.leastReserved()
	if limit >= need {
		return nil
	}
	return []allocconf.Problem{{
		Severity: allocconf.Fail, Key: "per_process_memory_fraction",
		Text: fmt.Sprintf("per_process_memory_fraction lets a rank take %.0f %% of the GPU (%s); its allocator will "+
			"need %s",
			100*share, f.bytes(limit), f.bytes(need)),
		Remedy: "raise per_process_memory_fraction or leave it out",
	}}
}

func allocText(p allocconf.Problem) string {
	if p.Key == "" || strings.Contains(p.Text, p.Key) {
		return p.Text
	}
	return p.Key + ": " + p.Text
}

// leastReserved is what PyTorch's allocator will hold, or surely more than that.
func (f Facts) leastReserved() int64 {
	p := f.Estimate.PerGPU
	if f.Estimate.Open() {
		return max(f.Estimate.Least()-p.Components[estimate.Context], 0)
	}
	return p.ReservedBytes
}
