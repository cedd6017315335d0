package preflight

import (
	"oomguard/checklists"
	"oomguard/preflight/job"
)

func scriptFound() check {
	return check{
		ID:    "script-found",
		Title: "The training script is there",
		Judge: judgeScriptFound,
	}
}

// A missing script is worth a check of its own: torchrun starts every worker before Python reports it, and then ends
// with status 1 like for any other failure.
func judgeScriptFound(f Facts, _ checklists.Params) checklists.Verdict {
	s := f.Script
	switch {
	case s.Name == "":
		return skipped("the command names no script file",
			"nothing to do for a module (-m) or a program; Python finds it at the start")
	case s.Err == nil:
		return passed(s.Path)
	case f.elsewhere() || f.Job != nil && f.Job.Place == job.Elsewhere:
		return skipped(s.Name+" is not on this machine: "+s.Err.Error(), "nothing to do if it is where the job runs")
	case f.Mode == ModeCheck:
		return warned(s.Name+" is not here: "+s.Err.Error(), "correct the path, or run this where the script is")
	}
	return failed(s.Name+" cannot be read: "+s.Err.Error(),
		"correct the path, or start from the directory it is relative to")
}
