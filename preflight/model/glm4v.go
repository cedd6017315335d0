package model

import "slices"

var glm4VText = decoder{
	kvHeads:    2,
	evenHeads:  true,
	qkvBias:    toggle{on: true},
	mlp:        fusedMLP,
	blockNorms: glm4.blockNorms,
}

// glm4V reads Glm4vConfig: transformers/models/glm4v. Its images may have any size.
func glm4V(c *config) *blueprint {
	b := c.tower("text_config", "glm4v_text")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.sectionOr("vision_config")
	vision.task = bareModel
	b.after(glm4Vision(vision), "visual.")
	c.assume("images give as many patches as there are tokens, a quarter of which they take: their size is not in " +
		"the config")
	b.Tied = c.flag("tie_word_embeddings", false)
	b.head = c.head(imageTextHeads(b))
	return b
}

// glm4Vision joins squares of patches by a convolution; the MLPs of its blocks are as wide as the text.
func glm4Vision(c *config) *blueprint {
	b, embed, _ := qwenTower(c, 1536, 24, 14, "hidden_size")
	b.Heads = c.countOr(12, "num_heads", "num_attention_heads")
	b.KVHeads, b.HeadDim = b.Heads, perHead(b.Hidden, b.Heads)
	b.NormKind, b.Gated, b.Activation = "rms", true, c.text("silu", "hidden_act")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	h, out, wide := b.Hidden, c.sizeOr(4096, "out_hidden_size"), c.sizeOr(13696, "intermediate_size")
	b.Intermediate = out
	image, _ := c.pair("image_size", 336)
	side := image / embed.Shape[len(embed.Shape)-1]
	merge := c.countOr(2, "spatial_merge_size")
	b.embeddings = slices.Concat(embedding("embeddings.position_embedding", side*side, h),
		[]Tensor{embed, tensor("patch_embed.proj", Bias, h)},
		scaleOnly.tensors("post_conv_layernorm", h))
	bias := c.flag("attention_bias", false)
	b.blocks = layers(b.Layers, "blocks.*.", scaleOnly.tensors("norm1", h), scaleOnly.tensors("norm2", h),
		linear(PartQKV, "attn.qkv", h, 3*h, bias), linear(PartO, "attn.proj", h, h, false),
		gatedMLP.tensors("mlp.", h, out, false))
	b.final = slices.Concat(scaleOnly.tensors("post_layernorm", h),
		[]Tensor{tensor("downsample", Other, out, h, merge, merge), tensor("downsample", Bias, out)},
		linear(PartProjection, "merger.proj", out, out, false), layerNorm("merger.post_projection_norm", out),
		gatedMLP.tensors("merger.", out, wide, false))
	return b
}
