package estimate

import (
	"cmp"
	"slices"

	"oomguard/preflight/model"
)

// An adapter is LoRA on one module of a layer.
type adapter struct {
	in, out, rank int64
	stacked       int64 // experts of a stacked weight that have one each; 0: it is on a module
}

// A block is a layer of this rank: the graph of its forward pass as it is built, and what that needs to know.
type block struct {
	*rank
	*graph
	tokens, h, q, kv, i, heads, kvHeads int64 // widths in elements per token
	// bytes of what matrix products put out, of plain weights, and of the residual stream
	c, w, stream int64
	trainable    bool
	// matrix products keep their input: for the weight's gradient, or for no good reason
	keepsInputs bool
	quirk       model.Quirks
	// weight elements by part, of those whose gradient has not appeared yet
	elements map[model.Part]int64
	lowRank  map[model.Part]adapter // LoRA by part
	branches map[*tensor]*tensor    // inputs of adapters, where modules share one
	fusedQKV bool                   // q, k and v come out of one product
	// torch.compile has fused what stands between matrix products
	compiled bool
	// this layer of a mixture of experts has one MLP for all tokens
	dense    bool
	autocast bool
	kind     string // of attention
	// attention's probabilities, which a variable of the layer holds until its end
	returned []*tensor
	// positions that attention reads, where they are not the sequence's own
	keys   int64
	hidden *tensor // the last hidden state
}

func (r *rank) block() *block { return r.blockOf(false) }

// blockOf is a layer with its experts, or one of a mixture of experts that has none.
func (r *rank) blockOf(dense bool) *block {
	a := r.arch
	heads, kvHeads := ceilDiv(a.Heads, r.tp), max(a.KVHeads/r.tp, 1) // a key-value head is never split (llm-analysis)
	if a.KVHeads == 0 {
		kvHeads = heads
	}
	d := a.HeadDim
	if d == 0 && a.Heads > 0 {
		d = a.Hidden / a.Heads
	}
	h := a.Hidden
	if r.sequenceParallel {
		h = ceilDiv(h, r.tp)
	}
	b := &block{rank: r, tokens: r.tokens(), h: h, q: heads * d, kv: kvHeads * d, i: ceilDiv(a.Intermediate, r.tp),
		heads: heads, kvHeads: kvHeads,
		c: r.precision.compute, w: r.precision.unsharded(), stream: r.precision.stream, trainable: !r.adapters(),
		quirk: a.Facts.Quirks, elements: map[model.Part]int64{}, lowRank: map[model.Part]adapter{},
		branches: map[*tensor]*tensor{}, autocast: r.precision.autocast, kind: r.attention, compiled: r.compiled()}
	b.keepsInputs = b.trainable || r.keepsFrozenInputs()
	if b.autocast && (a.PostNorm || a.NormKind == "layer" && b.embeddingNorm() > 0) {
		b.stream = 4 // autocast's LayerNorm puts out fp32, whatever the weights are
	}
	b.fusedQKV = b.has(model.PartQKV)
	if r.traits.FusedQKV { // with grouped heads, v is copied out of it
		b.quirk, b.fusedQKV = model.Quirks{}, b.kvHeads == b.heads
	}
	if r.megatron() {
		b.quirk.Softmax16 = true // its fused scale-mask-softmax kernel works in 16 bit
	}
	if !b.trainable {
		b.w = r.baseWidth()
		if r.fsdp() { // its mixed precision casts what it gathers
			b.w = min(b.w, b.c)
		}
		owner := cmp.Or(r.whole, r)
		for _, w := range owner.adapted() {
			if w.unit == layerUnit && (r.whole == nil || w.encoder == r.encoderStack()) {
				b.lowRank[w.Part] = r.adapterOf(w)
			}
			if isTransform(w) {
				b.lowRank[model.PartTransform] = adapter{in: w.Shape[1], out: w.Shape[0], rank: int64(r.lora.R)}
			}
		}
	}
	alike := max(r.layers, 1)
	if unlike := r.denseLayers(); unlike > 0 {
		b.dense, alike = dense, unlike
		if !dense {
			alike = max(r.layers-unlike, 1)
		}
	}
	for _, w := range r.base {
		if w.unit == layerUnit && w.dense == b.dense {
			b.elements[w.Part] += ceilDiv(w.total(), alike)
		}
	}
	return b
}

// encoderStack says that this is the stack in front of the layers.
func (r *rank) encoderStack() bool { return r.whole != nil && r.arch != r.whole.arch }

// claim takes the weights of the parts out of those that still need a gradient.
func (b *block) claim(parts ...model.Part) int64 {
	var n int64
	for _, p := range parts {
		n += b.elements[p]
		delete(b.elements, p)
	}
	return n
}

func (b *block) has(part model.Part) bool {
	return slices.ContainsFunc(b.base, func(w weight) bool { return w.unit == layerUnit && w.Part == part })
}

