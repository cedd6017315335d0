package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
)

func jobConsistent() check {
	return check{
		ID:    "job-consistent",
		Title: "The job's settings can be read and do not contradict each other",
		Judge: judgeJobConsistent,
	}
}

func judgeJobConsistent(f Facts, _ checklists.Params) checklists.Verdict {
	if f.Job == nil {
		return skipped("no command was given", "give the command after --")
	}
	var wrong []string
	if why := f.Job.WillFail.Or(""); why != "" {
		wrong = append(wrong, "the job would stop at its start: "+why)
	}
	for _, err := range f.Job.Problems {
		if text := err.Error(); text != f.Job.WillFail.Or("") { // a contradiction is both
			wrong = append(wrong, text)
		}
	}
	if len(wrong) > 0 {
		return failed(strings.Join(wrong, "; "), "correct what is named there; oomguard explain shows where every setting comes from")
	}
	return passed(fmt.Sprintf("nothing contradicts (model: %s, method: %s)",
		f.Job.Model.Or("unknown"), f.Job.Method.Or("unknown")))
}
