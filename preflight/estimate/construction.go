package estimate

// Names of moments, for measurements and tests that refer to one.
const (
	weightsInPlace      = "weights in place"
	fp32PartitionsPeak  = "creating fp32 partitions"
	fp32Partitions      = "after fp32 partitions"
	optimizerStatesPeak = "initialising optimizer states"
	optimizerStates     = "after optimizer states"
	gradientBuffer      = "after the wrapper's gradient buffer"
	initialised         = "initialised"
	forwardEnd          = "after forward"
	betweenSteps        = "between steps"
)

// construction is the moments between an empty GPU and the first micro-batch: weights, then what the wrappers allocate.
func (m *builder) construction() []moment {
	c := m.states(0)
	c[Optimizer], c[MasterWeights], c[Communication] = 0, 0, 0
	out := []moment{{ModelLoad, weightsInPlace, c}}
	switch {
	case m.zero():
		return append(out, m.zeroConstruction(c)...)
	case m.megatron():
		// DistributedDataParallel allocates its contiguous buffer, then the optimizer copies fp32 master weights;
		// Adam's states come with the first step (Megatron's own log lines of a 13B shard: 2, then 6, then 10 bytes a
		// parameter).
		c[Gradients] = m.layout.grads
		out = append(out, moment{ModelLoad, gradientBuffer, c})
		c[MasterWeights] = m.layout.master
	case m.cpu():
		// host memory is not resident before it is written: DDP's buckets are at the first backward pass
	default:
		c[MasterWeights], c[Communication] = m.layout.master, m.layout.persistent
	}
	return append(out, moment{ModelLoad, initialised, c})
}

// zeroConstruction is DeepSpeed's optimizer constructor. Up to 0.13.1 it ran a dummy step, so that Adam's states exist
// after it; from 0.13.2 on (pull request 5104) they appear at the first real step, and only the fp32 gradients of that
// dummy step remain as a temporary. Printed by see_memory_usage of 0.3.17, 0.5.4, 0.15.1, 0.15.4 and 0.16.9.
func (m *builder) zeroConstruction(weights Components) []moment {
	c, l := weights, m.layout
	part := m.partElements()
	creating := c
	creating[MasterWeights] = l.master
	if m.sharding == "zero3" {
		creating[Temporaries] = m.precision.param * part // one more copy of the partition in flight
	}
	out := []moment{{ModelLoad, fp32PartitionsPeak, creating}}
	c[MasterWeights] = l.master
	out = append(out, moment{ModelLoad, fp32Partitions, c})
	step := c
	if l.master > 0 {
		step[Temporaries] = 4 * part // fp32 gradients
	}
	eager := m.older("deepspeed", 0, 13, 2)
	if eager {
		c[Optimizer] = l.optimizer
		step[Optimizer] = l.optimizer
		if l.optimizer > 0 {
			step[Temporaries] += m.dummyStep(part)
		}
	}
	out = append(out, moment{ModelLoad, optimizerStatesPeak, step}, moment{ModelLoad, optimizerStates, c})
	c[Communication] = l.persistent
	// the flat gradient partition, allocated lazily in the first versions
	if m.sharding == "zero3" && !m.older("deepspeed", 0, 6, 0) {
		c[Gradients] = l.grads
	}
	return append(out, moment{ModelLoad, initialised, c})
}

// dummyStep is the temporaries of torch's Adam on one flat tensor: the root and the denominator made of it, and for
// Adam (not AdamW) the gradient with the weight decay added. 26 bytes of 0.3.17 with AdamW and 30 of 0.5.4 with Adam,
// less states and gradients.
func (m *builder) dummyStep(part int64) int64 {
	return m.optimizer.EmptyStep * part
}

// partElements is the elements that this rank's optimizer updates.
func (m *builder) partElements() int64 { return ceilDiv(count(m.trained, nil), m.shards) }
