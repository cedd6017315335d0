package job

import (
	"fmt"
)

// How many processes a script is that nothing launches. Python starts one; the script may start more.

// judgeProcesses takes back that python starts one process where the script, or a program that is not known, may start
// others.
func (r *reader) judgeProcesses() {
	j := r.job
	if j.NProc.Origin != plainOrigin && j.NNodes.Origin != plainOrigin {
		return
	}
	why := ""
	switch t := r.scriptText(); {
	case t != nil && len(t.spawnCalls()) > 0: // spawnInSource counts them, where it is asked
		why = t.spawnCalls()[0].origin() + " starts processes"
		if !r.family.foreign {
			j.NNodes.replace(Setting[int]{Origin: why +
				", and on how many nodes is decided when the script runs; give --nnodes"})
			return
		}
	case t != nil && t.starter() != "":
		why = t.starter()
	case t != nil && r.family.framework != "lightning" &&
		(t.files[0].ImportsModule("lightning") || t.files[0].ImportsModule("pytorch_lightning")):
		why = t.files[0].Name + " imports Lightning, whose Trainer starts processes itself"
	case r.family.foreign && t == nil:
		why = r.family.origin + ", and may start processes itself"
	case t != nil && (r.family.foreign || r.family.ownScript) && t.unseen() != "":
		why = fmt.Sprintf("%s imports %s, which is not here and may start processes", t.files[0].Name, t.unseen())
	default:
		return
	}
	for flag, set := range map[string]*Setting[int]{"nproc": &j.NProc, "nnodes": &j.NNodes} {
		if set.Origin == plainOrigin {
			set.replace(Setting[int]{Origin: why + "; give --" + flag})
		}
	}
}
