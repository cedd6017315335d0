package model

import (
	"cmp"
	"slices"
)

// vit reads ViTConfig: transformers/models/vit. Module names are those of transformers 5.
func vit(c *config) *blueprint {
	b := &blueprint{base: "vit"}
	visionSizes(c, b)
	b.AttentionDropout = c.probability(0, "attention_probs_dropout_prob")
	b.HiddenDropout = c.probability(0, "hidden_dropout_prob")
	b.EmbeddingDropout = b.HiddenDropout
	b.Activation = c.text("gelu", "hidden_act")
	h, i, bias := b.Hidden, b.Intermediate, c.flag("qkv_bias", true)
	patch := patches(c, b, 16, 1)
	b.embeddings = slices.Concat(
		// class token, positions
		[]Tensor{tensor("embeddings", Other, 1, 1, h), tensor("embeddings", Other, 1, b.MaxPositions, h)},
		within("embeddings.patch_embeddings.", []Tensor{patch.named("projection"), tensor("projection", Bias, h)}))
	b.blocks = layers(b.Layers, "layers.*.",
		linear(PartQ, "attention.q_proj", h, h, bias), linear(PartK, "attention.k_proj", h, h, bias),
		linear(PartV, "attention.v_proj", h, h, bias),
		linear(PartO, "attention.o_proj", h, h, true),
		layerNorm("layernorm_before", h), layerNorm("layernorm_after", h),
		linear(PartUp, "mlp.fc1", h, i, true), linear(PartDown, "mlp.fc2", i, h, true))
	b.final = layerNorm("layernorm", h)
	var pooler, classifier []Tensor
	if c.task == bareModel {
		pooler = linear(PartProjection, "pooler.dense", h, c.sizeOr(h, "pooler_output_size"), true)
	}
	if labels := c.labels(); labels > 0 { // without labels there is no head
		classifier = projection("classifier", Head, h, labels, true)
	}
	b.head = c.head(map[task][]Tensor{bareModel: pooler, imageClassification: classifier})
	return b
}

// visionSizes reads the keys that image encoders share.
func visionSizes(c *config, b *blueprint) {
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Intermediate = c.size("intermediate_size")
	b.NormKind, b.Norms = "layer", 2
}

// patches sets MaxPositions to the number of patches in an image plus extra tokens, and returns the convolution that
// embeds them. absent is the default patch size.
func patches(c *config, b *blueprint, absent, extra int64) Tensor {
	imageHeight, imageWidth := c.pair("image_size", cmp.Or(c.defaultImage, 224))
	height, width := c.pair("patch_size", absent)
	b.MaxPositions = (imageHeight/height)*(imageWidth/width) + extra
	if b.MaxPositions > maxSize || b.MaxPositions == extra {
		c.reject("image_size", "an image of %d x %d in patches of %d x %d: correct image_size or patch_size",
			imageHeight, imageWidth, height, width)
		b.MaxPositions = 1
	}
	return tensor("", Other, b.Hidden, c.countOr(3, "num_channels"), height, width)
}

// named is t under another path.
func (t Tensor) named(path string) Tensor { return tensor(path, t.Role, t.Shape...) }
