package model

import "slices"

// latentAttention is multi-head latent attention, whose keys and values are unpacked from a narrow latent:
// DeepseekV2Attention and DeepseekV3Attention in transformers/models/deepseek_v{2,3}. A config's head_dim is that of
// the rotated part alone and is not read.
func latentAttention(c *config, b *blueprint, bias bool) []Tensor {
	b.KVRank = c.sizeOr(512, "kv_lora_rank")
	if !c.isNull("q_lora_rank") { // null: queries are made from the hidden state
		b.QueryRank = c.sizeOr(1536, "q_lora_rank")
	}
	b.NopeDim = c.sizeOr(128, "qk_nope_head_dim")
	b.RopeDim = c.sizeOr(64, "qk_rope_head_dim")
	b.ValueDim = c.sizeOr(128, "v_head_dim")
	b.HeadDim = b.NopeDim + b.RopeDim
	h, heads := b.Hidden, b.Heads
	queries := linear(PartQ, "q_proj", h, heads*b.HeadDim, false)
	if b.QueryRank > 0 {
		queries = slices.Concat(
			linear(PartQDown, "q_a_proj", h, b.QueryRank, bias),
			scaleOnly.tensors("q_a_layernorm", b.QueryRank),
			linear(PartQUp, "q_b_proj", b.QueryRank, heads*b.HeadDim, false))
	}
	return slices.Concat(queries,
		linear(PartKDown, "kv_a_proj_with_mqa", h, b.KVRank+b.RopeDim, bias),
		scaleOnly.tensors("kv_a_layernorm", b.KVRank),
		linear(PartKUp, "kv_b_proj", b.KVRank, heads*(b.NopeDim+b.ValueDim), false),
		linear(PartO, "o_proj", heads*b.ValueDim, h, bias))
}
