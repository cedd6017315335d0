// Package estimate predicts the memory of each GPU of a training run, by component and by stage, from the job, the
// architecture and the device alone: it reads no file, asks no GPU and runs no Python.
//
// The peak is that of the worst moment, never the sum of everything: activations shrink while gradients grow, the
// optimizer's temporaries appear after both, and the first step has no optimizer state yet.
package estimate

import "slices"

// DefaultActivationFactor is the factor of the rough rule batch x seq x hidden x layers x factor (bytes): what a layer
// keeps under 16-bit training with full recomputation of its widest parts. Layers without checkpointing keep three
// times as much.
const DefaultActivationFactor = 16

// DefaultOptions pins nothing and wants a tenth of the device free.
func DefaultOptions() Options {
	return Options{ActivationBytes: -1, ContextBytes: -1, SecondModelBytes: -1, HeadroomPercent: 10}
}

// Run predicts memory. It fails when there is no model, when a setting is out of range, or when it names an optimizer,
// a dtype or a sharding that has no formula; everything merely unknown becomes an assumption and widens the interval.
func Run(in Input) (*Estimate, error) {
	p, err := predict(in)
	if err != nil {
		return nil, err
	}
	out := &Estimate{
		Schema: Schema,
		Model:  ModelSize{Name: p.arch.Name, Parameters: p.arch.Parameters(), TrainableParameters: p.trainable()},
		Job:    in.Job,
		GPU: GPUSize{Name: in.Hardware.Name, Kind: in.Hardware.Kind, Count: in.Hardware.Count,
			TotalBytes: in.Hardware.TotalBytes, Origin: in.Hardware.Origin},
		PerGPU:      p.perGPU(),
		Stages:      p.stages,
		Ranks:       p.ranks,
		Host:        p.hostMemory(),
		Bottleneck:  p.peak.Components.Bottleneck().String(),
		Assumptions: p.notes.list,
	}
	p.bound(out)
	out.judge(in)
	return out, nil
}

// A prediction is the worst rank's stages, and what the interval needs besides.
type prediction struct {
	*scenario
	overhead  overhead
	stages    []StageMemory
	peak      StageMemory
	allocated int64 // the worst rank's most in any stage
	ranks     []Rank
	moments   [][]moment // by pipeline stage
	logits    int64      // the worst rank's at their largest
}

// predict walks all pipeline stages and keeps the worst.
func predict(in Input) (*prediction, error) {
	s, err := newScenario(in)
	if err != nil {
		return nil, err
	}
	p := &prediction{scenario: s, overhead: s.overhead()}
	engine := s.inferenceBytes()
	p.overhead.context += engine
	p.overhead.contextLow += engine
	p.overhead.contextHigh += engine
	var peaks []StageMemory
	for stage := range s.pp {
		moments, err := s.rankOf(stage).moments(p.overhead)
		if err != nil {
			return nil, err
		}
		stages := s.timeline(moments, p.overhead)
		peak, allocated := stages[0], int64(0)
		for _, m := range stages {
			allocated = max(allocated, m.AllocatedBytes) // which another stage may have than the device's peak
			if m.DeviceBytes > peak.DeviceBytes {
				peak = m
			}
		}
		p.moments, peaks = append(p.moments, moments), append(peaks, peak)
		p.ranks = append(p.ranks, Rank{PipelineStage: int(stage), AllocatedBytes: allocated,
			DeviceBytes: peak.DeviceBytes})
		if stage == 0 || peak.DeviceBytes > p.peak.DeviceBytes {
			p.stages, p.peak, p.allocated, p.logits = stages, peak, allocated, largestLogits(moments)
		}
	}
	if s.pp > 1 {
		worst := slices.IndexFunc(peaks, func(m StageMemory) bool { return m.DeviceBytes == p.peak.DeviceBytes })
		p.ranks[worst].Why = s.whyWorst(worst, peaks)
	}
	return p, nil
}

// whyWorst names the component in which a pipeline stage's peak exceeds that of the next highest most, and where that
// comes from.
func (s *scenario) whyWorst(worst int, peaks []StageMemory) string {
	var next StageMemory
	for i, m := range peaks {
		if i != worst && m.DeviceBytes > next.DeviceBytes {
			next = m
		}
	}
	most := Parameters
	excess := func(c Component) int64 { return peaks[worst].Components[c] - next.Components[c] }
	for c := range Context {
		if excess(c) > excess(most) {
			most = c
		}
	}
	switch {
	case excess(most) <= 0:
		return "no more than another"
	case most == Logits:
		return "it makes the logits and the loss"
	case most == Activations:
		return "it holds the activations of most micro-batches in flight"
	case worst == 0:
		return "it holds the embeddings: more " + most.String()
	case worst == len(peaks)-1:
		return "it holds the output projection: more " + most.String()
	}
	return "more " + most.String()
}

func (p *prediction) perGPU() PerGPU {
	return PerGPU{
		AllocatedBytes: p.allocated,
		ReservedBytes:  max(p.allocated, p.peak.AllocatedBytes+p.peak.Components[Fragmentation]),
		DeviceBytes:    p.peak.DeviceBytes,
		PeakStage:      p.peak.Stage,
		Components:     p.peak.Components,
	}
}

// trainable counts the trained parameters of the whole model.
func (p *prediction) trainable() int64 {
	whole := *p.scenario
	whole.tp, whole.pp, whole.ep, whole.etp, whole.notes = 1, 1, 1, 1, notes{}
	return count(whole.rankOf(0).trained, nil)
}
