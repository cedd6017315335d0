package estimate

import (
	"strings"

	"oomguard/preflight/model"
)

// A step is a piece of a layer's forward pass as autograd sees it. The steps of a layer, in order, give two things at once: what
// the layer keeps until its backward pass (the sum of saved), and how high memory rises while the backward pass walks through it.
// All numbers are bytes of one micro-batch on one rank.
type step struct {
	saved int64 // kept from forward until this step's backward has run
	live  int64 // alive only while this step's backward runs: gradients of activations
	grads int64 // gradients of weights that appear here
}

func saved(steps []step) int64 {
	var sum int64
	for _, s := range steps {
		sum += s.saved
	}
	return sum
}

// A quirk is where a model type's code in transformers departs from the common layer.
type quirk struct {
	softmax16     bool // eager softmax in the dtype of the scores instead of fp32
	noRotary      bool // no rotary embedding: nothing of it is kept
	fusedRotary   bool // q, k and v are views of one tensor that v keeps alive beside the rotated q and k
	partialRotary bool // concatenated q and k change the memory order of attention's output, which is then copied
}

var quirks = map[string]quirk{
	"gpt2":        {softmax16: true, noRotary: true},
	"gpt_bigcode": {softmax16: true, noRotary: true},
	"opt":         {noRotary: true},
	"bloom":       {noRotary: true},
	"bert":        {softmax16: true, noRotary: true},
	"roberta":     {softmax16: true, noRotary: true},
	"distilbert":  {softmax16: true, noRotary: true},
	"gpt_neox":    {fusedRotary: true, partialRotary: true},
	"falcon":      {fusedRotary: true},
	"phi":         {partialRotary: true},
	"stablelm":    {partialRotary: true},
	"chatglm":     {fusedRotary: true, partialRotary: true},
	"persimmon":   {fusedRotary: true, partialRotary: true},
	"glm":         {partialRotary: true},
}

// A block is a layer with the sizes of this rank; widths are elements per token.
type block struct {
	*rank
	tokens, h, q, kv, i, heads, kvHeads int64
	c, stream                           int64 // bytes of activations and of the residual stream
	trainable                           bool
	quirk                               quirk
	elements                            map[string]int64 // weight elements by module
}

func (r *rank) block() block {
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
	b := block{rank: r, tokens: r.tokens(), h: h, q: heads * d, kv: kvHeads * d, i: ceilDiv(a.Intermediate, r.tp), heads: heads, kvHeads: kvHeads,
		c: r.precision.compute, stream: r.precision.stream, trainable: !r.adapters(), quirk: quirks[a.Type], elements: map[string]int64{}}
	for _, w := range r.base {
		if w.unit == layerUnit {
			b.elements[group(w)] += ceilDiv(w.total(), max(r.layers, 1))
		}
	}
	return b
}

// group says in which step a weight's gradient appears.
func group(w weight) string {
	switch {
	case w.Role == model.Norm:
		return "norm"
	case w.Module == "o_proj" || w.Module == "dense" || w.Module == "out_proj":
		return "output"
	case w.Role == model.Expert, w.Module == "down_proj" || w.Module == "dense_4h_to_h" || w.Module == "fc2", w.Module == "c_proj" && strings.Contains(w.Path, "mlp"):
		return "down"
	case w.Module == "gate_proj", w.Module == "up_proj", w.Module == "gate_up_proj", w.Module == "c_fc", w.Module == "dense_h_to_4h", w.Module == "fc1":
		return "up"
	case strings.HasPrefix(w.Module, "q") || w.Module == "k_proj" || w.Module == "v_proj" || w.Module == "c_attn":
		return "qkv"
	}
	return "output"
}

