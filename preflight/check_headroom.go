package preflight

import (
	"fmt"

	"oomguard/checklists"
)

// headroom's defaults are the project's rule: 10 to 20 % of the memory of a GPU stay free.
func headroom() check {
	return check{
		ID:       "headroom",
		Title:    "Enough of each GPU stays free at the estimated peak",
		Defaults: checklists.Params{"fail_percent": 10, "warn_percent": 20},
		Judge:    judgeHeadroom,
	}
}

const giveGPU = "give --gpu (such as 8xH100-80GB) or --gpu-memory 48GiB, or run this where the job will run"

func judgeHeadroom(f Facts, with checklists.Params) checklists.Verdict {
	if v, missing := f.noEstimate(skipped); missing {
		return v
	}
	free, known := f.headroomLeft()
	if !known {
		return skipped(fmt.Sprintf("%s are needed and the memory of the GPU is unknown", f.bytes(f.Estimate.PerGPU.DeviceBytes)), giveGPU)
	}
	least := f.headroomPercent(with["fail_percent"])
	total, p := f.Estimate.GPU.TotalBytes, f.Estimate.PerGPU
	detail := fmt.Sprintf("%s needed of %s (%s): %s; at least %.0f %% must stay free",
		f.bytes(p.DeviceBytes), f.bytes(total), f.Estimate.GPU.Name, f.left(total, p.DeviceBytes), least)
	const remedy = "oomguard plan shows what would make it fit, cheapest first"
	worst := percentFree(total, p.HighBytes)
	switch {
	case free < least:
		return failed(detail, remedy)
	case worst < least:
		return warned(fmt.Sprintf("%s. The estimate may be as high as %s: %s", detail, f.bytes(p.HighBytes), f.left(total, p.HighBytes)),
			"narrow the estimate (oomguard explain shows what is unknown), or see oomguard plan")
	case free < with["warn_percent"]:
		return warned(fmt.Sprintf("%s, %.0f %% are better", detail, with["warn_percent"]), remedy)
	}
	return passed(detail)
}

// headroomPercent is what must stay free: the user's own number if there is one.
func (f Facts) headroomPercent(listed float64) float64 {
	if f.HeadroomPercent > 0 {
		return f.HeadroomPercent
	}
	return listed
}

// headroomLeft is the share of the device that the estimate leaves free, in percent; negative when it does not fit at all.
func (f Facts) headroomLeft() (float64, bool) {
	if f.Estimate == nil || f.Estimate.GPU.TotalBytes <= 0 {
		return 0, false
	}
	return percentFree(f.Estimate.GPU.TotalBytes, f.Estimate.PerGPU.DeviceBytes), true
}

// left says what is left of total, or how much is lacking.
func (f Facts) left(total, used int64) string {
	if used > total {
		return f.bytes(used-total) + " more than there is"
	}
	return fmt.Sprintf("%s (%.1f %%) free", f.bytes(total-used), percentFree(total, used))
}

func percentFree(total, used int64) float64 { return 100 * float64(total-used) / float64(total) }
