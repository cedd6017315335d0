package estimate

import (
	"fmt"

	"oomguard/preflight/model"
)

// A moment is a point in time at which a rank's memory may peak within its stage.
type moment struct {
	stage Stage
	name  string // for those that measurements and tests refer to
	at    Components
}

// moments is what one rank holds at every point that matters, in the order in which a run meets them.
func (r *rank) moments(o overhead) ([]moment, error) {
	m := builder{rank: r, layout: r.layout(), loss: r.lossMemory(), workspace: o.workspace, library: o.library}
	if err := m.addActivations(); err != nil {
		return nil, err
	}
	out := []moment{{stage: Start}}
	out = append(out, m.construction()...)
	add := func(stage Stage, at ...Components) {
		for _, c := range at {
			out = append(out, moment{stage: stage, at: c})
		}
	}
	add(OptimizerInit, m.optimizerStep()...)
	out = append(out, moment{Forward, forwardEnd, m.forwardEnd()})
	add(Forward, m.forward()...)
	add(Backward, m.backward()...)
	add(OptimizerStep, m.optimizerStep()...)
	out = append(out, moment{OptimizerStep, betweenSteps, m.betweenSteps()})
	if !m.neverEvaluates() {
		add(Eval, m.evaluation()...)
	}
	add(CheckpointSave, m.saving())
	return out, nil
}

// timeline is the peak of every stage, in the order in which a run meets them.
func (s *scenario) timeline(moments []moment, o overhead) []StageMemory {
	var out []StageMemory
	for i, m := range moments {
		if i == 0 || moments[i-1].stage != m.stage {
			out = append(out, StageMemory{Stage: m.stage})
		}
		stage := &out[len(out)-1]
		if i == 0 || moments[i-1].stage != m.stage || m.at.Allocated() > stage.Components.Allocated() {
			stage.Components = m.at
		}
	}
	whole := largestLogits(moments)
	for i := range out {
		c := &out[i].Components
		c[Context] = o.context
		if out[i].Stage == Start || out[i].Stage == ModelLoad {
			c[Fragmentation], _ = s.fragmentation(*c, 0)
		} else {
			c[Fragmentation], _ = s.fragmentation(*c, whole)
		}
		out[i].AllocatedBytes, out[i].DeviceBytes = c.Allocated(), c.Sum()
	}
	return out
}

// largestLogits is the peak of the logits component.
func largestLogits(moments []moment) int64 {
	var largest int64
	for _, m := range moments {
		largest = max(largest, m.at[Logits])
	}
	return largest
}

// A builder works out the points in time at which memory may peak.
type builder struct {
	*rank
	layout    layout
	loss      lossMemory
	workspace int64 // cuBLAS's for one stream
	library   int64 // another library's
	tape      tape
	taped     bool  // the tape is known
	fixed     int64 // activations given as one number instead
	inFlight  int64 // micro-batches of one chunk of layers whose activations a pipeline stage holds
	chunks    int64 // parts that a stage's layers are scheduled in: 1, or the number of virtual stages
	dequant   int64
}

// schedule counts the micro-batches in flight. 1F1B: stage j of p holds p - j. Interleaved with v virtual stages: 2 (p
// - j - 1) + (v - 1) p forward passes of one chunk warm up before the first backward pass
// (megatron/core/pipeline_parallel/schedules.py).
func (m *builder) schedule() {
	m.chunks = m.virtualStages()
	if m.chunks == 1 {
		m.inFlight = min(m.pp-m.stage, m.accum)
		return
	}
	m.inFlight = min(2*(m.pp-m.stage-1)+(m.chunks-1)*m.pp+1, m.accum*m.chunks)
}

// inFlightBytes is the activations of all micro-batches in flight.
func (m *builder) inFlightBytes(chunksInFlight int64) int64 {
	return m.tape.total() / m.chunks * chunksInFlight
}

const maxActivationBytes = 1 << 60

// addActivations chooses where activations come from: a pinned number, the rough rule, or the architecture.
func (m *builder) addActivations() error {
	m.schedule()
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
		m.notes.assume(fmt.Sprintf("activations by the rough rule batch x seq x hidden x layers x %g",
			opt.ActivationFactor),
			"--activation-factor", true)
		return nil
	}
	m.tape, m.taped = m.rank.tape()
	if !m.taped {
		return nil // the estimate is partial
	}
	if bytes := float64(saved(m.tape.steps)) * float64(max(m.layers, 1)*m.inFlight); bytes > maxActivationBytes {
		return m.tooLarge(bytes)
	}
	return nil
}

func (m *builder) tooLarge(bytes float64) error {
	return fmt.Errorf("estimate: activations of %.3g bytes are out of range: check micro_batch %d and seq_len %d",
		bytes, m.batch, m.seq)
}

// roughElements is batch x seq x hidden x layers of this rank.
func (r *rank) roughElements() float64 {
	hidden, layers := float64(r.arch.Hidden), float64(r.arch.Layers)
	if hidden == 0 || layers == 0 {
		hidden, layers = typicalSizes(r.arch.Parameters())
		r.notes.assume(fmt.Sprintf("%.0f layers of width %.0f", layers, hidden),
			"typical of transformers with that many parameters", true)
	}
	return float64(r.tokens()) * hidden * layers / float64(r.tp*r.pp)
}

// states is what lies on the GPU between steps, with the given bytes of gradients.
func (m *builder) states(gradients int64) Components {
	return Components{Parameters: m.layout.params, MasterWeights: m.layout.master, Optimizer: m.layout.optimizer,
		Gradients: gradients, Communication: m.layout.persistent}
}

