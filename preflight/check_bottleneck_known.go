package preflight

import (
	"fmt"

	"oomguard/checklists"
)

func bottleneckKnown() check {
	return check{
		ID:    "bottleneck-known",
		Title: "The part that needs the most memory is known",
		Judge: judgeBottleneckKnown,
	}
}

func judgeBottleneckKnown(f Facts, _ checklists.Params) checklists.Verdict {
	if e, found := f.newest(func(e Earlier) bool { return e.Bottleneck != "" && e.JobKey == JobKey(f.Job) }); found {
		return passed(fmt.Sprintf("%s, as measured in run %s", e.Bottleneck, e.Run))
	}
	if v, missing := f.noEstimate(skipped); missing {
		return v
	}
	if f.Estimate.Open() {
		return f.open()
	}
	if f.Estimate.Bottleneck == "" {
		return skipped("the estimate names no largest part",
			"give the model's config.json (--model) instead of --params, so that its parts can be told apart")
	}
	return passed(fmt.Sprintf("%s, %s of %s by the estimate",
		f.Estimate.Bottleneck, f.bytes(f.bottleneckBytes()), f.bytes(f.Estimate.PerGPU.DeviceBytes)))
}

// bottleneckBytes is the largest component of the peak stage.
func (f Facts) bottleneckBytes() int64 {
	var largest int64
	for _, n := range f.Estimate.PerGPU.Components {
		largest = max(largest, n)
	}
	return largest
}
