package estimate

import "oomguard/preflight/model"

// everyExpert is Llama 4's mixture: each expert gets all tokens, times a weight that is 0 for those that were not sent
// to it, so that memory does not depend on how many experts a token visits (Llama4TextMoe in
// transformers/models/llama4).
func (b *block) everyExpert(x *tensor) *tensor {
	a := b.arch
	all := b.tokens * a.Experts
	width, weights := b.expertWidth(), b.claim(model.PartExperts)
	scores := b.linear(x, a.Experts, model.PartRouter)
	chosen := b.add(op{name: "router", in: []*tensor{scores}, extra: 16 * b.tokens * max(a.ExpertsPerToken, 1)}, all,
		scores.width)
	open := b.add(op{name: "router", in: []*tensor{b.cast(chosen, 4)}}, all, 4)
	b.ops[len(b.ops)-1].saves = []*tensor{open}
	open = b.cast(open, scores.width)
	copies := b.add(op{name: "gather", in: []*tensor{x}}, all*b.h, x.width)
	wide := max(copies.width, open.width)
	in := b.add(op{name: "weigh", in: []*tensor{copies, open}, saves: []*tensor{copies, open}, temp: wide * copies.n},
		copies.n, wide)
	up := b.matrix(in, all*2*width, weights*2/3)
	parts := b.split(up, all*width, all*width)
	y := b.matrix(b.product(parts[1], b.activation(parts[0])), all*b.h, weights-weights*2/3)
	shared := b.feedForward(x, ceilDiv(a.SharedIntermediate, b.tp))
	y = b.add(op{name: "reduce", in: []*tensor{y}, passes: true}, b.tokens*b.h, y.width)
	return b.sum(shared, y)
}
