package model

import "slices"

// modernBERT reads ModernBertConfig: transformers/models/modernbert. The first block has no norm in front of its
// attention, since one follows the embeddings.
func modernBERT(c *config) *blueprint {
	b := &blueprint{base: "model"}
	b.Hidden = c.sizeOr(768, "hidden_size")
	b.Layers = c.countOr(22, "num_hidden_layers")
	b.Heads = c.countOr(12, "num_attention_heads")
	b.KVHeads, b.HeadDim = b.Heads, perHead(b.Hidden, b.Heads)
	b.Intermediate = c.sizeOr(1152, "intermediate_size")
	b.Vocab = c.sizeOr(50368, "vocab_size")
	b.MaxPositions = c.sizeOr(8192, "max_position_embeddings")
	b.NormKind, b.Norms, b.Gated = "layer", 2, true
	b.Activation = c.text("gelu", "hidden_activation")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.EmbeddingDropout = c.probability(0, "embedding_dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	b.ActivationDropout = c.probability(0, "mlp_dropout")
	h, i, attention := b.Hidden, b.Intermediate, c.flag("attention_bias", false)
	norm, mlpBias := scaleOnly, c.flag("mlp_bias", false)
	if c.flag("norm_bias", false) {
		norm = scaleAndShift
	}
	b.embeddings = slices.Concat(embedding("embeddings.tok_embeddings", b.Vocab, h), norm.tensors("embeddings.norm", h))
	block := slices.Concat(linear(PartQKV, "attn.Wqkv", h, 3*h, attention), linear(PartO, "attn.Wo", h, h, attention),
		norm.tensors("mlp_norm", h),
		linear(PartGateUp, "mlp.Wi", h, 2*i, mlpBias), linear(PartDown, "mlp.Wo", i, h, mlpBias))
	b.blocks = unlikeFirst(b.Layers, "layers.*.", block, slices.Concat(norm.tensors("attn_norm", h), block))
	b.final = norm.tensors("final_norm", h)
	b.head = c.head(modernBERTHeads(c, b, norm))
	return b
}

func modernBERTHeads(c *config, b *blueprint, norm normWeights) map[task][]Tensor {
	h := b.Hidden
	transform := slices.Concat(linear(PartTransform, "head.dense", h, h, c.flag("classifier_bias", false)),
		norm.tensors("head.norm", h))
	with := func(path string, labels int64, bias bool) []Tensor {
		return slices.Concat(transform, projection(path, Head, h, labels, bias))
	}
	return map[task][]Tensor{
		bareModel:              nil,
		maskedLM:               with("decoder", b.Vocab, c.flag("decoder_bias", true)),
		sequenceClassification: with("classifier", c.labels(), true),
		tokenClassification:    with("classifier", c.labels(), true),
		questionAnswering:      with("classifier", c.labels(), true),
		multipleChoice:         with("classifier", 1, true),
	}
}
