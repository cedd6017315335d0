package model

import "slices"

// xglm reads XGLMConfig: transformers/models/xglm. Its positions are sinusoids, which are no weights.
func xglm(c *config) *blueprint {
	b := &blueprint{base: "model"}
	b.Hidden = c.size("d_model", "hidden_size")
	b.Layers = c.count("num_layers", "num_hidden_layers")
	b.Heads = c.count("attention_heads", "num_attention_heads")
	b.Intermediate = c.size("ffn_dim")
	b.Activation = c.text("gelu", "activation_function")
	b.MaxPositions = c.sizeOr(2048, "max_position_embeddings")
	b.HiddenDropout = c.probability(0.1, "dropout")
	b.AttentionDropout = c.probability(0.1, "attention_dropout")
	bartDecoder(c, b)
	b.embeddings = embedding("embed_tokens", b.Vocab, b.Hidden)
	b.head = c.head(map[task][]Tensor{bareModel: nil, causalLM: projection("lm_head", Head, b.Hidden, b.Vocab, false)})
	return b
}

// bioGPT reads BioGptConfig: transformers/models/biogpt.
func bioGPT(c *config) *blueprint {
	b := &blueprint{base: "biogpt"}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.Intermediate = c.size("intermediate_size")
	b.Activation = c.text("gelu", "hidden_act")
	b.MaxPositions = c.sizeOr(1024, "max_position_embeddings")
	b.HiddenDropout = c.probability(0.1, "hidden_dropout_prob")
	b.AttentionDropout = c.probability(0.1, "attention_probs_dropout_prob")
	bartDecoder(c, b)
	h := b.Hidden
	b.embeddings = slices.Concat(embedding("embed_tokens", b.Vocab, h),
		embedding("embed_positions", b.MaxPositions+optPositionOffset, h))
	heads := decoderHeads("output_projection", "classifier", h, b.Vocab, c.labels(), false)
	delete(heads, questionAnswering)
	b.head = c.head(heads)
	return b
}

// bartDecoder gives b blocks like those of BART's decoder, normalised first and without an encoder, and a last norm.
func bartDecoder(c *config, b *blueprint) {
	b.KVHeads, b.HeadDim = b.Heads, perHead(b.Hidden, b.Heads)
	b.Vocab = c.size("vocab_size")
	b.NormKind, b.Norms = "layer", 2
	b.Tied = c.flag("tie_word_embeddings", true)
	b.EmbeddingDropout = b.HiddenDropout
	b.ActivationDropout = c.probability(0, "activation_dropout")
	if c.flag("add_cross_attention", false) {
		c.reject("add_cross_attention",
			"models with cross-attention cannot be counted: give --params for a lower bound")
	}
	b.blocks = layers(b.Layers, "layers.*.", seq2seqBlock(&b.Architecture, true))
	b.final = layerNorm("layer_norm", b.Hidden)
}
