package estimate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An update is what one optimizer step works on: this rank's weights, of which it updates its share.
type update struct {
	weights []weight
	shards  int64 // ranks that share each weight
	stateSetting
	cpu bool // PyTorch's own choice is lists on a GPU and one tensor after the other on a CPU
}

func (u update) elements() int64 { return ceilDiv(count(u.weights, nil), u.shards) }

// largest is the elements of the largest tensor that is updated at a time. A shard may hold a part of one tensor and nothing else.
func (u update) largest() int64 { return min(largest(u.weights), u.elements()) }

// only is the update of the weights that match, or do not.
func (u update) only(match func(weight) bool, want bool) update {
	part := u
	part.weights = nil
	for _, w := range u.weights {
		if match(w) == want {
			part.weights = append(part.weights, w)
		}
	}
	return part
}

// none: one kernel reads and writes everything.
func none(update) int64 { return 0 }

// onlyLists holds n tensors for each parameter at once (torch's _foreach operations), for one dtype after the other
// (_group_tensors_by_device_and_dtype in torch/optim/optimizer.py).
func onlyLists(n int64) func(update) int64 {
	return func(u update) int64 {
		byWidth := map[int64]int64{}
		var most int64
		for _, w := range u.weights {
			width := cmp.Or(w.width, u.width)
			byWidth[width] += w.total()
			most = max(most, n*width*ceilDiv(byWidth[width], u.shards))
		}
		return most
	}
}

// lists is the same where PyTorch chooses: on a CPU it takes one tensor after the other.
func lists(n int64) func(update) int64 {
	return func(u update) int64 {
		if u.cpu {
			return one(2)(u)
		}
		return onlyLists(n)(u)
	}
}

// one holds n tensors of the size of the largest.
func one(n int64) func(update) int64 {
	return func(u update) int64 { return n * u.width * u.largest() }
}

// oneWide is bytes an element of the largest tensor, by the width of the weights: 16-bit ones are worked on as fp32 copies.
func oneWide(fp32, narrow int64) func(update) int64 {
	return func(u update) int64 {
		if u.width < 4 {
			return narrow * u.largest()
		}
		return fp32 * u.largest()
	}
}

// muonTemporaries is the larger of two steps. Newton-Schulz of one matrix in bf16: the update, the matrix before and after an iteration,
// and two squares of its short side, or three and the matrix (torch/optim/_muon.py; exact in fp32 and bf16). AdamW of the rest: one list.
func muonTemporaries(u update) int64 {
	hidden := u.only(isHidden, true)
	var most int64
	for _, w := range hidden.weights {
		short, _ := sides(w)
		square := short * short
		most = max(most, u.width*w.elements+max(4*w.elements+4*square, 2*w.elements+6*square))
	}
	return max(most, lists(1)(u.only(isHidden, false)))
}

// lowRank is the larger of what projected matrices and all other weights need.
func lowRank(projected func(w weight, u update) int64, others func(update) int64) func(update) int64 {
	return func(u update) int64 {
		var most int64
		for _, w := range u.only(isHidden, true).weights {
			most = max(most, projected(w, u))
		}
		return max(most, others(u.only(isHidden, false)))
	}
}

// lowRankStep is the update of full size twice (projected back, then scaled) and three projections: gradient, denominator, update.
func lowRankStep(w weight, u update) int64 {
	short, long := sides(w)
	return u.width * (2*w.elements + 3*long*min(u.rank, short))
}

// singularVectors is the decomposition that GaLore makes every update_proj_gap steps, in fp32: the gradient's copy if it is narrower, the
// vectors of both sides and the products with the singular values. What cuSOLVER needs for itself is not counted.
func singularVectors(w weight, u update) int64 {
	short, long := sides(w)
	bytes := 4 * (w.elements + short*short + 2*long*min(u.rank, short))
	if u.width < 4 {
		bytes += 4 * w.elements
	}
	return bytes
}

func galoreTemporaries(u update) int64 {
	return lowRank(func(w weight, u update) int64 { return max(lowRankStep(w, u), singularVectors(w, u)) }, one(2))(u)
}

