package model

import (
	"slices"
	"strings"
)

// t5 reads T5Config: transformers/models/t5. Blocks have no biases; the first of each stack holds the table of relative
// positions.
func t5(c *config) *blueprint { return t5Like(c, "relu") }

// mt5 is T5 1.1 in many languages: transformers/models/mt5.
func mt5(c *config) *blueprint { return t5Like(c, "gated-gelu") }

func t5Like(c *config, feedForward string) *blueprint {
	b := &blueprint{}
	b.Hidden = c.size("d_model", "hidden_size")
	b.Heads = c.count("num_heads", "num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = c.sizeOr(64, "d_kv", "head_dim")
	b.Intermediate = c.size("d_ff")
	b.NormKind, b.Norms, b.PositionBias = "rms", 2, true
	b.HiddenDropout = c.probability(0.1, "dropout_rate")
	b.EmbeddingDropout, b.AttentionDropout, b.ActivationDropout = b.HiddenDropout, b.HiddenDropout, b.HiddenDropout
	b.Activation = c.text(feedForward, "feed_forward_proj")
	b.Activation, b.Gated = strings.CutPrefix(b.Activation, "gated-")
	if b.Gated && b.Activation == "gelu" {
		b.Activation = "gelu_new" // T5Config.__post_init__
	}
	vocab := c.size("vocab_size")
	buckets := c.countOr(32, "relative_attention_num_buckets")

	encoder := &blueprint{Architecture: b.Architecture}
	encoder.Layers = c.count("num_layers", "num_hidden_layers")
	encoder.blocks = t5Blocks(&encoder.Architecture, "block.*.layer.", buckets)
	encoder.final = as(PartStackNorm, scaleOnly.tensors("final_layer_norm", b.Hidden))
	b.Vocab = vocab
	if c.task == encoderAlone || c.task == tokenClassification {
		encoder.Vocab = vocab
		t5EncoderAlone(c, encoder)
		return encoder
	}
	b.Layers = c.countOr(encoder.Layers, "num_decoder_layers")
	b.CrossAttention, b.Norms = true, 3
	b.blocks = t5Blocks(&b.Architecture, "decoder.block.*.layer.", buckets)
	b.final = scaleOnly.tensors("decoder.final_layer_norm", b.Hidden)
	b.after(encoder, "encoder.")
	b.embeddings = append(embedding("shared", vocab, b.Hidden), b.embeddings...)
	b.tables = slices.Concat(embedding("encoder.embed_tokens", vocab, b.Hidden),
		embedding("decoder.embed_tokens", vocab, b.Hidden))
	b.Tied = t5Tied(c)
	h := b.Hidden
	if c.task == sequenceClassification {
		b.base = "transformer"
	}
	b.head = c.head(map[task][]Tensor{
		bareModel:             nil,
		conditionalGeneration: projection("lm_head", Head, h, vocab, false),
		sequenceClassification: slices.Concat(linear(PartProjection, "classification_head.dense", h, h, true),
			projection("classification_head.out_proj", Head, h, c.labels(), true)),
		questionAnswering: projection("qa_outputs", Head, h, c.labels(), true),
	})
	return b
}

// t5EncoderAlone makes the whole model of an encoder.
func t5EncoderAlone(c *config, b *blueprint) {
	b.under("encoder.")
	b.embeddings = embedding("shared", b.Vocab, b.Hidden)
	b.tables = embedding("encoder.embed_tokens", b.Vocab, b.Hidden)
	if c.task == tokenClassification {
		b.base, b.head = "transformer", projection("classifier", Head, b.Hidden, c.labels(), true)
	}
}

// t5Tied says whether the output projection shares the embedding. tie_word_embeddings false means that the checkpoint
// (T5 1.1, Flan-T5, mT5) has a projection of its own, which transformers 4 and 5 both load. A model that transformers 5
// builds without a checkpoint is tied whatever the config says (T5Config.__post_init__). Published configs, saved with
// weights, all name one of these keys.
func t5Tied(c *config) bool {
	if c.flag("tie_word_embeddings", true) {
		return true
	}
	saved, _ := c.find("torch_dtype", "dtype", "transformers_version", "decoder_start_token_id", "eos_token_id")
	if saved == "" {
		c.assume("lm_head shares the embedding although tie_word_embeddings is false: so transformers 5 builds this " +
			"model from its config")
		return true
	}
	if c.task == conditionalGeneration {
		c.assume("lm_head has its own weights (tie_word_embeddings is false), as in a checkpoint; transformers 5 " +
			"ties it when it builds the model from its config alone")
	}
	return false
}

// t5Blocks are the blocks of one stack.
func t5Blocks(a *Architecture, path string, buckets int64) []Unit {
	h, i := a.Hidden, a.Intermediate
	tensors := t5Attention(a, "0.SelfAttention.")
	tensors = append(tensors, scaleOnly.tensors("0.layer_norm", h)...)
	last := "1."
	if a.CrossAttention {
		tensors = slices.Concat(tensors, crossed(t5Attention(a, "1.EncDecAttention.")),
			scaleOnly.tensors("1.layer_norm", h))
		last = "2."
	}
	feedForward := mlp{up: "wi", down: "wo", plain: true}
	if a.Gated {
		feedForward = mlp{gate: "wi_0", up: "wi_1", down: "wo"}
	}
	tensors = slices.Concat(tensors, feedForward.tensors(last+"DenseReluDense.", h, i, false),
		scaleOnly.tensors(last+"layer_norm", h))
	return firstDiffers(a.Layers, path, embedding("0.SelfAttention.relative_attention_bias", buckets, a.Heads), tensors)
}

func t5Attention(a *Architecture, path string) []Tensor {
	h, inner := a.Hidden, a.Heads*a.HeadDim
	return slices.Concat(linear(PartQ, path+"q", h, inner, false), linear(PartK, path+"k", h, inner, false),
		linear(PartV, path+"v", h, inner, false),
		linear(PartO, path+"o", inner, h, false))
}
