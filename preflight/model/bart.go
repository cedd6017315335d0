package model

import "slices"

// bartPositionOffset is how many extra rows BartLearnedPositionalEmbedding has.
const bartPositionOffset = 2

// bart reads BartConfig: transformers/models/bart. It normalises after the residual addition, and once more after the
// embeddings.
func bart(c *config) *blueprint {
	return bartLike(c, bartKind{postNorm: true, embeddingNorm: true, labels: 3})
}

// mBART normalises before attention and MLP, and behind each stack: transformers/models/mbart.
func mBART(c *config) *blueprint { return bartLike(c, bartKind{embeddingNorm: true, labels: 2}) }

// pegasus does so too, and has sinusoids for positions: transformers/models/pegasus.
func pegasus(c *config) *blueprint { return bartLike(c, bartKind{fixedPositions: true, labels: 2}) }

// A bartKind is what BART's relatives differ by.
type bartKind struct {
	postNorm, embeddingNorm, fixedPositions bool
	labels                                  int64 // default of num_labels (BartConfig.__post_init__)
}

// positions are what a stack adds to the words.
func (k bartKind) positions(b *blueprint) []Tensor {
	if k.fixedPositions {
		return []Tensor{sinusoids("embed_positions", b.MaxPositions, b.Hidden)}
	}
	return slices.Concat(embedding("embed_positions", b.MaxPositions+bartPositionOffset, b.Hidden),
		layerNorm("layernorm_embedding", b.Hidden))
}

func bartLike(c *config, kind bartKind) *blueprint {
	b := &blueprint{base: "model"}
	encoder := &blueprint{}
	seq2seqSizes(c, b, encoder, 0.1)
	b.PostNorm, encoder.PostNorm = kind.postNorm, kind.postNorm
	b.EmbeddingDropout, encoder.EmbeddingDropout = b.HiddenDropout, b.HiddenDropout
	b.MaxPositions = c.sizeOr(1024, "max_position_embeddings")
	encoder.MaxPositions = b.MaxPositions
	h, v := b.Hidden, b.Vocab
	positions := kind.positions(b)
	encoder.embeddings = frontNorms(positions)
	b.embeddings = within("decoder.", positions)
	encoder.blocks = layers(encoder.Layers, "layers.*.", seq2seqBlock(&encoder.Architecture, true))
	b.blocks = layers(b.Layers, "decoder.layers.*.", seq2seqBlock(&b.Architecture, true))
	if !kind.postNorm {
		encoder.final, b.final = as(PartStackNorm, layerNorm("layer_norm", h)), layerNorm("decoder.layer_norm", h)
	}
	b.after(encoder, "encoder.")
	words := embedding("shared", v, h)
	tables := slices.Concat(embedding("encoder.embed_tokens", v, h), embedding("decoder.embed_tokens", v, h))
	if b.Tied {
		b.tables = tables
	} else { // without tying, transformers 5 gives both stacks a table of their own beside the shared one
		words = append(words, tables...)
	}
	b.embeddings = append(words, b.embeddings...)
	labels := c.labelsOr(kind.labels)
	b.head = c.head(map[task][]Tensor{
		bareModel:             nil,
		conditionalGeneration: projection("lm_head", Head, h, v, false),
		sequenceClassification: slices.Concat(linear(PartProjection, "classification_head.dense", h, h, true),
			projection("classification_head.out_proj", Head, h, labels, true)),
		questionAnswering: projection("qa_outputs", Head, h, 2, true),
	})
	return b
}

// frontNorms marks the norms among an encoder's embeddings.
func frontNorms(tensors []Tensor) []Tensor {
	out := slices.Clone(tensors)
	for i, t := range out {
		if t.Role == Norm {
			out[i].Part = PartFrontNorm
		}
	}
	return out
}

// seq2seqSizes reads the keys that BART and Whisper share; absent is the default of the dropout.
func seq2seqSizes(c *config, b, encoder *blueprint, absent float64) {
	b.Hidden = c.size("d_model", "hidden_size")
	b.Vocab = c.size("vocab_size")
	b.NormKind, b.Norms, b.CrossAttention = "layer", 3, true
	b.Activation = c.text("gelu", "activation_function")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.HiddenDropout = c.probability(absent, "dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	b.ActivationDropout = c.probability(0, "activation_dropout")
	encoder.Architecture = b.Architecture
	encoder.Vocab, encoder.Norms, encoder.CrossAttention, encoder.Tied = 0, 2, false, false
	for _, stack := range []struct {
		name string
		*Architecture
	}{{"encoder", &encoder.Architecture}, {"decoder", &b.Architecture}} {
		stack.Layers = c.count(stack.name + "_layers")
		stack.Heads = c.count(stack.name + "_attention_heads")
		stack.KVHeads = stack.Heads
		stack.HeadDim = perHead(b.Hidden, stack.Heads)
		stack.Intermediate = c.size(stack.name + "_ffn_dim")
	}
}

// seq2seqBlock is a block of BART or Whisper, whose keys have a bias or not.
func seq2seqBlock(a *Architecture, keyBias bool) []Tensor {
	h, i := a.Hidden, a.Intermediate
	attention := func(path string) []Tensor {
		return slices.Concat(linear(PartK, path+"k_proj", h, h, keyBias), linear(PartV, path+"v_proj", h, h, true),
			linear(PartQ, path+"q_proj", h, h, true),
			linear(PartO, path+"out_proj", h, h, true), layerNorm(path[:len(path)-1]+"_layer_norm", h))
	}
	tensors := attention("self_attn.")
	if a.CrossAttention {
		tensors = append(tensors, crossed(attention("encoder_attn."))...)
	}
	return slices.Concat(tensors, linear(PartUp, "fc1", h, i, true), linear(PartDown, "fc2", i, h, true),
		layerNorm("final_layer_norm", h))
}
