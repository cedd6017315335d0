package model

import (
	"slices"
	"strings"
)

// debertaV2 reads DebertaV2Config (DeBERTa 2 and 3): transformers/models/deberta_v2. Attention also compares contents
// with relative positions, through projections of their own unless share_att_key.
func debertaV2(c *config) *blueprint {
	b := &blueprint{base: "deberta"}
	encoderSizes(c, b)
	h, v, narrow := b.Hidden, b.Vocab, c.sizeOr(b.Hidden, "embedding_size")
	relative := c.flag("relative_attention", false)
	b.embeddings = slices.Concat(debertaEmbeddings(c, b, narrow), debertaShared(c, b, relative))
	if relative {
		b.PositionTerms = slices.DeleteFunc(c.words("pos_att_type"),
			func(term string) bool { return term != "c2p" && term != "p2c" })
	}
	attention := encoderAttention("query_proj", "key_proj", "value_proj", h)
	if relative && !c.flag("share_att_key", false) {
		kinds := c.words("pos_att_type")
		if slices.Contains(kinds, "c2p") {
			attention = append(attention, linear(PartPositionK, "attention.self.pos_key_proj", h, h, true)...)
		}
		if slices.Contains(kinds, "p2c") {
			attention = append(attention, linear(PartPositionQ, "attention.self.pos_query_proj", h, h, true)...)
		}
	}
	b.blocks = layers(b.Layers, "encoder.layer.*.", attention, encoderRest(b))
	if c.task == maskedLM && !c.flag("legacy", true) {
		c.reject("legacy", "the masked-language head of legacy false cannot be counted: "+
			"give --params for a lower bound")
	}
	pooled := c.sizeOr(h, "pooler_hidden_size")
	pooler := linear(PartProjection, "pooler.dense", pooled, pooled, true)
	b.head = c.head(map[task][]Tensor{
		bareModel: nil,
		maskedLM: slices.Concat([]Tensor{tensor("cls.predictions", Bias, v)},
			linear(PartTransform, "cls.predictions.transform.dense", h, narrow, true),
			layerNorm("cls.predictions.transform.LayerNorm", narrow),
			projection("cls.predictions.decoder", Head, narrow, v, !b.Tied)),
		sequenceClassification: slices.Concat(pooler, projection("classifier", Head, pooled, c.labels(), true)),
		tokenClassification:    projection("classifier", Head, h, c.labels(), true),
		questionAnswering:      projection("qa_outputs", Head, h, c.labels(), true),
		multipleChoice:         slices.Concat(pooler, projection("classifier", Head, pooled, 1, true)),
	})
	return b
}

