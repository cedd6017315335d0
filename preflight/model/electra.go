package model

import "slices"

// electra reads ElectraConfig: transformers/models/electra. It is BERT whose embeddings may be narrower than the model.
func electra(c *config) *blueprint {
	b := &blueprint{base: "electra"}
	encoderSizes(c, b)
	h, v, narrow := b.Hidden, b.Vocab, c.sizeOr(128, "embedding_size")
	b.embeddings = encoderEmbeddings(c, b, narrow)
	if narrow != h {
		b.embeddings = append(b.embeddings, linear(PartProjection, "embeddings_project", narrow, h, true)...)
	}
	b.blocks = layers(b.Layers, "encoder.layer.*.", encoderAttention("query", "key", "value", h), encoderRest(b))
	words := slices.Concat(layerNorm("generator_predictions.LayerNorm", narrow),
		linear(PartTransform, "generator_predictions.dense", h, narrow, true),
		projection("generator_lm_head", Head, narrow, v, true))
	if c.task == preTraining { // the discriminator: one number a token, was it replaced?
		b.Tied = false
	}
	b.head = c.head(map[task][]Tensor{
		bareModel: nil,
		causalLM:  words,
		maskedLM:  words,
		preTraining: slices.Concat(linear(PartProjection, "discriminator_predictions.dense", h, h, true),
			projection("discriminator_predictions.dense_prediction", Head, h, 1, true)),
		sequenceClassification: slices.Concat(linear(PartProjection, "classifier.dense", h, h, true),
			projection("classifier.out_proj", Head, h, c.labels(), true)),
		tokenClassification: projection("classifier", Head, h, c.labels(), true),
		questionAnswering:   projection("qa_outputs", Head, h, c.labels(), true),
		multipleChoice: slices.Concat(linear(PartProjection, "sequence_summary.summary", h, h, true),
			projection("classifier", Head, h, 1, true)),
	})
	return b
}
