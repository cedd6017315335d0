package model

import (
	"cmp"
	"slices"
	"strings"
)

// routed are the router and the routed experts of one block. transformers 5 stores the experts stacked, gate and up
// together; transformers 4 had a Linear for each: as many weights, other modules.
func routed(router Tensor, hidden, intermediate, experts int64) []Tensor {
	router.Shape = []int64{experts, hidden}
	return []Tensor{
		router,
		tensor("mlp.experts", Expert, experts, 2*intermediate, hidden),
		tensor("mlp.experts", Expert, experts, hidden, intermediate),
	}
}

// plainRouter is a bare parameter, no nn.Linear.
func plainRouter() Tensor { return tensor("mlp.gate", Other).as(PartRouter) }

// namedRouter has a name of its own, and may be an nn.Linear.
func namedRouter(role Role) Tensor { return tensor("mlp.router", role).as(PartRouter) }

// mix replaces the MLP by a mixture of experts in the blocks that sparse picks.
func (b *blueprint) mix(mixture []Tensor, sparse func(block int64) bool) {
	dense := b.blocks[0]
	withoutMLP := slices.DeleteFunc(slices.Clone(dense.Tensors), func(t Tensor) bool { return t.inMLP() })
	mixed := Unit{Name: dense.Name, Tensors: append(withoutMLP, within("layers.*.", mixture)...)}
	dense.Name = "dense layer"
	for i := range b.Layers {
		if sparse(i) {
			mixed.Indices = append(mixed.Indices, i)
		} else {
			dense.Indices = append(dense.Indices, i)
		}
	}
	b.blocks = nil
	for _, u := range []Unit{dense, mixed} {
		if u.Repeat = int64(len(u.Indices)); u.Repeat > 0 {
			b.blocks = append(b.blocks, u)
		}
	}
}

// inMLP says that the weight is one of a dense MLP.
func (t Tensor) inMLP() bool {
	return slices.Contains([]Part{PartGate, PartUp, PartGateUp, PartDown}, t.Part)
}

func everyBlock(int64) bool { return true }

// localExperts puts experts of intermediate_size into every block (Mixtral, Phi-3.5-MoE).
type localExperts struct {
	router   Tensor
	absent   int64 // default of num_local_experts
	perToken int64 // default of num_experts_per_tok
}

func (l localExperts) replace(c *config, b *blueprint) {
	b.Experts = c.countOr(l.absent, "num_local_experts", "num_experts")
	b.ExpertsPerToken = c.countOr(l.perToken, "num_experts_per_tok")
	b.mix(routed(l.router, b.Hidden, b.Intermediate, b.Experts), everyBlock)
}

// gptOSSExperts have biases, and so has their router.
func gptOSSExperts(c *config, b *blueprint) {
	b.Experts = c.countOr(128, "num_local_experts", "num_experts")
	b.ExpertsPerToken = c.countOr(4, "num_experts_per_tok")
	b.mix(slices.Concat(routed(namedRouter(Other), b.Hidden, b.Intermediate, b.Experts), []Tensor{
		tensor("mlp.router", Bias, b.Experts).as(PartRouter),
		tensor("mlp.experts", Expert, b.Experts, 2*b.Intermediate),
		tensor("mlp.experts", Expert, b.Experts, b.Hidden),
	}), everyBlock)
}

// graniteExperts may have an MLP for every token beside them, whose gate and up are one projection.
func graniteExperts(c *config, b *blueprint) {
	b.Experts = c.countOr(8, "num_local_experts")
	b.ExpertsPerToken = c.countOr(2, "num_experts_per_tok")
	mixture := routed(namedRouter(Other), b.Hidden, b.Intermediate, b.Experts)
	for i := range mixture {
		mixture[i].Path = strings.Replace(mixture[i].Path, "mlp", "block_sparse_moe", 1)
	}
	if width := c.naturalOr(0, "shared_intermediate_size"); width > 0 {
		b.SharedIntermediate = width
		shared := mlp{up: "input_linear", down: "output_linear", fused: true}
		mixture = append(mixture, shared.tensors("shared_mlp.", b.Hidden, width, false)...)
	}
	b.mix(mixture, everyBlock)
}

