package preflight

import (
	"fmt"

	"oomguard/checklists"
)

func totalEstimated() check {
	return check{
		ID:    "total-estimated",
		Title: "The total memory of one GPU is estimated",
		Judge: judgeTotalEstimated,
	}
}

func judgeTotalEstimated(f Facts, _ checklists.Params) checklists.Verdict {
	if v, missing := f.noEstimate(warned); missing {
		return v
	}
	p := f.Estimate.PerGPU
	if f.Estimate.Partial {
		return warned(fmt.Sprintf("at least %s for each rank; %s", f.bytes(p.LowBytes), f.Estimate.Lacks()),
			"give "+f.Estimate.Give())
	}
	return passed(fmt.Sprintf("%s for each rank (between %s and %s), highest in %s",
		f.bytes(p.DeviceBytes), f.bytes(p.LowBytes), f.bytes(*p.HighBytes), p.PeakStage))
}

// noEstimate is the verdict, of the given kind, of a check that needs the estimate when there is none.
func (f Facts) noEstimate(kind func(detail, remedy string) checklists.Verdict) (checklists.Verdict, bool) {
	const remedy = "name a language model: --model DIR|CONFIG.json; of other programs measure one small run " +
		"(--params N gives a lower bound)"
	switch {
	case f.EstimateErr != nil:
		return kind("no estimate: "+f.EstimateErr.Error(), remedy), true
	case f.Estimate == nil:
		return kind("no estimate was made", remedy), true
	}
	return checklists.Verdict{}, false
}
