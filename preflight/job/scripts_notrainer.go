package job

import (
	"path/filepath"
	"slices"
	"strings"
)

// noTrainerExample reports whether a script is one of transformers' examples with a training loop of its own on
// accelerate (examples/pytorch/*/run_*_no_trainer.py). All of them share the names and defaults of the arguments below.
func noTrainerExample(base string) bool {
	return slices.Contains(strings.Fields(`run_clm_no_trainer.py run_fim_no_trainer.py run_mlm_no_trainer.py
		run_glue_no_trainer.py run_ner_no_trainer.py
		run_qa_no_trainer.py run_qa_beam_search_no_trainer.py run_swag_no_trainer.py run_summarization_no_trainer.py
		run_translation_no_trainer.py run_image_classification_no_trainer.py run_mim_no_trainer.py
		run_semantic_segmentation_no_trainer.py
		run_instance_segmentation_no_trainer.py run_object_detection_no_trainer.py`), base) || accelerateClone(base)
}

// accelerateClone reports whether a script is one of accelerate's examples/by_feature that are copies of
// run_clm_no_trainer.py.
func accelerateClone(base string) bool {
	return base == "megatron_lm_gpt_pretraining.py" || base == "deepspeed_with_config_support.py"
}

// familyWithoutTrainer judges a script that ends in _no_trainer.py, or a copy of one.
func familyWithoutTrainer(base string) family {
	f := family{framework: "custom", origin: base + " has its own training loop"}
	if noTrainerExample(base) {
		twin := exampleScripts()[strings.Replace(base, "_no_trainer", "", 1)] // the same program with Trainer
		f.task, f.packs, f.fields, f.origin = twin.task, twin.packs, twin.fields, base+" is an example of transformers"
	}
	if accelerateClone(base) {
		f.task, f.packs, f.fields, f.origin = "pretrain", true, freshModelFields,
			base+" is an example of accelerate with its own training loop"
	}
	return f
}

// noTrainerDefaults are what those examples do when nobody says otherwise: torch.optim.AdamW, no checkpointing, the
// loss of the model.
func (r *reader) noTrainerDefaults() {
	base := filepath.Base(r.job.Script.Value)
	if !noTrainerExample(base) {
		return
	}
	j, origin := r.job, "default of "+base
	j.MicroBatch.Offer(trainerMicroBatch, origin)
	j.GradAccum.Offer(trainerGradAccum, origin)
	if r.shardingLost == "" {
		j.Optimizer.Offer("adamw", base+" uses torch.optim.AdamW")
	}
	j.Checkpointing.Offer("none", base+" does not ask for it")
	j.FusedLoss.Offer("none", base+" takes the loss of the model")
	if r.onVariable("ACCELERATE_USE_MEGATRON_LM") {
		j.Attention.Unknown("Megatron-LM builds the model, with its own attention; give --attention")
	} else {
		r.defaultAttention()
	}
	r.defaultLoad()
	r.defaultPrecision()
}
