package estimate

import (
	"slices"
	"strings"
)

// A tape is the activations of all layers of a rank.
type tape struct {
	steps  []step // of one layer
	layers int64
	// input is what a checkpointed layer keeps; checkpointed how many of the layers are.
	input, checkpointed int64
	every               int64 // if only every so many layers are checkpointed, from the first on; else 0
	spared              int64 // what the first layer does not keep, because nothing before it is trained
	keepsInput          bool  // a layer's input is among what the layer itself keeps
	// the last hidden state, which the forward pass holds until the loss is there, if nothing keeps it
	hidden   int64
	excess   int64 // by how much a layer's forward pass rises above what it keeps
	trailing int64 // what the last layer's own variables hold when it ends or, checkpointed, at most
	outside  int64 // embeddings and inputs
	final    int64 // last norm and the head's input
	layer    int64 // gradients of one layer's weights
	pending  int64 // gradients that wait until backward has left the layers: of what they all read
	output   int64 // what the other stack reads
	unread   int64 // what layers keep whose output nothing reads, until the forward pass lets go of it
	// what went into the first layer, if the model's code alone keeps it through the forward pass
	embedding int64
	// what is kept behind the embeddings, which backward lets go of before it makes their gradient
	lead    int64
	batch   int64 // the tensors of a micro-batch, among what is outside
	encoder *tape // the stack in front, in models that have two
	dense   *tape // layers without experts in front of those that have them
	unlike  int64 // what those keep beyond as many of the others, among what is outside
}

// tapeOf is a tape of layers like g.
func (b *block) tapeOf(g *graph) tape {
	t := tape{steps: g.steps(), layers: max(b.recordedLayers(), 1), input: g.input.bytes(), keepsInput: g.keepsInput(),
		excess: g.excess()}
	t.trailing = max(g.trailing(), t.excess)
	for _, s := range t.steps {
		t.layer += s.grads
	}
	t.pending = b.pendingBias(b.checkpointing != "none")
	if b.arch.CrossAttention {
		t.pending += b.shared.bytes()
	}
	return t
}

// kept is what n layers hold between forward and backward.
func (t tape) kept(n int64) int64 {
	done := n * t.checkpointed / max(t.layers, 1)
	if t.every > 0 {
		done = ceilDiv(n, t.every)
	}
	kept := done*t.input + (n-done)*saved(t.steps)
	if n > 0 {
		kept -= t.spared
	}
	return kept
}

// recomputes says that a layer is checkpointed.
func (t tape) recomputes(layer int64) bool {
	return t.checkpointed > 0 && (t.every == 0 || layer%t.every == 0)
}

// lastRecomputed is the number of the last layer that is checkpointed.
func (t tape) lastRecomputed() int64 {
	if t.every == 0 {
		return t.layers - 1
	}
	return (t.layers - 1) / t.every * t.every
}

func (t tape) total() int64 { return t.outside + t.kept(t.layers) + t.final }

