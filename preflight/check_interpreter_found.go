package preflight

import (
	"fmt"

	"oomguard/checklists"
)

func interpreterFound() check {
	return check{
		ID:    "interpreter-found",
		Title: "The Python that will run and its torch version are known",
		Judge: judgeInterpreterFound,
	}
}

func judgeInterpreterFound(f Facts, _ checklists.Params) checklists.Verdict {
	const remedy = "activate the environment of the job, or give --versions torch=2.6.0,transformers=4.51.3"
	if f.Job == nil {
		return skipped("no command was given", "give the command after --")
	}
	python, torch := f.Job.Interpreter, f.Job.Versions["torch"]
	switch {
	case torch != "" && python != "":
		return passed(fmt.Sprintf("%s with torch %s", python, torch))
	case torch != "":
		return passed(fmt.Sprintf("torch %s; the interpreter itself is not known", torch))
	case f.Mode == ModeCheck:
		return skipped("no Python with torch is known here, so the defaults of no installed version are used", remedy)
	case python != "":
		return warned(fmt.Sprintf("%s has no torch that could be found without running it, so defaults are assumed",
			python), remedy)
	}
	return warned("the Python that will run is not known, so defaults of frameworks are assumed", remedy)
}
