package job

import (
	"path/filepath"
	"slices"
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
	trainer   bool   // Hugging Face's Trainer trains, with its arguments' names, defaults and habits, whatever the framework is called
	ownScript bool   // the user's own script, whose text has been read: what TRL's programs decide by ModelConfig it decides itself
	// fields are options beside those of TrainingArguments that the script's parser knows; nil: none.
	fields func(r *reader) fieldSet
	origin string
}

// huggingFace reports whether HfArgumentParser and Trainer with their defaults are behind the script.
func (f family) huggingFace() bool { return f.trainer }

// exampleScripts are the programs of transformers' examples/pytorch that use Trainer.
func exampleScripts() map[string]family {
	scripts := map[string]family{
		"run_clm.py": {task: "pretrain", packs: true, fields: freshModelFields},
		"run_fim.py": {task: "pretrain", packs: true, fields: freshModelFields},
		"run_mlm.py": {task: "pretrain", packs: true, fields: freshModelFields},
		"run_plm.py": {task: "pretrain", packs: true, fields: freshModelFields},
	}
	for name := range strings.FieldsSeq(`run_glue.py run_xnli.py run_classification.py run_ner.py run_qa.py run_qa_beam_search.py run_seq2seq_qa.py
		run_swag.py run_summarization.py run_translation.py run_image_classification.py run_mae.py run_mim.py run_clip.py
		run_semantic_segmentation.py run_object_detection.py run_audio_classification.py run_speech_recognition_ctc.py
		run_speech_recognition_seq2seq.py`) {
		scripts[name] = family{pads: true}
	}
	return scripts
}

// freshModelFields are the options by which the language modeling examples name a configuration in place of a checkpoint, and the one
// that keeps run_mlm.py and run_plm.py from joining rows.
func freshModelFields(*reader) fieldSet {
	return fieldSet{wordArgument: "config_name model_type config_overrides", boolArgument: "line_by_line"}
}

// familyOf judges a script by its name: path, or "-m module".
func familyOf(script string) family {
	base := filepath.Base(script)
	if known, ok := exampleScripts()[base]; ok {
		known.framework, known.readsJSON, known.strict, known.trainer, known.origin = "hf-trainer", true, true, true, base+" is an example of transformers"
		return known
	}
	if strings.HasSuffix(base, "_no_trainer.py") || accelerateClone(base) {
		return familyWithoutTrainer(base)
	}
	if project, ok := fineTuningScripts(filepath.ToSlash(script)); ok {
		return family{framework: "hf-trainer", task: "sft", pads: true, trainer: true, origin: base + " is a fine-tuning script of " + project}
	}
	return family{}
}

// fineTuningScripts recognises the scripts of FastChat and LLaVA, which tune with Trainer and pad their conversations.
func fineTuningScripts(script string) (project string, ok bool) {
	for project, folder := range map[string]string{"FastChat": "fastchat/train/", "LLaVA": "llava/train/"} {
		for _, name := range []string{"train", "train_mem", "train_xformers"} {
			if strings.HasSuffix("/"+script, "/"+folder+name+".py") || script == "-m "+strings.ReplaceAll(folder, "/", ".")+name {
				return project, true
			}
		}
	}
	return "", false
}

// familyByArguments recognises Trainer's command line by fields that only TrainingArguments has.
func (r *reader) familyByArguments() family {
	r.family = family{readsJSON: true}
	before := r.job.Problems // a file that turns out not to be Trainer's is none of ours
	args := r.collectArguments(true)
	r.job.Problems = before
	given := func(name string) bool { _, ok := args[name]; return ok }
	if r.onVariable("ACCELERATE_USE_MEGATRON_LM") {
		return family{framework: "custom", task: taskInName(r.job.Script.Value), origin: "accelerate starts it under Megatron-LM, which Trainer cannot use"}
	}
	typical := slices.ContainsFunc([]string{"per_device_train_batch_size", "do_train", "eval_strategy", "evaluation_strategy", "save_strategy", "fsdp"}, given)
	if given("output_dir") && typical {
		return family{framework: "hf-trainer", task: taskInName(r.job.Script.Value), readsJSON: true, trainer: true, origin: "arguments of Hugging Face TrainingArguments"}
	}
	if a, ok := args["deepspeed"]; ok && a.bare || given("deepspeed_config") {
		return family{framework: "deepspeed", task: taskInName(r.job.Script.Value), origin: "arguments of a native DeepSpeed script"}
	}
	return family{framework: "custom", task: taskInName(r.job.Script.Value), origin: "neither the script's name nor its arguments tell a known framework"}
}

// taskInName finds a task among the words of a script's name: run_sft.py.
func taskInName(script string) string {
	words := strings.FieldsFunc(strings.TrimSuffix(filepath.Base(script), ".py"), func(c rune) bool { return c == '_' || c == '-' || c == '.' || c == ' ' })
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
