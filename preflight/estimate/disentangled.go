package estimate

import "strings"

// disentangled is DeBERTa's attention: to the scores of contents come those of contents with relative positions, gathered from a table
// of all distances (transformers/models/deberta_v2). There is no fused kernel for it.
func (b *block) disentangled(x *tensor) *tensor {
	q := b.copied(b.linear(x, b.q, b.present(qModules...)...))
	k := b.copied(b.linear(x, b.kv, b.present(kModules...)...))
	v := b.copied(b.linear(x, b.kv, b.present(vModules...)...))
	n, distances := b.tokens*b.heads*b.seq, b.distances()
	scaled := b.scaled(k)
	scores := b.add(op{name: "core", in: []*tensor{q, scaled}, saves: []*tensor{q, scaled}}, n, q.width)
	var bias *tensor
	named := []*tensor{q, k, v, scores} // by variables, until the bias is there
	for _, term := range b.arch.PositionTerms {
		content := q
		if term == "p2c" {
			content = k
		}
		b.claim([]string{"pos_key_proj", "pos_query_proj"})
		positions := b.add(op{name: "core"}, b.batch*distances*b.q, q.width) // repeated for every sequence
		products := b.add(op{name: "core", in: []*tensor{content, positions}, saves: []*tensor{content, positions}}, b.tokens*b.heads*distances, q.width)
		chosen := b.add(op{name: "gather", in: []*tensor{products}, saves: []*tensor{products}, extra: 8 * b.seq * b.seq}, n, q.width) // int64 indices
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
	probs := b.add(op{name: "core", in: []*tensor{scores}, extra: b.batch * b.seq * b.seq}, n, width) // the mask is kept too
	b.ops[len(b.ops)-1].saves = []*tensor{probs}
	probs = b.lowered(b.dropout(probs, b.arch.AttentionDropout))
	out := b.add(op{name: "core", in: []*tensor{probs, v}, saves: []*tensor{probs, v}}, b.tokens*b.q, v.width)
	return b.finish(x, b.copied(out))
}

// distances is the rows of the table of relative positions.
func (b *block) distances() int64 {
	for _, w := range b.base {
		if w.unit == embeddingUnit && strings.HasSuffix(w.Path, "encoder.rel_embeddings") {
			return w.Shape[0]
		}
	}
	return 0
}
