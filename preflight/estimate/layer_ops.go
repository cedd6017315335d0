package estimate

import (
	"slices"

	"oomguard/preflight/model"
)

// Operations of a block. Each records what autograd keeps for it in PyTorch and in the Python code of transformers.

// hold says that variables of the calling code still name the tensors while the last op runs forward.
func (b *block) hold(ts ...*tensor) {
	o := &b.ops[len(b.ops)-1]
	o.holds = append(o.holds, ts...)
}

// cast converts to another width; a tensor that has it already stays itself.
func (b *block) cast(x *tensor, width int64) *tensor {
	if x.width == width {
		return x
	}
	return b.add(op{name: "cast", in: []*tensor{x}}, x.n, width)
}

// lowered is x as autocast hands it to a matrix product: a 16-bit copy of its own.
func (b *block) lowered(x *tensor) *tensor {
	if !b.autocast {
		return x
	}
	return b.cast(x, b.c)
}

// view is n elements of x under another name.
func (b *block) view(x *tensor, n int64) *tensor { return &tensor{n: n, width: x.width, of: x} }

// split names parts of x; their gradients are put together again in one tensor.
func (b *block) split(x *tensor, sizes ...int64) []*tensor {
	out := make([]*tensor, len(sizes))
	for i, n := range sizes {
		out[i] = b.view(x, n)
	}
	b.ops = append(b.ops, op{name: "split", in: []*tensor{x}, out: out})
	return out
}

// copied is x in another order of memory.
func (b *block) copied(x *tensor) *tensor {
	return b.add(op{name: "copy", in: []*tensor{x}}, x.n, x.width)
}

// sum adds tensors of one size: the widest wins, the gradient goes to all.
func (b *block) sum(xs ...*tensor) *tensor {
	width := int64(0)
	for _, x := range xs {
		width = max(width, x.width)
	}
	for i, x := range xs {
		xs[i] = b.cast(x, width)
	}
	return b.add(op{name: "sum", in: slices.Clone(xs), passes: true}, xs[0].n, width)
}

// product multiplies element by element; it keeps both factors.
func (b *block) product(x, y *tensor) *tensor {
	return b.add(op{name: "product", in: []*tensor{x, y}, saves: []*tensor{x, y}}, x.n, max(x.width, y.width))
}

// scaled multiplies by a number or a constant that is kept anyway.
func (b *block) scaled(x *tensor) *tensor {
	return b.add(op{name: "scale", in: []*tensor{x}}, x.n, x.width)
}

// layerScaled multiplies by a vector that is trained and as wide as the weights are.
func (b *block) layerScaled(x *tensor) *tensor {
	o := op{name: "scale", in: []*tensor{x}}
	width := max(x.width, b.w)
	if b.trainable {
		o.saves, o.temp = []*tensor{x}, x.n*width
	}
	return b.add(o, x.n, width)
}

// dropout keeps a mask.
func (b *block) dropout(x *tensor, p float64) *tensor {
	if p <= 0 {
		return x
	}
	mask := b.dropoutMask(x.n, x.width)
	return b.add(op{name: "dropout", in: []*tensor{x}, extra: mask, mask: mask}, x.n, x.width)
}

// dropoutMask is the bytes of dropout's mask: one an element on CUDA (native_dropout), an element's own width on a CPU
// (aten/src/ATen/native/Dropout.cpp).
func (r *rank) dropoutMask(n, width int64) int64 {
	if r.cpu() {
		return n * width
	}
	return n
}

// linear is the matrix product of a part, out elements a token wide, with its adapter if it has one.
func (b *block) linear(x *tensor, out int64, parts ...model.Part) *tensor {
	y := b.matrix(x, b.tokens*out, b.claim(parts...))
	for _, p := range parts {
		if a, ok := b.lowRank[p]; ok {
			y = b.withAdapter(x, y, a)
		}
	}
	return y
}

// matrix is the product with a weight of the given number of elements. A trained weight keeps the product's input for
// its gradient.
func (b *block) matrix(x *tensor, n int64, weights int64) *tensor {
	o := b.weighing(op{name: "linear", folds: true}, weights)
	width := b.w
	if b.autocast {
		width = b.c
	}
	if b.quant != nil { // bitsandbytes computes in 16 bit and answers in the input's dtype (bitsandbytes/nn/modules.py)
		width = x.width
	}
	in := b.lowered(x)
	o.in = []*tensor{in}
	if b.keepsInputs {
		o.saves = []*tensor{in}
	}
	return b.add(o, n, width)
}

