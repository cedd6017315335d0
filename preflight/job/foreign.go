package job

import (
	"path/filepath"
	"strings"
)

// Programs that are not known. Their options may look familiar and mean something else (a batch of all ranks, a flag
// that its own default turns on), so that nothing is read by another framework's rules, nothing is filled from its
// defaults, and nothing is refused.

// byName is added to the origin of what such an option gives to a program that is not known.
const byName = " (read by name, not by this program's rules)"

// recogniseForeign is the last row: whatever no other knows.
func recogniseForeign(r *reader) (family, bool) {
	return family{foreign: true, origin: r.shownScript() + " is not a program that oomguard knows"}, true
}

// shownScript is the script's name for messages.
func (r *reader) shownScript() string {
	if module, ok := strings.CutPrefix(r.job.Script.Value, "-m "); ok {
		return module
	}
	return filepath.Base(r.job.Script.Value)
}

// recogniseNativeDeepSpeed judges a script that is not here by the option that deepspeed.add_config_arguments defines:
// its file is what DeepSpeed's engine reads.
func recogniseNativeDeepSpeed(r *reader) (family, bool) {
	file, given := optionWord(r.job.ScriptArgs, "deepspeed-config")
	f := family{framework: "deepspeed", task: taskInName(r.job.Script.Value), byArguments: true,
		origin: "arguments of a native DeepSpeed script"}
	f.only = func() fieldSet {
		fields := universalFields()
		fields[wordArgument] += " " + strings.Join(sequenceArguments(), " ")
		return fields
	}
	return f, given && file != "" && r.scriptText() == nil
}

// readForeign takes the few options that mean the same everywhere, the DeepSpeed file that one of them names, and what
// accelerate launch hands on.
func (r *reader) readForeign() {
	before := r.job.Problems // the program may read its files otherwise than the one that they are written for
	defer func() { r.job.Problems = before }()
	r.args = r.collectArguments(false)
	for name, a := range r.args {
		a.origin += byName
		r.args[name] = a
	}
	r.dropUnreadDeepSpeed()
	r.integer("per_device_train_batch_size", &r.job.MicroBatch)
	r.integer("gradient_accumulation_steps", &r.job.GradAccum)
	r.readDeepSpeed()
	r.readAccelerated()
	r.readBatchOfDeepSpeed()
	r.readPrecision()
}

// dropUnreadDeepSpeed leaves out what names no DeepSpeed file that is here: zero3 may be a word of the program's own.
func (r *reader) dropUnreadDeepSpeed() {
	for _, name := range []string{"deepspeed", "deepspeed_config"} {
		a, given := r.args[name]
		if !given || r.hasFile(a.text) {
			continue
		}
		delete(r.args, name)
		r.lostSharding("given as --" + name + " " + a.text + ", which names no file that is here")
	}
}

// undecided says why silence says nothing of the job: the program is not known, or a part of its own text is not here.
// "" where all that decides has been read.
func (r *reader) undecided() string {
	switch {
	case r.family.foreign:
		return r.family.origin
	case r.family.ownScript && r.seen() != nil && r.seen().unseen() != "":
		return r.seen().files[0].Name + " imports " + r.seen().unseen() + ", which is not here"
	}
	return ""
}

// methodUndecided is undecided for what is trained: a script of DeepSpeed's that is not here may train adapters, unless
// its name says that it pretrains.
func (r *reader) methodUndecided() string {
	if given := r.silence("method"); given != "" && !r.family.foreign {
		return given
	}
	if r.family.ownScript && r.seen() != nil && r.seen().loadsByName() != "" {
		return r.seen().loadsByName()
	}
	if r.family.framework == "deepspeed" && r.scriptText() == nil && r.job.Task.Value != "pretrain" {
		return "the script decides, and it cannot be read here"
	}
	return r.undecided()
}

// meshFromLauncher: accelerate launch and fabric run decide how a program under Accelerator() or Fabric() is spread,
// whatever else is unknown of it.
func (r *reader) meshFromLauncher() bool {
	launcher := r.job.Launcher.Value
	return r.family.foreign && (launcher == "accelerate" || launcher == "fabric")
}
