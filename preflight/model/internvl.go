package model

import (
	"math"
	"slices"
)

// internVL reads InternVLConfig: transformers/models/internvl. A square of patches becomes one token.
func internVL(c *config) *blueprint {
	b := c.tower("text_config", "qwen2")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", "internvl_vision")
	side := c.sideOr(2, "downsample_ratio")
	b.after(vision, "vision_tower.")
	joined := vision.Hidden * side * side
	b.embeddings = slices.Concat(b.embeddings,
		within("multi_modal_projector.", slices.Concat(inFront(layerNorm("layer_norm", joined)),
			linear(PartProjector, "linear_1", joined, b.Hidden, true),
			linear(PartProjection, "linear_2", b.Hidden, b.Hidden, true))))
	c.assume("an image is one tile: how many it is cut into depends on its size")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.head = c.head(imageTextHeads(b))
	return b
}

// sideOr reads a ratio by which an image's sides shrink, as a whole number: int(1 / ratio), as
// InternVLMultiModalProjector rounds.
func (c *config) sideOr(absent int64, name string) int64 {
	if ratio := c.probability(0, name); ratio > 0 {
		return max(int64(math.Min(1/ratio, maxCount)), 1)
	}
	return absent
}

func internVision(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	b.LayerScale = true
	b.Activation = c.text("gelu", "hidden_act")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	b.HiddenDropout = c.probability(0, "projection_dropout")
	b.EmbeddingDropout = c.probability(0, "hidden_dropout_prob")
	norm := scaleAndShift
	if c.text("layer_norm", "norm_type") == "rms_norm" {
		b.NormKind, norm = "rms", scaleOnly
	}
	b.QKNorm = c.flag("use_qk_norm", false)
	h, i, bias := b.Hidden, b.Intermediate, c.flag("attention_bias", false)
	c.defaultImage = 448
	patch := patches(c, b, 14, 1)
	b.embeddings = []Tensor{tensor("embeddings", Other, 1, 1, h)} // class token
	if c.flag("use_mask_token", false) {
		mask := tensor("embeddings", Other, 1, 1, h)
		mask.Unused = true
		b.embeddings = append(b.embeddings, mask)
	}
	if c.flag("use_absolute_position_embeddings", true) {
		b.embeddings = append(b.embeddings, tensor("embeddings", Other, 1, b.MaxPositions, h))
	}
	b.embeddings = append(b.embeddings,
		within("embeddings.patch_embeddings.", []Tensor{patch.named("projection"), tensor("projection", Bias, h)})...)
	attention := slices.Concat(linear(PartQ, "q_proj", h, h, bias), linear(PartK, "k_proj", h, h, bias),
		linear(PartV, "v_proj", h, h, bias),
		linear(PartO, "projection_layer", h, h, true))
	if b.QKNorm {
		attention = slices.Concat(attention, scaleOnly.tensors("q_norm", h), scaleOnly.tensors("k_norm", h))
	}
	// lambda_1 and lambda_2
	b.blocks = layers(b.Layers, "encoder.layer.*.", []Tensor{tensor("", Other, h), tensor("", Other, h)},
		within("attention.", attention), linear(PartUp, "mlp.fc1", h, i, true), linear(PartDown, "mlp.fc2", i, h, true),
		norm.tensors("layernorm_before", h), norm.tensors("layernorm_after", h))
	if !c.flag("use_mean_pooling", true) {
		b.final = layerNorm("layernorm", h)
	}
	return b
}
