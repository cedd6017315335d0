package model

import "slices"

// qwen2Audio reads Qwen2AudioConfig: transformers/models/qwen2_audio. Whisper's encoder listens, a text model writes.
func qwen2Audio(c *config) *blueprint {
	b := c.tower("text_config", "qwen2")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	sound := c.sectionOr("audio_config")
	sound.task = bareModel
	encoder := qwen2AudioEncoder(sound)
	encoder.Type, encoder.Dtype = "qwen2_audio_encoder", sound.dtype()
	width := encoder.Hidden
	b.after(encoder, "audio_tower.")
	b.embeddings = slices.Concat(b.embeddings,
		linear(PartProjection, "multi_modal_projector.linear", width, b.Hidden, true))
	c.assume("there is one sound of full length for each sample")
	b.Tied = c.flag("tie_word_embeddings", false)
	b.head = c.head(imageTextHeads(b))
	return b
}

func qwen2AudioEncoder(c *config) *blueprint {
	b := &blueprint{}
	b.Hidden = c.sizeOr(1280, "d_model", "hidden_size")
	b.Layers = c.countOr(32, "encoder_layers", "num_hidden_layers")
	b.Heads = c.countOr(20, "encoder_attention_heads", "num_attention_heads")
	b.KVHeads, b.HeadDim = b.Heads, perHead(b.Hidden, b.Heads)
	b.Intermediate = c.sizeOr(5120, "encoder_ffn_dim", "intermediate_size")
	b.NormKind, b.Norms = "layer", 2
	b.Activation = c.text("gelu", "activation_function")
	b.HiddenDropout = c.probability(0, "dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	b.ActivationDropout = c.probability(0, "activation_dropout")
	b.MaxPositions = c.sizeOr(1500, "max_source_positions")
	b.embeddings = whisperFront(b.Hidden, c.sizeOr(128, "num_mel_bins"), b.MaxPositions)
	b.blocks = layers(b.Layers, "layers.*.", seq2seqBlock(&b.Architecture, false))
	b.final = layerNorm("layer_norm", b.Hidden)
	return b
}
