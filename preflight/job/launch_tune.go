package job

import (
	"fmt"
	"strings"
)

// readTune reads tune run [torchrun's options] RECIPE ... of torchtune (torchtune/_cli/run.py): with any option in
// front of the recipe it is torchrun, without one a single process.
func (r *reader) readTune(_ string, args []string) {
	if len(args) == 0 || args[0] != "run" {
		r.blocked = fmt.Sprintf("tune %s does not train", strings.Join(args[:min(1, len(args))], ""))
		return
	}
	if len(args) > 1 && strings.HasPrefix(args[1], "-") {
		r.readTorchrun("tune run", torchrunOptions(), args[1:])
		if _, place := recipeParts(r.job.Script.Value); place == "single_device" {
			r.fail("tune run: error: Recipe "+r.job.Script.Value+
				" does not support distributed training. Please run without torchrun commands.", "command line")
		}
		return
	}
	if len(args) == 1 {
		r.fail("tune run: error: the following arguments are required: recipe, recipe_args", "command line")
		r.blocked = "the launcher refuses its arguments"
		return
	}
	r.setScript(args[1], args[2:])
}
