package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// Scripts of users that build TrainingArguments, SFTConfig and LoraConfig in code. Their text is read call by call:
// literal keywords, names that are bound to literals, and options of the command line that they pass on.

// trainerClasses maps TRL's configurations and trainers to its programs, and Hugging Face's own to "".
func trainerClasses() map[string]string {
	classes := map[string]string{"TrainingArguments": "", "Seq2SeqTrainingArguments": "", "Trainer": "",
		"Seq2SeqTrainer": ""}
	for stem, program := range map[string]string{"SFT": "sft", "DPO": "dpo", "KTO": "kto", "GRPO": "grpo",
		"RLOO": "rloo", "Reward": "reward", "PPO": "ppo",
		"PPOv2": "ppo", "ORPO": "orpo", "CPO": "cpo", "GKD": "gkd"} {
		classes[stem+"Config"], classes[stem+"Trainer"] = program, program
	}
	return classes
}

// trainerCalls finds the calls of such classes, and of the script's own classes that extend them. Names that other
// libraries use too count only when they come from transformers or trl.
func (t *sourceText) trainerCalls(suffixes ...string) []foundCall {
	classes := trainerClasses()
	var found []foundCall
	for _, f := range t.files {
		for _, c := range f.Calls {
			name := f.baseOf(f.scope.Callee(c))
			if name == "" {
				continue // a class of the script that happens to have such a name
			}
			_, class, _ := cutLast(name)
			_, known := classes[class]
			suits := slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(class, suffix) })
			if root, _, _ := strings.Cut(name, "."); !known || !suits ||
				root != "transformers" && root != "trl" && root != "unsloth" && name != class {
				continue
			}
			if holds, sure := f.scope.Holds(c.Place); holds || !sure {
				found = append(found, foundCall{c, f, sure})
			}
		}
	}
	return found
}

// className is the class of a call without its modules; that of the base for a class of the script.
func (c foundCall) className() string {
	_, class, _ := cutLast(c.file.baseOf(c.file.scope.Callee(c.Call)))
	return class
}

// baseOf is the qualified name of the class of another module that a class of the file is built on; "" when there is
// none. The name of another module's class stays.
func (f *sourceFile) baseOf(name string) string {
	for _, class := range f.lineage(name) {
		if len(class.Bases) == 0 {
			return ""
		}
		name = f.Qualified(class.Bases[0])
	}
	return name
}

// lineage are a class of the file and those of the file that it is built on.
func (f *sourceFile) lineage(name string) []*python.Class {
	var classes []*python.Class
	for class := f.Class(name); class != nil && !slices.Contains(classes, class); class = f.Class(name) {
		classes = append(classes, class)
		if len(class.Bases) == 0 {
			break
		}
		name = class.Bases[0]
	}
	return classes
}

// trainerProgram is the program of TRL that the script does the work of, "" for Trainer itself; at is "" when it has
// neither.
func (t *sourceText) trainerProgram() (program, at string) {
	classes := trainerClasses()
	for _, c := range t.trainerCalls("Config", "Trainer", "Arguments") {
		if !c.sure || !c.file.requires(c.Callee) {
			continue
		}
		if p := classes[c.className()]; p != "" {
			return p, c.origin() + " calls " + c.className()
		}
		at = c.origin() + " calls " + c.className()
	}
	if at != "" {
		return "", at
	}
	for _, c := range t.calls(dataclassParsers()...) {
		for _, class := range namesIn(c.Args) {
			if p, known := classes[class]; known && c.sure && c.file.requires(class) {
				return p, c.origin() + " parses " + class
			}
		}
	}
	return "", ""
}

// namesIn lists the last parts of the names among expressions, and among the items of lists.
func namesIn(list []*python.Expr) []string {
	var names []string
	for _, e := range list {
		if e.Kind == python.Name {
			_, last, _ := cutLast(e.Text)
			names = append(names, last)
		}
		names = append(names, namesIn(e.Items)...)
	}
	return names
}

// parsesFields reports whether the script's own parser takes the fields of TrainingArguments as options.
func (t *sourceText) parsesFields() bool {
	for _, c := range t.calls(dataclassParsers()...) {
		for _, class := range namesIn(c.Args) {
			if _, known := trainerClasses()[class]; known {
				return true
			}
			if extendsTrainer(c.file, c.file.Class(class)) {
				return true
			}
		}
	}
	return false
}

// sourceProblems tells of code that Python would refuse.
func (r *reader) sourceProblems() {
	for _, f := range r.seen().files[:1] {
		for _, problem := range f.Problems {
			r.unread(problem)
		}
	}
}

// takeOption makes an option of the script's own parser an argument.
func (r *reader) takeOption(name string) {
	f := r.seen().files[0]
	value := f.options[name].value(f)
	if text, ok := textOf(value); ok {
		r.args[name] = argument{text: text, list: []string{text}, origin: value.Text}
	}
}

// extendsTrainer reports whether a class of the script extends TrainingArguments or one of TRL's configurations.
func extendsTrainer(f *sourceFile, class *python.Class) bool {
	if class == nil || len(class.Bases) == 0 {
		return false
	}
	_, base, _ := cutLast(f.baseOf(class.Name))
	_, known := trainerClasses()[base]
	return known
}

