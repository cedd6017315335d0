package job

import (
	"path/filepath"
	"slices"
	"strings"
)

// noTrainerExample reports whether a script is one of transformers' examples with a training loop of its own on accelerate
// (examples/pytorch/*/run_*_no_trainer.py). All of them share the names and defaults of the arguments below.
func noTrainerExample(base string) bool {
	return slices.Contains(strings.Fields(`run_clm_no_trainer.py run_fim_no_trainer.py run_mlm_no_trainer.py run_glue_no_trainer.py run_ner_no_trainer.py
		run_qa_no_trainer.py run_qa_beam_search_no_trainer.py run_swag_no_trainer.py run_summarization_no_trainer.py
		run_translation_no_trainer.py run_image_classification_no_trainer.py run_mim_no_trainer.py run_semantic_segmentation_no_trainer.py
		run_instance_segmentation_no_trainer.py run_object_detection_no_trainer.py`), base)
}

// familyWithoutTrainer judges a script that ends in _no_trainer.py.
func familyWithoutTrainer(base string) family {
	f := family{framework: "custom", origin: base + " has its own training loop"}
	if noTrainerExample(base) {
		twin := exampleScripts()[strings.Replace(base, "_no_trainer", "", 1)] // the same program with Trainer
		f.task, f.packs, f.origin = twin.task, twin.packs, base+" is an example of transformers"
	}
	return f
}

// noTrainerDefaults are what those examples do when nobody says otherwise: torch.optim.AdamW, no checkpointing, the loss of the model.
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
	r.defaultAttention()
	r.defaultLoad()
	r.defaultPrecision()
}
