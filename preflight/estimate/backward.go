package estimate

import "slices"

// backward is the moments of the backward pass at which memory may peak. Between the first and the last layer memory
// changes evenly, by a layer's gradients less its activations, so the extremes are at the ends.
func (m *builder) backward() []Components {
	if !m.taped {
		return m.roughBackward()
	}
	if m.layout.fsdp != nil {
		return m.fsdpBackward()
	}
	all, grads := m.layout.grads, m.unitGradients()
	with := func(communication int64) momentAt {
		return func(produced, activations, logits, live int64) Components {
			c := m.inBackward(communication)
			c[Gradients], c[Activations], c[Logits] = min(produced, all), activations, logits
			c[Temporaries] += live
			if m.layout.gradsResident { // what this pass produces comes on top until it is accumulated
				c[Gradients] = m.residentGradients()
			}
			return c
		}
	}
	out := m.backwardStart(with(m.layout.backwardStart), grads.final)
	top, bottom := m.ends()
	out = append(out, m.walkLayers(m.awaiting(with(m.layout.backward), grads.tied), top, bottom, grads)...)
	end := m.inBackward(m.layout.backwardEnd)
	end[Gradients], end[Activations], end[Logits] = all, bottom-m.tape.lead, m.loss.held
	end[Temporaries] += m.lastGradients(grads)
	return append(out, end)
}

// awaiting adds what waits while backward goes through the layers and gradients are being accumulated: the head's part
// of a shared weight, until the embedding's is there too.
func (m *builder) awaiting(at momentAt, tied int64) momentAt {
	return func(produced, activations, logits, live int64) Components {
		return at(produced, activations, logits, live+m.fresh(tied))
	}
}

// walkLayers is the backward pass at both ends of the layers, and of those of the stack in front, if there is one.
func (m *builder) walkLayers(at momentAt, top, bottom int64, grads unitGradients) []Components {
	t := &m.tape
	out := m.walkLayer(t, t.layers-1, at, top, grads.final)
	if last := t.lastRecomputed(); last > 0 && last < t.layers-1 {
		behind := t.layers - 1 - last
		out = append(out, m.walkLayer(t, last, at, top-t.kept(t.layers-1)+t.kept(last),
			grads.final+behind*ceilDiv(t.layer, m.layout.gradShards))...)
	}
	pending := int64(0)
	if m.tape.layers > 1 {
		pending = m.tape.pending
	}
	e, all := m.tape.encoder, m.layout.grads
	if d := m.tape.dense; d != nil {
		own, front := ceilDiv(m.tape.layer, m.layout.gradShards), ceilDiv(d.layer, m.layout.gradShards)
		bottom += pending - m.tape.unlike
		out = append(out, m.walkLayer(&m.tape, d.layers, at, bottom+d.kept(d.layers),
			all-grads.first-d.layers*front-own)...)
		return append(out, m.walkLayer(d, 0, at, bottom+m.hoarded(), all-grads.first-front)...)
	}
	if e == nil {
		return append(out, m.walkLayer(&m.tape, 0, at, bottom+pending+m.hoarded(), all-grads.first-grads.layer)...)
	}
	own, front := ceilDiv(m.tape.layer, m.layout.gradShards), ceilDiv(e.layer, m.layout.gradShards)
	out = append(out, m.walkLayer(&m.tape, 0, at, bottom+pending, all-grads.first-e.layers*front-own)...)
	bottom -= e.kept(e.layers) + e.final
	out = append(out, m.walkLayer(e, e.layers-1, at, bottom+e.kept(e.layers-1), all-grads.first-e.layers*front)...)
	return append(out, m.walkLayer(e, 0, at, bottom+e.pending, all-grads.first-front)...)
}

// A momentAt is the memory at a point of backward: with the gradients produced so far, activations, logits and what is
// alive for a moment.
type momentAt = func(produced, activations, logits, live int64) Components

// backwardStart is the loss's own peak, and the head's matrix product.
func (m *builder) backwardStart(at func(produced, activations, logits, live int64) Components,
	final int64) []Components {
	return []Components{
		at(0, m.activations(), m.loss.backward, m.headCopy()+m.loss.working),
		at(final, m.activations(), m.loss.gradient, m.headCopy()+m.fresh(final)),
	}
}

// headCopy is the part of castCache that the loss keeps for backward.
func (m *builder) headCopy() int64 {
	if lossRules[m.scenario.loss].gradientsAtLoss {
		return 0
	}
	return m.castCache()
}

// inBackward is the states and the working memory of backward, without gradients.
func (m *builder) inBackward(communication int64) Components {
	c := m.states(0)
	c[Temporaries] = 2*m.workspace + m.library + m.dequant
	c[Communication] += communication
	return c
}

