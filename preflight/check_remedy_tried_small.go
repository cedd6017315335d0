package preflight

import (
	"fmt"

	"oomguard/checklists"
)

func remedyTriedSmall() check {
	return check{
		ID:    "remedy-tried-small",
		Title: "The chosen settings have been tried in a small run first",
		Judge: judgeRemedyTriedSmall,
	}
}

func judgeRemedyTriedSmall(f Facts, _ checklists.Params) checklists.Verdict {
	if f.Job == nil {
		return skipped("no command was given, so no run can be compared with it", "give the command after --")
	}
	key, tokens := RemedyKey(f.Job), Tokens(f.Job)
	smaller := func(e Earlier) bool { return e.Small || (e.Tokens > 0 && e.Tokens < tokens) }
	if e, found := f.newest(func(e Earlier) bool {
		return e.RemedyKey == key && e.Outcome == OutcomeOK &&
			smaller(e)
	}); found {
		return passed(fmt.Sprintf("the smaller run %s ended well with the same settings", e.Run))
	}
	const remedy = "run it once with few steps, a smaller batch or a small model"
	if e, found := f.newest(func(e Earlier) bool { return e.RemedyKey == key && smaller(e) }); found {
		return warned(fmt.Sprintf("the smaller run %s with the same settings did not end well (%s)", e.Run, e.Outcome),
			remedy)
	}
	return skipped(fmt.Sprintf("none of %d earlier runs tried these settings at a smaller size", len(f.History)),
		remedy)
}