// layer is the steps of one layer in the order of the forward pass.
func (b block) layer() []step {
	g := b.precision.grad
	grads := func(name string) int64 {
		if !b.trainable {
			return 0
		}
		return g * b.elements[name]
	}
	qkvReaders, upReaders := int64(1), int64(1)
	if b.has("q_proj") || b.has("query") {
		qkvReaders = 3
	}
	if b.arch.Gated && b.has("up_proj") {
		upReaders = 2
	}
	h, T := b.stream*b.h, b.tokens
	first := step{saved: T*b.norm(b.h) + b.normFixed(b.h) + T*b.normOutput(qkvReaders), live: T * (h + 12*b.h), grads: grads("norm")}
	qkv := step{live: T * (h + b.c*(b.q+2*b.kv) + b.c*b.h), grads: grads("qkv")}
	core := b.attentionCore()
	core.saved += T * b.qkNorms()
	output := step{saved: T * b.hiddenMask(), live: T * (h + b.c*b.q), grads: grads("output")}
	second := step{saved: T * b.normOutput(upReaders), live: T * (h + 12*b.h)}
	if b.arch.Norms != 1 {
		if !b.sharesNormInput() {
			second.saved += T * b.norm(b.h)
		}
		second.saved += b.normFixed(b.h)
	} else if b.trainable && !b.precision.autocast {
		second.saved = 0 // the MLP reads the one norm's output, which attention keeps
	}
	up, act, down := b.mlp(grads)
	steps := []step{first, qkv, core, output, second, up, act, down}
	for extra := b.arch.Norms; extra > 2; extra-- { // Gemma 2 and 3 normalise the outputs of attention and MLP too
		steps = append(steps, step{saved: T*b.norm(b.h) + b.normFixed(b.h), live: T * (h + 12*b.h)})
	}
	if b.adapters() {
		steps = append(steps, step{saved: T * b.adapterActivations()})
	}
	return steps
}

// mlp is the two or three matrix products around the activation function. Experts work on a copy of their tokens each: input,
// products and output of every routed copy are kept (index_add keeps its source), and the router's fp32 scores.
func (b block) mlp(grads func(string) int64) (up, act, down step) {
	h, T := b.stream*b.h, b.tokens
	if b.arch.Experts > 0 {
		b.i = b.expertWidth()
		b.tokens = T * max(b.arch.ExpertsPerToken, 1)
		T = b.tokens
		up.saved = T*3*b.c*b.h + b.rank.tokens()*8*b.arch.Experts
	}
	up.live, up.grads = T*(h+2*b.c*b.i+b.c*b.h), grads("up")
	act = step{saved: T * b.activationKept(), live: T * (h + b.activationLive())}
	down = step{saved: T*b.downInput() + b.rank.tokens()*b.hiddenMask(), live: T * (h + b.c*b.i), grads: grads("down")}
	return up, act, down
}

// expertWidth is the intermediate size of one routed expert, from the stacked weights [experts, 2 x width, hidden].
func (b block) expertWidth() int64 {
	for _, w := range b.base {
		if w.Role == model.Expert && len(w.Shape) == 3 {
			return ceilDiv(w.Shape[1]/2, b.tp)
		}
	}
	return b.i
}

func (b block) has(module string) bool {
	for _, w := range b.base {
		if w.unit == layerUnit && w.Module == module {
			return true
		}
	}
	return false
}

// norm is what one normalisation of this width keeps, in bytes a token. transformers' RMSNorm casts to fp32 and keeps that copy,
// the normalised value if its weight is trained, and the inverse root; Gemma's multiplies in fp32. LayerNorm keeps its input,
// mean and reciprocal deviation.
func (b block) norm(width int64) int64 {
	switch {
	case b.arch.NormKind == "layer" && b.castsNorm():
		return 4*width + 8
	case b.arch.NormKind == "layer":
		return b.stream*width + 8
	case !b.trainable:
		return 4*width + 4
	case b.arch.NormKind == "rms-gemma":
		return 8*width + 4
	}
	return (4+b.stream)*width + 4
}

// castsNorm says that autocast copies a 16-bit stream to fp32 for LayerNorm, which is in its fp32 list.
func (b block) castsNorm() bool { return b.precision.autocast && b.stream < 4 }

// sharesNormInput says that the LayerNorms of a parallel block keep the same tensor.
func (b block) sharesNormInput() bool {
	return b.arch.Parallel && b.arch.NormKind == "layer" && !b.castsNorm()
}

// normFixed is Gemma's 1 + weight in fp32, once a norm.
func (b block) normFixed(width int64) int64 {
	if b.arch.NormKind == "rms-gemma" {
		return 4 * width
	}
	return 0
}

