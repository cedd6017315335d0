package estimate

import (
	"cmp"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// settleLiger turns the job's layer_kernels into what Liger replaces in this model.
func (s *scenario) settleLiger() {
	library, list, some := strings.Cut(s.job.LayerKernels.Or("none"), ":")
	switch {
	case library == "none":
		return
	case library != "liger":
		s.notes.assume("the layers' own code", "kernels of "+library+" have no formula here", true)
		return
	}
	kind := cmp.Or(s.arch.TextType, s.arch.Type)
	var k model.Liger
	if s.arch.Facts.HasLiger() {
		k = *s.arch.Facts.Liger
	} else {
		s.notes.assume("nothing of Liger", "it has no kernels for models of type "+cmp.Or(kind, "unknown"), true)
	}
	if !k.Loss && s.loss == "liger-flce" {
		s.loss = "none"
	}
	if names := strings.Split(list, "+"); some {
		k.Rope, k.Norm, k.GLU = k.Rope && slices.Contains(names, "rope"), k.Norm && slices.Contains(names, "rms_norm"),
			k.GLU && slices.Contains(names, "glu")
	}
	if s.arch.Experts > 0 && k.GLU {
		s.notes.assume("experts as transformers computes them", "Liger's kernel for experts has no formula here", true)
	}
	s.liger = k
}

// ligerNorm keeps its input as it is and a statistic a row; what it puts out has the input's dtype
// (liger_kernel/ops/rms_norm.py).
func (b *block) ligerNorm(x *tensor, rows int64) *tensor {
	return b.add(op{name: "norm", in: []*tensor{x}, saves: []*tensor{x}, extra: 4 * rows, passes: !b.liger.NewGradient},
		x.n, x.width)
}

// ligerRotated rotates in place, forward and backward. Parts of a fused projection are not contiguous, and copied
// first.
func (b *block) ligerRotated(x *tensor) *tensor {
	y := &tensor{n: x.n, width: x.width}
	if !b.fusedQKV {
		y.of = x
	}
	b.ops = append(b.ops, op{name: "rotate", in: []*tensor{x}, out: []*tensor{y}, passes: true})
	return y
}

// ligerGLU keeps gate and up and writes their gradients over them (liger_kernel/ops/swiglu.py and geglu.py). Halves of
// a fused projection are copied first.
func (b *block) ligerGLU(gate, up *tensor) *tensor {
	contiguous := func(x *tensor) *tensor {
		if x.of == nil {
			return x
		}
		return b.add(op{name: "copy", in: []*tensor{x}, passes: true}, x.n, x.width)
	}
	gate, up = contiguous(gate), contiguous(up)
	return b.add(op{name: "activation", in: []*tensor{gate, up}, saves: []*tensor{gate, up}, overwrites: true}, gate.n,
		gate.width)
}

// ligerLoss is the fused linear cross entropy (liger_kernel/ops/fused_linear_cross_entropy.py): the gradient of the
// hidden states and that of the head's weight, both in the dtype of what they are for, are made in the forward pass,
// from the logits of next_pow2(T / ceil(V/h)) tokens at a time, whose gradient is written over them.
func (r *rank) ligerLoss(tokens, vocab int64) lossMemory {
	p, hidden := r.precision, r.arch.Hidden
	rows := min(nextPowerOf2(ceilDiv(tokens, ceilDiv(vocab, max(hidden, 1)))), tokens)
	chunk := p.compute * rows * vocab
	if r.older("liger-kernel", 0, 5, 3) { // it scaled the gradient into a tensor of its own
		chunk *= 2
	}
	inputs := p.stream * tokens * hidden
	if !r.trainsEnds() {
		return lossMemory{forward: inputs + chunk, backward: inputs, gradient: inputs}
	}
	head := hidden * vocab
	kept := inputs + p.unsharded()*head
	var beside int64
	// each chunk casts the transposed weight anew, while autocast's cache has a copy of the weight itself
	if p.autocast && p.unsharded() == 4 {
		beside = p.compute * head
	}
	if r.sumsHeadApart() {
		product := p.compute * head
		if p.compute < 4 {
			product += 4 * head
		}
		beside = max(beside, product)
	}
	return lossMemory{forward: kept + chunk + beside, backward: kept, gradient: inputs}
}

// sumsHeadApart says that a chunk's gradient of the head is made on its own and turned to fp32 before it is added: in
// releases from 0.6.2, until 0.8.1 for fp32 weights and 0.8.2 for others.
func (r *rank) sumsHeadApart() bool {
	fixed := []int{0, 8, 3}
	if r.precision.unsharded() == 4 && r.precision.compute < 4 {
		fixed = []int{0, 8, 1}
	}
	return r.older("liger-kernel", fixed...) && !r.older("liger-kernel", 0, 6, 2)
}
