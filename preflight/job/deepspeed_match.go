package job

import "oomguard/preflight/job/document"

// A matchedNumber is a number of a DeepSpeed configuration that must equal an argument of Trainer, which fills it in
// where it says "auto" and otherwise refuses to start (transformers integrations/deepspeed.py, trainer_config_process).
type matchedNumber struct {
	path, argument string
	fallback       float64 // TrainingArguments' default
}

func matchedNumbers() []matchedNumber {
	return []matchedNumber{
		{"gradient_clipping", "max_grad_norm", 1},
		{"optimizer.params.lr", "learning_rate", 5e-5},
		{"optimizer.params.eps", "adam_epsilon", 1e-8},
		{"optimizer.params.weight_decay", "weight_decay", 0},
		{"scheduler.params.warmup_max_lr", "learning_rate", 5e-5},
	}
}

// matchNumbers compares what the configuration says of the optimizer with Trainer's arguments.
func (r *reader) matchNumbers() {
	d := r.deepspeed
	if d == nil || !d.filled || d.lenient || !r.family.huggingFace() {
		return
	}
	for _, m := range matchedNumbers() {
		r.matchNumber(d.doc.At(m.path), m)
	}
	betas := d.doc.At("optimizer.params.betas")
	if betas == nil {
		return
	}
	if pair, ok := betas.Value.([]*document.Node); ok && len(pair) == 2 {
		r.matchNumber(pair[0], matchedNumber{"optimizer.params.betas", "adam_beta1", 0.9})
		r.matchNumber(pair[1], matchedNumber{"optimizer.params.betas", "adam_beta2", 0.999})
	}
}

func (r *reader) matchNumber(n *document.Node, m matchedNumber) {
	if n == nil || n.Value == nil || n.Auto() || r.unsaid[m.argument] != "" {
		return
	}
	want, said := m.fallback, "whose default is"
	if a, given := r.args[m.argument]; given {
		value, err := pythonFloat(a.text)
		if err != nil {
			return
		}
		want, said = value, "which is"
	} else if value, err := pythonFloat(r.fallbacks[m.argument].text); err == nil {
		want = value
	}
	got, err := n.Float()
	if err == nil && got != want {
		r.contradiction(n, "%s is %g, but it must equal Trainer's --%s, %s %g, or the job does not start; write "+
			"\"auto\" here, or pass --%s %g",
			m.path, got, m.argument, said, want, m.argument, got)
	}
}
