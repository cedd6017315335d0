package job

import (
	"path/filepath"
	"slices"
	"strings"
)

// exampleScripts are the programs of transformers' examples/pytorch that use Trainer.
func exampleScripts() map[string]family {
	scripts := map[string]family{
		"run_clm.py": {task: "pretrain", packs: true, fields: freshModelFields},
		"run_fim.py": {task: "pretrain", packs: true, fields: freshModelFields},
		"run_mlm.py": {task: "pretrain", packs: true, fields: freshModelFields},
		"run_plm.py": {task: "pretrain", packs: true, fields: freshModelFields},
	}
	for name := range strings.FieldsSeq(`run_glue.py run_xnli.py run_classification.py run_ner.py run_qa.py
		run_qa_beam_search.py run_seq2seq_qa.py
		run_swag.py run_summarization.py run_translation.py run_image_classification.py run_mae.py run_mim.py
		run_clip.py
		run_semantic_segmentation.py run_object_detection.py run_audio_classification.py run_speech_recognition_ctc.py
		run_speech_recognition_seq2seq.py`) {
		scripts[name] = family{pads: true}
	}
	return scripts
}

// freshModelFields are the options by which the language modeling examples name a configuration in place of a
// checkpoint, and the one that keeps run_mlm.py and run_plm.py from joining rows.
func freshModelFields(*reader) fieldSet {
	return fieldSet{wordArgument: "config_name model_type config_overrides", boolArgument: "line_by_line"}
}

// familyOf judges a script by its name: path, or "-m module". The name alone does not decide: see suits.
func familyOf(script string) family {
	base := filepath.Base(script)
	if otherThanTorch(script) {
		return family{}
	}
	if known, ok := exampleScripts()[base]; ok {
		known.framework, known.readsJSON, known.strict, known.origin = "hf-trainer", true, true,
			base+" is an example of transformers"
		return known
	}
	if strings.HasSuffix(base, "_no_trainer.py") || accelerateClone(base) {
		return familyWithoutTrainer(base)
	}
	if slashes := "/" + filepath.ToSlash(script); strings.HasSuffix(slashes, "/fastchat/train/train.py") ||
		slashes == "/-m fastchat.train.train" {
		return family{framework: "hf-trainer", task: "sft", pads: true, fields: fastChatFields,
			origin: base + " is the fine-tuning script of FastChat"}
	}
	return family{}
}

// fastChatFields are the options that FastChat's train.py adds to TrainingArguments.
func fastChatFields(*reader) fieldSet {
	return fieldSet{wordArgument: "data_path eval_data_path padding_side",
		boolArgument: "lazy_preprocess trust_remote_code"}
}

// otherThanTorch reports whether a script's name or folder says that it is a twin for JAX or TensorFlow, whose options
// have the same names.
func otherThanTorch(script string) bool {
	words := strings.FieldsFunc(strings.ToLower(strings.TrimSuffix(script, ".py")),
		func(c rune) bool { return c == '/' || c == '_' || c == '-' || c == '.' || c == ' ' })
	return slices.ContainsFunc(words,
		func(word string) bool { return containsWord("flax jax tf tensorflow keras xla tpu", word) })
}

// suits reports whether a script that has the name of a published one does what that does: its text uses the same
// trainer, or, when it is not here, all its arguments are that one's.
func suits(f family, r *reader) bool {
	t := r.scriptText()
	switch {
	case t == nil:
		_, all := r.argumentNames(f)
		return all
	case f.huggingFace():
		program, at := t.trainerProgram()
		return at != "" && program == ""
	}
	return t.requires("accelerate") && len(t.calls("Accelerator")) > 0
}

// recogniseArguments judges a script that is not here by its arguments: Trainer's command line if all of them are
// options of Hugging Face's or TRL's configurations, and some have no other.
func recogniseArguments(r *reader) (family, bool) {
	f := family{framework: "hf-trainer", task: taskInName(r.job.Script.Value), readsJSON: true, byArguments: true,
		origin: "all arguments are those of Hugging Face's and TRL's configurations"}
	// Trainer cannot use Megatron-LM
	if r.scriptText() != nil || otherThanTorch(r.job.Script.Value) || r.onVariable("ACCELERATE_USE_MEGATRON_LM") {
		return f, false
	}
	names, all := r.argumentNames(f)
	typical := func(name string) bool { return containsWord(trainerOnly, name) }
	return f, all && slices.Contains(names, "output_dir") && slices.ContainsFunc(names, typical)
}
