package estimate

import "oomguard/preflight/model"

// disentangled is DeBERTa's attention: to the scores of contents come those of contents with relative positions,
// gathered from a table of all distances (transformers/models/deberta_v2). There is no fused kernel for it.
func (b *block) disentangled(x *tensor) *tensor {
	q, k, v, source := b.contents(x)
	n, distances := b.tokens*b.heads*b.seq, b.distances()
	scaled := b.scaled(k)
	scores := b.add(op{name: "core", in: []*tensor{q, scaled}, saves: []*tensor{q, scaled}}, n, q.width)
	var bias *tensor
	named := append(source, q, k, v, scores) // by variables, until the bias is there
	for _, term := range b.arch.PositionTerms {
		content, role := q, model.PartPositionK
		if term == "p2c" {
			content, role = k, model.PartPositionQ
		}
		// repeated for every sequence
		positions := b.add(b.weighing(op{name: "core"}, b.claim(role)), b.batch*distances*b.q, q.width)
		products := b.add(op{name: "core", in: []*tensor{content, positions}, saves: []*tensor{content, positions}},
			b.tokens*b.heads*distances, q.width)
		// int64 indices
		chosen := b.add(op{name: "gather", in: []*tensor{products}, saves: []*tensor{products},
			extra: 8 * b.seq * b.seq}, n, q.width)
		named = append(named, positions, chosen)
		part := b.scaled(chosen)
		b.hold(named...)
		if bias == nil {
			bias = b.scaled(part) // added to zero
			named = append(named, bias)
			continue
		}
		sum := b.view(bias, n) // in place
		b.ops = append(b.ops, op{name: "sum", in: []*tensor{bias, part}, out: []*tensor{sum}, passes: true})
		bias = sum
	}
	if bias != nil {
		scores = b.sum(scores, bias)
	}
	width := q.width
	if b.autocast {
		width = 4
	}
	// the mask is kept too
	probs := b.add(op{name: "core", in: []*tensor{scores}, extra: b.batch * b.seq * b.seq}, n, width)
	b.ops[len(b.ops)-1].saves = []*tensor{probs}
	probs = b.lowered(b.dropout(probs, b.arch.AttentionDropout))
	out := b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}}, b.tokens*b.q, v.width)
	return b.finish(x, b.copied(out))
}

// contents are queries, keys and values; the first DeBERTa makes them in one product and adds biases to the first and
// the last. source is that product's result, which a variable names as long as them.
func (b *block) contents(x *tensor) (q, k, v *tensor, source []*tensor) {
	if b.fusedQKV {
		joined := b.linear(x, b.q+2*b.kv, model.PartQKV)
		parts := b.split(joined, b.tokens*b.q, b.tokens*b.kv, b.tokens*b.kv)
		return b.copied(parts[0]), b.copied(parts[1]), b.copied(parts[2]), []*tensor{joined}
	}
	return b.copied(b.linear(x, b.q, model.PartQ)), b.copied(b.linear(x, b.kv, model.PartK)),
		b.copied(b.linear(x, b.kv, model.PartV)), nil
}

// distances is the rows of the table of relative positions.
func (b *block) distances() int64 {
	for _, w := range b.base {
		if w.Part == model.PartPositions && w.Role == model.Embedding {
			return w.Shape[0]
		}
	}
	return 0
}
