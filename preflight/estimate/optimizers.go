package estimate

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// stepKind is how an optimizer applies its update, which decides what is alive during the step besides states and gradients.
type stepKind int

const (
	inPlace      stepKind = iota // one kernel reads and writes everything: no temporaries
	foreach                      // lists of tensors: one temporary of the size of the parameters
	loop                         // one parameter after the other: two temporaries of the largest
	autoStep                     // PyTorch's own choice: foreach on a GPU, loop on a CPU
	foreachTwice                 // lists of tensors: two temporaries of the size of the parameters
	loopInF32                    // one parameter after the other in fp32: two temporaries of the largest, and copies of a 16-bit weight and its gradient
)

// An optimizer is one row of the table below: to add one, add a row.
type optimizer struct {
	name string
	// state is the bytes of optimizer state for one tensor. dtype is the width of the states: that of the weights the optimizer
	// updates (4 with fp32 or master weights).
	state func(w weight, dtype int64) int64
	step  stepKind
	// embeddings32, if not 0, is the bytes per element of an nn.Embedding under HF Trainer, which registers {"optim_bits": 32}
	// for every such weight (transformers/trainer.py).
	embeddings32 int64
	// rough marks rules that need tensor shapes and can only approximate a model known by its parameter count.
	rough  bool
	source string
}

// PyTorch's Adam keeps exp_avg and exp_avg_sq with zeros_like(param): two tensors of the parameter's dtype.
func adamState(w weight, dtype int64) int64 { return 2 * dtype * w.total() }

func oneState(w weight, dtype int64) int64 { return dtype * w.total() }

func noState(weight, int64) int64 { return 0 }

// blockState is bitsandbytes' 8-bit state: one byte an element and an fp32 scale for each block of 256, for each of n moments;
// tensors under 4096 elements stay in 32 bit (bitsandbytes/optim/optimizer.py: blocksize 256, min_8bit_size 4096).
func blockState(moments, bits int64) func(weight, int64) int64 {
	const block, minimum = 256, 4096
	return func(w weight, _ int64) int64 {
		if w.elements < minimum {
			return moments * 4 * w.total()
		}
		return w.repeat * moments * (ceilDiv(w.elements*bits, 8) + 4*ceilDiv(w.elements, block))
	}
}

// adafactorState keeps a row and a column of fp32 means for a matrix and a full vector otherwise (Shazeer and Stern 2018).
func adafactorState(w weight, _ int64) int64 {
	if len(w.Shape) < 2 {
		if w.shapeless {
			return 0
		}
		return 4 * w.total()
	}
	columns := w.Shape[len(w.Shape)-1]
	return w.repeat * 4 * (w.elements/max(columns, 1) + columns)
}

// muonState keeps one momentum for hidden matrices; embeddings, head and vectors stay with Adam (Jordan et al. 2024).
func muonState(w weight, dtype int64) int64 {
	if w.Role == model.Linear {
		return dtype * w.total()
	}
	return adamState(w, dtype)
}

// galoreState keeps Adam's moments of a rank-128 projection and the projector for matrices (GaLore galore_projector.py: the
// short side is projected; 128 is the rank of transformers' optim_args default).
func galoreState(w weight, dtype int64) int64 {
	const rank = 128
	if w.Role != model.Linear || len(w.Shape) != 2 {
		return adamState(w, dtype)
	}
	short, long := min(w.Shape[0], w.Shape[1]), max(w.Shape[0], w.Shape[1])
	r := min(rank, short)
	return w.repeat * dtype * (short*r + 2*r*long)
}

const (
	torchAdam = "torch/optim/adam.py: zeros_like(param) twice; foreach needs about sizeof(params) more (docstring)"
	bnb       = "bitsandbytes/optim/optimizer.py: blocks of 256, fp32 below 4096 elements"
)