// layer builds the graph of one layer and returns it.
func (b *block) layer() *graph {
	b.graph = newGraph(b.tokens*b.h, b.stream)
	x := b.input
	norms := b.claim(model.PartNorm)
	switch {
	case b.arch.Parallel:
		first := b.norm(x, b.h)
		second := first
		if b.arch.Norms > 1 {
			second = b.norm(x, b.h)
		}
		x = b.sum(b.attend(first), b.mlp(second), x)
	case b.arch.PostNorm:
		x = b.norm(b.sum(b.attend(x), x), b.h)
		if b.arch.CrossAttention {
			x = b.norm(b.sum(b.attendEncoder(x), x), b.h)
		}
		x = b.norm(b.sum(b.mlp(x), x), b.h)
	case b.arch.LayerScale:
		x = b.sum(b.layerScaled(b.attend(b.norm(x, b.h))), x)
		x = b.sum(b.layerScaled(b.mlp(b.norm(x, b.h))), x)
	case b.quirk.NormAfter:
		x = b.sum(b.norm(b.attend(x), b.h), x)
		x = b.sum(b.norm(b.mlp(x), b.h), x)
	case b.arch.Norms > 3 && !b.arch.CrossAttention: // Gemma 2 and 3 normalise the outputs of attention and MLP too
		x = b.sum(b.norm(b.attend(b.norm(x, b.h)), b.h), x)
		x = b.sum(b.norm(b.mlp(b.norm(x, b.h)), b.h), x)
	default:
		x = b.sum(b.attend(b.norm(x, b.h)), x)
		if b.arch.CrossAttention {
			x = b.sum(b.attendEncoder(b.norm(x, b.h)), x)
		}
		x = b.sum(b.mlp(b.norm(x, b.h)), x)
	}
	b.hold(b.returned...)
	b.output = x
	if b.traits.FusedAdapter && b.lora != nil {
		b.ops[0].extra += b.tokens * b.litgptUnexplained()
	}
	if b.trainable {
		for _, n := range b.elements { // whatever no step has claimed appears by the end
			norms += n
		}
		b.ops[b.firstTrained()].grads += b.precision.grad * norms
	}
	return b.graph
}

// mlp is the two or three matrix products around the activation function, or the experts.
func (b *block) mlp(x *tensor) *tensor {
	if b.arch.Experts > 0 && !b.dense {
		return b.experts(x)
	}
	y := b.dropout(b.feedForward(x, b.i), b.arch.HiddenDropout)
	b.hold(x)
	return y
}

func (b *block) feedForward(x *tensor, width int64) *tensor {
	n := b.tokens * width
	if !b.arch.Gated {
		up := b.activation(b.linear(x, width, model.PartUp))
		return b.linear(b.dropout(up, b.arch.ActivationDropout), b.h, model.PartDown)
	}
	var gate, up *tensor
	if b.has(model.PartGateUp) {
		parts := b.split(b.linear(x, 2*width, model.PartGateUp), n, n)
		gate, up = parts[0], parts[1]
	} else {
		gate = b.linear(x, width, model.PartGate)
		up = b.linear(x, width, model.PartUp)
	}
	if b.megatron() || b.compiled { // the fused kernel keeps its input alone
		y := b.add(op{name: "activation", in: []*tensor{gate, up}, saves: []*tensor{gate, up}}, n, b.c)
		return b.linear(y, b.h, model.PartDown)
	}
	if b.liger.GLU {
		return b.linear(b.ligerGLU(gate, up), b.h, model.PartDown)
	}
	y := b.dropout(b.product(b.activation(gate), up), b.arch.ActivationDropout)
	return b.linear(y, b.h, model.PartDown)
}

