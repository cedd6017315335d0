package estimate

import (
	"cmp"
	"strings"

	"oomguard/preflight/model"
)

// attend is the projections, their rotation, the core and the output projection.
func (b *block) attend(x *tensor) *tensor {
	if len(b.arch.PositionTerms) > 0 {
		return b.disentangled(x)
	}
	q, k, v := b.project(x)
	return b.finish(x, b.core(q, k, v))
}

func (b *block) finish(x, out *tensor) *tensor {
	y := b.dropout(b.linear(out, b.h, model.PartO), b.arch.HiddenDropout)
	b.hold(x)
	return y
}

func (b *block) project(x *tensor) (q, k, v *tensor) {
	if b.arch.KVRank > 0 {
		return b.projectLatent(x)
	}
	if b.fusedQKV {
		parts := b.split(b.linear(x, b.q+2*b.kv, model.PartQKV, model.PartQ, model.PartK, model.PartV), b.tokens*b.q,
			b.tokens*b.kv, b.tokens*b.kv)
		q, k, v = parts[0], parts[1], parts[2]
		if b.quirk.CopiesHeads {
			v = b.copied(v)
		}
	} else {
		q = b.linear(x, b.q, model.PartQ)
		k = b.linear(x, b.kv, model.PartK)
		v = b.linear(x, b.kv, model.PartV)
	}
	d := b.q / max(b.heads, 1)
	if b.arch.QKNorm && !b.quirk.NormsRotated {
		q, k = b.norm(q, d), b.norm(k, d)
	}
	if !b.quirk.NoRotary {
		q, k = b.rotated(q), b.rotated(k)
	}
	if b.quirk.OwnRotary {
		b.ops[len(b.ops)-1].extra += 2 * 4 * b.seq * d
	}
	switch {
	case b.arch.QKNorm && b.quirk.BareHeadNorm:
		q, k = b.bareNorm(q, d), b.bareNorm(k, d)
	case b.arch.QKNorm && b.quirk.NormsRotated:
		q, k = b.norm(q, d), b.norm(k, d)
	}
	return q, k, v
}

// projectLatent is multi-head latent attention as it is trained: keys and values are expanded from a latent to all
// heads, and one rotated key part is copied to every head (modeling_deepseek_v3.py).
func (b *block) projectLatent(x *tensor) (q, k, v *tensor) {
	a := b.arch
	nope, rope := b.tokens*b.heads*a.NopeDim, b.tokens*b.heads*a.RopeDim
	if a.QueryRank > 0 {
		latent := b.norm(b.linear(x, a.QueryRank, model.PartQDown), a.QueryRank)
		q = b.linear(latent, b.q, model.PartQUp)
	} else {
		q = b.linear(x, b.q, model.PartQ)
	}
	parts := b.split(q, nope, rope)
	q = b.add(op{name: "join", in: []*tensor{parts[0], b.rotated(parts[1])}}, b.tokens*b.q, q.width)
	down := b.linear(x, a.KVRank+a.RopeDim, model.PartKDown)
	latents := b.split(down, b.tokens*a.KVRank, b.tokens*a.RopeDim)
	up := b.linear(b.norm(latents[0], a.KVRank), b.heads*(a.NopeDim+a.ValueDim), model.PartKUp)
	expanded := b.split(up, nope, b.tokens*b.heads*a.ValueDim)
	k = b.add(op{name: "join", in: []*tensor{expanded[0], b.rotated(latents[1])}}, b.tokens*b.q, up.width)
	return q, k, expanded[1]
}

// rotated is the rotary embedding; it keeps only the cosines and sines, which all layers share.
func (b *block) rotated(x *tensor) *tensor {
	if b.compiled {
		return b.add(op{name: "rotate", in: []*tensor{x}}, x.n, x.width)
	}
	if b.liger.Rope {
		return b.ligerRotated(x)
	}
	width := max(x.width, b.stream)
	y := x
	if b.quirk.Rotary32 {
		y = b.cast(x, 4)
		width = 4
	}
	y = b.add(op{name: "rotate", in: []*tensor{y}, temp: 2 * x.n * width}, x.n, width)
	if b.quirk.Rotary32 {
		y = b.cast(y, x.width)
	}
	return y
}

