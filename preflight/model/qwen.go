package model

// qwen reads the first generation's QWenConfig; its code comes with the checkpoint (modeling_qwen.py).
// intermediate_size is twice the width of its MLP.
func qwen(c *config) *blueprint {
	b := &blueprint{base: "transformer"}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = c.sizeOr(perHead(b.Hidden, b.Heads), "kv_channels")
	b.Intermediate = c.size("intermediate_size") / 2
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(0, "max_position_embeddings", "seq_length")
	b.NormKind, b.Norms, b.Gated = "rms", 2, true
	b.Activation = "silu"
	b.Tied = c.flag("tie_word_embeddings", false)
	b.EmbeddingDropout = c.probability(0, "emb_dropout_prob")
	b.AttentionDropout = c.probability(0, "attn_dropout_prob")
	h, i, q, bias := b.Hidden, b.Intermediate, b.Heads*b.HeadDim, !c.flag("no_bias", true)
	b.embeddings = embedding("wte", b.Vocab, h)
	b.blocks = layers(b.Layers, "h.*.",
		scaleOnly.tensors("ln_1", h),
		linear(PartQKV, "attn.c_attn", h, 3*q, true),
		linear(PartO, "attn.c_proj", q, h, bias),
		scaleOnly.tensors("ln_2", h),
		linear(PartUp, "mlp.w1", h, i, bias),
		linear(PartGate, "mlp.w2", h, i, bias),
		linear(PartDown, "mlp.c_proj", i, h, bias))
	b.final = scaleOnly.tensors("ln_f", h)
	b.head = c.head(map[task][]Tensor{bareModel: nil, causalLM: projection("lm_head", Head, h, b.Vocab, false)})
	return b
}
