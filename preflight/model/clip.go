package model

import "slices"

// clipTowers reads CLIPConfig: transformers/models/clip. The text tower is the main stack, the vision tower its
// Encoder; they meet in a space of projection_dim.
func clipTowers(c *config) *blueprint {
	vision := c.tower("vision_config", "clip_vision_model")
	if c.task == imageClassification {
		vision.under("vision_model.")
		if labels := c.labels(); labels > 0 {
			vision.head = projection("classifier", Head, vision.Hidden, labels, true)
		}
		return vision
	}
	b := c.tower("text_config", "clip_text_model")
	b.TextType = b.Type
	b.under("text_model.")
	b.after(vision, "vision_model.")
	shared := c.sizeOr(512, "projection_dim")
	b.embeddings = append([]Tensor{tensor("", Other)}, b.embeddings...) // logit_scale, a number
	b.final = slices.Concat(b.final, linear(PartProjection, "visual_projection", vision.Hidden, shared, false),
		linear(PartProjection, "text_projection", b.Hidden, shared, false))
	b.head = c.head(map[task][]Tensor{bareModel: nil})
	return b
}

func clipText(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(77, "max_position_embeddings")
	clipTraits(c, b, "quick_gelu")
	b.embeddings = slices.Concat(embedding("embeddings.token_embedding", b.Vocab, b.Hidden),
		embedding("embeddings.position_embedding", b.MaxPositions, b.Hidden))
	b.blocks = clipBlocks(b)
	b.final = layerNorm("final_layer_norm", b.Hidden)
	return b
}

// clipVision has a class token and a norm in front of the blocks, whose name is misspelt in transformers.
func clipVision(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	clipTraits(c, b, "quick_gelu")
	patch := patches(c, b, 32, 1)
	b.embeddings = slices.Concat([]Tensor{tensor("embeddings", Other, b.Hidden),
		patch.named("embeddings.patch_embedding")},
		embedding("embeddings.position_embedding", b.MaxPositions, b.Hidden),
		as(PartFrontNorm, layerNorm("pre_layrnorm", b.Hidden)))
	b.blocks = clipBlocks(b)
	b.final = layerNorm("post_layernorm", b.Hidden)
	return b
}

// siglipVision reads SiglipVisionConfig: transformers/models/siglip. Instead of a class token it may pool with an
// attention of its own.
func siglipVision(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	clipTraits(c, b, "gelu_pytorch_tanh")
	h, i := b.Hidden, b.Intermediate
	patch := patches(c, b, 16, 0)
	b.embeddings = slices.Concat([]Tensor{patch.named("embeddings.patch_embedding"),
		tensor("embeddings.patch_embedding", Bias, h)},
		embedding("embeddings.position_embedding", b.MaxPositions, h))
	b.blocks = clipBlocks(b)
	b.final = layerNorm("post_layernorm", h)
	if c.flag("vision_use_head", true) {
		b.final = slices.Concat(b.final, []Tensor{tensor("head", Other, 1, 1, h)}, // the query
			// nn.MultiheadAttention
			[]Tensor{tensor("head.attention", Other, 3*h, h), tensor("head.attention", Other, 3*h)},
			linear(PartProjection, "head.attention.out_proj", h, h, true), layerNorm("head.layernorm", h),
			linear(PartProjection, "head.mlp.fc1", h, i, true), linear(PartProjection, "head.mlp.fc2", i, h, true))
	}
	return b
}

// siglip reads SiglipConfig: transformers/models/siglip. Words are pooled into the last one's state.
func siglip(c *config) *blueprint { return siglipTowers(c, "siglip") }

// siglip2 reads Siglip2Config, whose images may have any shape within num_patches: transformers/models/siglip2.
func siglip2(c *config) *blueprint { return siglipTowers(c, "siglip2") }

func siglipTowers(c *config, name string) *blueprint {
	vision := c.tower("vision_config", name+"_vision_model")
	if c.task == imageClassification {
		vision.under("vision_model.")
		if labels := c.labels(); labels > 0 {
			vision.head = projection("classifier", Head, vision.Hidden, labels, true)
		}
		return vision
	}
	b := c.tower("text_config", name+"_text_model")
	b.TextType = b.Type
	b.under("text_model.")
	b.after(vision, "vision_model.")
	// logit_scale, logit_bias
	b.embeddings = append([]Tensor{tensor("", Other, 1), tensor("", Other, 1)}, b.embeddings...)
	b.head = c.head(map[task][]Tensor{bareModel: nil})
	return b
}

func siglipText(c *config) *blueprint {
	b := clipText(c)
	clipTraits(c, b, "gelu_pytorch_tanh")
	b.MaxPositions = c.sizeOr(64, "max_position_embeddings")
	b.embeddings[1].Shape[0] = b.MaxPositions
	b.final = append(b.final, linear(PartProjection, "head", b.Hidden, c.sizeOr(b.Hidden, "projection_size"), true)...)
	return b
}

func siglip2Vision(c *config) *blueprint {
	b := siglipVision(c)
	patch, h := c.sizeOr(16, "patch_size"), b.Hidden
	b.MaxPositions = c.sizeOr(256, "num_patches")
	b.embeddings = slices.Concat(linear(PartProjection, "embeddings.patch_embedding",
		c.countOr(3, "num_channels")*patch*patch, h, true),
		embedding("embeddings.position_embedding", b.MaxPositions, h))
	return b
}

func clipTraits(c *config, b *blueprint, activation string) {
	b.Activation = c.text(activation, "hidden_act")
	b.AttentionDropout = c.probability(0, "attention_dropout")
}

// clipBlocks are the blocks of CLIP's towers and of SigLIP.
func clipBlocks(b *blueprint) []Unit {
	h, i := b.Hidden, b.Intermediate
	return layers(b.Layers, "encoder.layers.*.",
		linear(PartK, "self_attn.k_proj", h, h, true), linear(PartV, "self_attn.v_proj", h, h, true),
		linear(PartQ, "self_attn.q_proj", h, h, true),
		linear(PartO, "self_attn.out_proj", h, h, true),
		layerNorm("layer_norm1", h), linear(PartUp, "mlp.fc1", h, i, true), linear(PartDown, "mlp.fc2", i, h, true),
		layerNorm("layer_norm2", h))
}
