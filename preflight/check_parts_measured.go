package preflight

import (
	"fmt"

	"oomguard/checklists"
)

func partsMeasured() check {
	return check{
		ID:    "parts-measured",
		Title: "Each part of this job has been measured in an earlier run",
		Judge: judgePartsMeasured,
	}
}

func judgePartsMeasured(f Facts, _ checklists.Params) checklists.Verdict {
	e, found := f.newest(func(e Earlier) bool { return e.Measured && e.JobKey == JobKey(f.Job) })
	if !found {
		remedy := "let oomguard run record the first one, with few steps"
		if f.Mode == ModeRun {
			remedy = "nothing to do: this run records every stage"
		}
		return skipped(fmt.Sprintf("none of %d earlier runs measured this job", len(f.History)), remedy)
	}
	detail := fmt.Sprintf("run %s of %s measured the stages", e.Run, e.When.UTC().Format("2006-01-02"))
	if e.PeakBytes > 0 {
		detail += ", peak " + f.bytes(e.PeakBytes)
		if f.Estimate != nil {
			detail += fmt.Sprintf(" (estimated now: %s)", f.needed())
		}
	}
	return passed(detail)
}

// newest is the latest earlier run that fits. Without a job no run is an earlier one of it.
func (f Facts) newest(fits func(Earlier) bool) (Earlier, bool) {
	var best Earlier
	found := false
	if f.Job == nil {
		return best, false
	}
	for _, e := range f.History {
		if fits(e) && (!found || e.When.After(best.When)) {
			best, found = e, true
		}
	}
	return best, found
}
