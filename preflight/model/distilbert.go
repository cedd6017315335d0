package model

import "slices"

// distilBERT reads DistilBertConfig: transformers/models/distilbert. It is BERT without token types and pooler, under
// other names.
func distilBERT(c *config) *blueprint {
	b := &blueprint{base: "distilbert"}
	b.Hidden = c.size("dim", "hidden_size")
	b.Layers = c.count("n_layers", "num_hidden_layers")
	b.Heads = c.count("n_heads", "num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = c.size("hidden_dim")
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(512, "max_position_embeddings")
	b.NormKind, b.Norms, b.PostNorm = "layer", 2, true
	b.Activation = c.text("gelu", "activation")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0.1, "dropout")
	b.EmbeddingDropout = b.HiddenDropout
	b.AttentionDropout = c.probability(0.1, "attention_dropout")
	h, i, v := b.Hidden, b.Intermediate, b.Vocab
	b.embeddings = slices.Concat(embedding("embeddings.word_embeddings", v, h),
		embedding("embeddings.position_embeddings", b.MaxPositions, h),
		layerNorm("embeddings.LayerNorm", h))
	b.blocks = layers(b.Layers, "transformer.layer.*.",
		linear(PartQ, "attention.q_lin", h, h, true),
		linear(PartK, "attention.k_lin", h, h, true),
		linear(PartV, "attention.v_lin", h, h, true),
		linear(PartO, "attention.out_lin", h, h, true),
		layerNorm("sa_layer_norm", h),
		linear(PartUp, "ffn.lin1", h, i, true),
		linear(PartDown, "ffn.lin2", i, h, true),
		layerNorm("output_layer_norm", h))
	before := linear(PartProjection, "pre_classifier", h, h, true)
	b.head = c.head(map[task][]Tensor{
		bareModel: nil,
		maskedLM: slices.Concat(linear(PartTransform, "vocab_transform", h, h, true),
			layerNorm("vocab_layer_norm", h), projection("vocab_projector", Head, h, v, true)),
		sequenceClassification: slices.Concat(before, projection("classifier", Head, h, c.labels(), true)),
		tokenClassification:    projection("classifier", Head, h, c.labels(), true),
		questionAnswering:      projection("qa_outputs", Head, h, c.labels(), true),
		multipleChoice:         slices.Concat(before, projection("classifier", Head, h, 1, true)),
	})
	return b
}
