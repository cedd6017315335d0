package preflight

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/checklists"
)

func jobConsistent() check {
	return check{
		ID:    "job-consistent",
		Title: "The job's settings do not contradict each other",
		Judge: judgeJobConsistent,
	}
}

// A contradiction fails. What could not be read says nothing about the job, and neither does a file that may be where
// the job runs.
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
		return failed(strings.Join(wrong, "; "),
			"correct what is named there; oomguard explain shows where every setting comes from")
	}
	if unread := f.Job.Unreadable; len(unread) > 0 {
		return warned("not read: "+joined(slices.Concat(unread, f.Job.Absent)),
			"nothing to do if that is right; else set what is named there, or give the settings as flags")
	}
	if len(f.Job.Absent) > 0 {
		return skipped("not on this machine: "+joined(f.Job.Absent),
			"nothing to do if the job finds them where it runs; it is judged again there")
	}
	return passed(fmt.Sprintf("nothing contradicts (model: %s, method: %s)",
		f.Job.Model.Or("unknown"), f.Job.Method.Or("unknown")))
}

func joined(list []error) string {
	texts := make([]string, len(list))
	for i, err := range list {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
