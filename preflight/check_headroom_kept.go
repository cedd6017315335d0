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
	need := f.headroomPercent(with["need_percent"])
	if v, open := f.undecided(need); open {
		return v
	}
	total := f.Estimate.GPU.TotalBytes
	used, _ := f.decisive(need)
	detail := fmt.Sprintf("of %s: %s, %.0f %% are needed", f.bytes(total), f.left(total, used), need)
	if percentFree(total, used) < need {
		return warned(detail, "oomguard plan shows what would make room, cheapest first")
	}
	return passed(detail)
}
