package model

// mpt reads MptConfig: transformers/models/mpt. Positions are ALiBi slopes, norms have no bias; expansion_ratio is not
// read by the modelling file, which makes the MLP 4 times as wide as the model.
func mpt(c *config) *blueprint {
	b := &blueprint{base: "transformer"}
	b.Hidden = c.size("d_model", "hidden_size")
	b.Layers = c.count("n_layers", "num_hidden_layers")
	b.Heads = c.count("n_heads", "num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = 4 * b.Hidden
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(2048, "max_seq_len")
	b.NormKind, b.Norms = "layer", 2
	b.Activation = "gelu"
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0, "resid_pdrop")
	b.EmbeddingDropout = c.probability(0, "emb_pdrop")
	b.AttentionDropout = c.sectionOr("attn_config").probability(0, "attn_pdrop")
	h, i := b.Hidden, b.Intermediate
	b.embeddings = embedding("wte", b.Vocab, h)
	b.blocks = layers(b.Layers, "blocks.*.",
		scaleOnly.tensors("norm_1", h),
		linear(PartQKV, "attn.Wqkv", h, 3*h, false),
		linear(PartO, "attn.out_proj", h, h, false),
		scaleOnly.tensors("norm_2", h),
		linear(PartUp, "ffn.up_proj", h, i, false),
		linear(PartDown, "ffn.down_proj", i, h, false))
	b.final = scaleOnly.tensors("norm_f", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), false))
	return b
}
