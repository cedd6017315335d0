package estimate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An optimizer is one row of the table below: to add one, add a row.
type optimizer struct {
	name string
	// state is the bytes of optimizer state for one tensor.
	state func(w weight, s stateSetting) int64
	// temporaries is what a step holds besides gradients and states.
	temporaries func(u update) int64
	// embeddings32, if not 0, is the bytes per element of an nn.Embedding under HF Trainer, which registers {"optim_bits": 32} for
	// every such weight of bitsandbytes' 8-bit optimizers (transformers/trainer.py).
	embeddings32 int64
	// inBackward: each weight is updated, and its gradient freed, while backward goes on. The bytes count the gradients alive at once.
	inBackward int64
	// rough marks rules that need tensor shapes and can only approximate a model known by its parameter count.
	rough  bool
	source string
}

// A stateSetting is what states depend on besides the tensor: the width of what the optimizer updates (4 with fp32 or master weights) and
// the rank of optimizers that project gradients.
type stateSetting struct{ width, rank int64 }

const (
	torchAdam = "torch/optim/adam.py: zeros_like(param) twice; foreach makes one list more"
	bnb       = "bitsandbytes/optim/optimizer.py: blocks of 256, fp32 below 4096 elements; one kernel a tensor"
	bnb32     = "bitsandbytes/optim/optimizer.py: optim_bits 32 is fp32 whatever the weights are; one kernel a tensor"
	paged     = "; tensors of 1e5 elements and more in managed memory, which may move to the host"
	torchao   = "torchao/optim/adam.py: blocks of 256 under Trainer; the compiled step is estimated"
	galore    = "galore_torch: galore_projector.py, adamw.py"
	schedule  = "schedulefree: a second sequence z, and exp_avg_sq for Adam"
)