// betweenSteps is what stays: states, workspaces, and gradients that live in a buffer.
func (m *builder) betweenSteps() Components {
	c := m.states(m.keptGradients())
	if m.fsdp() && m.job.FSDPVersion.Or(2) == 1 {
		// zero_grad does not reach FSDP 1's flat gradients: the next forward pass drops them
		// (_reset_flat_param_grad_info_if_needed)
		c[Gradients] = m.layout.grads
	}
	c[Temporaries] = 2*m.workspace + m.library
	return c
}

// keptGradients are those that stay between steps: persistent buffers. Other programs drop gradients after the step.
func (m *builder) keptGradients() int64 {
	if m.layout.gradsPersistent {
		return m.layout.grads
	}
	return 0
}

// optimizerStep holds gradients, states and the update's temporaries; the first one creates the states, so it looks the
// same.
func (m *builder) optimizerStep() []Components {
	c := m.states(m.layout.grads)
	update, gather := c, c
	update[Activations], gather[Activations] = m.tape.batch, m.tape.batch
	gather[Temporaries] = 2 * m.workspace
	gather[Communication] += m.layout.step
	steps := m.layout.steps
	if len(steps) == 0 {
		steps = []stepPhase{{m.layout.grads, m.layout.stepTemporaries}}
	} else {
		gather[Gradients] = m.keptGradients()
	}
	out := []Components{gather}
	for _, s := range steps {
		update[Gradients], update[Temporaries] = s.gradients, 2*m.workspace+m.library+s.temporaries
		out = append(out, update)
	}
	return out
}

// forwardEnd is what is left when the forward pass has returned: activations and the loss's saved tensors.
func (m *builder) forwardEnd() Components {
	c := m.atLoss()
	c[Logits] = min(m.loss.forward, m.loss.backward)
	c[Communication] += m.layout.forwardEnd - m.layout.forward
	return c
}

// atLoss is the end of the forward pass, with all activations and the loss's own peak.
func (m *builder) atLoss() Components {
	c := m.states(m.residentGradients())
	c[Activations] = m.activations()
	c[Logits] = m.loss.forward
	c[Temporaries] = 2*m.workspace + m.library + m.cachedCasts() + m.dequant + m.tape.embedding + m.aroundLoss()
	c[Communication] += m.layout.forward
	return c
}

// aroundLoss is what else is alive at the loss, or by how much the last layer's end was higher.
func (m *builder) aroundLoss() int64 {
	return max(m.castCache()+m.tape.hidden, m.tape.trailing-m.tape.final-m.loss.forward)
}

// encoderForward is the end of the stack in front, in models that have two.
func (m *builder) encoderForward() []Components {
	e := m.tape.encoder
	if e == nil {
		return nil
	}
	c := m.states(m.residentGradients())
	c[Activations] = m.tape.outside - e.final
	c[Temporaries] = 2*m.workspace + m.library + m.dequant + e.unread + e.trailing
	c[Communication] += m.layout.forward
	return []Components{c}
}

// forward is the moments of the forward pass at which memory may peak: the loss and, where weights are gathered, the
// first and the last layer.
func (m *builder) forward() []Components {
	loss := m.atLoss()
	if m.layout.fsdp == nil {
		return append(m.encoderForward(), m.handedOut(), loss)
	}
	start := m.betweenSteps() // FSDP 1 still has the gradients of the step before
	start[Temporaries] = 2*m.workspace + m.library
	first := loss
	first[Activations], first[Logits] = 0, 0
	if m.taped {
		first[Activations] = m.tape.outside
	}
	first[Temporaries] = 2*m.workspace + m.library
	first[Communication] += m.layout.gather - m.layout.forward
	layer := loss
	layer[Activations] -= m.tape.final
	layer[Logits] = 0
	layer[Temporaries] += m.tape.trailing - m.aroundLoss()
	layer[Communication] += m.layout.layers - m.layout.forward
	return []Components{start, first, layer, loss, m.handedOut()}
}

// handedOut is the moment at which the model has returned, its own variables and autocast's cache are gone, and its
// caller turns the output to fp32 (accelerate/utils/operations.py: convert_to_fp32).
func (m *builder) handedOut() Components {
	c := m.states(m.residentGradients())
	c[Activations], c[Logits] = m.activations(), m.loss.handed
	c[Temporaries] = 2*m.workspace + m.library + m.castCache()
	c[Communication] += m.layout.forward
	return c
}

func (m *builder) activations() int64 {
	if !m.taped {
		return m.fixed
	}
	return m.inFlightBytes(m.inFlight)
}

func (m *builder) residentGradients() int64 {
	if m.layout.accumulated > 0 {
		return m.layout.accumulated
	}
	if m.layout.gradsResident {
		return m.layout.grads
	}
	return 0
}

// castCache is the 16-bit copies of fp32 weights that autocast makes outside the layers: those of the head's matrix
// product, alive until its backward has run. The layers' own are among their activations.
func (m *builder) castCache() int64 {
	if !m.precision.autocast || m.trainsEnds() && m.precision.unsharded() < 4 || !m.trainsEnds() && m.baseWidth() < 4 {
		return 0
	}
	return 2 * (m.linear("") - m.linear(layerUnit))
}

// cachedCasts is the copies of checkpointed layers' weights that nothing but autocast's own cache keeps, until the
// forward pass has left autocast (torch/amp/autocast_mode.py). Only trained weights are cached; stacked experts are not
// cast at all.
func (m *builder) cachedCasts() int64 {
	if !m.precision.autocast || m.precision.unsharded() < 4 || m.tape.layers == 0 ||
		m.arch.Facts.Quirks.ViewsWeights && !m.adapters() {
		return 0
	}
	casts := count(m.trained, func(w weight) bool { return w.unit == layerUnit && w.Role == model.Linear })
	return 2 * casts / m.tape.layers * m.tape.checkpointed
}
