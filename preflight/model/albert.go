package model

import (
	"fmt"
	"slices"
)

// albert reads AlbertConfig: transformers/models/albert. All blocks use the weights of one, or of one for each group of
// blocks.
func albert(c *config) *blueprint {
	b := &blueprint{base: "albert"}
	c.defaults = map[string]int64{"hidden_size": 4096, "num_hidden_layers": 12, "num_attention_heads": 64,
		"intermediate_size": 16384, "vocab_size": 30000}
	encoderSizes(c, b)
	b.Activation = c.text("gelu_new", "hidden_act")
	b.HiddenDropout = c.probability(0, "hidden_dropout_prob")
	b.EmbeddingDropout = b.HiddenDropout
	b.AttentionDropout = c.probability(0, "attention_probs_dropout_prob")
	h, i, v, narrow := b.Hidden, b.Intermediate, b.Vocab, c.sizeOr(128, "embedding_size")
	groups, inner := c.countOr(1, "num_hidden_groups"), c.countOr(1, "inner_group_num")
	b.embeddings = slices.Concat(encoderEmbeddings(c, b, narrow),
		linear(PartProjection, "encoder.embedding_hidden_mapping_in", narrow, h, true))
	if groups > b.Layers {
		c.reject("num_hidden_groups", "%d groups of %d layers: correct one of them", groups, b.Layers)
		groups = 1
	}
	for n := range groups * inner {
		path := fmt.Sprintf("encoder.albert_layer_groups.%d.albert_layers.%d.", n/inner, n%inner)
		b.blocks = append(b.blocks, layers(1, path, layerNorm("full_layer_layer_norm", h),
			linear(PartQ, "attention.query", h, h, true), linear(PartK, "attention.key", h, h, true),
			linear(PartV, "attention.value", h, h, true),
			linear(PartO, "attention.dense", h, h, true), layerNorm("attention.LayerNorm", h),
			linear(PartUp, "ffn", h, i, true), linear(PartDown, "ffn_output", i, h, true))...)
	}
	b.Layers *= inner
	b.SharedBlocks = groups*inner < b.Layers
	if slices.Contains([]task{bareModel, preTraining, sequenceClassification, multipleChoice}, c.task) {
		b.final = linear(PartProjection, "pooler", h, h, true)
	}
	words := slices.Concat([]Tensor{tensor("predictions", Bias, v)}, layerNorm("predictions.LayerNorm", narrow),
		linear(PartTransform, "predictions.dense", h, narrow, true),
		projection("predictions.decoder", Head, narrow, v, !b.Tied))
	classifier := projection("classifier", Head, h, c.labels(), true)
	b.head = c.head(map[task][]Tensor{
		bareModel: nil,
		maskedLM:  words,
		preTraining: slices.Concat(words,
			linear(PartProjection, "sop_classifier.classifier", h, c.countOr(2, "num_labels"), true)),
		sequenceClassification: classifier,
		tokenClassification:    classifier,
		questionAnswering:      projection("qa_outputs", Head, h, c.labels(), true),
		multipleChoice:         projection("classifier", Head, h, 1, true),
	})
	return b
}
