package estimate

import "fmt"

// evaluation is the moments of one batch of an evaluation at which memory may peak: in the middle of a layer, and at
// the loss. Nothing is kept for backward, but autocast's copies of trained weights stay until the pass ends.
func (m *builder) evaluation() []Components {
	base := m.betweenSteps()
	base[Gradients] = m.keptGradients() // a forward pass drops those that FSDP 1 still has
	base[Communication] += m.layout.forward
	if !m.taped {
		base[Logits] = m.loss.forward
		return []Components{base}
	}
	r := m.evaluating()
	b := r.block()
	g := b.layer()
	outside := 16*b.tokens + 2*b.stream*r.arch.HeadDim*b.seq + g.input.bytes()
	base[Temporaries] += m.dequant + m.evaluationCasts()
	layer, loss := base, base
	layer[Communication] += max(m.layout.layers-m.layout.forward, 0)
	layer[Activations] = outside + g.working() + r.evaluationCache()
	if r.last {
		loss[Activations] = outside + r.evaluationCache()
		loss[Logits] = r.lossMemory().forward
	}
	return []Components{layer, loss}
}

// evaluating is this rank with the batch and the loss of an evaluation.
func (m *builder) evaluating() *rank {
	s := *m.scenario
	s.checkpointing = "none"
	s.batch = m.evaluationBatch()
	// Liger skips the logits in training only (skip_logits in liger_kernel/transformers/model)
	if lossRules[s.loss].gradientsAtLoss && s.evaluates() {
		m.notes.assume("whole logits in evaluation", "Liger's fused loss is for training steps", false)
		s.loss = "none"
	}
	r := *m.rank
	r.scenario = &s
	return &r
}

// evaluationBatch is how many rows an evaluation works on at a time.
func (s *scenario) evaluationBatch() int64 {
	rows := max(s.batch/s.rowsPerSample(), 1)
	switch {
	case s.job.EvalBatch.Or(0) > 0 && int64(s.job.EvalBatch.Value) <= maxTokens/s.seq:
		rows = int64(s.job.EvalBatch.Value)
	case s.traits.EvalBatch > 0 && s.evaluates():
		rows = min(int64(s.traits.EvalBatch), max(maxTokens/s.seq, 1))
		s.notes.assume(fmt.Sprintf("an evaluation batch of %d", rows), "default of per_device_eval_batch_size", false)
	default:
		s.notes.assume(fmt.Sprintf("an evaluation batch of %d, as in training", rows),
			"nothing sets the evaluation's batch", false)
	}
	switch {
	case s.job.EvalGenerates.Or(false):
		s.notes.assume("evaluation without the cache of generated tokens",
			"predict_with_generate fills one whose length is not known", true)
	case s.evaluates() && s.traits.EvalBatch > 0:
		s.notes.assume("evaluation keeps no logits of earlier batches",
			"so it is without compute_metrics, which the script may set", true)
	case s.evaluates():
		s.notes.assume("evaluation keeps no logits of earlier batches", "what the script does with them is not read",
			true)
	}
	return rows * s.rowsPerSample()
}

// evaluates says that the command asks for evaluation. Where it does not, the stage is a smaller version of training's
// forward pass.
func (s *scenario) evaluates() bool { return s.job.Evaluation.Or(s.job.EvalBatch.Or(0) > 0) }

// neverEvaluates says that the command is known to ask for no evaluation.
func (s *scenario) neverEvaluates() bool {
	return !s.job.Evaluation.Or(true) || s.job.EvalBatch.Known && s.job.EvalBatch.Value == 0
}

// evaluationCasts is autocast's 16-bit copies of trained fp32 matrices, which it keeps without gradients too
// (cached_cast in aten/src/ATen/autocast_mode.cpp asks for requires_grad of the weight alone).
func (m *builder) evaluationCasts() int64 {
	switch {
	case !m.precision.autocast || m.precision.unsharded() < 4:
		return 0
	case !m.trainsEnds():
		return 2 * count(m.trained, func(w weight) bool { return isMatrix(w) && m.precision.param == 4 })
	case m.arch.Facts.Quirks.ViewsWeights:
		return 2 * (m.linear("") - m.linear(layerUnit))
	}
	return 2 * m.linear("")
}

// evaluationCache is the keys and values of all layers, which models put out with use_cache: Trainer switches that off
// since transformers 5 (TrainingArguments.use_cache), and with checkpointing before.
func (r *rank) evaluationCache() int64 {
	if !r.evaluates() || !r.traits.EvalCache || !r.arch.Causal || !r.older("transformers", 5) ||
		r.job.Checkpointing.Or("none") != "none" {
		return 0
	}
	b := r.block()
	r.notes.assume("a cache of keys and values in evaluation", "use_cache of the model's config, before transformers 5",
		false)
	return 2 * b.c * b.kv * b.tokens * r.layers
}
