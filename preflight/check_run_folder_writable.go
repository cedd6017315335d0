package preflight

import (
	"fmt"

	"oomguard/checklists"
)

// runFolderWritable's threshold is generous: a run's folder is bounded, but a full disk loses the report.
func runFolderWritable() check {
	return check{
		ID:       "run-folder-writable",
		Title:    "The run can be recorded",
		Defaults: checklists.Params{"warn_mib": 256},
		Judge:    judgeRunFolderWritable,
	}
}

func judgeRunFolderWritable(f Facts, with checklists.Params) checklists.Verdict {
	r, want := f.RunFolder, mib(with["warn_mib"])
	switch {
	case r.Path == "":
		return skipped("nothing will be recorded", "nothing to do: only oomguard run records")
	case r.Err != nil:
		return failed("no run can be recorded in "+r.Path+": "+r.Err.Error(),
			"set OOMGUARD_DIR to a folder that can be written")
	case r.FreeBytes > 0 && r.FreeBytes < want:
		return warned(fmt.Sprintf("%s has %s free, %s are wanted", r.Path, f.bytes(r.FreeBytes), f.bytes(want)),
			"free some space, or set OOMGUARD_DIR to another disk")
	case r.FreeBytes == 0:
		return passed(r.Path + " can be written")
	}
	return passed(fmt.Sprintf("%s can be written, %s free", r.Path, f.bytes(r.FreeBytes)))
}