// galoreFactoredTemporaries works in fp32 throughout: with 16-bit weights a copy of the weight comes on top.
func galoreFactoredTemporaries(u update) int64 {
	step := func(w weight, u update) int64 {
		short, long := sides(w)
		low := long * min(u.rank, short)
		bytes, svd := 4*(2*w.elements+2*low), 4*(w.elements+short*short+3*low)
		if u.width < 4 {
			bytes, svd = bytes+4*w.elements, svd+8*w.elements
		}
		return max(bytes, svd)
	}
	return lowRank(step, oneWide(8, 16))(u)
}

func (r *rank) stateSetting() stateSetting {
	return stateSetting{width: r.precision.state, rank: r.projectionRank()}
}

// update is what this rank's optimizer works on when that many ranks share each weight.
func (r *rank) update(shards int64) update {
	return update{weights: r.trained, shards: shards, stateSetting: r.stateSetting(), cpu: r.cpu()}
}

// largestUpdate is the most that the step of one weight alone holds besides its gradient.
func (r *rank) largestUpdate() int64 {
	var most int64
	for _, w := range r.trained {
		w.repeat = 1
		u := r.update(1)
		u.weights = []weight{w}
		most = max(most, r.optimizer.temporaries(u))
	}
	return most
}

// projectionRank is the rank that GaLore and APOLLO project gradients to: rank=N in Trainer's --optim_args, 128 where it names none
// (transformers/trainer_optimizer.py).
func (r *rank) projectionRank() int64 {
	const fallback = 128
	if !r.optimizer.projects() {
		return 0
	}
	for i, arg := range r.job.ScriptArgs {
		value, joined := strings.CutPrefix(arg, "--optim_args=")
		if !joined && arg == "--optim_args" && i+1 < len(r.job.ScriptArgs) {
			value, joined = r.job.ScriptArgs[i+1], true
		}
		for pair := range strings.SplitSeq(value, ",") {
			if name, number, _ := strings.Cut(strings.TrimSpace(pair), "="); joined && name == "rank" && parsePositive(number) > 0 {
				return parsePositive(number)
			}
		}
	}
	why := "the rank is not read; this is the usual one"
	if r.huggingFace() {
		why = "no rank in --optim_args; Trainer's default"
	}
	r.notes.assume(fmt.Sprintf("gradients projected to rank %d", fallback), why, true)
	return fallback
}

// resident are the trained weights whose optimizer states PyTorch's allocator holds: not those of pagedStates.
func (r *rank) resident() []weight {
	if !r.optimizer.isPaged() {
		return r.trained
	}
	r.notes.assume("optimizer states in managed memory, outside PyTorch's allocator", "they fill what is free on the GPU and move to the host otherwise", true)
	return slices.DeleteFunc(slices.Clone(r.trained), isPagedWeight)
}

// isPagedWeight: bitsandbytes pages states of 1e5 elements and more (bitsandbytes/optim/optimizer.py: get_state_buffer).
func isPagedWeight(w weight) bool { return w.elements >= 100_000 }

// pagedStates is the bytes of optimizer states in CUDA's managed memory: on the GPU as long as it has room, which nvidia-smi shows.
func (r *rank) pagedStates() int64 {
	if !r.optimizer.isPaged() {
		return 0
	}
	large := slices.DeleteFunc(slices.Clone(r.trained), func(w weight) bool { return !isPagedWeight(w) })
	states := r.optimizer.stateBytes(large, r.stateSetting(), r.huggingFace())
	if r.sharded() {
		states = ceilDiv(states, r.shards)
	}
	return states
}

// stepsInBackward is how many gradients are alive at once where each weight is updated as soon as its gradient is there (torchtune's
// optimizer_in_bwd, Trainer's layerwise optimizers, LOMO), and 0 where gradients wait for the step.
func (r *rank) stepsInBackward() int64 {
	alive := r.optimizer.inBackward
	if alive == 0 && (r.job.OptimizerInBackward.Or(false) || slices.Contains(r.job.ScriptArgs, "optimizer_in_bwd=True")) {
		alive = 1
	}
	if r.accum > 1 || r.sharded() {
		if alive > 0 {
			r.notes.assume("gradients wait for the optimizer step", "updates during backward need no accumulation and no sharding", true)
		}
		return 0
	}
	return alive
}