// weighing is o with what a trained weight of so many elements adds: its gradient, which autocast makes in 16 bit
// first, and the weight's 16-bit copy, which stays with the graph.
func (b *block) weighing(o op, weights int64) op {
	lowers := b.autocast && b.w == 4
	// those of shared blocks exist once
	if lowers && b.quant == nil && (b.trainable || b.lora != nil) && !b.arch.SharedBlocks {
		o.extra = b.c * weights
	}
	if b.trainable {
		o.grads = b.precision.grad * weights
		if lowers { // before it is fp32 too
			o.temp = b.c * weights
		}
	}
	return o
}

// withAdapter adds LoRA's branch: B(A(dropout(x))) times a number. PEFT casts x to the adapter's dtype first
// (peft/tuners/lora/layer.py).
func (b *block) withAdapter(x, y *tensor, a adapter) *tensor {
	width := b.precision.param
	if b.fsdp() {
		width = b.precision.unsharded()
	}
	branch := b.branches[x]
	input := b.cast(x, width)
	if branch == nil {
		branch = b.dropout(input, b.lora.Dropout)
	}
	if b.traits.FusedAdapter {
		b.branches[x] = branch
	}
	for _, part := range []struct{ out, weights int64 }{{b.tokens * a.rank, a.in * a.rank},
		{b.tokens * a.out, a.rank * a.out}} {
		branch = b.lowered(branch)
		o := op{name: "adapter", folds: true, in: []*tensor{branch}, saves: []*tensor{branch},
			grads: b.precision.grad * part.weights}
		out := width
		if b.autocast {
			out = b.c
			if width == 4 {
				o.extra = b.c * part.weights
			}
		}
		branch = b.add(o, part.out, out)
	}
	if b.lora.DoRA {
		branch = b.magnitude(y, branch, a)
	}
	out := b.sum(y, b.scaled(branch))
	b.hold(x, input)
	return b.cast(out, y.width)
}

// norm is a normalisation over width elements, by the model's kind.
func (b *block) norm(x *tensor, width int64) *tensor {
	rows := x.n / max(width, 1)
	switch {
	case b.compiled:
		return b.compiledNorm(x, rows)
	case b.megatron(): // Transformer Engine's kernels keep the input and the statistics, for RMSNorm too
		return b.add(op{name: "norm", in: []*tensor{x}, saves: []*tensor{x}, extra: 8 * rows}, x.n, b.c)
	case b.arch.NormKind != "layer" && b.liger.Norm:
		return b.ligerNorm(x, rows)
	case b.arch.NormKind != "layer":
		return b.rmsNorm(x, rows, width)
	case b.quirk.PythonNorm:
		return b.pythonLayerNorm(x, rows)
	}
	return b.layerNorm(x, rows)
}

// layerNorm is PyTorch's kernel: it keeps its input and two fp32 statistics a row. Under autocast it works on fp32.
func (b *block) layerNorm(x *tensor, rows int64) *tensor {
	in := x
	switch {
	case b.quirk.Norm16:
		in = b.lowered(x)
	case b.autocast || b.quirk.Norm32:
		in = b.cast(x, 4)
	}
	y := b.add(op{name: "norm", in: []*tensor{in}, saves: []*tensor{in}, extra: 8 * rows}, x.n, in.width)
	if b.quirk.Norm32 {
		return b.cast(y, x.width)
	}
	return y
}

