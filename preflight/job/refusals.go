package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/optim"
)

// refuse records those that apply.
func (r *reader) refuse(list []refusal) {
	for _, x := range list {
		if !x.when(r) {
			continue
		}
		origin := r.args[x.field].origin
		if own, ok := r.own.(keptFile); ok {
			if n := own.At(x.field); n != nil {
				origin = n.Origin()
			}
		}
		if origin == "" {
			origin = "the settings together"
		}
		r.fail(x.why, origin)
		r.problem(fmt.Errorf("%s: the job would end at start: %s; %s", origin, x.why, x.do))
	}
}

// trainerRefusals are those of Trainer itself (transformers trainer.py and training_args.py, 4.40 to 5.24) and of
// accelerate below it.
func trainerRefusals() []refusal {
	return []refusal{
		{"fp16", "ValueError: At most one of fp16 and bf16 can be True, but not both", "keep one of --bf16 and --fp16",
			func(r *reader) bool { return r.on("bf16") && r.on("fp16") }},
		{"fp16_full_eval", "ValueError: At most one of fp16 and bf16 can be True for full eval, but not both",
			"keep one of them",
			func(r *reader) bool { return r.on("bf16_full_eval") && r.on("fp16_full_eval") }},
		{"fsdp", "ValueError: Using --fsdp together with --deepspeed is not possible",
			"keep one of --fsdp and --deepspeed",
			func(r *reader) bool { return r.args["deepspeed"].text != "" && len(r.fsdpWords()) > 0 }},
		{"fsdp", "ValueError: Using fsdp only works in distributed training",
			"start several processes with torchrun or accelerate launch, or drop --fsdp",
			func(r *reader) bool {
				return r.fsdp && r.job.Launcher.Value == "python" && r.job.WorldSize.Value == 1
			}},
		{"gradient_checkpointing", "ValueError: activation_checkpointing in the FSDP config and " +
			"gradient_checkpointing in the training arguments can't both be True",
			"set gradient_checkpointing to false and leave it to FSDP",
			func(r *reader) bool {
				return r.fsdpCheckpointing && (r.asked("gradient_checkpointing") || r.asked("activation_checkpointing"))
			}},
		{"optim", "ValueError: not a valid OptimizerNames", "use one of transformers' names, such as adamw_torch_fused",
			unknownOptimizer},
		{"load_in_8bit", "ValueError: load_in_4bit and load_in_8bit are both True", "keep one of them",
			func(r *reader) bool { return r.on("load_in_4bit") && r.on("load_in_8bit") }},
		{"load_in_4bit", "ValueError: You cannot perform fine-tuning on purely quantized models",
			"train adapters on top (--use_peft), or load the weights unquantised", trainsQuantised},
		{"device_map", "ValueError: You can't train a model that has been loaded with device_map='auto' in any " +
			"distributed mode", "drop device_map, or start one process",
			func(r *reader) bool { return r.args["device_map"].text == "auto" && r.job.WorldSize.Value > 1 }},
		{"load_best_model_at_end", "ValueError: --load_best_model_at_end requires the save and eval strategy to match",
			"make --eval_strategy and --save_strategy equal", bestModelMismatch},
		{"save_only_model", "ValueError: save_only_model can't be used with DeepSpeed or FSDP along with " +
			"load_best_model_at_end", "drop one of them",
			func(r *reader) bool {
				return r.on("save_only_model") && r.on("load_best_model_at_end") && (r.deepspeed != nil || r.fsdp)
			}},
	}
}

// unknownOptimizer: a name that no version of transformers has, or adamw_hf, which went before 4.57. axolotl takes
// names of its own.
func unknownOptimizer(r *reader) bool {
	name := r.args["optim"].text
	if name == "" || r.family.framework == "axolotl" {
		return false
	}
	if gone, known := r.atLeast("transformers", 4, 57); name == "adamw_hf" {
		return known && gone
	}
	plain, layerwise := strings.CutSuffix(name, optim.Layerwise)
	o, has := optim.Find(plain, optim.Trainer)
	return !has || layerwise && !o.Projects
}

// trainsQuantised: weights that bitsandbytes, GPTQ or AWQ hold cannot be trained whole.
func trainsQuantised(r *reader) bool {
	q := r.job.Quant.Value
	return q != nil && (q.Method == "bnb" || q.Method == "gptq" || q.Method == "awq") && r.job.Method.Known &&
		r.job.Method.Value == "full"
}

func bestModelMismatch(r *reader) bool {
	if !r.on("load_best_model_at_end") {
		return false
	}
	word := func(fallback string, names ...string) string {
		for _, name := range names {
			if a := r.args[name]; a.text == "false" {
				return "no" // YAML's unquoted no
			} else if a.text != "" {
				return a.text
			}
		}
		return fallback
	}
	save := word("steps", "save_strategy")
	return save != "best" && save != word("no", "eval_strategy", "evaluation_strategy")
}

// checkRemoved finds arguments that the installed transformers no longer has, in front of a parser that refuses what it
// does not know.
func (r *reader) checkRemoved() {
	if !r.family.strict {
		return
	}
	for _, field := range removedTrainingFields() {
		if gone, known := r.atLeast("transformers", numbers(field.since)...); !known || !gone ||
			!r.mentions(field.name) {
			continue
		}
		remedy := "leave it out"
		if field.instead != "" {
			remedy = "write " + field.instead
		}
		why := fmt.Sprintf("ValueError: Some specified arguments are not used by the HfArgumentParser: --%s",
			field.name)
		r.fail(why, "command line --"+field.name)
		r.problem(fmt.Errorf("--%s: %s has no such argument, and the script would end at start; %s", field.name,
			r.installed("transformers"), remedy))
	}
}