// core is attention between projections: a fused kernel, or scores, softmax and products one by one.
func (b *block) core(q, k, v *tensor) *tensor {
	named := []*tensor{q, k, v} // by variables of the calling code, until attention is done
	grouped := b.kvHeads < b.heads
	masked := (b.padded() || b.quirk.AlwaysMasked) && b.kind == "sdpa"
	eager := b.eager()
	if grouped && (b.traits.OwnModels || b.quirk.ExpandsHeads && b.kvHeads > 1 || masked && b.kvHeads > 1 ||
		eager && (b.kvHeads > 1 || b.batch > 1)) {
		k, v = b.repeated(k), b.repeated(v) // a single head in a batch of one expands as a view
	}
	if eager {
		return b.eagerCore(q, k, v, named)
	}
	q, k, v = b.lowered(q), b.lowered(k), b.lowered(v)
	if b.unfused(q, grouped && k.n < q.n, masked) {
		return b.mathCore(q, k, v)
	}
	width := q.width
	out := &tensor{n: b.tokens * b.valueWidth(), width: width}
	o := op{name: "core", in: []*tensor{q, k, v}, out: []*tensor{out}, saves: []*tensor{q, k, v, out},
		extra: 4 * b.tokens * b.heads}
	switch {
	// bias and mask in one (integrations/sdpa_attention.py: create_position_bias_mask)
	case b.arch.PositionBias && b.kind == "sdpa":
		if b.keys == 0 { // across stacks the bias is zeros that all layers share
			o.extra += width * b.heads * b.seq * b.seq
		}
	case masked:
		// the additive mask that each layer makes of the boolean one
		mask := width * b.batch * b.seq * b.seq
		if every := b.quirk.Windows; every > 0 && !b.padded() { // layers without a window have none
			mask -= mask / every
		}
		o.extra += mask
	}
	b.ops = append(b.ops, o)
	// memory-efficient attention has an order of its own
	if b.quirk.BothOrders && !b.liger.Rope && !b.compiled && (b.cpu() || !masked && b.c < 4) {
		return b.copied(out)
	}
	return out
}

// unfused says that scaled_dot_product_attention finds no fused kernel for what it is given: among CUDA's only
// FlashAttention takes heads that share keys, and it wants 16 bits and no mask; none takes tensors that would have to
// be broadcast (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). Seen on an H200 with torch 2.11
// (testdata/measured_gpu.json).
func (b *block) unfused(q *tensor, grouped, masked bool) bool {
	return b.kind == "sdpa" && !b.cpu() && !b.compiled &&
		(grouped && (q.width >= 4 || b.quirk.Broadcasts && masked) || b.permutedBias())
}

// permutedBias says that the mask has the heads as its last dimension in memory, which no fused kernel reads
// (check_last_dim_stride_equals_1_dense in aten/src/ATen/native/transformers/sdp_utils_cpp.h): T5's own bias comes out
// of an embedding so, and transformers hands it over as it is before 5.20 (integrations/sdpa_attention.py:
// create_position_bias_mask). The zeros of attention across stacks are contiguous.
func (b *block) permutedBias() bool {
	return b.arch.PositionBias && b.keys == 0 && b.older("transformers", 5, 20)
}

// mathCore is attention as PyTorch computes it without a fused kernel
// (aten/src/ATen/native/transformers/attention.cpp): in fp32, with keys and values repeated for every head, and with
// scores and probabilities as tensors.
func (b *block) mathCore(q, k, v *tensor) *tensor {
	dtype := q.width
	q, k, v = b.cast(q, 4), b.cast(k, 4), b.cast(v, 4)
	if !b.quirk.Broadcasts && k.n < q.n {
		k, v = b.repeated(k), b.repeated(v)
	}
	scale := func(x *tensor) *tensor { return b.add(op{name: "core", in: []*tensor{x}}, x.n, 4) }
	q, k = scale(q), scale(k)
	if b.quirk.Broadcasts { // by the products
		k, v = b.repeated(k), b.repeated(v)
	}
	n := b.tokens * b.heads * b.seq
	scores := b.add(op{name: "core", in: []*tensor{q, k}, saves: []*tensor{q, k}}, n, 4)
	probs := b.add(op{name: "core", in: []*tensor{scores}}, n, 4)
	softmax := &b.ops[len(b.ops)-1]
	softmax.saves = []*tensor{probs}
	softmax.out = append(softmax.out, &tensor{n: n, width: 1}) // rows without a key are looked for (_safe_softmax)
	probs = b.dropout(probs, b.arch.AttentionDropout)
	out := b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}}, b.tokens*b.valueWidth(), 4)
	return b.copied(b.cast(out, dtype))
}

