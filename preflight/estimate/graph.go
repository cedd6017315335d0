package estimate

import "slices"

// A tensor is a value of the forward pass of one micro-batch on one rank.
type tensor struct {
	n, width int64   // elements, and bytes of each
	of       *tensor // the tensor that this one is a view of; nil: it has a storage of its own
}

func (t *tensor) bytes() int64 { return t.n * t.width }

func (t *tensor) storage() *tensor {
	if t.of != nil {
		return t.of.storage()
	}
	return t
}

// An op is one operation as autograd records it.
type op struct {
	name    string
	in, out []*tensor // the inputs and outputs that gradients flow through
	saves   []*tensor // kept until the op's backward has run; a storage that several ops keep counts once
	extra   int64     // further bytes kept: masks, statistics, casts of weights
	// of extra, what is made beside the output though nothing keeps it: dropout's mask, factors of Python functions
	mask  int64
	temp  int64 // alive only while the op's backward runs, besides the gradients of its inputs and outputs
	grads int64 // gradients of weights that appear here
	// the gradient of the output is the gradient of every input: additions, views, and sums over copies
	passes bool
	folds  bool      // a matrix product of more than two dimensions, whose input's gradient is a view of a flat one
	holds  []*tensor // alive while the op runs forward, because a variable of the Python code still names them
	// overwrites: the gradients of the inputs are written over what the op keeps.
	overwrites bool
}

// A graph is a piece of a model's forward pass in the order of execution, from input to output. Two things follow from
// it: what is kept until backward, and how high memory rises while backward walks through.
type graph struct {
	input, output *tensor
	ops           []op
	// frozenInput: nothing before the graph is trained, so no gradient goes there, and what only such gradients need is
	// not kept.
	frozenInput bool
	shared      *tensor // kept by something outside the graph in any case: what an encoder puts out
}

func newGraph(n, width int64) *graph {
	t := &tensor{n: n, width: width}
	return &graph{input: t, output: t}
}

// add records an op with one new output of n elements.
func (g *graph) add(o op, n, width int64) *tensor {
	t := &tensor{n: n, width: width}
	o.out = []*tensor{t}
	g.ops = append(g.ops, o)
	return t
}

// A step is an op as the timeline needs it. All numbers are bytes of one micro-batch on one rank.
type step struct {
	name  string
	saved int64 // kept from forward until this step's backward has run
	live  int64 // alive only while this step's backward runs: gradients of activations, temporaries
	grads int64 // gradients of weights that appear here
}

func saved(steps []step) int64 {
	var sum int64
	for _, s := range steps {
		sum += s.saved
	}
	return sum
}

// steps derives what each op keeps and what is alive in its backward. A storage is kept by the first op that saves it,
// which is the last that backward reaches.
func (g *graph) steps() []step {
	out := make([]step, len(g.ops))
	kept := map[*tensor]bool{}
	trained := map[*tensor]bool{g.input: !g.frozenInput, g.shared: !g.frozenInput}
	for i, o := range g.ops {
		recorded := o.grads > 0 || slices.ContainsFunc(o.in, func(t *tensor) bool { return trained[t] })
		if !recorded {
			continue
		}
		for _, t := range o.out {
			trained[t] = true
		}
		out[i] = step{name: o.name, saved: o.extra, grads: o.grads}
		for _, t := range o.saves {
			if s := t.storage(); !kept[s] && s != g.shared {
				kept[s] = true
				out[i].saved += s.bytes()
			}
		}
	}
	flow := gradientFlow{pending: map[*tensor]*gradient{}}
	flow.deliver(g.output, flow.allocate(g.output.bytes()))
	for i, o := range slices.Backward(g.ops) {
		out[i].live = flow.through(o)
	}
	return out
}

// keepsInput says that the graph's own input is among what it keeps.
func (g *graph) keepsInput() bool {
	return slices.ContainsFunc(g.ops, func(o op) bool {
		return slices.ContainsFunc(o.saves, func(t *tensor) bool { return t.storage() == g.input })
	})
}

// unkept is the bytes of a tensor's storage if nothing keeps it for backward.
func (g *graph) unkept(t *tensor) int64 {
	for _, o := range g.ops {
		for _, s := range o.saves {
			if s.storage() == t.storage() {
				return 0
			}
		}
	}
	return t.storage().bytes()
}

