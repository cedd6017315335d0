package estimate

import "oomguard/preflight/model"

// What stands in front of the layers: the batch, and what embeddings keep.

// batchBytes is the tensors of a micro-batch, which a training loop holds through the optimizer's step: ids and labels
// (int64), pixels, spectrograms.
func (b *block) batchBytes() int64 {
	width := b.w
	if b.trainable {
		width = b.precision.param
	}
	return 16*b.tokens + width*b.features()
}

// features counts the numbers that the first convolution reads: pixels in patches, or frames of a spectrogram, of which
// two make a position (Whisper).
func (b *block) features() int64 {
	for _, w := range b.base {
		if w.unit != embeddingUnit {
			continue
		}
		samples := b.batch * b.frames()
		switch len(w.Shape) {
		case 4:
			return samples * w.elements / max(w.Shape[0], 1)
		case 3:
			if w.Part == model.PartFirstFrames {
				return 2 * samples * w.Shape[1]
			}
		}
	}
	return 0
}

// frames is the positions that images or sounds take.
func (b *block) frames() int64 {
	if b.arch.Encoder != nil && !b.encoderStack() {
		return b.encoderSequence()
	}
	return b.seq
}

// embedded is what the way from the batch to the first layer keeps.
func (b *block) embedded(checkpointed bool) int64 {
	var sum int64
	if b.autocast && b.w == 4 {
		sum += b.c * b.features() // as the convolution reads them
		if !b.frozenEmbeddings() {
			sum += b.c * count(b.base, isConvolution) // and its weight
		}
	}
	sum += b.convolutions()
	sum += b.afterEmbedding(checkpointed)
	if b.quirk.NoRotary {
		sum += 8 * b.seq // position ids
	}
	if d := b.distances(); d > 0 {
		sum += b.c * d * b.h
	}
	return sum
}

// afterEmbedding is what the norm and the dropout behind the embeddings keep.
func (b *block) afterEmbedding(checkpointed bool) int64 {
	var sum int64
	// checkpointed layers need inputs that require a gradient (enable_input_require_grads)
	if !b.frozenEmbeddings() || checkpointed {
		sum += b.embeddingNorm()
	}
	if b.arch.EmbeddingDropout > 0 {
		sum += b.dropoutMask(b.h*b.tokens, b.stream)
	}
	return sum
}

// isConvolution finds the weights that make positions out of patches or frames.
func isConvolution(w weight) bool {
	return w.unit == embeddingUnit && (len(w.Shape) == 4 || w.Part.IsConvolution())
}

// convolutions is what Whisper's two keep besides the spectrogram: what each puts out, and the first one's after its
// GELU.
func (b *block) convolutions() int64 {
	for _, w := range b.base {
		if w.unit == embeddingUnit && w.Part == model.PartSecondFrames {
			return 5 * b.c * b.batch * b.frames() * w.Shape[0]
		}
	}
	return 0
}

// embeddingNorm is the embeddings' own norm: its input and two statistics a row.
func (b *block) embeddingNorm() int64 {
	width := b.stream
	if b.autocast {
		width = 4
	}
	for _, w := range b.base {
		if w.unit == embeddingUnit && w.Role == model.Norm && w.Part != model.PartPositions &&
			(b.arch.Encoder == nil || !w.Front) {
			return b.tokens * (width*w.elements + 8)
		}
	}
	return 0
}

// maskBytes is the mask of attention, which checkpointed layers keep as their argument: booleans for fused attention,
// else numbers that are added to the scores. Gemma 2 and 3 have another one for layers with a window.
func (b *block) maskBytes() int64 {
	masks := int64(1)
	if every := b.quirk.Windows; every > 0 && b.arch.Layers >= every {
		masks = 2
	}
	entries := masks * b.batch * b.seq * b.seq
	switch {
	case len(b.arch.PositionTerms) > 0: // DeBERTa's is fp32, and distances between positions go with it, int64
		return 4*entries + 8*b.seq*b.seq
	case b.eager() && (b.arch.Causal || b.padded()):
		return b.maskWidth() * entries
	case b.kind == "sdpa" && b.padded():
		return entries
	}
	return 0
}

// maskWidth is that of the embeddings; causal models make their mask of them before their norm, if there is one
// (BLOOM).
func (b *block) maskWidth() int64 {
	if b.arch.Causal {
		return b.precision.stream
	}
	return b.stream
}

// bufferBytes is what the model holds besides its weights.
func (r *rank) bufferBytes() int64 {
	if r.arch.Facts.Quirks.Sinusoids {
		// two more rows, as BART's positions have
		return r.precision.unsharded() * (r.arch.MaxPositions + 2) * r.arch.Hidden
	}
	n := r.arch.Facts.Quirks.MaskBuffers
	if n == model.PerLayer {
		n = r.layers
	}
	return n * r.arch.MaxPositions * r.arch.MaxPositions
}
