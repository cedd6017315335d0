package model

// gptNeoX reads GPTNeoXConfig: transformers/models/gpt_neox.
func gptNeoX(c *config) *blueprint {
	b := &blueprint{base: "gpt_neox"}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = c.size("intermediate_size")
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(0, "max_position_embeddings")
	b.NormKind = "layer"
	b.Norms = 2 // both are there with a parallel residual too
	b.Parallel = c.flag("use_parallel_residual", true)
	b.Activation = c.text("gelu", "hidden_act")
	b.Tied = c.flag("tie_word_embeddings", false)
	b.HiddenDropout = c.probability(0, "hidden_dropout")
	b.EmbeddingDropout = b.HiddenDropout
	b.AttentionDropout = c.probability(0, "attention_dropout")
	h, i, bias := b.Hidden, b.Intermediate, c.flag("attention_bias", true)
	b.embeddings = embedding("embed_in", b.Vocab, h)
	b.blocks = layers(b.Layers, "layers.*.",
		layerNorm("input_layernorm", h),
		layerNorm("post_attention_layernorm", h),
		linear(PartQKV, "attention.query_key_value", h, 3*h, bias),
		linear(PartO, "attention.dense", h, h, bias),
		linear(PartUp, "mlp.dense_h_to_4h", h, i, true),
		linear(PartDown, "mlp.dense_4h_to_h", i, h, true))
	b.final = layerNorm("final_layer_norm", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), false))
	return b
}