// The known optimizers.
var optimizers = []optimizer{
	{name: "adamw", state: adamState, step: autoStep, source: torchAdam},
	{name: "adam", state: adamState, step: autoStep, source: torchAdam},
	{name: "adamw_foreach", state: adamState, step: foreach, source: torchAdam},
	{name: "adamw_fused", state: adamState, step: inPlace, source: "torch/optim/adam.py: fused kernel, no intermediate"},
	{name: "adamw_loop", state: adamState, step: loop, source: "simulated: two temporaries of the largest tensor"},
	{name: "adamw_8bit", state: blockState(2, 8), step: inPlace, embeddings32: 8, source: bnb},
	{name: "paged_adamw_8bit", state: blockState(2, 8), step: inPlace, embeddings32: 8, source: bnb + "; pages may move to the host"},
	{name: "paged_adamw", state: func(w weight, _ int64) int64 { return 8 * w.total() }, step: inPlace, source: bnb + "; pages may move to the host"},
	{name: "adamw_4bit", state: blockState(2, 4), step: loop, rough: true, source: "torchao low-bit optimizer: blocks of 128 or 256"},
	{name: "adafactor", state: adafactorState, step: loopInF32, rough: true, source: "Shazeer and Stern 2018; transformers/optimization.py (its Trainer's), simulated: 16 bytes an element of the largest 16-bit tensor"},
	{name: "lion", state: oneState, step: inPlace, source: "Chen et al. 2023: one momentum; bitsandbytes Optimizer1State"},
	{name: "lion_8bit", state: blockState(1, 8), step: inPlace, embeddings32: 4, source: bnb},
	{name: "sgd", state: noState, step: inPlace, source: "torch/optim/sgd.py: no state without momentum"},
	{name: "sgd_momentum", state: oneState, step: inPlace, source: "torch/optim/sgd.py: momentum_buffer of the parameter's dtype"},
	{name: "muon", state: muonState, step: loop, rough: true, source: "Jordan et al. 2024"},
	{name: "galore_adamw", state: galoreState, step: loopInF32, rough: true, source: "GaLore galore_projector.py, rank 128"},
	{name: "adagrad", state: oneState, step: foreachTwice, source: "torch/optim/adagrad.py: one sum; simulated: two temporaries of the parameters' size"},
	{name: "rmsprop", state: oneState, step: autoStep, source: "torch/optim/rmsprop.py: square_avg"},
	{name: "lomo", state: noState, step: loop, rough: true, source: "Lv et al. 2023: no state, fused into backward"},
	{name: "cpu_adam", state: adamState, step: inPlace, source: "DeepSpeedCPUAdam: updates on the host"},
}

// OptimizerNames lists the optimizers that Run knows.
func OptimizerNames() []string {
	names := make([]string, len(optimizers))
	for i, o := range optimizers {
		names[i] = o.name
	}
	return names
}

func findOptimizer(name string) (optimizer, error) {
	i := slices.IndexFunc(optimizers, func(o optimizer) bool { return o.name == name })
	if i < 0 {
		return optimizer{}, fmt.Errorf("unknown optimizer %q: use one of %s", name, strings.Join(OptimizerNames(), ", "))
	}
	return optimizers[i], nil
}

// stateBytes is the optimizer state of all trainable weights. dtype is the width of states; embeddings32 says that HF Trainer
// drives the optimizer.
func (o optimizer) stateBytes(ws []weight, dtype int64, hfTrainer bool) int64 {
	var sum int64
	for _, w := range ws {
		if o.embeddings32 > 0 && hfTrainer && w.Role == model.Embedding {
			sum += o.embeddings32 * w.total()
			continue
		}
		sum += o.state(w, dtype)
	}
	return sum
}

// temporaryBytes is what one step holds besides gradients and states. elements and largest count what this rank updates.
func (o optimizer) temporaryBytes(elements, largest, dtype int64, cpu bool) int64 {
	step := o.step
	if step == autoStep {
		step = foreach
		if cpu {
			step = loop
		}
	}
	switch step {
	case foreach:
		return elements * dtype
	case loop:
		return 2 * largest * dtype
	case foreachTwice:
		return 2 * elements * dtype
	case loopInF32:
		if dtype < 4 {
			return 16 * largest
		}
		return 8 * largest
	case inPlace, autoStep:
	}
	return 0
}
