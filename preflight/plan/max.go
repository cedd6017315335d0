// Package plan searches, on top of package estimate, for what would make a training fit and for the largest that does.
// It is pure: every answer is the estimator's own, for a job changed in one way.
package plan

import (
	"errors"
	"fmt"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// Max is the largest value of a quantity that fits, by three measures; 0: not even 1 fits.
type Max struct {
	Quantity string `json:"quantity"` // params, batch (micro-batch) or seq (tokens)
	// RuleOfThumb is what the model states alone allow: (device total - reserve) / (bytes of states a parameter takes
	// on one device). Only for params.
	RuleOfThumb int64 `json:"rule_of_thumb,omitempty"`
	// Estimate is what the whole prediction allows: states, buffers, the optimizer's step, context and NCCL.
	Estimate int64 `json:"estimate"`
	// WithHeadroom also keeps the headroom free that was asked for.
	WithHeadroom int64 `json:"with_headroom"`
	// Certain fits even at the upper end of the prediction's interval; 0 too when the prediction has none.
	Certain int64 `json:"certain"`
	// Partial: something that the job needs memory for is not counted (NotCounted), so that no more than this fits.
	Partial    bool                  `json:"partial"`
	NotCounted []estimate.NotCounted `json:"not_counted"`
	// Limit is where something else than memory ends the search: the positions of the model. 0: nothing else.
	Limit int64 `json:"limit,omitempty"`
	// Assumptions are those of the estimate at the result; the job's, where nothing fits.
	Assumptions []estimate.Assumption `json:"assumptions"`
}

// A quantity is one that can be searched for.
type quantity struct {
	with  func(in *estimate.Input, n int64)
	limit func(in estimate.Input) int64 // 0: none but the search's own
}

// quantities are what there can be a largest of, by the word for it.
func quantities() map[string]quantity {
	none := func(estimate.Input) int64 { return 0 }
	return map[string]quantity{
		"params": {with: func(in *estimate.Input, n int64) { in.Model = model.FromParams(n) }, limit: none},
		"batch":  {with: changed(func(j *job.Job, n int64) { j.MicroBatch = set(int(n)) }), limit: none},
		"seq":    {with: changed(func(j *job.Job, n int64) { j.SeqLen = set(int(n)) }), limit: positions},
	}
}

// changed edits a copy of the job.
func changed(edit func(*job.Job, int64)) func(*estimate.Input, int64) {
	return func(in *estimate.Input, n int64) {
		j := *in.Job
		edit(&j, n)
		in.Job = &j
	}
}

func positions(in estimate.Input) int64 {
	if a := architecture(in); a != nil {
		return a.MaxPositions
	}
	return 0
}

// searchLimit bounds the search: the estimator refuses larger models.
const searchLimit = int64(1e15)

// ErrUnknown is in the chain of errors about what is not known of the job.
var ErrUnknown = errors.New("what decides is not known")

// Largest is the largest batch or sequence (see Max.Quantity) that can be trained the way in.Job says on in.Hardware.
// It fails when the device's memory is unknown or the job cannot be estimated, and with ErrUnknown when the estimate is
// partial: for a model that is only a number of parameters, for one.
func Largest(in estimate.Input, what string) (Max, error) {
	e, err := at(in, quantities()[what], 1)
	if err != nil {
		return Max{}, err
	}
	if in.Options.ActivationBytes >= 0 || architecture(in) == nil || architecture(in).Layers == 0 {
		return Max{}, fmt.Errorf("plan: %w: what a batch or a sequence takes; give --model DIR or config.json",
			ErrUnknown)
	}
	if e.Partial && (e.Fits == nil || *e.Fits) {
		return Max{}, fmt.Errorf("plan: %w: %s; give %s", ErrUnknown, e.Lacks(), e.Give())
	}
	return largest(in, what)
}

// MaxParams is the largest number of parameters that can be trained the way in.Job says on in.Hardware. reserveBytes
// stands for activations and logits, which a bare number of parameters does not tell. It fails when the device's memory
// is unknown, when the reserve does not leave any of it, or when the job itself cannot be estimated.
func MaxParams(in estimate.Input, reserveBytes int64) (Max, error) {
	total := in.Hardware.TotalBytes
	if reserveBytes < 0 || total > 0 && reserveBytes >= total {
		return Max{}, fmt.Errorf("plan: a reserve of %d bytes leaves nothing of a device of %d: want 0 or more, and "+
			"less than the device", reserveBytes, total)
	}
	in.Options.ActivationBytes = reserveBytes
	out, err := largest(in, "params")
	if err != nil {
		return Max{}, err
	}
	perParameter, err := stateBytesPerParameter(in)
	if err != nil {
		return Max{}, err
	}
	out.RuleOfThumb = int64(float64(total-reserveBytes) / perParameter)
	return out, nil
}

// stateBytesPerParameter is weights, master weights, gradients and optimizer state of one parameter on one device.
func stateBytesPerParameter(in estimate.Input) (float64, error) {
	const sample = 1 << 40 // divisible by every usual number of ranks, so that nothing is rounded
	e, err := at(in, quantities()["params"], sample)
	if err != nil {
		return 0, err
	}
	var states int64
	for _, s := range e.Stages {
		states = max(states, s.Components.ModelStates())
	}
	if states == 0 {
		return 0, errors.New("plan: no model states are left on the device, " +
			"so its memory does not bound the parameters")
	}
	return float64(states) / sample, nil
}

func largest(in estimate.Input, what string) (Max, error) {
	total := in.Hardware.TotalBytes
	if total <= 0 {
		return Max{}, errors.New("plan: the device's memory is unknown: give --gpu or --gpu-memory")
	}
	q := quantities()[what]
	out := Max{Quantity: what}
	limit := q.limit(in)
	usable := total - int64(float64(total)*in.Options.HeadroomPercent/100)
	for _, m := range []struct {
		into *int64
		fits func(*estimate.Estimate) bool
	}{
		{&out.Estimate, func(e *estimate.Estimate) bool { return need(e) <= total }},
		{&out.WithHeadroom, func(e *estimate.Estimate) bool { return need(e) <= usable }},
		{&out.Certain, func(e *estimate.Estimate) bool {
			return e.PerGPU.HighBytes != nil &&
				*e.PerGPU.HighBytes <= total
		}},
	} {
		var err error
		if *m.into, err = search(in, q, limit, m.fits); err != nil {
			return Max{}, err
		}
	}
	if limit > 0 && out.Estimate == limit {
		out.Limit = limit
	}
	e, err := at(in, q, max(out.Estimate, 1))
	if err != nil {
		return Max{}, err
	}
	out.Assumptions, out.Partial, out.NotCounted = e.Assumptions, e.Partial, e.NotCounted
	return out, nil
}

// need is what a verdict rests on; of a partial estimate what is counted, which makes the answer an upper bound.
func need(e *estimate.Estimate) int64 {
	if most, known := e.Most(); known {
		return most
	}
	return e.PerGPU.DeviceBytes
}

// WithoutReserve is the answer where nothing was said of activations and logits: no more than this fits, and nothing is
// certain.
func (m Max) WithoutReserve() Max {
	m.Certain, m.Partial = 0, true
	m.NotCounted = append([]estimate.NotCounted{{What: "activations", Why: "not known", Give: "--reserve SIZE"}},
		m.NotCounted...)
	return m
}

// search doubles until it is too much, and then bisects: the need never shrinks when the quantity grows. Doubling from
// below keeps the sizes in question near those that fit, where they can be counted in 64 bits.
func search(in estimate.Input, q quantity, limit int64, fits func(*estimate.Estimate) bool) (int64, error) {
	if limit == 0 {
		limit = searchLimit
	}
	most, tooMany := int64(0), int64(0) // tooMany 0: not yet known
	for tooMany == 0 || tooMany-most > 1 {
		n := most + (tooMany-most)/2
		if tooMany == 0 {
			n = min(max(2*most, 1), limit)
		}
		e, err := at(in, q, n)
		if err != nil {
			return 0, err
		}
		switch {
		case !fits(e):
			tooMany = n
		case n == limit:
			return n, nil
		default:
			most = n
		}
	}
	return most, nil
}

func at(in estimate.Input, q quantity, n int64) (*estimate.Estimate, error) {
	q.with(&in, n)
	e, err := estimate.Run(in)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return e, nil
}

// architecture is the model of the estimate, nil unknown.
func architecture(in estimate.Input) *model.Architecture {
	if in.Model != nil {
		return in.Model
	}
	return in.Job.Architecture
}

func set[T any](v T) job.Setting[T] { return job.Setting[T]{Value: v, Known: true, Origin: "remedy"} }