// ends are the activations that are left when backward reaches the last layer, and the first one: backward frees one
// whole micro-batch of this stage, the rest stays.
func (m *builder) ends() (top, bottom int64) {
	earlier := m.inFlightBytes(max(m.inFlight-m.chunks, 0))
	return earlier + m.tape.outside + m.tape.kept(max(m.tape.layers-1, 0)), earlier + m.tape.outside
}

// hoarded is what FSDP 1 holds on to by the time backward reaches the first layer if layers are frozen and
// checkpointed: a hook on the inputs of every frozen unit (_register_post_backward_reshard_only_hook in
// torch/distributed/fsdp/_runtime_utils.py) keeps the inputs that reentrant checkpointing detached, and the gradients
// they got, until backward ends. Public runs of Trainer and of fsdp_qlora, LoRA and QLoRA, 7 to 70 billion parameters,
// all show it; none of them says use_reentrant=False, and then no input is detached.
func (m *builder) hoarded() int64 {
	if !m.hoards() || m.tape.checkpointed == 0 ||
		!choose(m.scenario, m.job.Reentrant, true, "checkpointing_reentrant") {
		return 0
	}
	return 2 * m.tape.input * min(m.tape.checkpointed, max(m.layers-1, 0))
}

// hoards says that reentrant checkpointing would be one that FSDP 1 holds on to.
func (s *scenario) hoards() bool { return s.adapters() && s.fsdp() && s.job.FSDPVersion.Or(2) == 1 }

// roughBackward serves activations that are one number: all of them at the start, none at the end.
func (m *builder) roughBackward() []Components {
	start, end := m.inBackward(m.layout.backward), m.inBackward(m.layout.backwardEnd)
	start[Gradients], start[Activations], start[Logits] = m.residentGradients(), m.fixed, m.loss.backward
	end[Gradients] = m.layout.grads
	if f := m.layout.fsdp; f != nil {
		end[Communication] = m.layout.persistent + max(m.layout.rootGradients, m.layout.backwardEnd)
	}
	return []Components{start, end}
}

// unitGradients are the bytes of gradients that the head (with a tied embedding's share), one layer, and the embeddings
// make.
type unitGradients struct{ final, layer, first, tied int64 }

func (m *builder) unitGradients() unitGradients {
	width, part := m.precision.grad, m.layout.gradShards
	g := unitGradients{
		final: ceilDiv(width*count(m.trained, inUnit(finalUnit)), part),
		layer: ceilDiv(width*m.oneTrained(), part),
		first: ceilDiv(width*count(m.trained, inUnit(embeddingUnit)), part),
	}
	if m.tiedHere() && m.trainsEnds() {
		g.tied = width * m.tiedElements()
		g.final += ceilDiv(g.tied, part)
		g.first -= min(ceilDiv(g.tied, part), g.first)
	}
	return g
}

// fresh is a new gradient that lives beside the accumulated one until it is added.
func (m *builder) fresh(bytes int64) int64 {
	if m.layout.gradsResident {
		return bytes
	}
	return 0
}

// walkLayer is the backward pass through one layer, last step first. held are the activations of earlier layers,
// produced the gradients made before. A checkpointed layer has been recomputed, so its input lies beside its steps'
// activations.
func (m *builder) walkLayer(t *tape, layer int64, at momentAt, held, produced int64) []Components {
	if t.recomputes(layer) && !t.keepsInput {
		held += t.input
	}
	left := saved(t.steps)
	var out []Components
	if t.recomputes(layer) { // the end of the recomputation, the gradient of the layer's output beside it
		out = append(out, at(produced, held+left, m.loss.held, t.excess+t.input))
	}
	for _, s := range slices.Backward(t.steps) {
		g := s.grads / m.layout.gradShards
		produced += g
		out = append(out, at(produced, held+left, m.loss.held, s.live+m.fresh(g)))
		left -= s.saved
	}
	return out
}

// lastGradients is what the very end of backward holds besides all gradients. A tied weight's two gradients are added
// out of place: three copies at once, of which one (none when accumulating) is counted already. Otherwise the gradient
// of the embeddings' output is alive while the embedding's own is made.
func (m *builder) lastGradients(g unitGradients) int64 {
	switch {
	case !m.trainsEnds():
		return 0
	// the loss returns a gradient that can be added to in place
	case g.tied > 0 && lossRules[m.scenario.loss].gradientsAtLoss:
		return g.tied + m.fresh(g.tied) + m.precision.stream*m.arch.Hidden*m.tokens()
	case g.tied > 0 && m.layout.gradsResident:
		return 3 * g.tied
	case g.tied > 0:
		return 2 * g.tied
	}
	return m.precision.stream*m.arch.Hidden*m.tokens() + m.fresh(g.first)
}