// normOutput is the input that the matrix products after a norm keep: one shared tensor, or under autocast a cast of its own for
// each; none for a frozen matrix.
func (b block) normOutput(readers int64) int64 {
	if !b.trainable {
		return 0
	}
	if !b.precision.autocast {
		readers = 1
	}
	return readers * b.c * b.h
}

// qkNorms are norms of head width on q and k, whose output feeds the rotation and is not kept.
func (b block) qkNorms() int64 {
	if !b.arch.QKNorm {
		return 0
	}
	perElement := 4 + b.c
	switch {
	case !b.trainable:
		perElement = 4
	case b.arch.NormKind == "rms-gemma":
		perElement = 8
	}
	return perElement*(b.q+b.kv) + 4*(b.heads+b.kvHeads)
}

// attentionCore keeps q, k, v and the output; the softmax statistics (fused kernels) or the scores (eager).
func (b block) attentionCore() step {
	T, scores := b.tokens, b.tokens*b.heads*b.seq
	kv := 2 * b.c * b.kv
	grouped := b.kvHeads < b.heads
	eager := strings.HasPrefix(b.attention, "eager")
	padded := b.padded() && b.attention == "sdpa"
	switch {
	case eager && grouped && (b.kvHeads > 1 || b.batch > 1), padded && grouped && b.kvHeads > 1:
		kv = 2 * b.c * b.q // repeat_kv copies; a single head in a batch of one expands as a view
	}
	if b.quirk.fusedRotary && (!eager || b.batch <= 1) { // a batch of several sequences makes eager attention copy v out of it
		kv += b.c * (b.q + b.kv)
	}
	out := step{saved: T * (b.c*b.q + kv), live: T * (b.stream*b.h + 2*b.c*b.q + 2*b.c*b.kv)}
	if eager {
		probs := b.eagerScores()
		out.saved += probs * scores
		if b.trainable {
			out.saved += T * b.c * b.q // o_proj's input; the product that made it does not keep its output
		}
		out.live += (b.c + 4) * scores
		return out
	}
	out.saved += T * (b.c*b.q + 4*b.heads)
	if b.quirk.partialRotary && b.trainable {
		out.saved += T * b.c * b.q
	}
	if padded {
		out.saved += b.c * b.batch * b.seq * b.seq // the additive mask that each layer makes of the boolean one
	}
	return out
}

// eagerScores is the bytes kept for each attention score.
func (b block) eagerScores() int64 {
	softmax := int64(4)
	if b.quirk.softmax16 && !b.precision.autocast {
		softmax = b.c
	}
	kept := softmax
	switch {
	case b.arch.AttentionDropout > 0:
		kept += 1 + b.c // mask and result
	case softmax != b.c:
		kept += b.c // the cast that multiplies v
	}
	if b.arch.AttentionSoftcap {
		kept += b.c
	}
	return kept
}

// hiddenMask is dropout's boolean mask on the residual branch (native_dropout on CUDA).
func (b block) hiddenMask() int64 {
	if b.arch.HiddenDropout > 0 {
		return b.h
	}
	return 0
}

// activationKept is what the activation function keeps in bytes a token. Functions written in Python keep their intermediates.
func (b block) activationKept() int64 {
	if b.arch.Gated { // input of the function, its output, and the other factor
		return 3 * b.c * b.i
	}
	switch b.arch.Activation {
	case "gelu_new", "gelu_fast", "gelu_python", "gelu_10":
		if b.precision.autocast {
			return 14 * b.i // pow runs in fp32 (torch/amp/autocast_mode.py)
		}
		return 4 * b.c * b.i
	case "quick_gelu", "relu2":
		return 2 * b.c * b.i
	case "relu":
		if b.trainable {
			return 0 // its result is the next product's input
		}
	}
	return b.c * b.i
}

func (b block) activationLive() int64 {
	if b.arch.Gated || b.activationKept() > 2*b.c*b.i {
		return 3 * b.c * b.i
	}
	return 2 * b.c * b.i
}

// downInput is the input of the MLP's second product.
func (b block) downInput() int64 {
	if !b.trainable {
		return 0
	}
	return b.c * b.i
}
