package estimate

import (
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// A tape is the activations of all layers of a rank.
type tape struct {
	steps  []step // of one layer
	layers int64
	// input is what a checkpointed layer keeps; checkpointed how many of the layers are.
	input, checkpointed int64
	spared              int64 // what the first layer does not keep, because nothing before it is trained
	keepsInput          bool  // a layer's input is among what the layer itself keeps
	hidden              int64 // the last hidden state, which the forward pass holds until the loss is there, if nothing keeps it
	excess              int64 // by how much a layer's forward pass rises above what it keeps
	trailing            int64 // what the last layer's own variables hold when it ends or, checkpointed, at most
	outside             int64 // embeddings and inputs
	final               int64 // last norm and the head's input
}

// kept is what n layers hold between forward and backward.
func (t tape) kept(n int64) int64 {
	done := n * t.checkpointed / max(t.layers, 1)
	kept := done*t.input + (n-done)*saved(t.steps)
	if n > 0 {
		kept -= t.spared
	}
	return kept
}

func (t tape) total() int64 { return t.outside + t.kept(t.layers) + t.final }

// tape is the activations of one micro-batch; ok is false when the model's sizes are unknown.
func (r *rank) tape() (t tape, ok bool) {
	a := r.arch
	if !r.sized() || a.Hidden == 0 || a.Layers == 0 || a.Heads == 0 || a.Intermediate == 0 {
		return tape{}, false
	}
	b := r.block()
	g := b.layer()
	t = tape{steps: g.steps(), layers: r.layers, input: g.input.bytes(), keepsInput: g.keepsInput(), excess: g.excess()}
	t.trailing = max(g.trailing(), t.excess)
	if a.Encoder != nil {
		t.layers = max(r.layers-a.Encoder.Layers, 1)
	}
	r.applyCheckpointing(&t)
	if t.checkpointed > 0 {
		t.trailing = g.working()
		if b.quirk.returnsScores && t.layers > 1 {
			t.trailing += b.c * b.tokens * b.heads * b.seq
		}
	}
	if a.Encoder != nil {
		t.outside += r.encoderBytes(t.checkpointed > 0)
	}
	if n := r.denseLayers(); n > 0 && t.checkpointed == 0 { // the walk through layers takes all for alike
		d := r.block()
		d.dense = true
		t.outside += n * (saved(d.layer().steps()) - saved(t.steps))
	}
	if r.first && t.checkpointed == 0 && r.frozenEmbeddings() {
		g.frozenInput = true
		t.spared = saved(t.steps) - saved(g.steps())
	}
	if r.first {
		t.outside += 16 * b.tokens // input ids and labels, int64
		for _, w := range r.base {
			if w.unit == embeddingUnit && len(w.Shape) == 4 { // a convolution over patches keeps the pixels
				t.outside += b.c * b.tokens * w.elements / max(w.Shape[0], 1)
			}
		}
		if slices.ContainsFunc(r.base, func(w weight) bool { return w.unit == embeddingUnit && w.Role == model.Norm }) {
			t.outside += b.tokens * (b.stream*b.h + 8) // the embeddings' own norm
		}
		if a.EmbeddingDropout > 0 {
			t.outside += b.h * b.tokens
		}
		if b.quirk.noRotary {
			t.outside += 8 * b.seq // position ids
		}
	}
	if !b.quirk.noRotary {
		t.outside += 2 * b.stream * a.HeadDim * b.seq // cosines and sines
	}
	if r.last {
		end := b.ending()
		t.final, t.hidden = saved(end.steps()), end.unkept(b.hidden)
	}
	return t, true
}

// frozenEmbeddings says that nothing in front of the layers is trained.
func (r *rank) frozenEmbeddings() bool {
	return r.adapters() && !slices.ContainsFunc(r.trained, func(w weight) bool { return w.unit == embeddingUnit })
}

// encoderBytes is what the stack in front of the layers keeps: its layers, or their inputs, and its output.
func (r *rank) encoderBytes(checkpointed bool) int64 {
	s := *r.scenario
	s.arch = r.arch.Encoder
	if !slices.Contains(textEncoders, r.arch.Type) && s.arch.MaxPositions > 0 {
		s.seq = s.arch.MaxPositions
	}
	e := *r
	e.scenario = &s
	b := e.block()
	b.quirk = quirks[r.arch.Type]
	g := b.layer()
	layer := saved(g.steps())
	if checkpointed {
		layer = g.input.bytes()
	}
	return s.arch.Layers*layer + 2*g.input.bytes()
}

// textEncoders read as many tokens as the decoder writes; other encoders read the patches or frames that their configuration fixes.
var textEncoders = []string{"t5", "mt5", "umt5", "bart", "mbart"}

// denseLayers counts the layers of a mixture of experts that have no experts.
func (r *rank) denseLayers() int64 {
	var n int64
	for _, u := range r.arch.Units {
		if u.Name == "dense layer" {
			n += u.Repeat
		}
	}
	return n * r.layers / max(r.arch.Blocks(), 1)
}

// applyCheckpointing changes what layers keep: nothing but their input (full), every Nth layer so (selective:N), or a choice of
// operations (selective).
func (r *rank) applyCheckpointing(t *tape) {
	mode, every, _ := strings.Cut(r.checkpointing, ":")
	switch mode {
	case "none":
	case "full", "offload", "unsloth":
		t.checkpointed = t.layers
	case "selective":
		r.selective(t, parsePositive(every))
	default:
		r.notes.assume("no checkpointing", "checkpointing "+r.checkpointing+" has no formula here", true)
	}
	toHost := mode == "offload" || mode == "unsloth" || r.job.ActivationOffload.Or(false)
	if toHost && t.checkpointed > 0 { // inputs go to the host; two layers' worth is in flight
		t.input = ceilDiv(2*t.input, t.layers)
	}
}

// selective is one of three things: every Nth layer checkpointed; Megatron's, which recomputes core attention; or a policy by
// operation (torchtitan's), which keeps attention's output and every other matrix product (q, v, gate and down of seven).
func (r *rank) selective(t *tape, every int64) {
	b := r.block()
	switch {
	case every > 0:
		t.checkpointed = ceilDiv(t.layers, every)
	case r.megatron() || r.framework("nanotron"):
		b.kind = "flash"
		t.steps = b.layer().steps()
	default:
		t.checkpointed = t.layers
		t.input += b.tokens * (b.c*(2*b.q+b.kv+b.i+b.h) + 4*b.heads)
		r.notes.assume("selective checkpointing keeps attention's output and every other matrix product", "torchtitan's policy by operation", true)
	}
}

func parsePositive(text string) int64 {
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' || n > maxDegree {
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
