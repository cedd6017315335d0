package model

import "slices"

// whisper reads WhisperConfig: transformers/models/whisper. Two convolutions turn the spectrogram into frames; the
// encoder's positions are sinusoids that are stored but not trained.
func whisper(c *config) *blueprint {
	b := &blueprint{base: "model"}
	encoder := &blueprint{}
	seq2seqSizes(c, b, encoder, 0)
	b.MaxPositions = c.sizeOr(448, "max_target_positions")
	encoder.MaxPositions = c.sizeOr(1500, "max_source_positions")
	h, bins := b.Hidden, c.sizeOr(80, "num_mel_bins")
	encoder.embeddings = whisperFront(h, bins, encoder.MaxPositions)
	encoder.blocks = layers(encoder.Layers, "layers.*.", seq2seqBlock(&encoder.Architecture, false))
	encoder.final = as(PartStackNorm, layerNorm("layer_norm", h))
	if c.task == audioClassification {
		whisperClassifier(c, encoder)
		return encoder
	}
	b.embeddings = within("decoder.",
		slices.Concat(embedding("embed_tokens", b.Vocab, h), embedding("embed_positions", b.MaxPositions, h)))
	b.blocks = layers(b.Layers, "decoder.layers.*.", seq2seqBlock(&b.Architecture, false))
	b.final = layerNorm("decoder.layer_norm", h)
	b.after(encoder, "encoder.")
	b.head = c.head(map[task][]Tensor{bareModel: nil,
		conditionalGeneration: projection("proj_out", Head, h, b.Vocab, false)})
	return b
}

// whisperFront is what makes frames out of the spectrogram.
func whisperFront(h, bins, positions int64) []Tensor {
	const kernel = 3
	return []Tensor{tensor("conv1", Other, h, bins, kernel).as(PartFirstFrames), tensor("conv1", Bias, h),
		tensor("conv2", Other, h, h, kernel).as(PartSecondFrames), tensor("conv2", Bias, h),
		sinusoids("embed_positions", positions, h)}
}

// sinusoids are positions that are stored but not trained.
func sinusoids(path string, rows, width int64) Tensor {
	t := tensor(path, Embedding, rows, width)
	t.Frozen = true
	return t
}

// whisperClassifier makes a model of the encoder alone.
func whisperClassifier(c *config, b *blueprint) {
	b.base = "encoder"
	width := c.sizeOr(256, "classifier_proj_size")
	if c.flag("use_weighted_layer_sum", false) {
		b.head = []Tensor{tensor("", Other, b.Layers+1)} // a parameter of the class itself
	}
	b.head = slices.Concat(b.head, linear(PartProjection, "projector", b.Hidden, width, true),
		projection("classifier", Head, width, c.labels(), true))
}
