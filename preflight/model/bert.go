package model

import "slices"

// bert reads BertConfig: transformers/models/bert.
func bert(c *config) *blueprint {
	b := encoder(c, "bert")
	h, v := b.Hidden, b.Vocab
	if slices.Contains([]task{bareModel, preTraining, nextSentence, sequenceClassification, multipleChoice}, c.task) {
		b.final = linear(PartProjection, "pooler.dense", h, h, true)
	}
	// The vocabulary's bias is a parameter of the head itself. An untied decoder has one more since transformers 5.
	words := slices.Concat([]Tensor{tensor("cls.predictions", Bias, v)},
		linear(PartTransform, "cls.predictions.transform.dense", h, h, true),
		layerNorm("cls.predictions.transform.LayerNorm", h), projection("cls.predictions.decoder", Head, h, v, !b.Tied))
	follows := projection("cls.seq_relationship", Head, h, 2, true)
	classifier := projection("classifier", Head, h, c.labels(), true)
	b.head = c.head(map[task][]Tensor{
		bareModel:              nil,
		causalLM:               words,
		maskedLM:               words,
		preTraining:            slices.Concat(words, follows),
		nextSentence:           follows,
		sequenceClassification: classifier,
		tokenClassification:    classifier,
		questionAnswering:      projection("qa_outputs", Head, h, c.labels(), true),
		multipleChoice:         projection("classifier", Head, h, 1, true),
	})
	return b
}

// roberta reads RobertaConfig: transformers/models/roberta.
func roberta(c *config) *blueprint {
	b := encoder(c, "roberta")
	h, v := b.Hidden, b.Vocab
	if c.task == bareModel || c.task == multipleChoice {
		b.final = linear(PartProjection, "pooler.dense", h, h, true)
	}
	words := slices.Concat([]Tensor{tensor("lm_head", Bias, v)}, linear(PartTransform, "lm_head.dense", h, h, true),
		layerNorm("lm_head.layer_norm", h), projection("lm_head.decoder", Head, h, v, !b.Tied))
	b.head = c.head(map[task][]Tensor{
		bareModel: nil,
		causalLM:  words,
		maskedLM:  words,
		sequenceClassification: slices.Concat(linear(PartProjection, "classifier.dense", h, h, true),
			projection("classifier.out_proj", Head, h, c.labels(), true)),
		tokenClassification: projection("classifier", Head, h, c.labels(), true),
		questionAnswering:   projection("qa_outputs", Head, h, c.labels(), true),
		multipleChoice:      projection("classifier", Head, h, 1, true),
	})
	return b
}

// encoder is the part that BERT and RoBERTa have in common.
func encoder(c *config, base string) *blueprint {
	b := &blueprint{base: base}
	encoderSizes(c, b)
	b.embeddings = encoderEmbeddings(c, b, b.Hidden)
	b.blocks = layers(b.Layers, "encoder.layer.*.",
		encoderAttention("query", "key", "value", b.Hidden), encoderRest(b))
	return b
}

// encoderSizes reads the keys of BertConfig, which ELECTRA and DeBERTa share.
func encoderSizes(c *config, b *blueprint) {
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = c.size("intermediate_size")
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(512, "max_position_embeddings")
	b.NormKind, b.Norms, b.PostNorm = "layer", 2, true
	b.Activation = c.text("gelu", "hidden_act")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(0.1, "hidden_dropout_prob")
	b.EmbeddingDropout = b.HiddenDropout
	b.AttentionDropout = c.probability(0.1, "attention_probs_dropout_prob")
	if c.flag("add_cross_attention", false) {
		c.reject("add_cross_attention",
			"models with cross-attention cannot be counted: give --params for a lower bound")
	}
}

// encoderEmbeddings are words, positions and token types of the given width.
func encoderEmbeddings(c *config, b *blueprint, width int64) []Tensor {
	return slices.Concat(
		embedding("embeddings.word_embeddings", b.Vocab, width),
		embedding("embeddings.position_embeddings", b.MaxPositions, width),
		embedding("embeddings.token_type_embeddings", c.sizeOr(2, "type_vocab_size"), width),
		layerNorm("embeddings.LayerNorm", width))
}

func encoderAttention(query, key, value string, h int64) []Tensor {
	return slices.Concat(
		linear(PartQ, "attention.self."+query, h, h, true),
		linear(PartK, "attention.self."+key, h, h, true),
		linear(PartV, "attention.self."+value, h, h, true))
}

// encoderRest is what follows attention in a block.
func encoderRest(b *blueprint) []Tensor {
	h, i := b.Hidden, b.Intermediate
	return slices.Concat(
		linear(PartO, "attention.output.dense", h, h, true),
		layerNorm("attention.output.LayerNorm", h),
		linear(PartUp, "intermediate.dense", h, i, true),
		linear(PartDown, "output.dense", i, h, true),
		layerNorm("output.LayerNorm", h))
}