// ernieExperts replaces the MLPs of a range of blocks. The router corrects its choice by numbers that are not trained.
func ernieExperts(c *config, b *blueprint) {
	b.Experts = c.countOr(64, "moe_num_experts", "num_experts")
	b.ExpertsPerToken = c.countOr(6, "moe_k", "num_experts_per_tok")
	width := c.sizeOr(1536, "moe_intermediate_size")
	correction := tensor("mlp.gate.moe_statics", Other, b.Experts)
	correction.Frozen = true
	mixture := append(routed(plainRouter(), b.Hidden, width, b.Experts), correction)
	if shared := c.naturalOr(2, "moe_num_shared_experts"); shared > 0 {
		b.SharedIntermediate = shared * width
		mixture = append(mixture, gatedMLP.tensors("mlp.shared_experts.", b.Hidden, b.SharedIntermediate,
			c.flag("use_bias", false))...)
	}
	first, last, step := c.naturalOr(1, "moe_layer_start_index"), c.signedOr(-1, "moe_layer_end_index"),
		c.countOr(1, "moe_layer_interval")
	if last == -1 {
		last = b.Layers - 1
	}
	b.mix(mixture, func(i int64) bool { return (i+1)%step == 0 && i >= first && i <= last })
}

// olmoeExperts are like Mixtral's under Qwen's keys.
func olmoeExperts(c *config, b *blueprint) {
	b.Experts = c.countOr(64, "num_experts", "num_local_experts")
	b.ExpertsPerToken = c.countOr(8, "num_experts_per_tok")
	b.mix(routed(plainRouter(), b.Hidden, b.Intermediate, b.Experts), everyBlock)
}

// qwenExperts puts experts into the blocks that decoder_sparse_step and mlp_only_layers leave to them.
type qwenExperts struct {
	absent, width, perToken int64 // defaults of num_experts, moe_intermediate_size and num_experts_per_tok
	shared                  bool  // every token also visits a shared expert, through a gate of its own (Qwen2-MoE)
	sharedWidth             int64 // default of shared_expert_intermediate_size; 0: Qwen2-MoE's
}

func (q qwenExperts) replace(c *config, b *blueprint) {
	b.Experts = c.countOr(q.absent, "num_experts", "num_local_experts")
	mixture := routed(plainRouter(), b.Hidden, c.sizeOr(q.width, "moe_intermediate_size"), b.Experts)
	b.ExpertsPerToken = c.countOr(q.perToken, "num_experts_per_tok")
	if q.shared {
		b.SharedIntermediate = c.sizeOr(cmp.Or(q.sharedWidth, 5632), "shared_expert_intermediate_size")
		mixture = slices.Concat(mixture, gatedMLP.tensors("mlp.shared_expert.", b.Hidden, b.SharedIntermediate, false),
			linear(PartSharedGate, "mlp.shared_expert_gate", b.Hidden, 1, false))
	}
	step, denseOnly := c.countOr(1, "decoder_sparse_step"), c.integers("mlp_only_layers")
	b.mix(mixture, func(i int64) bool { return !slices.Contains(denseOnly, i) && (i+1)%step == 0 })
}

// deepseekExperts puts routed and shared experts into all blocks but the first few. The fields are defaults of the
// configuration class.
type deepseekExperts struct {
	absent     int64  // n_routed_experts; 0: it is not a mixture of experts unless the config says so
	width      int64  // moe_intermediate_size
	shared     int64  // n_shared_experts; 0: none
	dense      int64  // first_k_dense_replace
	perToken   int64  // num_experts_per_tok; 0: not known
	stepKey    string // only every so many blocks have experts; "": all
	sharedBias toggle
}

func (d deepseekExperts) replace(c *config, b *blueprint) {
	if name, _ := c.find("n_routed_experts", "num_local_experts", "num_experts"); name == "" && d.absent == 0 {
		return
	}
	b.Experts = c.countOr(d.absent, "n_routed_experts", "num_local_experts", "num_experts")
	b.ExpertsPerToken = c.countOr(d.perToken, "num_experts_per_tok")
	width := c.sizeOr(d.width, "moe_intermediate_size")
	mixture := routed(plainRouter(), b.Hidden, width, b.Experts)
	if shared := c.naturalOr(d.shared, "n_shared_experts"); shared > 0 {
		b.SharedIntermediate = shared * width // both are bounded: no overflow
		mixture = append(mixture, gatedMLP.tensors("mlp.shared_experts.", b.Hidden, b.SharedIntermediate,
			d.sharedBias.read(c))...)
	}
	first, step := c.naturalOr(d.dense, "first_k_dense_replace"), int64(1)
	if d.stepKey != "" {
		step = c.countOr(1, d.stepKey)
	}
	b.mix(mixture, func(i int64) bool { return i >= first && i%step == 0 })
}
