package model

import "slices"

// bloom reads BloomConfig: transformers/models/bloom. Positions are ALiBi slopes, which are not parameters.
func bloom(c *config) *blueprint {
	b := &blueprint{base: "transformer"}
	b.Hidden = c.size("hidden_size", "n_embed")
	b.Layers = c.count("n_layer", "num_hidden_layers")
	b.Heads = c.count("n_head", "num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = 4 * b.Hidden // fixed in BloomMLP
	b.Vocab = c.size("vocab_size")
	b.NormKind, b.Norms = "layer", 2
	// BloomGelu computes it in one autograd function, which keeps its input alone as the fused one does
	b.Activation = "gelu_pytorch_tanh"
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0, "hidden_dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	h, i := b.Hidden, b.Intermediate
	b.embeddings = slices.Concat(embedding("word_embeddings", b.Vocab, h), layerNorm("word_embeddings_layernorm", h))
	b.blocks = layers(b.Layers, "h.*.",
		layerNorm("input_layernorm", h),
		linear(PartQKV, "self_attention.query_key_value", h, 3*h, true),
		linear(PartO, "self_attention.dense", h, h, true),
		layerNorm("post_attention_layernorm", h),
		linear(PartUp, "mlp.dense_h_to_4h", h, i, true),
		linear(PartDown, "mlp.dense_4h_to_h", i, h, true))
	b.final = layerNorm("ln_f", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), false))
	return b
}
