package preflight

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/checklists"
	"oomguard/preflight/plan"
	"oomguard/preflight/remedy"
)

func remedyChosen() check {
	return check{
		ID:       "remedy-chosen",
		Title:    "The cheapest remedy for that part is chosen, or none is needed",
		Defaults: checklists.Params{"need_percent": 10},
		Judge:    judgeRemedyChosen,
	}
}

// judgeRemedyChosen takes a remedy for chosen when the planner, which offers only what is not on yet and helps, no
// longer offers it.
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
		return warned(short+"; "+f.Estimate.Lacks(),
			"make what is counted smaller (oomguard plan), and give "+f.Estimate.Give())
	}
	if len(f.Remedies) == 0 {
		return warned(short+", and no single setting makes this job smaller", f.moreMemory())
	}
	return warned(f.nextRemedy(short))
}

// nextRemedy is what is left of the remedies: the cheapest that aims at the largest part, or else the cheapest.
func (f Facts) nextRemedy(short string) (detail, do string) {
	largest := f.Estimate.Bottleneck
	aimed := remedy.AimedAt(largest)
	at := slices.IndexFunc(f.Remedies, func(r plan.Remedy) bool { return slices.Contains(aimed, r.ID) })
	next := f.Remedies[max(at, 0)]
	do = strings.ReplaceAll(next.How, "\n", ": ") + "; oomguard plan shows all remedies"
	saves := "saves what is not known"
	if next.SavesBytes != nil {
		saves = "saves " + f.bytes(*next.SavesBytes)
	}
	switch {
	case at >= 0:
		return fmt.Sprintf("%s; for %s (%s) %s is left, which %s", short, largest, f.bytes(f.bottleneckBytes()),
			next.ID, saves), do
	case len(aimed) == 0:
		return fmt.Sprintf("%s; no setting is made for %s, and the cheapest of the others, %s, %s", short, largest,
			next.ID, saves), do
	}
	return fmt.Sprintf("what helps against %s is on already, but %s; the cheapest of the others, %s, %s", largest,
		short, next.ID, saves), do
}
