package job

import (
	"path/filepath"
	"slices"
	"strings"
)

// unsloth-cli.py of Unsloth's repository: the same calls as in a script, with the options of its parser.

func recogniseUnslothCLI(r *reader) (family, bool) {
	base := filepath.Base(r.job.Script.Value)
	return family{framework: "unsloth", task: "sft", program: "sft", ownScript: true,
		origin: base + " is a program of Unsloth"}, base == "unsloth-cli.py"
}

// readUnslothCLI reads its options; absent ones have the defaults of its parser.
func (r *reader) readUnslothCLI() {
	j := r.job
	r.args = map[string]argument{}
	for name, fallback := range map[string]string{
		"model_name": "unsloth/llama-3-8b", "max_seq_length": "2048", "r": "16", "lora_alpha": "16",
		"lora_dropout": "0", "use_gradient_checkpointing": "unsloth",
		"per_device_train_batch_size": "2", "gradient_accumulation_steps": "4", "optim": "adamw_8bit",
	} {
		a := argument{text: fallback, list: []string{fallback}, origin: "default of unsloth-cli.py"}
		if text, given := optionWord(r.job.ScriptArgs, strings.ReplaceAll(name, "_", "-")); given {
			a = argument{text: text, list: []string{text}, origin: "command line --" + name}
		}
		r.args[name] = a
	}
	j.Sharding.Offer("none", "Unsloth trains on one GPU")
	j.Model.Offer(r.args["model_name"].text, r.args["model_name"].origin)
	p := &r.adapter
	p.use.Offer(true, "unsloth-cli.py trains adapters")
	r.integer("r", &p.r)
	p.targets.Offer(unslothTargets(), "unsloth-cli.py")
	if slices.Contains(r.job.ScriptArgs, "--load_in_4bit") {
		j.Quant.Offer(&Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true}, "command line --load_in_4bit")
	} else {
		j.Quant.Offer(nil, "no --load_in_4bit")
	}
	if a := r.args["use_gradient_checkpointing"]; a.text == "unsloth" {
		j.Checkpointing.Offer("unsloth", a.origin)
	} else {
		j.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[a.text == "True" || a.text == "true"],
			a.origin)
	}
	r.readSettings()
	r.unslothUnknowns()
}