// deberta reads DebertaConfig: transformers/models/deberta. Queries, keys and values come out of one projection, with
// biases of their own for the first and the last.
func deberta(c *config) *blueprint {
	b := &blueprint{base: "deberta"}
	encoderSizes(c, b)
	h, v := b.Hidden, b.Vocab
	relative, kinds := c.flag("relative_attention", false), c.words("pos_att_type")
	b.embeddings = debertaEmbeddings(c, b, h)
	// q_bias and v_bias
	attention := slices.Concat(linear(PartQKV, "in_proj", h, 3*h, false),
		[]Tensor{tensor("", Other, h), tensor("", Other, h)})
	if relative {
		b.PositionTerms = slices.DeleteFunc(slices.Clone(kinds),
			func(term string) bool { return term != "c2p" && term != "p2c" })
		rows := b.MaxPositions
		if n := c.signedOr(-1, "max_relative_positions"); n > 0 {
			rows = n
		}
		b.embeddings = append(b.embeddings, as(PartPositions, embedding("encoder.rel_embeddings", 2*rows, h))...)
		if slices.Contains(kinds, "c2p") {
			attention = append(attention, linear(PartPositionK, "pos_proj", h, h, false)...)
		}
		if slices.Contains(kinds, "p2c") {
			attention = append(attention, linear(PartPositionQ, "pos_q_proj", h, h, true)...)
		}
	}
	if c.flag("talking_head", false) {
		attention = slices.Concat(attention, linear(PartTalking, "head_logits_proj", b.Heads, b.Heads, false),
			linear(PartTalking, "head_weights_proj", b.Heads, b.Heads, false))
	}
	b.blocks = layers(b.Layers, "encoder.layer.*.", within("attention.self.", attention), encoderRest(b))
	if c.task == maskedLM && !c.flag("legacy", true) {
		c.reject("legacy", "the masked-language head of legacy false cannot be counted: "+
			"give --params for a lower bound")
	}
	pooled := c.sizeOr(h, "pooler_hidden_size")
	b.head = c.head(map[task][]Tensor{
		bareModel: nil,
		maskedLM: slices.Concat([]Tensor{tensor("cls.predictions", Bias, v)},
			linear(PartTransform, "cls.predictions.transform.dense", h, h, true),
			layerNorm("cls.predictions.transform.LayerNorm", h),
			projection("cls.predictions.decoder", Head, h, v, !b.Tied)),
		sequenceClassification: slices.Concat(linear(PartProjection, "pooler.dense", pooled, pooled, true),
			projection("classifier", Head, pooled, c.labels(), true)),
		tokenClassification: projection("classifier", Head, h, c.labels(), true),
		questionAnswering:   projection("qa_outputs", Head, h, c.labels(), true),
	})
	return b
}

// debertaEmbeddings are DebertaV2Embeddings: positions and token types only where the config wants them.
func debertaEmbeddings(c *config, b *blueprint, narrow int64) []Tensor {
	tensors := embedding("embeddings.word_embeddings", b.Vocab, narrow)
	if c.flag("position_biased_input", true) {
		tensors = append(tensors, embedding("embeddings.position_embeddings", b.MaxPositions, narrow)...)
	}
	if types := c.naturalOr(0, "type_vocab_size"); types > 0 {
		tensors = append(tensors, embedding("embeddings.token_type_embeddings", types, narrow)...)
	}
	if narrow != b.Hidden {
		tensors = append(tensors, linear(PartProjection, "embeddings.embed_proj", narrow, b.Hidden, false)...)
	}
	return append(tensors, layerNorm("embeddings.LayerNorm", b.Hidden)...)
}

// debertaShared is what all blocks use together: the table of relative positions, its norm, and the convolution beside
// the first block.
func debertaShared(c *config, b *blueprint, relative bool) []Tensor {
	var tensors []Tensor
	h := b.Hidden
	if relative {
		rows := b.MaxPositions
		// the later one wins; -1 means none
		for _, key := range []string{"max_relative_positions", "position_buckets"} {
			if n := c.signedOr(-1, key); n > 0 {
				rows = n
			}
		}
		tensors = as(PartPositions, embedding("encoder.rel_embeddings", 2*rows, h))
	}
	if slices.Contains(c.words("norm_rel_ebd"), "layer_norm") {
		tensors = append(tensors, as(PartPositions, layerNorm("encoder.LayerNorm", h))...)
	}
	if kernel := c.naturalOr(0, "conv_kernel_size"); kernel > 0 {
		groups := c.countOr(1, "conv_groups")
		tensors = slices.Concat(tensors,
			[]Tensor{tensor("encoder.conv.conv", Other, h, h/groups, kernel).as(PartConvolution),
				tensor("encoder.conv.conv", Bias, h)},
			layerNorm("encoder.conv.LayerNorm", h))
	}
	return tensors
}

// words is an optional list of words: a JSON list, or one string with | between them.
func (c *config) words(name string) []string {
	if _, text := c.find(name); text != nil && kind(text) == "a list" {
		return c.texts(name)
	}
	words := strings.Split(strings.ToLower(c.text("", name)), "|")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}
