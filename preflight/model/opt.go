package model

import "slices"

// optPositionOffset is how many extra rows OPTLearnedPositionalEmbedding has.
const optPositionOffset = 2

// opt reads OPTConfig: transformers/models/opt. Word embeddings may be narrower than the model (350M), between two
// projections.
func opt(c *config) *blueprint {
	b := &blueprint{base: "model"}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = c.size("ffn_dim")
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(2048, "max_position_embeddings")
	b.NormKind, b.Norms = "layer", 2
	before := c.flag("do_layer_norm_before", true)
	b.PostNorm = !before
	b.Activation = c.text("relu", "activation_function")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0.1, "dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	norm, bias := noWeights, c.flag("enable_bias", true)
	if c.flag("layer_norm_elementwise_affine", true) {
		norm = scaleAndShift
	}
	h, i, words := b.Hidden, b.Intermediate, c.sizeOr(b.Hidden, "word_embed_proj_dim")
	b.embeddings = slices.Concat(embedding("embed_tokens", b.Vocab, words),
		embedding("embed_positions", b.MaxPositions+optPositionOffset, h))
	if words != h {
		b.embeddings = append(b.embeddings, linear(PartProjection, "project_in", words, h, false)...)
		b.final = linear(PartProjection, "project_out", h, words, false)
	}
	b.blocks = layers(b.Layers, "decoder.layers.*.",
		linear(PartK, "self_attn.k_proj", h, h, bias), linear(PartV, "self_attn.v_proj", h, h, bias),
		linear(PartQ, "self_attn.q_proj", h, h, bias), linear(PartO, "self_attn.out_proj", h, h, bias),
		norm.tensors("self_attn_layer_norm", h),
		linear(PartUp, "fc1", h, i, bias), linear(PartDown, "fc2", i, h, bias),
		norm.tensors("final_layer_norm", h))
	if before && !c.flag("_remove_final_layer_norm", false) {
		b.final = slices.Concat(norm.tensors("final_layer_norm", h), b.final)
	}
	b.embeddings, b.final = within("decoder.", b.embeddings), within("decoder.", b.final)
	b.head = c.head(decoderHeads("lm_head", "score", words, b.Vocab, c.labels(), false))
	return b
}