// The known optimizers. States and temporaries of nearly all are tested against real ones (lab/optimizers.py, TestRealOptimizers).
var optimizers = []optimizer{
	{name: "adamw", state: adamState, temporaries: lists(1), source: torchAdam},
	{name: "adam", state: adamState, temporaries: lists(1), source: torchAdam},
	{name: "adamw_foreach", state: adamState, temporaries: onlyLists(1), source: torchAdam},
	{name: "adamw_fused", state: adamState, temporaries: none, source: "torch/optim/adam.py: fused kernel, no intermediate"},
	{name: "adamw_loop", state: adamState, temporaries: one(2), source: "torch/optim/adam.py: the root and the denominator of one tensor"},
	{name: "adamw_anyprecision", state: fixed(8), temporaries: one(2), rough: true, source: "torchdistx: fp32 moments by Trainer's default"},
	{name: "adamw_8bit", state: blockState(2), temporaries: none, embeddings32: 8, source: bnb},
	{name: "paged_adamw", state: fixed(8), temporaries: none, source: bnb32 + paged},
	{name: "paged_adamw_8bit", state: blockState(2), temporaries: none, embeddings32: 8, source: bnb + paged},
	{name: "adamw_torch_8bit", state: torchaoState(8), temporaries: one(2), rough: true, source: torchao},
	{name: "adamw_4bit", state: torchaoState(4), temporaries: one(2), rough: true, source: torchao},
	{name: "cpu_adam", state: adamState, temporaries: none, source: "DeepSpeedCPUAdam: updates on the host"},
	{name: "lamb", state: adamState, temporaries: one(2), rough: true, source: "You et al. 2020: Adam's moments"},
	{name: "stable_adamw", state: kahanState, temporaries: lists(1), rough: true, source: "optimi/stableadamw.py: a compensation for 16-bit weights"},
	{name: "grokadamw", state: noState, temporaries: one(6), rough: true, source: "grokadamw.py: states live on the host; one tensor's three visit"},
	{name: "schedule_free_adamw", state: adamState, temporaries: lists(1), rough: true, source: schedule},
	{name: "schedule_free_radam", state: adamState, temporaries: lists(1), rough: true, source: schedule},
	{name: "schedule_free_sgd", state: oneState, temporaries: none, rough: true, source: schedule},
	{name: "adafactor", state: factoredState, temporaries: oneWide(8, 16), rough: true, source: "transformers/optimization.py: fp32 row and column means"},
	{name: "adafactor_torch", state: factoredOwnWidth, temporaries: one(1), rough: true, source: "torch/optim/_adafactor.py: row and column means of the gradient's dtype"},
	{name: "lion", state: fixed(4), temporaries: none, source: bnb32},
	{name: "lion_8bit", state: blockState(1), temporaries: none, embeddings32: 4, source: bnb},
	{name: "paged_lion", state: fixed(4), temporaries: none, source: bnb32 + paged},
	{name: "paged_lion_8bit", state: blockState(1), temporaries: none, embeddings32: 4, source: bnb + paged},
	{name: "ademamix", state: fixed(12), temporaries: none, source: "bitsandbytes/optim/ademamix.py: two fp32 averages and the squares"},
	{name: "ademamix_8bit", state: blockState(3), temporaries: none, embeddings32: 12, source: bnb},
	{name: "paged_ademamix", state: fixed(12), temporaries: none, source: bnb32 + paged},
	{name: "paged_ademamix_8bit", state: blockState(3), temporaries: none, embeddings32: 12, source: bnb + paged},
	{name: "sgd", state: noState, temporaries: none, source: "torch/optim/sgd.py: no state without momentum"},
	{name: "sgd_momentum", state: oneState, temporaries: none, source: "torch/optim/sgd.py: momentum_buffer of the parameter's dtype"},
	{name: "adagrad", state: oneState, temporaries: lists(2), source: "torch/optim/adagrad.py: one sum; two lists in a step"},
	{name: "rmsprop", state: oneState, temporaries: lists(1), source: "torch/optim/rmsprop.py: square_avg"},
	{name: "rmsprop_8bit", state: blockState(1), temporaries: none, embeddings32: 4, source: bnb},
	{name: "muon", state: muonState, temporaries: muonTemporaries, rough: true, source: "torch/optim/_muon.py for hidden matrices, AdamW for all else"},
	{name: "galore_adamw", state: galoreState, temporaries: galoreTemporaries, rough: true, source: galore},
	{name: "galore_adamw_8bit", state: galore8bitState, temporaries: galoreTemporaries, rough: true, source: galore + "; " + bnb},
	{name: "galore_adafactor", state: galoreFactoredState, temporaries: galoreFactoredTemporaries, rough: true, source: galore},
	{name: "apollo_adamw", state: apolloState, temporaries: lowRank(lowRankStep, one(2)), rough: true, source: "apollo_torch: apollo.py, random_projector.py"},
	{name: "lomo", state: noState, temporaries: oneWide(0, 6), inBackward: 2, rough: true, source: "lomo_optim/lomo.py: fp32 copies of a 16-bit weight and its gradient"},
	{name: "adalomo", state: factoredState, temporaries: oneWide(8, 10), inBackward: 2, rough: true, source: "lomo_optim/adalomo.py"},
}

// layerwise is how Trainer marks optimizers that work on one weight at a time, in backward (transformers/trainer_optimizer.py).
const layerwise = "_layerwise"

// OptimizerNames lists the optimizers that Run knows.
func OptimizerNames() []string {
	names := make([]string, len(optimizers))
	for i, o := range optimizers {
		names[i] = o.name
	}
	return names
}

func findOptimizer(name string) (optimizer, error) {
	base, inBackward := strings.CutSuffix(name, layerwise)
	i := slices.IndexFunc(optimizers, func(o optimizer) bool { return o.name == base || o.name+"_32bit" == base })
	if i < 0 {
		return optimizer{}, fmt.Errorf("unknown optimizer %q: use one of %s", name, strings.Join(OptimizerNames(), ", "))
	}
	o := optimizers[i]
	if inBackward {
		o.inBackward = 1
	}
	return o, nil
}

// stateBytes is the optimizer state of all trainable weights. hfTrainer says that HF Trainer drives the optimizer.
func (o optimizer) stateBytes(ws []weight, s stateSetting, hfTrainer bool) int64 {
	var sum int64
	for _, w := range ws {
		if o.embeddings32 > 0 && hfTrainer && isEmbedding(w) {
			sum += o.embeddings32 * w.total()
			continue
		}
		sum += o.state(w, stateSetting{width: cmp.Or(w.width, s.width), rank: s.rank})
	}
	return sum
}

// projects says that gradients are projected to a rank.
func (o optimizer) projects() bool {
	return strings.HasPrefix(o.name, "galore") || strings.HasPrefix(o.name, "apollo")
}

func (o optimizer) isPaged() bool { return strings.HasPrefix(o.name, "paged_") }
