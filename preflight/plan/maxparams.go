// Package plan searches, on top of package estimate, for what would make a training fit and for the largest that does. It is
// pure: every answer is the estimator's own, for a job changed in one way.
package plan

import (
	"fmt"

	"oomguard/preflight/estimate"
	"oomguard/preflight/model"
)

// Max is the largest value of a quantity that fits.
type Max struct {
	Quantity string `json:"quantity"` // "params"
	// RuleOfThumb is what the model states alone allow: (device total - reserve) / (bytes of states a parameter takes on one device).
	RuleOfThumb int64 `json:"rule_of_thumb"`
	// Estimate is what the whole prediction allows: states, buffers, the optimizer's step, context and NCCL.
	Estimate int64 `json:"estimate"`
}

// searchLimit bounds the search: the estimator refuses larger models.
const searchLimit = int64(1e15)

// MaxParams is the largest number of parameters that can be trained the way in.Job says on in.Hardware. reserveBytes stands for
// activations and logits, which a bare number of parameters does not tell. It fails when the device's memory is unknown, when the
// reserve does not leave any of it, or when the job itself cannot be estimated.
func MaxParams(in estimate.Input, reserveBytes int64) (Max, error) {
	total := in.Hardware.TotalBytes
	if total <= 0 {
		return Max{}, fmt.Errorf("plan: the device's memory is unknown: give --gpu or --gpu-memory")
	}
	if reserveBytes < 0 || reserveBytes >= total {
		return Max{}, fmt.Errorf("plan: a reserve of %d bytes leaves nothing of a device of %d: want 0 or more, and less than the device", reserveBytes, total)
	}
	in.Options.ActivationBytes = reserveBytes
	perParameter, err := stateBytesPerParameter(in)
	if err != nil {
		return Max{}, err
	}
	most, err := largestThatFits(in, total)
	if err != nil {
		return Max{}, err
	}
	return Max{Quantity: "params", RuleOfThumb: int64(float64(total-reserveBytes) / perParameter), Estimate: most}, nil
}

// stateBytesPerParameter is weights, master weights, gradients and optimizer state of one parameter on one device.
func stateBytesPerParameter(in estimate.Input) (float64, error) {
	const sample = 1 << 40 // divisible by every usual number of ranks, so that nothing is rounded
	e, err := withParameters(in, sample)
	if err != nil {
		return 0, err
	}
	var states int64
	for _, s := range e.Stages {
		states = max(states, s.Components.ModelStates())
	}
	if states == 0 {
		return 0, fmt.Errorf("plan: no model states are left on the device, so its memory does not bound the parameters")
	}
	return float64(states) / sample, nil
}

// largestThatFits searches by bisection: device memory never shrinks when parameters are added.
func largestThatFits(in estimate.Input, total int64) (int64, error) {
	fits, tooMany := int64(0), searchLimit+1
	for tooMany-fits > 1 {
		middle := fits + (tooMany-fits)/2
		e, err := withParameters(in, middle)
		if err != nil {
			return 0, err
		}
		if e.PerGPU.DeviceBytes <= total {
			fits = middle
		} else {
			tooMany = middle
		}
	}
	return fits, nil
}

func withParameters(in estimate.Input, n int64) (*estimate.Estimate, error) {
	in.Model = model.FromParams(n)
	e, err := estimate.Run(in)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return e, nil
}
