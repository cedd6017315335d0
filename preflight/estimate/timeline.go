package estimate

import (
	"fmt"
	"slices"
)

// timeline is the memory of every stage of one rank, in the order in which a run meets them.
func (r *rank) timeline(o overhead) ([]StageMemory, error) {
	m := moments{rank: r, layout: r.layout(), loss: r.lossMemory(), workspace: o.workspace}
	if err := m.addActivations(); err != nil {
		return nil, err
	}
	stages := []struct {
		stage Stage
		at    []Components
	}{
		{Start, []Components{{}}},
		{ModelLoad, []Components{m.loaded()}},
		{OptimizerInit, m.optimizerStep()},
		{Forward, []Components{m.forward()}},
		{Backward, m.backward()},
		{OptimizerStep, m.optimizerStep()},
	}
	if !r.sharded() { // saving a sharded model gathers it, in ways that differ by program
		stages = append(stages, struct {
			stage Stage
			at    []Components
		}{CheckpointSave, []Components{m.states(0)}})
	}
	var out []StageMemory
	for _, s := range stages {
		worst := s.at[0]
		for _, c := range s.at {
			if c.Allocated() > worst.Allocated() {
				worst = c
			}
		}
		worst[Context] = o.context
		worst[Fragmentation], _ = r.fragmentation(worst)
		out = append(out, StageMemory{Stage: s.stage, AllocatedBytes: worst.Allocated(), DeviceBytes: worst.Sum(), Components: worst})
	}
	return out, nil
}

// moments builds the points in time at which memory may peak.
type moments struct {
	*rank
	layout    layout
	loss      lossMemory
	workspace int64
	tape      tape
	taped     bool  // the tape is known
	fixed     int64 // activations given as one number instead
	inFlight  int64 // micro-batches whose activations a pipeline stage holds
	dequant   int64
}

const maxActivationBytes = 1 << 60

// addActivations chooses where activations come from: a pinned number, the rough rule, or the architecture.
func (m *moments) addActivations() error {
	// 1F1B: stage j of p has p - j micro-batches in flight.
	m.inFlight = min(m.pp-m.stage, m.accum)
	m.dequant = m.dequantisedBytes()
	opt := m.in.Options
	if opt.ActivationBytes > maxActivationBytes {
		return m.tooLarge(float64(opt.ActivationBytes))
	}
	if opt.ActivationBytes >= 0 {
		m.fixed, m.loss = opt.ActivationBytes, lossMemory{}
		return nil
	}
	if opt.ActivationFactor > 0 {
		bytes := opt.ActivationFactor * m.roughElements()
		if bytes > maxActivationBytes {
			return m.tooLarge(bytes)
		}
		m.fixed = int64(bytes)
		m.notes.assume(fmt.Sprintf("activations by the rough rule batch x seq x hidden x layers x %g", opt.ActivationFactor),
			"--activation-factor", true)
		return nil
	}
	m.tape, m.taped = m.rank.tape()
	if !m.taped {
		m.notes.assume("no activations", "they are unknown without the model's sizes; give --model or --activation-factor", true)
		return nil
	}
	if bytes := float64(saved(m.tape.steps)) * float64(max(m.layers, 1)*m.inFlight); bytes > maxActivationBytes {
		return m.tooLarge(bytes)
	}
	return nil
}

func (m *moments) tooLarge(bytes float64) error {
	return fmt.Errorf("estimate: activations of %.3g bytes are out of range: check micro_batch %d and seq_len %d", bytes, m.batch, m.seq)
}

// roughElements is batch x seq x hidden x layers of this rank.
func (r *rank) roughElements() float64 {
	hidden, layers := float64(r.arch.Hidden), float64(r.arch.Layers)
	if hidden == 0 || layers == 0 {
		hidden, layers = typicalSizes(r.arch.Parameters())
		r.notes.assume(fmt.Sprintf("%.0f layers of width %.0f", layers, hidden), "typical of transformers with that many parameters", true)
	}
	return float64(r.tokens()) * hidden * layers / float64(r.tp*r.pp)
}

// states is what lies on the GPU between steps, with the given bytes of gradients.
func (m *moments) states(gradients int64) Components {
	return Components{Parameters: m.layout.params, MasterWeights: m.layout.master, Optimizer: m.layout.optimizer,
		Gradients: gradients, Communication: m.layout.persistent}
}

// loaded is the rank before its first step: weights and what the wrappers allocate, but no lazy optimizer state.
func (m *moments) loaded() Components {
	c := m.states(0)
	c[Optimizer] = 0
	if m.cpu() {
		c[Communication] = 0 // host memory is not resident before it is written: DDP's buckets are at the first backward pass
	}
	if m.sharding == "zero3" || m.sharding == "dist-optim" {
		c[Gradients] = m.layout.grads
	}
	return c
}

// optimizerStep holds gradients, states and the update's temporaries; the first one creates the states, so it looks the same.
func (m *moments) optimizerStep() []Components {
	c := m.states(m.layout.grads)
	update, gather := c, c
	update[Temporaries] = 2*m.workspace + m.layout.stepTemporaries
	gather[Temporaries] = 2 * m.workspace
	gather[Communication] += m.layout.step
	return []Components{update, gather}
}

