package job

import (
	"fmt"
	"path/filepath"
	"strings"
)

// trlLoadsPlainly reports whether a program of TRL hands nothing of ModelConfig but the name to from_pretrained: kto
// until 1.8 (its example still does), which loads the reference model itself too, and trl/scripts/reward.py from its
// first release 0.24 until 1.5.
func (r *reader) trlLoadsPlainly() (plainly bool, origin string) {
	if r.family.framework != "trl" || r.family.ownScript {
		return false, ""
	}
	script := "/" + filepath.ToSlash(r.job.Script.Value)
	example := strings.Contains(script, "/examples/scripts/")
	if !example && !strings.Contains(script, "/trl/scripts/") && isFile(r.path(r.job.Script.Value)) {
		return false, "" // a changed copy
	}
	until := map[string][]int{"kto": {1, 8}, "reward": {1, 5}}[r.family.program]
	switch {
	case until == nil, example && r.family.program == "reward":
		return false, ""
	case example:
		return true, "TRL's example " + filepath.Base(r.job.Script.Value) + " loads the model by its name alone"
	}
	later, known := r.atLeast("trl", until...)
	return known && !later, r.installed("trl") + "'s " + r.family.program + " script loads the model by its name alone"
}

// dropUnusedTRL takes out arguments that the program parses and then does not use.
func (r *reader) dropUnusedTRL() {
	plainly, origin := r.trlLoadsPlainly()
	if !plainly {
		return
	}
	for _, name := range []string{"dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit"} {
		if a, given := r.args[name]; given {
			delete(r.args, name)
			r.note(fmt.Sprintf("%s has no effect: %s", a.origin, origin))
		}
	}
}
