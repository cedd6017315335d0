package job

import (
	"fmt"
)

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