// forward ends with all activations and the loss's own peak.
func (m *moments) forward() Components {
	c := m.states(m.residentGradients())
	c[Activations] = m.activations()
	c[Logits] = m.loss.forward
	c[Temporaries] = m.workspace + m.castCache(true) + m.dequant
	c[Communication] += m.layout.forward
	return c
}

func (m *moments) activations() int64 {
	if !m.taped {
		return m.fixed
	}
	return m.tape.total() * m.inFlight
}

func (m *moments) residentGradients() int64 {
	if m.layout.gradsResident {
		return m.layout.grads
	}
	return 0
}

// castCache is the 16-bit copies of fp32 weights that autocast makes. The graph keeps those of its matrix products; under full
// checkpointing the layers' copies go with the forward pass and come back one layer at a time.
func (m *moments) castCache(forward bool) int64 {
	if !m.precision.autocast || m.adapters() {
		return 0
	}
	if forward || m.tape.checkpointed == 0 {
		return 2 * m.linear("")
	}
	perLayer := ceilDiv(m.linear(layerUnit), max(m.layers, 1))
	plain := m.layers - m.tape.checkpointed
	return 2*(m.linear("")-m.linear(layerUnit)) + 2*perLayer*(plain+1)
}

// backward is the moments of the backward pass at which memory may peak. Between the first and the last layer memory changes
// evenly, by a layer's gradients less its activations, so the extremes are at the ends.
func (m *moments) backward() []Components {
	all := m.layout.grads
	base := m.states(0)
	base[Temporaries] = 2*m.workspace + m.castCache(false) + m.dequant
	base[Communication] += m.layout.backward
	end := base
	end[Communication] += m.layout.backwardEnd - m.layout.backward
	end[Gradients] = all
	if !m.taped {
		return m.roughBackward(base, end)
	}
	grads := m.unitGradients()
	at := func(produced, activations, logits, live int64) Components {
		c := base
		c[Gradients], c[Activations], c[Logits] = produced, activations, logits
		c[Temporaries] += live
		if m.layout.gradsResident { // what this pass produces comes on top until it is accumulated
			c[Gradients] = all
		}
		return c
	}
	earlier := m.tape.total() * (m.inFlight - 1)
	out := []Components{
		at(0, m.activations(), m.loss.backward, 0),
		at(grads.final, m.activations(), m.loss.gradient, m.fresh(grads.final)),
	}
	top := earlier + m.tape.outside + m.tape.kept(max(m.layers-1, 0))
	bottom := earlier + m.tape.outside
	out = append(out, m.walkLayer(at, top, grads.final)...)
	out = append(out, m.walkLayer(at, bottom, all-grads.first-grads.layer)...)
	end[Activations], end[Logits] = earlier, m.loss.held
	end[Temporaries] += m.lastGradients(grads)
	return append(out, end)
}

// roughBackward serves activations that are one number: all of them at the start, none at the end.
func (m *moments) roughBackward(base, end Components) []Components {
	base[Gradients], base[Activations], base[Logits] = m.residentGradients(), m.fixed, m.loss.backward
	return []Components{base, end}
}

// unitGradients are the bytes of gradients that the head (with a tied embedding's share), one layer, and the embeddings make.
type unitGradients struct{ final, layer, first, tied int64 }

func (m *moments) unitGradients() unitGradients {
	width, part := m.precision.grad, m.layout.gradShards
	g := unitGradients{
		final: ceilDiv(width*count(m.trained, inUnit(finalUnit)), part),
		layer: ceilDiv(width*m.oneLayer(m.trained), part),
		first: ceilDiv(width*count(m.trained, inUnit(embeddingUnit)), part),
	}
	if m.tiedHere() && !m.adapters() {
		g.tied = width * m.tiedElements()
		g.final += ceilDiv(g.tied, part)
		g.first -= min(ceilDiv(g.tied, part), g.first)
	}
	return g
}

// fresh is a new gradient that lives beside the accumulated one until it is added.
func (m *moments) fresh(bytes int64) int64 {
	if m.layout.gradsResident {
		return bytes
	}
	return 0
}

// walkLayer is the backward pass through one layer, last step first. held are the activations of earlier layers, produced the
// gradients made before. A checkpointed layer has been recomputed, so its input lies beside its steps' activations.
func (m *moments) walkLayer(at func(produced, activations, logits, live int64) Components, held, produced int64) []Components {
	if m.tape.checkpointed > 0 {
		held += m.tape.input
	}
	left := saved(m.tape.steps)
	var out []Components
	for _, s := range slices.Backward(m.tape.steps) {
		g := s.grads / m.layout.gradShards
		produced += g
		out = append(out, at(produced, held+left, m.loss.held, s.live+m.fresh(g)))
		left -= s.saved
	}
	return out
}

// lastGradients is what the very end of backward holds besides all gradients. A tied weight's two gradients are added out of
// place: three copies at once, of which one (none when accumulating) is counted already. Otherwise the gradient of the embeddings'
// output is alive while the embedding's own is made.
func (m *moments) lastGradients(g unitGradients) int64 {
	switch {
	case m.adapters():
		return 0
	case g.tied > 0 && m.layout.gradsResident:
		return 3 * g.tied
	case g.tied > 0:
		return 2 * g.tied
	}
	return m.precision.stream*m.arch.Hidden*m.tokens() + m.fresh(g.first)
}
