package estimate

// What torch.compile keeps for backward instead of what eager code does. Its partitioner cuts the joint graph where the
// fewest bytes cross (torch/_functorch/partitioners.py: min_cut_rematerialization_partition): results of matrix
// products and of attention cross, and so do sums and what products read; everything between two of them is computed
// again in backward, inside one kernel. lab/compiled.py shows the cut, testdata/simulated_compiled.json holds it.

// compiled says that the layers and the loss run as compiled code.
func (s *scenario) compiled() bool { return s.job.Compile.Or(false) }

// compiledNorm keeps its input and its statistics. What it puts out has the width of the product that reads it.
func (b *block) compiledNorm(x *tensor, rows int64) *tensor {
	statistics, width := 4*rows, max(x.width, b.w)
	if b.arch.NormKind == "layer" {
		statistics = 8 * rows
	}
	if b.autocast && !b.arch.PostNorm {
		width = b.c
	}
	return b.add(op{name: "norm", in: []*tensor{x}, saves: []*tensor{x}, extra: statistics}, x.n, width)
}

// compiledActivation is computed again from its input, however many steps it takes.
func (b *block) compiledActivation(x *tensor) *tensor {
	return b.add(op{name: "activation", in: []*tensor{x}, saves: []*tensor{x}}, x.n, x.width)
}

// compiledProbabilities is the end of attention that is not fused otherwise: scores and probabilities are kept in the
// products' dtype, with two fp32 statistics a row.
func (b *block) compiledProbabilities(scores, v *tensor) *tensor {
	rows := b.tokens * b.heads
	probs := b.add(op{name: "core", in: []*tensor{scores}, saves: []*tensor{scores}, extra: 8 * rows}, scores.n,
		v.width)
	probs = b.dropout(probs, b.arch.AttentionDropout)
	probs, v = b.lowered(probs), b.lowered(v)
	out := b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}}, b.tokens*b.valueWidth(),
		v.width)
	return b.copied(out)
}

// compilesLoss says that the loss is compiled too.
func (s *scenario) compilesLoss() bool {
	since := s.traits.LossCompiledSince
	return s.compiled() && (since.Package == "" || !s.older(since.Package, since.Version...))
}

// compiledLoss is the memory of a loss over that many logits. They are widened to fp32 inside the kernels that reduce
// them, and backward makes their gradient beside them.
func (r *rank) compiledLoss(entries int64) lossMemory {
	logits := r.precision.compute * entries
	l := lossMemory{forward: logits, backward: 2 * logits, gradient: logits}
	switch {
	case r.traits.FP32Logits:
		l = lossMemory{forward: logits + 4*entries, backward: 8 * entries, gradient: logits}
	case r.traits.FP32Outputs && r.precision.autocast:
		l.forward += 4 * entries
	case r.traits.KeepsLogits:
		l.gradient, l.held = 2*logits, logits
	}
	return l
}
