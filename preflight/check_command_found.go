package preflight

import "oomguard/checklists"

func commandFound() check {
	return check{
		ID:    "command-found",
		Title: "The command can be started",
		Judge: judgeCommandFound,
	}
}

func judgeCommandFound(f Facts, _ checklists.Params) checklists.Verdict {
	c := f.Command
	switch {
	case c.Name == "":
		return skipped("no command was given", "give the command after --")
	case c.Err == nil:
		return passed(c.Name + " is " + c.Path)
	case f.Mode == ModeCheck:
		return skipped(c.Name+" is not on this machine: "+c.Err.Error(),
			"nothing to do here if the job starts elsewhere; it is judged again there")
	}
	return failed(c.Name+" cannot be started: "+c.Err.Error(),
		"activate the environment it is installed in, or give its full path")
}
