package estimate

import (
	"fmt"
	"slices"

	"oomguard/preflight/model"
	"oomguard/preflight/optim"
)

// optimized is what an optimizer sees of weights.
func optimized(ws []weight) []optim.Tensor {
	list := make([]optim.Tensor, len(ws))
	for i, w := range ws {
		list[i] = optim.Tensor{Shape: w.Shape, Elements: w.elements, Repeat: w.repeat, Width: w.width,
			Shapeless: w.shapeless,
			Linear:    w.Role == model.Linear, Embedding: w.Role == model.Embedding}
	}
	return list
}

func (r *rank) optimizerSetting() optim.Setting {
	return optim.Setting{Width: r.precision.state, Rank: r.projectionRank(), Trainer: r.traits.WideEmbeddings}
}

// optimizerBytes is the optimizer state of weights.
func (r *rank) optimizerBytes(ws []weight) int64 {
	return r.optimizer.StateBytes(optimized(ws), r.optimizerSetting())
}

// update is what this rank's optimizer works on when that many ranks share each weight.
func (r *rank) update(shards int64) optim.Update {
	return optim.Update{Tensors: optimized(r.trained), Shards: shards, Setting: r.optimizerSetting(), CPU: r.cpu()}
}

// largestUpdate is the most that the step of one weight alone holds besides its gradient.
func (r *rank) largestUpdate() int64 {
	var most int64
	u := r.update(1)
	for _, t := range optimized(r.trained) {
		t.Repeat = 1
		u.Tensors = []optim.Tensor{t}
		most = max(most, r.optimizer.StepBytes(u))
	}
	return most
}

// projectionRank is the rank that GaLore and APOLLO project gradients to, 128 where nothing names one
// (transformers/trainer_optimizer.py).
func (r *rank) projectionRank() int64 {
	const fallback = 128
	if !r.optimizer.Projects {
		return 0
	}
	if n := r.job.ProjectionRank; n.Known {
		return int64(n.Value)
	}
	why := "the rank is not read; this is the usual one"
	if r.traits.OptimArguments {
		why = "no rank in --optim_args; Trainer's default"
	}
	r.notes.assume(fmt.Sprintf("gradients projected to rank %d", fallback), why, true)
	return fallback
}

// resident are the trained weights whose optimizer states PyTorch's allocator holds: not those of pagedStates.
func (r *rank) resident() []weight {
	if !r.optimizer.Paged {
		return r.trained
	}
	r.notes.assume("optimizer states in managed memory, outside PyTorch's allocator",
		"they fill what is free on the GPU and move to the host otherwise", true)
	return slices.DeleteFunc(slices.Clone(r.trained), isPaged)
}

func isPaged(w weight) bool { return optim.Tensor{Elements: w.elements}.Paged() }

// pagedStates is the bytes of optimizer states in CUDA's managed memory: on the GPU as long as it has room, which
// nvidia-smi shows.
func (r *rank) pagedStates() int64 {
	if !r.optimizer.Paged {
		return 0
	}
	large := slices.DeleteFunc(slices.Clone(r.trained), func(w weight) bool { return !isPaged(w) })
	states := r.optimizerBytes(large)
	if r.sharded() {
		states = ceilDiv(states, r.shards)
	}
	return states
}

// stepsInBackward is how many gradients are alive at once where each weight is updated as soon as its gradient is there
// (torchtune's optimizer_in_bwd, Trainer's layerwise optimizers, LOMO), and 0 where gradients wait for the step.
func (r *rank) stepsInBackward() int64 {
	alive := r.optimizer.InBackward
	if alive == 0 && r.job.OptimizerInBackward.Or(false) {
		alive = 1
	}
	if r.accum > 1 || r.sharded() {
		if alive > 0 {
			r.notes.assume("gradients wait for the optimizer step",
				"updates during backward need no accumulation and no sharding", true)
		}
		return 0
	}
	return alive
}
