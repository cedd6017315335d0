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
	keepsInput          bool  // a layer's input is among what the layer itself keeps
	hidden              int64 // the last hidden state, which the forward pass holds until the loss is there, if nothing keeps it
	trailing            int64 // what the last layer's own variables hold when it ends or, checkpointed, at most
	outside             int64 // embeddings and inputs
	final               int64 // last norm and the head's input
}

// kept is what n layers hold between forward and backward.
func (t tape) kept(n int64) int64 {
	done := n * t.checkpointed / max(t.layers, 1)
	return done*t.input + (n-done)*saved(t.steps)
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
	t = tape{steps: g.steps(), layers: r.layers, input: g.input.bytes(), keepsInput: g.keepsInput(), trailing: g.trailing()}
	r.applyCheckpointing(&t)
	if t.checkpointed > 0 {
		t.trailing = g.working()
	}
	if r.first {
		t.outside = 16 * b.tokens // input ids and labels, int64
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
