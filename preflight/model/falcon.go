package model

import "slices"

// falcon reads FalconConfig: transformers/models/falcon. The 7B shares one key and value among all heads (multi_query);
// the 40B has groups of them (new_decoder_architecture).
func falcon(c *config) *blueprint {
	b := &blueprint{base: "transformer"}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Vocab = c.size("vocab_size")
	b.Intermediate = c.sizeOr(4*b.Hidden, "ffn_hidden_size")
	b.MaxPositions = c.sizeOr(0, "max_position_embeddings")
	grouped, bias := c.flag("new_decoder_architecture", false), c.flag("bias", false)
	b.KVHeads = b.Heads
	switch multiQuery := c.flag("multi_query", true); {
	case grouped:
		b.KVHeads = c.countOr(b.Heads, "num_kv_heads")
	case multiQuery:
		b.KVHeads = 1
	}
	b.NormKind = "layer"
	b.Parallel = c.flag("parallel_attn", true)
	b.Activation = c.text("gelu", "activation")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0, "hidden_dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	h, i := b.Hidden, b.Intermediate
	norms := falconNorms(c, grouped, b.Parallel)
	b.Norms = int64(len(norms))
	block := slices.Concat(
		linear(PartQKV, "self_attention.query_key_value", h, h+2*b.KVHeads*b.HeadDim, bias),
		linear(PartO, "self_attention.dense", h, h, bias),
		linear(PartUp, "mlp.dense_h_to_4h", h, i, bias),
		linear(PartDown, "mlp.dense_4h_to_h", i, h, bias))
	for _, name := range norms {
		block = append(block, layerNorm(name, h)...)
	}
	b.embeddings = embedding("word_embeddings", b.Vocab, h)
	b.blocks = layers(b.Layers, "h.*.", block)
	b.final = layerNorm("ln_f", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), false))
	return b
}

// falconNorms names the normalisation layers of a block (FalconDecoderLayer).
func falconNorms(c *config, grouped, parallel bool) []string {
	absent := int64(1)
	if grouped {
		absent = 2
	}
	switch {
	case !parallel:
		return []string{"post_attention_layernorm", "input_layernorm"}
	case c.countOr(absent, "num_ln_in_parallel_attn") == 2:
		return []string{"ln_attn", "ln_mlp"}
	}
	return []string{"input_layernorm"}
}