// experts sends each token to some of the experts, as transformers 5 does by default: sorted copies of the tokens,
// grouped matrix products and a weighted sum (integrations/moe.py). The grouped product is not on autocast's list: it
// works in the weights' dtype.
func (b *block) experts(x *tensor) *tensor {
	if b.quirk.EveryExpert {
		return b.everyExpert(x)
	}
	a := b.arch
	routed := b.tokens * max(a.ExpertsPerToken, 1)
	width := b.expertWidth()
	weights := b.claim(model.PartExperts)
	in := x
	if b.quirk.Router32 {
		in = b.cast(x, 4)
	}
	scores := b.routerProduct(in)
	probabilities := b.add(op{name: "router", in: []*tensor{scores}, extra: 4 * b.tokens * a.Experts,
		temp: 4 * b.tokens * a.Experts}, b.tokens*a.Experts, 4)
	chosen := b.add(op{name: "router", in: []*tensor{probabilities}, extra: 16 * routed}, routed, 4)

	if b.quirk.Weights16 {
		chosen = b.cast(chosen, scores.width)
	}

	var shared *tensor
	if b.quirk.SharedFirst {
		shared = b.sharedExpert(x)
	}
	own := *b // grouped products see neither autocast nor adapters
	own.autocast = false
	copies := b.add(op{name: "gather", in: []*tensor{x}, extra: 8 * routed}, routed*b.h, x.width)
	copies = b.cast(copies, b.w)
	up := b.expertProduct(&own, copies, routed, 2*width, weights*2/3, model.PartExpertGateUp, model.PartExpertGate,
		model.PartExpertUp)
	parts := b.split(up, routed*width, routed*width)
	y := b.expertGate(parts[0], parts[1])
	y = b.expertProduct(&own, b.cast(y, b.w), routed, b.h, weights-weights*2/3, model.PartExpertDown)
	wide := max(y.width, chosen.width)
	y = b.add(op{name: "weigh", in: []*tensor{y, chosen}, saves: []*tensor{y, chosen}, temp: wide * y.n}, y.n, wide)
	y = b.add(op{name: "scatter", in: []*tensor{y}, extra: 8 * routed}, y.n, y.width)
	y = b.cast(b.add(op{name: "reduce", in: []*tensor{y}, passes: true}, b.tokens*b.h, wide), x.width)
	switch {
	case a.SharedIntermediate == 0:
		return y
	case shared == nil:
		shared = b.sharedExpert(x)
	}
	return b.sum(y, shared)
}

// expertGate is what stands between the grouped products.
func (b *block) expertGate(gate, up *tensor) *tensor {
	if !b.quirk.ClampedGate {
		return b.product(b.activation(gate), up)
	}
	clamped := func(x *tensor) *tensor {
		return b.add(op{name: "activation", in: []*tensor{x}, saves: []*tensor{x}}, x.n, x.width)
	}
	gate, up = clamped(gate), clamped(up)
	open := b.add(op{name: "activation", in: []*tensor{b.scaled(gate)}}, gate.n, gate.width)
	b.ops[len(b.ops)-1].saves = []*tensor{open}
	return b.product(b.scaled(up), b.product(gate, open))
}

// sharedExpert is the MLP that every token visits, behind a gate of its own in Qwen2-MoE.
func (b *block) sharedExpert(x *tensor) *tensor {
	if b.arch.SharedIntermediate == 0 {
		return nil
	}
	shared := b.feedForward(x, ceilDiv(b.arch.SharedIntermediate, b.tp))
	if !b.has(model.PartSharedGate) {
		return shared
	}
	open := b.linear(x, 1, model.PartSharedGate)
	open = b.add(op{name: "activation", in: []*tensor{open}, extra: open.bytes()}, open.n, open.width)
	return b.add(op{name: "product", in: []*tensor{open, shared}, saves: []*tensor{shared}, temp: shared.bytes()},
		shared.n, shared.width)
}

// expertWidth is the intermediate size of one routed expert, from the stacked weights [experts, 2 x width, hidden].
func (b *block) expertWidth() int64 {
	for _, w := range b.base {
		if w.Role == model.Expert && len(w.Shape) == 3 {
			return ceilDiv(w.Shape[1]/2, b.tp)
		}
	}
	return b.i
}

// ending builds what follows the layers: the last norm, the transformation in front of a masked language model's head,
// and the head.
func (b *block) ending() *graph {
	b.graph = newGraph(b.tokens*b.h, b.output.width)
	x := b.input
	if !b.arch.PostNorm {
		x = b.lastNorm(x)
	}
	b.hidden = x
	if i := slices.IndexFunc(b.base, isTransform); b.arch.LogitsWidth == b.arch.Vocab && i >= 0 {
		width := b.base[i].Shape[0]
		y := b.matrix(x, b.tokens*width, 0)
		if a, ok := b.lowRank[model.PartTransform]; ok {
			y = b.withAdapter(x, y, a)
		}
		x = b.norm(b.activation(y), width)
	}
	if lossRules[b.loss].gradientsAtLoss { // keeps gradients instead of the head's input
		b.output = b.add(op{name: "loss", in: []*tensor{x}}, 0, b.w)
		return b.graph
	}
	if b.arch.PooledLogits { // the head reads one state of a sequence, as a view of all
		x = b.split(x, b.batch*b.h)[0]
	}
	b.output = b.matrix(x, 0, 0)
	return b.graph
}

// lastNorm is the norm behind the layers, and T5's dropout behind that.
func (b *block) lastNorm(x *tensor) *tensor {
	x = b.norm(x, b.h)
	if b.quirk.FinalDropout {
		x = b.dropout(x, b.arch.HiddenDropout)
	}
	return x
}

// isTransform finds the dense layer between a masked language model and its head.
func isTransform(w weight) bool {
	return w.Part == model.PartTransform && w.Role == model.Linear
}