// rmsNorm is transformers' Python code: x in fp32, times its inverse root of mean squares, back in x's dtype, times the
// weight. Gemma multiplies by 1 + weight, and OLMo 2 by the weight, while still in fp32.
func (b *block) rmsNorm(x *tensor, rows, width int64) *tensor {
	wide := b.cast(x, 4)
	root := b.add(op{name: "norm", in: []*tensor{wide}, saves: []*tensor{wide}, extra: 4 * rows, temp: 12 * x.n}, rows,
		4)
	factor := wide
	if b.quirk.ScalesInput {
		factor = x
	}
	y := b.add(op{name: "norm", in: []*tensor{factor, root}, saves: []*tensor{factor}, temp: 4 * x.n}, x.n, 4)
	late := b.arch.NormKind == "rms-gemma" || b.quirk.Norm32
	if !late {
		y = b.cast(y, x.width)
	}
	o := op{name: "norm", in: []*tensor{y}}
	if b.trainable {
		o.saves, o.temp = []*tensor{y}, y.bytes()
	}
	if b.arch.NormKind == "rms-gemma" {
		o.extra = 4 * width // 1 + weight in fp32
	}
	if late {
		return b.cast(b.add(o, x.n, 4), x.width)
	}
	return b.add(o, x.n, max(y.width, b.w))
}

// bareNorm is RMSNorm without a weight.
func (b *block) bareNorm(x *tensor, width int64) *tensor {
	rows := x.n / max(width, 1)
	wide := b.cast(x, 4)
	root := b.add(op{name: "norm", in: []*tensor{wide}, saves: []*tensor{wide}, extra: 4 * rows, temp: 12 * x.n}, rows,
		4)
	return b.cast(b.add(op{name: "norm", in: []*tensor{wide, root}, saves: []*tensor{wide}, temp: 4 * x.n}, x.n, 4),
		x.width)
}

// pythonLayerNorm is Cohere's, written in Python on fp32: the difference from the mean is made twice.
func (b *block) pythonLayerNorm(x *tensor, rows int64) *tensor {
	wide := b.cast(x, 4)
	square := b.add(op{name: "norm", in: []*tensor{wide}}, x.n, 4)
	root := b.add(op{name: "norm", in: []*tensor{square}, saves: []*tensor{square}, extra: 4 * rows, temp: 4 * x.n},
		rows, 4)
	centred := b.add(op{name: "norm", in: []*tensor{wide}}, x.n, 4)
	y := b.add(op{name: "norm", in: []*tensor{centred, root}, saves: []*tensor{centred}, temp: 4 * x.n}, x.n, 4)
	o := op{name: "norm", in: []*tensor{y}}
	if b.trainable {
		o.saves, o.temp = []*tensor{y}, y.bytes()
	}
	return b.cast(b.add(o, x.n, 4), x.width)
}

// activation is the function between the MLP's products. Functions written in Python keep their intermediates.
func (b *block) activation(x *tensor) *tensor {
	if b.compiled {
		return b.compiledActivation(x)
	}
	keep := func(saves []*tensor, extra, temp int64, width int64) *tensor {
		return b.add(op{name: "activation", in: []*tensor{x}, saves: saves, extra: extra, temp: temp}, x.n, width)
	}
	kind := b.arch.Activation
	if b.traits.OwnModels {
		kind = ""
	}
	switch kind {
	case "gelu_new", "gelu_fast", "gelu_python", "gelu_10", "gelu_accurate":
		if b.autocast && x.width < 4 { // pow runs in fp32 (aten/src/ATen/autocast_mode.h), and what follows it
			return keep(nil, 14*x.n, 6*x.n, 4)
		}
		y := keep([]*tensor{x}, 3*x.bytes(), x.bytes(), x.width)
		b.ops[len(b.ops)-1].mask = 2 * x.bytes()
		return y
	case "quick_gelu":
		open := b.add(op{name: "activation", in: []*tensor{b.scaled(x)}}, x.n, x.width)
		b.ops[len(b.ops)-1].saves = []*tensor{open}
		return b.product(x, open)
	case "relu":
		y := keep(nil, 0, 0, x.width)
		b.ops[len(b.ops)-1].saves = []*tensor{y}
		return y
	case "relu2", "relu_squared":
		if b.autocast && x.width < 4 { // square is pow, which runs in fp32
			y := keep(nil, 0, 0, x.width)
			b.ops[len(b.ops)-1].saves = []*tensor{y}
			y = b.cast(y, 4)
			return b.add(op{name: "activation", in: []*tensor{y}, saves: []*tensor{y}, temp: y.bytes()}, x.n, 4)
		}
		return keep(nil, x.bytes(), x.bytes(), x.width)
	}
	if b.quirk.PythonGelu {
		return keep([]*tensor{x}, 0, 4*x.bytes(), x.width)
	}
	return keep([]*tensor{x}, 0, 0, x.width)
}