// trailing is what Python's variables hold when the last op has run, besides what is kept: the graph's input, and the
// inputs and output of the last addition and of what follows it.
func (g *graph) trailing() int64 {
	held := map[*tensor]bool{g.input: true}
	for _, o := range slices.Backward(g.ops) {
		for _, t := range slices.Concat(o.in, o.out) {
			held[t.storage()] = true
		}
		if o.name == "sum" {
			break
		}
	}
	var sum int64
	for t := range held {
		sum += g.unkept(t)
	}
	return sum
}

// working is the most that a checkpointed graph holds on its way forward, when nothing is kept for backward, beyond its
// input.
func (g *graph) working() int64 { return g.forwardPeak(nil) - g.input.bytes() }

// excess is by how much the forward pass rises above what it keeps, not counting the extra bytes of its ops.
func (g *graph) excess() int64 {
	kept := map[*tensor]bool{}
	var sum int64
	for _, o := range g.ops {
		for _, t := range o.saves {
			if s := t.storage(); !kept[s] {
				kept[s] = true
				sum += s.bytes()
			}
		}
	}
	return g.forwardPeak(kept) - sum
}

// forwardPeak is the most that is alive at once in the forward pass: tensors live until their last use, the input and
// what is kept to the end. If nothing is kept, masks come and go with their ops.
func (g *graph) forwardPeak(kept map[*tensor]bool) int64 {
	last := map[*tensor]int{g.input: len(g.ops)}
	for i, o := range g.ops {
		for _, t := range slices.Concat(o.in, o.out, o.holds) {
			last[t.storage()] = max(last[t.storage()], i)
		}
	}
	alive, peak := g.input.bytes(), int64(0)
	born := map[*tensor]bool{g.input: true}
	for i, o := range g.ops {
		for _, t := range o.out {
			if s := t.storage(); !born[s] {
				born[s] = true
				alive += s.bytes()
			}
		}
		if kept == nil {
			peak = max(peak, alive+o.mask)
		}
		peak = max(peak, alive)
		for t := range born {
			if last[t] == i && !kept[t] {
				alive -= t.bytes()
				delete(born, t)
			}
		}
	}
	return peak
}

// A gradient is the storage of an activation's gradient; holders counts the tensors that it waits for. A view keeps its
// base alive, and so holds the storage a second time.
type gradient struct {
	bytes   int64
	holders int
	view    bool
}

// A gradientFlow follows the gradients of activations through a backward pass.
type gradientFlow struct {
	pending map[*tensor]*gradient // what has arrived for tensors whose producer has not run backward yet
	alive   int64
	peak    int64 // since the current op began
}

func (f *gradientFlow) allocate(bytes int64) *gradient {
	f.alive += bytes
	f.peak = max(f.peak, f.alive)
	return &gradient{bytes: bytes}
}

func (f *gradientFlow) release(g *gradient) {
	if g.holders == 0 {
		f.alive -= g.bytes
	}
}

// deliver adds a gradient to what a tensor has got. Autograd adds in place unless the storage is shared
// (torch/csrc/autograd/input_buffer.cpp: can_accumulate_inplace).
func (f *gradientFlow) deliver(t *tensor, g *gradient) {
	g.holders++
	old := f.pending[t]
	if old == nil {
		f.pending[t] = g
		return
	}
	sum := old
	if old.holders > 1 || old.view {
		sum = f.allocate(old.bytes)
		sum.holders = 1
		old.holders--
		f.release(old)
	}
	f.pending[t] = sum
	g.holders--
	f.release(g)
}

// through runs the backward of one op and returns the most that was alive meanwhile.
func (f *gradientFlow) through(o op) int64 {
	f.peak = f.alive
	var arrived []*gradient
	for _, t := range o.out {
		if g := f.pending[t]; g != nil {
			delete(f.pending, t)
			arrived = append(arrived, g)
		}
	}
	if len(arrived) == 0 {
		return f.peak
	}
	var made []*gradient
	for range o.in {
		if o.passes {
			made = append(made, arrived[0])
		}
	}
	if !o.passes {
		for _, t := range o.in {
			f.alive += t.bytes()
			made = append(made, &gradient{bytes: t.bytes(), view: o.folds})
		}
		if !o.overwrites {
			f.peak = max(f.peak, f.alive+o.temp)
		}
	}
	for i, t := range o.in {
		f.deliver(t, made[i])
	}
	for _, g := range arrived {
		g.holders--
		f.release(g)
	}
	return f.peak
}
