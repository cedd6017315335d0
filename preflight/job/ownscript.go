package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// recogniseSource judges a script by its text.
func recogniseSource(r *reader) (family, bool) {
	t := r.scriptText()
	if t == nil {
		return family{}, false
	}
	f := family{readsJSON: true, ownScript: true, fields: sourceFields}
	switch program, at := t.trainerProgram(); {
	case program != "":
		f.framework, f.program, f.task, f.origin = "trl", program, trlTasks()[program], at
		f.fields = func(r *reader) fieldSet { return joinFields(trlFields(r), sourceFields(r)) }
		f.ownScript = !t.parsesClass("ModelConfig") // like TRL's own programs, from which such scripts are copied
	case at != "":
		f.framework, f.task, f.origin = "hf-trainer", taskInName(r.job.Script.Value), at
	default:
		return t.recogniseLoop(f)
	}
	return f, true
}

// sourceFields are the options that a script's dataclasses add to those of TrainingArguments.
func sourceFields(r *reader) fieldSet {
	fields := fieldSet{}
	t := r.scriptText()
	if t == nil {
		return fields
	}
	known := map[string]argumentKind{}
	trainingFields().addTo(known)
	for _, f := range t.files {
		for _, name := range slices.Sorted(maps.Keys(f.options)) {
			if _, ours := known[name]; !ours && !strings.Contains(name, "(") {
				fields[f.options[name].argumentKind(f)] += " " + name
			}
		}
	}
	return fields
}

func joinFields(a, b fieldSet) fieldSet {
	for kind, names := range b {
		a[kind] += " " + names
	}
	return a
}

// readOwnScript reads a script of the user's, with a trainer of a library or a loop of its own.
func (r *reader) readOwnScript() {
	switch {
	case r.usesModelConfig():
		r.sourceProblems()
		r.readTRL()
	case r.family.huggingFace():
		r.readSourceTrainer()
	default:
		r.readLoop()
	}
}

// readSourceTrainer reads a user's script with Trainer or a trainer of TRL.
func (r *reader) readSourceTrainer() {
	t := r.seen()
	r.args = map[string]argument{}
	r.sourceProblems()
	if t.parsesFields() {
		r.args = r.collectArguments(true)
	}
	r.configurationInSource()
	// what the script's parser shares with TRL's and the examples'
	for _, option := range []string{"model_name_or_path"} {
		if _, given := r.args[option]; !given && t.files[0].options[option] != nil {
			r.takeOption(option)
		}
	}
	if r.family.framework == "trl" || r.family.framework == "unsloth" {
		r.trainerInSource()
		r.fallbackTo("trl", r.family.program, trlHistory())
		if r.asked("fp16") {
			delete(r.fallbacks, "bf16")
		}
	}
	r.adapterInSource()
	r.modelInSource()
	r.checkpointingInSource()
	r.readSettings()
	if r.family.framework == "hf-trainer" { // Trainer has no length of its own
		r.lengthInSource()
	}
	r.packingInSource()
}

// sourceDefaults fills what nobody said, by the framework behind the script.
func (r *reader) sourceDefaults() {
	switch {
	case r.family.framework == "trl":
		r.trlDefaults()
	case r.family.huggingFace():
		r.trainerDefaults()
	default:
		r.loopDefaults()
	}
}

// readLoop reads a script with a loop of its own, below its command line.
func (r *reader) readLoop() {
	if c, ok := one(r.seen().lightningTrainers(), r.lostSharding); ok {
		r.lightningInSource(c)
		return
	}
	r.sourceProblems()
	r.args = r.collectArguments(false)
	r.spawnInSource()
	if c, ok := one(r.seen().calls("deepspeed.initialize"), r.lostSharding); ok {
		r.deepspeedInSource(c)
	}
	r.readSettings()
	r.acceleratorInSource()
	r.parallelismInSource()
	r.meshInSource()
	r.modelInSource()
	r.adapterInSource()
	r.checkpointingInSource()
	r.optimizerInSource()
	r.batchInSource()
	r.autocastInSource()
	r.wrapperInSource()
}

// loopDefaults fills what the text of a script says by its silence.
func (r *reader) loopDefaults() {
	j := r.job
	script := r.seen().files[0].Name
	if len(r.seen().modelCalls("from_pretrained")) > 0 {
		r.defaultLoad()
		r.defaultAttention()
		j.FusedLoss.Offer("none", "default of "+r.installed("transformers"))
	}
	r.resolveAuto()
	if r.seen().unseen() != "" { // what it does not do itself may be done there
		return
	}
	if r.silence("checkpointing") == "" &&
		!r.seen().mentions("checkpointing", "checkpoint_wrapper", "utils.checkpoint", "checkpoint.checkpoint") {
		j.Checkpointing.Offer("none", "nothing in "+script+" checkpoints activations")
	}
	if r.family.framework == "custom" && r.shardingLost == "" {
		j.MasterFP32.Offer(false, script+" keeps no second copy of the weights")
		if r.load.Known && (r.autocastOff || !r.seen().mentions("autocast", "accelerator")) {
			j.Precision.Offer(r.load.Value,
				"no autocast in "+script+": computes in the dtype of the weights, "+r.load.Origin)
		}
	}
	if r.silence("grad_accum") == "" && len(r.seen().calls("backward")) == 1 && !r.seen().mentions("accumul") &&
		!r.hasNames("accum") {
		j.GradAccum.Offer(1, "nothing in "+script+" accumulates gradients")
	}
}

// lightningInSource reads Trainer(devices=..., strategy=...) in a script: the same keys as in a file of Lightning CLI.
func (r *reader) lightningInSource(c foundCall) {
	r.sourceProblems()
	j := r.job
	hidden := map[string][]fact{
		"devices": {&j.NProc, &j.WorldSize, &j.Sharding}, "num_nodes": {&j.NNodes, &j.WorldSize},
		"strategy":  {&j.Sharding, &j.Offload, &j.DeepSpeed},
		"precision": {&j.Precision, &j.ParamDtype, &j.MasterFP32}, "accumulate_grad_batches": {&j.GradAccum},
	}
	fields := map[string]*document.Node{}
	c.arguments().Each(func(name string, value *python.Expr) {
		if present(value) == nil {
			return
		}
		if n, whole := c.file.component(value, "trainer."+name, c.Place); whole {
			fields[name] = n
			return
		}
		withhold("", hidden[name]...)(fmt.Sprintf("%s passes %s, which is decided when the script runs (%s)",
			c.file.at(value.Line), name, value))
	}, func(why *python.Expr) {
		for _, name := range slices.Sorted(maps.Keys(hidden)) {
			if fields[name] == nil {
				withhold("", hidden[name]...)(c.why(name, why))
			}
		}
	})
	trainer := &document.Node{Value: fields, Path: "trainer", File: c.file.Name, Line: c.Line}
	doc := &document.Node{Value: map[string]*document.Node{"trainer": trainer}, File: c.file.Name, Line: c.Line}
	r.args = r.collectArguments(false)
	r.lightningSettings(&configuration{r: r, doc: doc, fallback: "default of " + r.installedLightning()})
	r.modelInSource()
	r.adapterInSource()
	r.checkpointingInSource()
	r.optimizerInSource()
	r.batchInSource()
}
