package estimate

import (
	"slices"

	"oomguard/preflight/model"
)

// LoRA on the experts of a mixture of experts, and on its router.

// withExperts tells the model how the job's releases keep experts, which decides what the targets of an adapter reach.
// Unknown releases are taken for today's.
func (s *scenario) withExperts(a *model.Architecture) *model.Architecture {
	kind := model.StackedExperts
	switch {
	case a.Experts == 0:
		return a
	case s.older("transformers", 5):
		kind = model.SeparateExperts
	case s.older("peft", 0, 19):
		kind = model.UnreachedExperts
	}
	own := *a
	own.ExpertKind = kind
	return &own
}

// adapterOf is the adapter on a module, or on each expert of a stacked weight.
func (r *rank) adapterOf(w weight) adapter {
	a := adapter{in: w.Shape[len(w.Shape)-1], out: w.Shape[len(w.Shape)-2], rank: int64(r.lora.R) * w.ranks}
	if w.Role == model.Expert {
		a.stacked = w.Shape[0]
	}
	return a
}

// expertProduct is a product of all experts with the tokens sent to them, out elements wide for each. An adapter on the
// stacked weight makes a new weight of it (lora.ParamWrapper: baddbmm of the weight and the adapter's two factors),
// which the product keeps, and which gets a gradient as large; separate experts have adapters like other modules.
func (b *block) expertProduct(own *block, x *tensor, routed, out, weights int64, parts ...model.Part) *tensor {
	for _, p := range parts {
		if a, ok := b.lowRank[p]; ok && a.stacked > 0 {
			merged := b.merged(a)
			return b.add(op{name: "linear", folds: true, in: []*tensor{x, merged}, saves: []*tensor{x, merged}},
				routed*out, b.w)
		}
	}
	y := own.matrix(x, routed*out, weights)
	apart := *b
	apart.tokens = routed
	for _, p := range parts {
		if a, ok := b.lowRank[p]; ok {
			y = apart.withAdapter(x, y, adapter{in: a.in, out: out, rank: a.rank})
		}
	}
	return y
}

// merged is the sum of a stacked weight and its adapter's product. What is kept for its gradient is the two factors, in
// the weight's dtype.
func (b *block) merged(a adapter) *tensor {
	experts := max(a.stacked, 1)
	factors := experts * a.rank * (a.in + a.out)
	o := op{name: "adapter", grads: b.precision.grad * factors}
	if b.precision.param != b.w {
		o.extra = b.w * factors
	}
	return b.add(o, experts*a.in*a.out, b.w)
}

// routerProduct is the router's scores.
func (b *block) routerProduct(x *tensor) *tensor {
	n := b.tokens * b.arch.Experts
	a, adapted := b.lowRank[model.PartRouter]
	y := b.matrix(x, n, b.claim(model.PartRouter))
	switch {
	case !adapted:
		return y
	case b.arch.ExpertKind == model.SeparateExperts:
		return b.withAdapter(x, y, a)
	}
	b.ops = slices.Delete(b.ops, len(b.ops)-1, len(b.ops))
	in, merged := b.lowered(x), b.merged(a)
	return b.add(op{name: "linear", folds: true, in: []*tensor{in, merged}, saves: []*tensor{in, merged}}, n, in.width)
}