// argumentInSource merges one keyword below what the command line gave.
func (r *reader) argumentInSource(f *sourceFile, name string, e *python.Expr, at python.Place) {
	if _, given := r.args[name]; given {
		return
	}
	value := f.scope.Resolve(e, at)
	origin := f.from(e.Line, value)
	text, ok := textOf(value)
	a := argument{text: text, list: []string{text}, origin: origin}
	switch {
	case present(value) == nil:
		return
	case ok:
	case value.Kind == python.List || value.Kind == python.Dict:
		n, whole := f.node(value, name, at)
		if !whole {
			r.withholdArgument(name, origin+": "+name+" has a part that is not a literal")
			return
		}
		var err error
		if a, err = nodeArgument(n); err != nil {
			return
		}
	default:
		r.withholdArgument(name, fmt.Sprintf("%s passes %s, which is decided when the script runs (%s)", origin, name,
			value))
		return
	}
	r.args[name] = a
}

// withheldBy maps arguments to what nobody knows when their value is hidden in the script.
func withheldBy(j *Job) map[string][]fact {
	return map[string][]fact{
		"per_device_train_batch_size": {&j.MicroBatch}, "gradient_accumulation_steps": {&j.GradAccum},
		"bf16": {&j.Precision}, "fp16": {&j.Precision},
		"optim": {&j.Optimizer}, "optim_args": {&j.ProjectionRank}, "eval_strategy": {&j.Evaluation, &j.EvalBatch},
		"evaluation_strategy": {&j.Evaluation, &j.EvalBatch}, "do_eval": {&j.Evaluation, &j.EvalBatch},
		"per_device_eval_batch_size": {&j.EvalBatch}, "predict_with_generate": {&j.EvalGenerates},
		"gradient_checkpointing": {&j.Checkpointing}, "gradient_checkpointing_kwargs": {&j.Reentrant},
		"max_length": {&j.SeqLen}, "max_seq_length": {&j.SeqLen},
		"packing": {&j.Packing}, "use_liger_kernel": {&j.FusedLoss, &j.LayerKernels}, "loss_type": {&j.FusedLoss},
		"activation_offloading": {&j.ActivationOffload},
		"attn_implementation":   {&j.Attention},
		"deepspeed":             {&j.Sharding, &j.Offload, &j.Precision, &j.ParamDtype, &j.MasterFP32, &j.DeepSpeed},
		"fsdp":                  {&j.Sharding, &j.FSDPVersion, &j.Offload}, "beta": {&j.RefModel},
		"precompute_ref_log_probs": {&j.RefModel},
	}
}

func (r *reader) withholdArgument(name, why string) {
	for _, f := range withheldBy(r.job)[name] {
		f.Withhold(why)
	}
}

// trainerInSource reads what TRL's trainers themselves took as arguments before their configurations did (until 0.13),
// and the models that they are given.
func (r *reader) trainerInSource() {
	for _, c := range r.seen().trainerCalls("Trainer") {
		for _, name := range []string{"max_seq_length", "packing", "beta"} {
			value := c.keyword(name).found.Open(func(why *python.Expr) { r.withholdArgument(name, c.why(name, why)) })
			if value != nil {
				r.argumentInSource(c.file, name, value, c.Place)
			}
		}
		if name, _, given := c.argument(0, "model").literal(immaterial); given { // mostly an object
			r.sourceArgument("model_name_or_path", name, c.origin())
		}
		given := func(string) { r.job.RefModel.Offer(true, c.origin()+" is given a reference model") }
		ref := c.keyword("ref_model").found.Open(func(why *python.Expr) {
			if why.PassedOn() {
				r.job.RefModel.Withhold(c.why("ref_model", why))
			} else {
				given("")
			}
		})
		if present(ref) != nil {
			given("")
		}
	}
}

// sourceArgument makes a text of the script an argument, unless the command line gave it.
func (r *reader) sourceArgument(name, text, origin string) {
	if _, given := r.args[name]; !given {
		r.args[name] = argument{text: text, list: []string{text}, origin: origin}
	}
}

// packingInSource: Trainer puts each row of the data set into its batch as it is. A script that joins rows itself says
// so in the names of its functions.
func (r *reader) packingInSource() {
	script := filepath.Base(r.seen().files[0].Name)
	switch {
	case r.seen().mentions("group_texts", "constantlengthdataset"):
		r.job.Packing.Offer(true, script+" joins texts and cuts full rows")
	case r.seen().mentions("pack", "concat", "chunk"):
		r.job.Packing.Unknown(script + " may join rows; give --packing")
	case r.family.framework == "hf-trainer":
		r.job.Packing.Offer(false, "nothing in "+script+" joins rows, and Trainer takes each as it is")
	}
}

// onlyTrainingArguments reports that the script configures its trainer by a class of transformers and by none of TRL.
func (t *sourceText) onlyTrainingArguments() bool {
	plain := false
	for _, c := range t.trainerCalls("Config", "Arguments") {
		if !strings.HasSuffix(c.className(), "TrainingArguments") {
			return false
		}
		plain = true
	}
	return plain
}