// tape is the activations of one micro-batch; ok is false when the model's sizes are unknown.
func (r *rank) tape() (t tape, ok bool) {
	a := r.arch
	if !r.formula() {
		return tape{}, false
	}
	body := r
	if a.Encoder != nil {
		body = r.stack(false)
	}
	b := body.block()
	g := b.layer()
	t = b.tapeOf(g)
	r.applyCheckpointing(&t)
	if t.recomputes(t.layers - 1) {
		t.trailing = g.working()
		if b.quirk.ReturnsScores && t.layers > 1 {
			t.trailing += b.c * b.tokens * b.heads * b.seq
		}
	}
	if a.Encoder != nil && r.first {
		t.encoder = r.encoderTape()
		t.outside += r.projected()
		t.embedding += t.encoder.unread + r.imageFeatures()
		t.outside += t.encoder.total() + b.biasBytes(t.checkpointed > 0)
	}
	if n := r.denseLayers(); n > 0 {
		d := r.blockOf(true)
		front := d.tapeOf(d.layer())
		front.layers, front.every, front.checkpointed = n, t.every, min(n, t.checkpointed)
		t.dense = &front
		t.unlike = front.kept(n) - t.kept(n)
		t.outside += t.unlike
	}
	if (r.first || r.freezes()) && t.checkpointed == 0 && r.frozenEmbeddings() {
		g.frozenInput = true
		t.spared = saved(t.steps) - saved(g.steps())
	}
	if a.SharedBlocks && b.autocast && b.w == 4 && (b.trainable || b.lora != nil) {
		t.outside += b.c * r.linear(layerUnit)
	}
	if r.first {
		t.batch = b.batchBytes()
		t.outside += t.batch + b.embedded(t.checkpointed > 0)
		if a.Encoder == nil {
			t.lead = b.afterEmbedding(t.checkpointed > 0)
		}
	}
	switch {
	case t.checkpointed > 0:
		t.outside += b.maskBytes()
	case len(a.PositionTerms) > 0:
		t.embedding += b.maskBytes()
	}
	if !b.quirk.NoRotary {
		t.outside += 2 * b.stream * a.HeadDim * b.seq // cosines and sines
	}
	if r.last {
		top := b.pastFrozen()
		end := top.ending()
		t.final, t.hidden = saved(end.steps()), end.unkept(top.hidden)
		// one graph: the last norm's input is recomputed with the layer
		if b.compiled && t.checkpointed > 0 && !r.traits.CompilesLayers {
			t.final -= min(end.input.bytes(), t.final)
		}
		// the model still names what went into the first layer
		if b.frozenEmbeddings() && t.checkpointed == 0 && b.embeddingNorm() > 0 && !t.keepsInput {
			t.embedding += t.input
		}
	}
	return t, true
}

// frozenEmbeddings says that nothing in front of the layers is trained.
func (r *rank) frozenEmbeddings() bool {
	return !r.trainsEnds() && !slices.ContainsFunc(r.trained, func(w weight) bool { return w.unit == embeddingUnit })
}

// denseLayers counts the layers of a mixture of experts that have no experts.
func (r *rank) denseLayers() int64 {
	var n int64
	for _, u := range r.arch.Units {
		if u.Name == denseUnit {
			n += u.Repeat
		}
	}
	return n * r.layers / max(r.arch.Blocks(), 1)
}

// applyCheckpointing changes what layers keep: nothing but their input (full), every Nth layer so (selective:N), or a
// choice of operations (selective).
func (r *rank) applyCheckpointing(t *tape) {
	mode, every, _ := strings.Cut(r.checkpointing, ":")
	switch mode {
	case "none":
		if r.job.ActivationOffload.Or(false) {
			r.notes.assume("activations stay on the GPU",
				"activation offload without checkpointing has no formula here", true)
		}
	case "full", "offload", "unsloth":
		t.checkpointed = t.layers
	case "selective":
		r.selective(t, parsePositive(every))
	default:
		r.notes.assume("no checkpointing", "checkpointing "+r.checkpointing+" has no formula here", true)
	}
	if r.activationsToHost() && t.checkpointed > 0 { // inputs go to the host; two layers' worth is in flight
		t.input = ceilDiv(2*t.input, t.layers)
	}
}

// activationsToHost says that checkpointed layers' inputs are kept in host memory.
func (s *scenario) activationsToHost() bool {
	mode, _, _ := strings.Cut(s.checkpointing, ":")
	return mode == "offload" || mode == "unsloth" || mode != "none" && s.job.ActivationOffload.Or(false)
}

// selective is one of three things: every Nth layer checkpointed; Megatron's, which recomputes core attention; or a
// policy by operation (torchtitan's), which keeps attention's output and every other matrix product (q, v, gate and
// down of seven).
func (r *rank) selective(t *tape, every int64) {
	b := r.block()
	switch {
	case every > 0:
		t.checkpointed, t.every = ceilDiv(t.layers, every), every
	case r.megatron() || r.traits.RecomputesAttention:
		b.kind = "flash"
		t.steps = b.layer().steps()
	default:
		t.checkpointed = t.layers
		t.input += b.tokens * (b.c*(2*b.q+b.kv+b.i+b.h) + 4*b.heads)
		r.notes.assume("selective checkpointing keeps attention's output and every other matrix product",
			"torchtitan's policy by operation", true)
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
