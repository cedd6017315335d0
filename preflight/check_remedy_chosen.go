package preflight

import (
	"fmt"
	"slices"

	"oomguard/checklists"
)

func remedyChosen() check {
	return check{
		ID:       "remedy-chosen",
		Title:    "The cheapest remedy for that part is chosen, or none is needed",
		Defaults: checklists.Params{"need_percent": 10},
		Judge:    judgeRemedyChosen,
	}
}

// judgeRemedyChosen takes a remedy for chosen when the planner, which offers only what is not on yet and helps, no longer offers it.
func judgeRemedyChosen(f Facts, with checklists.Params) checklists.Verdict {
	if v, missing := f.noEstimate(skipped); missing {
		return v
	}
	need := f.headroomPercent(with["need_percent"])
	if v, open := f.undecided(need); open {
		return v
	}
	total := f.Estimate.GPU.TotalBytes
	used, _ := f.decisive(need)
	if free := percentFree(total, used); free >= need {
		return passed(fmt.Sprintf("none is needed: %.1f %% of %s stay free", free, f.device()))
	}
	short := fmt.Sprintf("%s at the peak, and %.0f %% are needed", f.left(total, used), need)
	if f.Estimate.Open() {
		return warned(short+"; "+f.Estimate.Lacks(), "make what is counted smaller (oomguard plan), and give "+f.Estimate.Give())
	}
	if len(f.Remedies) == 0 {
		return warned(short+", and no single setting makes this job smaller", f.moreMemory())
	}
	largest := f.Estimate.Bottleneck
	for _, r := range f.Remedies {
		if slices.Contains(remediesOf(largest), r.ID) {
			return warned(fmt.Sprintf("%s; for %s (%s) %s is left, which saves %s", short, largest, f.bytes(f.bottleneckBytes()), r.ID,
				f.bytes(r.SavesBytes)), r.How+"; oomguard plan shows all remedies")
		}
	}
	next := f.Remedies[0]
	if len(remediesOf(largest)) == 0 {
		return warned(fmt.Sprintf("%s; no setting is made for %s, and the cheapest of the others, %s, saves %s", short, largest, next.ID,
			f.bytes(next.SavesBytes)), next.How+"; oomguard plan shows all remedies")
	}
	return warned(fmt.Sprintf("what helps against %s is on already, but %s; the cheapest of the others, %s, saves %s",
		largest, short, next.ID, f.bytes(next.SavesBytes)), next.How+"; oomguard plan shows all remedies")
}

// remediesOf names the planner's remedies that aim at one component. Others, such as a smaller batch, act on several.
func remediesOf(component string) []string {
	return map[string][]string{
		"activations":    {"checkpointing"},
		"logits":         {"fused-loss"},
		"optimizer":      {"optimizer-8bit", "sharding"},
		"master_weights": {"sharding"},
		"gradients":      {"sharding"},
		"parameters":     {"sharding", "lora"},
	}[component]
}
