package job

import (
	"slices"
	"strings"
)

// adapterParts collects what is said of LoRA until all sources have spoken.
type adapterParts struct {
	use           Setting[bool]
	r, alpha      Setting[int]
	dropout       Setting[float64]
	targets, save Setting[[]string]
	kind          Setting[string] // PEFT's task_type
	dora, rslora  bool
	bias          string         // which biases are trained too: all, lora_only; "": none
	ranks         map[string]int // of modules whose rank is not r
	lost          string         // why nobody knows what is trained: the adapter's file could not be read
}

// dtypeName turns PyTorch's names into the job vocabulary; "" for a word that is none.
func dtypeName(word string) string {
	switch strings.TrimPrefix(strings.ToLower(word), "torch.") {
	case "bfloat16", "bf16":
		return "bf16"
	case "float16", "fp16", "half":
		return "fp16"
	case "float32", "fp32", "float":
		return "fp32"
	}
	return ""
}

// autoDtype in reader.load stands for the dtype of the checkpoint, until the model is read.
const autoDtype = "auto"

// ownParts are the parts of an adapter that own flags gave.
func (p *adapterParts) ownParts() []Named {
	var own []Named
	for _, part := range []Named{p.r.named("r"), p.alpha.named("alpha"), p.dropout.named("dropout"),
		p.targets.named("targets")} {
		if part.Known && strings.HasPrefix(part.Origin, ownFlag) {
			own = append(own, part)
		}
	}
	return own
}

// saved is modules_to_save with the heads of task_type.
func (p *adapterParts) saved() Setting[[]string] {
	heads := taskModules()[strings.ToUpper(p.kind.Or(""))]
	if len(heads) == 0 {
		return p.save
	}
	all := Setting[[]string]{Value: slices.Clone(p.save.Or(nil)), Known: true, Origin: p.kind.Origin}
	for _, head := range heads {
		if !slices.Contains(all.Value, head) {
			all.Value = append(all.Value, head)
		}
	}
	return all
}

// taskModules are the heads that PEFT trains whole because of what task_type says (peft_model.py:
// PeftModelForSequenceClassification, PeftModelForTokenClassification, PeftModelForQuestionAnswering). A name that a
// model does not have stands for nothing.
func taskModules() map[string][]string {
	heads := []string{"classifier", "score"}
	return map[string][]string{"SEQ_CLS": heads, "TOKEN_CLS": heads, "QUESTION_ANS": {"qa_outputs"}}
}
