package job

import "cmp"

// frameworks lists what is recognised, the most specific first: the first row that recognises a script reads it. A new
// one is a row here and a file format_<name>.go.
func frameworks() []framework {
	return []framework{
		{name: "openrlhf", recognise: recogniseOpenRLHF, read: (*reader).readOpenRLHF},
		{name: "verl", recognise: recogniseVerl, read: (*reader).readVerl},
		{name: "megatron", recognise: recogniseMegatron, read: (*reader).readMegatron,
			defaults: (*reader).megatronDefaults},
		{name: "torchtune", recognise: recogniseTorchtune, read: (*reader).readTorchtune},
		{name: "torchtitan", recognise: recogniseTorchtitan, read: (*reader).readTorchtitan},
		{name: "litgpt", recognise: recogniseLitGPT, read: (*reader).readLitGPTArguments},
		{name: "lightning", recognise: recogniseLightning, read: (*reader).readLightning},
		{name: "nanotron", recognise: recogniseNanotron, read: (*reader).readNanotron},
		{name: "unsloth", recognise: recogniseUnslothCLI, read: (*reader).readUnslothCLI,
			defaults: (*reader).unslothDefaults},
		{name: "unsloth", recognise: recogniseUnsloth, read: (*reader).readUnsloth,
			defaults: (*reader).unslothDefaults},
		{name: "open-instruct", recognise: recogniseOpenInstruct, read: (*reader).readOpenInstruct,
			defaults: (*reader).openInstructDefaults},
		{name: "trl", recognise: recogniseTRL, read: (*reader).readTRL, defaults: (*reader).trlDefaults},
		{name: "axolotl", recognise: recogniseAxolotl, read: (*reader).readAxolotlYAML,
			defaults: (*reader).axolotlDefaults, refusals: axolotlRefusals},
		{name: "llamafactory", recognise: recogniseLlamafactory, read: (*reader).readLLaMAFactory,
			defaults: (*reader).llamafactoryDefaults, refusals: llamafactoryRefusals},
		{name: "hf-trainer", recognise: byScript("hf-trainer"), read: (*reader).readTrainer,
			defaults: (*reader).trainerDefaults},
		{name: "custom", recognise: byScript("custom"), read: (*reader).readTrainer,
			defaults: (*reader).noTrainerDefaults},
		{name: "", recognise: recogniseSource, read: (*reader).readOwnScript, defaults: (*reader).sourceDefaults},
		{name: "deepspeed", recognise: recogniseNativeDeepSpeed, read: (*reader).readTrainer},
		{name: "hf-trainer", recognise: recogniseArguments, read: (*reader).readTrainer,
			defaults: (*reader).trainerDefaults},
		{name: "", recognise: recogniseForeign, read: (*reader).readForeign},
	}
}

// byScript recognises a published script by its name, and by its text or its arguments.
func byScript(name string) func(*reader) (family, bool) {
	return func(r *reader) (family, bool) {
		f := familyOf(r.job.Script.Value)
		return f, f.framework == name && suits(f, r)
	}
}

// readScriptArguments decides the framework and lets it read what the script is told: its arguments and the files they
// name.
func (r *reader) readScriptArguments() {
	if !r.job.Script.Known {
		return
	}
	r.part("which framework it is", r.recogniseFramework)
	if r.framework.read == nil { // none could be told, by a fault of ours
		return
	}
	why := r.openWords()
	if why == "" && r.family.framework == "custom" {
		why = r.uncertain
	}
	switch {
	case r.family.foreign:
		r.job.Framework.Unknown(r.family.origin)
	case why != "" && r.family.byArguments: // others may stand there, or a file that they name
		r.job.Framework.Withhold(why)
	default:
		r.job.Framework.Offer(r.family.framework, r.family.origin)
	}
	r.judgeProcesses()
	if r.family.task != "" {
		r.job.Task.Offer(r.family.task, r.family.origin)
	}
	r.part("the settings of "+cmp.Or(r.family.framework, "the script"), func() { r.framework.read(r) })
}

// recogniseFramework finds the first row that knows the script. One that fails leaves the framework open.
func (r *reader) recogniseFramework() {
	for _, f := range frameworks() {
		if found, ok := f.recognise(r); ok {
			r.framework, r.family = f, found
			return
		}
	}
}

// readTrainer reads a script behind Hugging Face's Trainer, or one that borrows the names of its arguments.
func (r *reader) readTrainer() {
	r.args = r.collectArguments(r.family.huggingFace())
	r.readSettings()
}

// readSettings turns the arguments into settings, with the files that they name.
func (r *reader) readSettings() {
	r.withholdValues()
	r.checkBareArguments()
	r.checkRemoved()
	r.readDeepSpeed()
	r.readFSDP()
	r.readAccelerated()
	r.readTrainingArguments()
	r.readBatchOfDeepSpeed()
	r.matchNumbers()
	r.readPrecision()
}

// applyDefaults fills what nobody said with the framework's defaults.
func (r *reader) applyDefaults() {
	r.withholdOpen()
	if r.framework.defaults != nil {
		r.framework.defaults(r)
	}
}
