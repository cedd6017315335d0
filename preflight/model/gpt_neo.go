package model

import "slices"

// gptNeo reads GPTNeoConfig: transformers/models/gpt_neo. Half of its layers attend locally, with the same weights.
func gptNeo(c *config) *blueprint {
	b := &blueprint{base: "transformer"}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_layers", "num_hidden_layers")
	b.Heads = c.count("num_heads", "num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = c.sizeOr(4*b.Hidden, "intermediate_size")
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(2048, "max_position_embeddings")
	b.NormKind, b.Norms = "layer", 2
	b.Activation = c.text("gelu_new", "activation_function")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0, "resid_dropout")
	b.EmbeddingDropout = c.probability(0, "embed_dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	h, i := b.Hidden, b.Intermediate
	b.embeddings = slices.Concat(embedding("wte", b.Vocab, h), embedding("wpe", b.MaxPositions, h))
	b.blocks = layers(b.Layers, "h.*.",
		layerNorm("ln_1", h),
		linear(PartK, "attn.attention.k_proj", h, h, false),
		linear(PartV, "attn.attention.v_proj", h, h, false),
		linear(PartQ, "attn.attention.q_proj", h, h, false),
		linear(PartO, "attn.attention.out_proj", h, h, true),
		layerNorm("ln_2", h),
		linear(PartUp, "mlp.c_fc", h, i, true),
		linear(PartDown, "mlp.c_proj", i, h, true))
	b.final = layerNorm("ln_f", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), false))
	return b
}
