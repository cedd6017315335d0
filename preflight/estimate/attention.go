package estimate

import (
	"slices"
	"strings"
)

var (
	qModules     = []string{"q_proj", "query", "q_lin", "q"}
	kModules     = []string{"k_proj", "key", "k_lin", "k"}
	vModules     = []string{"v_proj", "value", "v_lin", "v"}
	fusedModules = []string{"query_key_value", "c_attn", "qkv_proj", "Wqkv", "W_pack", "qkv"}
	outModules   = []string{"o_proj", "out_proj", "dense", "c_proj", "out_lin", "o"}
)

// attend is the projections, their rotation, the core and the output projection.
func (b *block) attend(x *tensor) *tensor {
	q, k, v := b.project(x)
	out := b.core(q, k, v)
	return b.dropout(b.linear(out, b.h, b.present(outModules...)...), b.arch.HiddenDropout)
}

func (b *block) project(x *tensor) (q, k, v *tensor) {
	if b.fusedQKV {
		modules := b.present(slices.Concat(fusedModules, qModules, kModules, vModules)...)
		parts := b.split(b.linear(x, b.q+2*b.kv, modules...), b.tokens*b.q, b.tokens*b.kv, b.tokens*b.kv)
		q, k, v = parts[0], parts[1], parts[2]
	} else {
		q = b.linear(x, b.q, b.present(qModules...)...)
		k = b.linear(x, b.kv, b.present(kModules...)...)
		v = b.linear(x, b.kv, b.present(vModules...)...)
	}
	if b.arch.QKNorm {
		d := b.q / max(b.heads, 1)
		q, k = b.norm(q, d), b.norm(k, d)
	}
	if !b.quirk.noRotary {
		q, k = b.rotated(q), b.rotated(k)
	}
	return q, k, v
}

// rotated is the rotary embedding; it keeps only the cosines and sines, which all layers share.
func (b *block) rotated(x *tensor) *tensor {
	width := max(x.width, b.stream)
	y := x
	if b.quirk.rotary32 {
		y = b.cast(x, 4)
		width = 4
	}
	y = b.add(op{name: "rotate", in: []*tensor{y}, temp: 2 * x.n * width}, x.n, width)
	if b.quirk.rotary32 {
		y = b.cast(y, x.width)
	}
	return y
}

// core is attention between projections: a fused kernel, or scores, softmax and products one by one.
func (b *block) core(q, k, v *tensor) *tensor {
	grouped := b.kvHeads < b.heads
	masked := b.padded() && b.kind == "sdpa"
	eager := strings.HasPrefix(b.kind, "eager") || (b.quirk.eagerOnly || b.arch.AttentionSoftcap) && b.kind == "sdpa" // no fused kernel caps scores
	if grouped && (b.ownModels() || b.quirk.expandsHeads && b.kvHeads > 1 || masked && b.kvHeads > 1 || eager && (b.kvHeads > 1 || b.batch > 1)) {
		k, v = b.repeated(k), b.repeated(v) // a single head in a batch of one expands as a view
	}
	if eager {
		return b.eagerCore(q, k, v)
	}
	q, k, v = b.lowered(q), b.lowered(k), b.lowered(v)
	width := q.width
	out := &tensor{n: q.n, width: width}
	o := op{name: "core", in: []*tensor{q, k, v}, out: []*tensor{out}, saves: []*tensor{q, k, v, out}, extra: 4 * b.tokens * b.heads}
	if masked {
		o.extra += width * b.batch * b.seq * b.seq // the additive mask that each layer makes of the boolean one
	}
	b.ops = append(b.ops, o)
	if b.quirk.bothOrders {
		return b.copied(out)
	}
	return out
}

// repeated gives every query head its own copy of a shared key or value head.
func (b *block) repeated(x *tensor) *tensor {
	return b.add(op{name: "core", in: []*tensor{x}}, b.tokens*b.q, x.width)
}

func (b *block) eagerCore(q, k, v *tensor) *tensor {
	n := b.tokens * b.heads * b.seq
	if b.quirk.scores32 {
		q, k = b.cast(q, 4), b.cast(k, 4)
	}
	if b.batch > 1 { // the product of four-dimensional tensors copies what is not contiguous
		q, k, v = b.copied(q), b.copied(k), b.copied(v)
	}
	q, k = b.lowered(q), b.lowered(k)
	scores := b.add(op{name: "core", in: []*tensor{q, k}, saves: []*tensor{q, k}}, n, q.width)
	scores = b.scaled(scores)
	if b.arch.AttentionSoftcap {
		capped := b.add(op{name: "core", in: []*tensor{scores}}, n, scores.width)
		b.ops[len(b.ops)-1].saves = []*tensor{capped}
		scores = b.scaled(capped)
	}
	width := int64(4)
	if b.quirk.softmax16 && !b.precision.autocast {
		width = scores.width
	}
	probs := b.add(op{name: "core", in: []*tensor{scores}}, n, width)
	b.ops[len(b.ops)-1].saves = []*tensor{probs}
	probs = b.dropout(b.cast(probs, v.width), b.arch.AttentionDropout)
	probs, v = b.lowered(probs), b.lowered(v)
	out := b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}}, b.tokens*b.q, v.width)
	return b.copied(out)
}
