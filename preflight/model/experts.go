package model

import (
	"slices"
	"strings"
)

// routed are the router and the routed experts of one block. transformers 5 stores the experts stacked, gate and up together;
// transformers 4 had a Linear for each: as many weights, other modules.
func routed(hidden, intermediate, experts int64) []Tensor {
	return []Tensor{
		tensor("mlp.gate", Other, experts, hidden),
		tensor("mlp.experts", Expert, experts, 2*intermediate, hidden),
		tensor("mlp.experts", Expert, experts, hidden, intermediate),
	}
}

// withoutMLP is a dense block less its MLP.
func withoutMLP(block Unit) []Tensor {
	return slices.DeleteFunc(slices.Clone(block.Tensors), func(t Tensor) bool { return strings.Contains(t.Path, ".mlp.") })
}

// mixtralExperts puts experts of intermediate_size into every block.
func mixtralExperts(c *config, b *blueprint) {
	b.Experts = c.count("num_local_experts", "num_experts")
	b.ExpertsPerToken = c.countOr(2, "num_experts_per_tok")
	block := b.blocks[0]
	block.Tensors = append(withoutMLP(block), within("layers.*.", routed(b.Hidden, b.Intermediate, b.Experts))...)
	b.blocks = []Unit{block}
}

// qwenExperts puts experts into the blocks that decoder_sparse_step and mlp_only_layers leave to them.
type qwenExperts struct {
	shared bool // every token also visits a shared expert, through a gate of its own (Qwen2-MoE)
}

func (q qwenExperts) replace(c *config, b *blueprint) {
	b.Experts = c.count("num_experts", "num_local_experts")
	width := c.size("moe_intermediate_size")
	mixture := routed(b.Hidden, width, b.Experts)
	b.ExpertsPerToken = c.countOr(8, "num_experts_per_tok")
	if q.shared {
		b.ExpertsPerToken = c.countOr(4, "num_experts_per_tok")
		mixture = slices.Concat(mixture, gatedMLP.tensors("mlp.shared_expert.", b.Hidden, c.size("shared_expert_intermediate_size"), false),
			linear("mlp.shared_expert_gate", b.Hidden, 1, false))
	}
	dense := b.blocks[0]
	sparse := Unit{Name: dense.Name, Tensors: append(withoutMLP(dense), within("layers.*.", mixture)...)}
	dense.Name = "dense layer"
	step, denseOnly := c.countOr(1, "decoder_sparse_step"), c.integers("mlp_only_layers")
	for i := range b.Layers {
		if slices.Contains(denseOnly, i) || (i+1)%step != 0 {
			dense.Indices = append(dense.Indices, i)
		} else {
			sparse.Indices = append(sparse.Indices, i)
		}
	}
	b.blocks = nil
	for _, u := range []Unit{dense, sparse} {
		if u.Repeat = int64(len(u.Indices)); u.Repeat > 0 {
			b.blocks = append(b.blocks, u)
		}
	}
}
