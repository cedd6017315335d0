package job

import (
	"path/filepath"
	"strings"
)

// A family is what is known of a training script before its arguments are looked at.
type family struct {
	framework string // hf-trainer, trl, deepspeed, custom; "" when the name says nothing
	task      string // "" when the name says nothing
	program   string // which of the framework's programs it is, where that decides defaults: "sft" of TRL
	packs     bool   // it concatenates texts and cuts full rows
	pads      bool   // every text (or image) is a row of its own, padded to the longest length
	readsJSON bool   // `script.py args.json` takes all arguments from the file (or a YAML file)
	strict    bool   // its parser refuses arguments that it does not know
	foreign   bool   // the program is not known
	// byArguments: nothing but its arguments tells what it is.
	byArguments bool
	// the user's own script, whose text has been read: what TRL's programs decide by ModelConfig it decides itself
	ownScript bool
	// fields are options beside those of TrainingArguments that the script's parser knows; nil: none.
	fields func(r *reader) fieldSet
	// only are all the options that are understood, where those of TrainingArguments are none of the program's; nil:
	// they are.
	only   func() fieldSet
	origin string
}

// huggingFace reports whether HfArgumentParser and Trainer with their defaults are behind the script.
func (f family) huggingFace() bool { return traitsOf(traitRows(), f.framework).Trainer }

// A framework is a training library or program whose settings are understood: one row of frameworks, one file of its
// own.
type framework struct {
	name string // value of the job's key framework
	// recognise judges the script (a path, "-m module" or a recipe's name), its arguments and the files that they name;
	// ok is false when they are not this framework's. It offers nothing.
	recognise func(r *reader) (f family, ok bool)
	// read offers what the arguments and the files that they name say, strongest first.
	read func(r *reader)
	// defaults offers the framework's own defaults for what nobody said, after the model has been read; nil when it has
	// none.
	defaults func(r *reader)
	// refusals lists combinations of arguments with which it ends before it trains; nil when it has none of its own.
	refusals func() []refusal
}

// taskInName finds a task among the words of a script's name: run_sft.py.
func taskInName(script string) string {
	words := strings.FieldsFunc(strings.TrimSuffix(filepath.Base(script), ".py"),
		func(c rune) bool { return c == '_' || c == '-' || c == '.' || c == ' ' })
	for _, word := range words {
		if task, ok := trlTasks()[word]; ok {
			return task
		}
		if word == "pretrain" || word == "pretraining" {
			return "pretrain"
		}
	}
	return ""
}

// trlTasks maps the programs of trl/scripts, and the examples that are named like them, to tasks.
func trlTasks() map[string]string {
	return map[string]string{"sft": "sft", "dpo": "dpo", "kto": "kto", "grpo": "grpo", "rloo": "grpo", "ppo": "ppo",
		"reward": "rm", "rm": "rm",
		"orpo": "dpo", "cpo": "dpo", "gkd": "kd"}
}

// A refusal is a combination of arguments with which a program ends before it trains.
type refusal struct {
	field string // the argument whose place is shown
	why   string // the program's error
	do    string // what to do
	when  func(r *reader) bool
}
