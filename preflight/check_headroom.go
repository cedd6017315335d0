package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
)

// headroom's defaults are the project's rule: 10 to 20 % of the memory of a GPU stay free.
func headroom() check {
	return check{
		ID:       "headroom",
		Title:    "Enough of each GPU stays free at the estimated peak",
		Defaults: checklists.Params{"fail_percent": 10, "warn_percent": 20},
		Judge:    judgeHeadroom,
		Decides:  true,
	}
}

const giveGPU = "give --gpu (such as 8xH100-80GB) or --gpu-memory 48GiB, or run this where the job will run"

func judgeHeadroom(f Facts, with checklists.Params) checklists.Verdict {
	if v, missing := f.noEstimate(skipped); missing {
		return v
	}
	silent := f.silentDevices()
	least := f.headroomPercent(with["fail_percent"])
	if v, open := f.undecided(least); open {
		return v
	}
	total := f.Estimate.GPU.TotalBytes
	need, words := f.decisive(least)
	free := percentFree(total, need)
	detail := fmt.Sprintf("%s needed of %s (%s): %s; at least %.0f %% must stay free", words, f.bytes(total),
		f.Estimate.GPU.Name, f.left(total, need), least)
	const remedy = "oomguard plan shows what would make it fit, cheapest first"
	if free < least {
		return failed(detail, remedy)
	}
	high := *f.Estimate.PerGPU.HighBytes // a lower bound decides nothing but a failure
	switch {
	case len(silent) > 0:
		return warned(fmt.Sprintf("%s. Not judged, as the memory is unknown: %s", detail, strings.Join(silent, "; ")),
			"see what nvidia-smi shows, or "+giveGPU)
	case percentFree(total, high) < least:
		return warned(fmt.Sprintf("%s. The estimate may be as high as %s: %s", detail, f.bytes(high),
			f.left(total, high)),
			"narrow the estimate (oomguard explain shows what is unknown), or see oomguard plan")
	case free < with["warn_percent"]:
		return warned(fmt.Sprintf("%s, %.0f %% are better", detail, with["warn_percent"]), remedy)
	}
	return passed(detail)
}

// silentDevices are the devices of the job whose size is not known, so that the estimate is held against the others
// only.
func (f Facts) silentDevices() []string {
	if f.Declared != "" || f.onCPU() {
		return nil
	}
	var silent []string
	for _, d := range f.used() {
		if !d.MemoryKnown {
			silent = append(silent, label(d)+withNote(d.whyNoMemory()))
		}
	}
	return silent
}

// headroomPercent is what must stay free: the user's own number if there is one.
func (f Facts) headroomPercent(listed float64) float64 {
	if f.HeadroomPercent > 0 {
		return f.HeadroomPercent
	}
	return listed
}