// eager says that scores are built: no fused kernel caps them.
func (b *block) eager() bool {
	eagerOnly := b.quirk.EagerOnly || b.arch.AttentionSoftcap || b.arch.PositionBias && b.older("transformers", 5, 15)
	return strings.HasPrefix(b.kind, "eager") || eagerOnly && b.kind == "sdpa"
}

// valueWidth is the width of attention's output.
func (b *block) valueWidth() int64 {
	if b.arch.ValueDim > 0 {
		return b.heads * b.arch.ValueDim
	}
	return b.q
}

// repeated gives every query head its own copy of a shared key or value head.
func (b *block) repeated(x *tensor) *tensor {
	return b.add(op{name: "core", in: []*tensor{x}}, b.tokens*b.q, x.width)
}

func (b *block) eagerCore(q, k, v *tensor, named []*tensor) *tensor {
	named = append(named, k, v)
	n := b.tokens * b.heads * cmp.Or(b.keys, b.seq)
	if b.quirk.Scores32 {
		q, k = b.cast(q, 4), b.cast(k, 4)
	}
	if b.batch > 1 { // the product of four-dimensional tensors copies what is not contiguous
		q, k, v = b.copied(q), b.copied(k), b.copied(v)
		if b.quirk.NamesScores {
			named = append(named, q, k, v)
		}
	}
	q, k = b.lowered(q), b.lowered(k)
	scores := b.add(op{name: "core", in: []*tensor{q, k}, saves: []*tensor{q, k}}, n, q.width)
	if b.compiled {
		return b.compiledProbabilities(scores, v)
	}
	raw := scores
	scores = b.scaled(scores)
	if b.arch.AttentionSoftcap {
		capped := b.add(op{name: "core", in: []*tensor{scores}}, n, scores.width)
		b.ops[len(b.ops)-1].saves = []*tensor{capped}
		scores = b.scaled(capped)
	}
	if b.quirk.Alibi32 {
		scores = b.cast(scores, 4)
	}
	if b.arch.Causal && b.keys == 0 || b.padded() || b.arch.PositionBias { // the mask has the dtype of the embeddings
		scores = b.cast(scores, max(scores.width, b.maskWidth()))
	}
	if b.quirk.Sinks {
		return b.sinkProbabilities(scores, v)
	}
	if b.quirk.ClampsScores {
		scores = b.add(op{name: "core", in: []*tensor{scores}, saves: []*tensor{scores},
			temp: (2*scores.width + 2) * n}, n, scores.width)
	}
	width := int64(4)
	if b.quirk.Softmax16 && !b.precision.autocast {
		width = scores.width
	}
	probs := b.add(op{name: "core", in: []*tensor{scores}}, n, width)
	b.ops[len(b.ops)-1].saves = []*tensor{probs}
	if probs.width != v.width && !b.quirk.WideProbs {
		probs = b.cast(probs, v.width)
		b.hold(append(named, scores)...)
		if b.quirk.NamesScores {
			b.hold(raw)
		}
	}
	probs = b.dropout(probs, b.arch.AttentionDropout)
	b.returned = append(b.returned, probs)
	probs, v = b.lowered(probs), b.lowered(v)
	out := b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}}, b.tokens*b.valueWidth(),
		v.width)
	return b.copied(out)
}

// sinkProbabilities is the softmax over scores and a sink, joined and lowered by their maximum, and the product with v
// of all but the sink's column (eager_attention_forward in transformers/models/gpt_oss).
func (b *block) sinkProbabilities(scores, v *tensor) *tensor {
	joined := b.scaled(b.copied(scores))
	probs := b.add(op{name: "core", in: []*tensor{joined}}, joined.n, joined.width)
	b.ops[len(b.ops)-1].saves = []*tensor{probs}
	probs = b.cast(b.split(probs, probs.n)[0], v.width)
	probs = b.dropout(probs, b.arch.AttentionDropout)
	b.returned = append(b.returned, probs)
	probs, v = b.lowered(probs), b.lowered(v)
	return b.copied(b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}},
		b.tokens*b.valueWidth(), v.width))
}
