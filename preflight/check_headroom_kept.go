package preflight

import (
	"fmt"

	"oomguard/checklists"
)

func headroomKept() check {
	return check{
		ID:       "headroom-kept",
		Title:    "10-20 % of the memory is kept free",
		Defaults: checklists.Params{"need_percent": 10},
		Judge:    judgeHeadroomKept,
	}
}

func judgeHeadroomKept(f Facts, with checklists.Params) checklists.Verdict {
	if v, missing := f.noEstimate(skipped); missing {
		return v
	}
	free, known := f.headroomLeft()
	if !known {
		return skipped("the memory of the GPU is unknown", giveGPU)
	}
	need := f.headroomPercent(with["need_percent"])
	total := f.Estimate.GPU.TotalBytes
	detail := fmt.Sprintf("of %s: %s, %.0f %% are needed", f.bytes(total), f.left(total, f.Estimate.PerGPU.DeviceBytes), need)
	if free < need {
		return warned(detail, "oomguard plan shows what would make room, cheapest first")
	}
	return passed(detail)
}
