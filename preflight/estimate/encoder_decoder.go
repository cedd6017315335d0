package estimate

import (
	"slices"

	"oomguard/preflight/model"
)

// Models of two stacks: an encoder of text, images or sound in front of the layers that write text.

// stack is the rank as one of its two stacks sees it: its own layers, sizes and sequence.
func (r *rank) stack(encoder bool) *rank {
	s := *r.scenario
	own := *r
	own.scenario, own.whole = &s, r
	own.base = slices.DeleteFunc(slices.Clone(r.base),
		func(w weight) bool { return w.unit == layerUnit && w.encoder != encoder })
	behind := min(r.arch.Encoder.Layers, r.layers)
	own.layers = behind
	if !encoder {
		own.layers = r.layers - behind
		return &own
	}
	arch := *r.arch.Encoder
	s.arch, s.seq = &arch, r.encoderSequence()
	return &own
}

// encoderSequence is how many positions the encoder puts out for one sample: tokens, or the patches or frames that its
// configuration fixes.
func (r *rank) encoderSequence() int64 {
	if n := r.arch.Encoder.MaxPositions; n > 0 && !r.arch.Facts.TextEncoder {
		return n
	}
	return r.seq
}

// encoderTape is the activations of the stack in front, with what leads into it and its last norm.
func (r *rank) encoderTape() *tape {
	e := r.stack(true)
	b := e.block()
	g := b.layer()
	t := b.tapeOf(g)
	t.layers -= min(r.unreadLayers(), t.layers-1)
	e.applyCheckpointing(&t)
	t.unread = r.unreadLayers() * saved(t.steps)
	if t.checkpointed > 0 {
		t.unread = r.unreadLayers() * t.input
	}
	if t.recomputes(t.layers - 1) {
		t.trailing = g.working()
	}
	input := g.input.bytes()
	if slices.ContainsFunc(r.base, encoderNorm) {
		end := b.encoderEnding()
		t.final = saved(end.steps())
	}
	if r.arch.CrossAttention {
		t.final += input // what cross-attention reads, kept once for all layers
		t.output = input
	}
	if slices.ContainsFunc(r.base, encoderEmbeddingNorm) {
		t.outside += input + 8*b.tokens
	}
	t.outside += b.biasBytes(t.checkpointed > 0)
	return &t
}

// projected is what the two linear layers between a vision tower and the text keep: their inputs, and that of the
// function between them.
func (r *rank) projected() int64 {
	for _, w := range r.base {
		if w.Part == model.PartProjector && w.Role == model.Linear && r.trainsEnds() {
			return r.precision.compute * r.batch * r.encoderSequence() * (w.Shape[1] + 2*w.Shape[0])
		}
	}
	return 0
}

// imageFeatures is what the model's output names until the forward pass returns: the tower's last state, and what the
// projector made of it.
func (r *rank) imageFeatures() int64 {
	if r.projected() == 0 {
		return 0
	}
	return r.batch * r.encoderSequence() *
		(r.precision.stream*r.arch.Encoder.Hidden + r.precision.compute*r.arch.Hidden)
}

// unreadLayers counts the encoder's last layers, whose output nothing reads (LLaVA takes that of the layer before).
func (r *rank) unreadLayers() int64 {
	var n int64
	for _, u := range r.arch.Units {
		if u.Name == encoderUnit && len(u.Tensors) > 0 && u.Tensors[0].Unused {
			n += u.Repeat
		}
	}
	return n
}

// encoderNorm finds the norm after an encoder's layers: T5's, Whisper's and those of vision towers.
func encoderNorm(w weight) bool {
	return w.unit == embeddingUnit && w.Part == model.PartStackNorm
}

func encoderEmbeddingNorm(w weight) bool {
	return w.unit == embeddingUnit && w.Part == model.PartFrontNorm
}

func (b *block) encoderEnding() *graph {
	width := b.output.width
	b.graph = newGraph(b.tokens*b.h, width)
	b.output = b.lastNorm(b.input)
	return b.graph
}

// biasBytes is what T5's relative positions leave behind: the int64 bucket of every pair of positions, which its
// embedding keeps; and the bias of attention across the stacks, zeros, where fused attention takes them for a mask.
// Checkpointed layers keep both biases as their arguments, and the first makes the buckets anew.
func (b *block) biasBytes(checkpointed bool) int64 {
	if !b.arch.PositionBias {
		return 0
	}
	across := b.crossBias()
	switch {
	case checkpointed:
		return b.ownBias() + across
	case b.kind == "sdpa" && !b.eager():
		return 8*b.seq*b.seq + across
	}
	return 8 * b.seq * b.seq
}

// ownBias is T5's bias of a stack's own attention.
func (b *block) ownBias() int64 { return b.w * b.heads * b.seq * b.seq }

// crossBias is the bias of attention to the encoder.
func (b *block) crossBias() int64 {
	if !b.arch.CrossAttention {
		return 0
	}
	return b.w * b.heads * b.seq * b.encoderSequence()
}

// pendingBias is the gradients of T5's position biases, which wait for all layers of a stack. The zeros get one if
// layers are checkpointed (T5Attention.forward).
func (b *block) pendingBias(checkpointed bool) int64 {
	if !b.arch.PositionBias {
		return 0
	}
	if checkpointed {
		return b.ownBias() + b.crossBias()
	}
	return b.ownBias()
}

// attendEncoder is attention from a decoder's tokens to what the encoder put out.
func (b *block) attendEncoder(x *tensor) *tensor {
	tokens := b.tokens
	b.keys = b.encoderSequence()
	if b.shared == nil {
		b.shared = &tensor{n: b.batch * b.keys * b.h, width: b.stream}
	}
	q := b.linear(x, b.q, model.PartQ.Crossed())
	b.tokens = b.batch * b.keys
	k := b.linear(b.shared, b.kv, model.PartK.Crossed())
	v := b.linear(b.shared, b.kv, model.PartV.Crossed())
	b.tokens = tokens
	out := b.core(q, k, v)
	b.keys = 0
	y := b.dropout(b.linear(out, b.h, model.PartO.Crossed()), b.arch.HiddenDropout)
	b.hold(x)
	return y
}
