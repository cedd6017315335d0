package model

import "slices"

// dinov2 reads Dinov2Config: transformers/models/dinov2. What attention and MLP put out is scaled by a vector each.
// Module names are those of transformers 5.
func dinov2(c *config) *blueprint {
	b := &blueprint{base: "dinov2"}
	c.defaults = map[string]int64{"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.KVHeads, b.HeadDim = b.Heads, perHead(b.Hidden, b.Heads)
	b.NormKind, b.Norms, b.LayerScale = "layer", 2, true
	b.AttentionDropout = c.probability(0, "attention_probs_dropout_prob")
	b.HiddenDropout = c.probability(0, "hidden_dropout_prob")
	b.EmbeddingDropout = b.HiddenDropout
	b.Activation = c.text("gelu", "hidden_act")
	h, bias := b.Hidden, c.flag("qkv_bias", true)
	b.Intermediate = h * c.countOr(4, "mlp_ratio")
	feedForward := slices.Concat(linear(PartUp, "mlp.fc1", h, b.Intermediate, true),
		linear(PartDown, "mlp.fc2", b.Intermediate, h, true))
	if c.flag("use_swiglu_ffn", false) { // two thirds of it, rounded up to a multiple of 8 (Dinov2SwiGLUFFN)
		b.Gated, b.Activation = true, "silu"
		b.Intermediate = (b.Intermediate*2/3 + 7) / 8 * 8
		feedForward = gatedMLP.tensors("mlp.", h, b.Intermediate, true)
	}
	patch := patches(c, b, 14, 1)
	mask := tensor("embeddings", Other, 1, h)
	mask.Unused = true // nothing is masked unless a training asks for it
	b.embeddings = slices.Concat(
		[]Tensor{tensor("embeddings", Other, 1, 1, h), mask, tensor("embeddings", Other, 1, b.MaxPositions, h)},
		within("embeddings.patch_embeddings.", []Tensor{patch.named("projection"), tensor("projection", Bias, h)}))
	b.blocks = layers(b.Layers, "encoder.layer.*.", layerNorm("norm1", h),
		linear(PartQ, "attention.q_proj", h, h, bias), linear(PartK, "attention.k_proj", h, h, bias),
		linear(PartV, "attention.v_proj", h, h, bias),
		linear(PartO, "attention.o_proj", h, h, true), []Tensor{tensor("layer_scale1", Other, h)},
		layerNorm("norm2", h), feedForward, []Tensor{tensor("layer_scale2", Other, h)})
	b.final = layerNorm("layernorm", h)
	var classifier []Tensor
	if labels := c.labels(); labels > 0 {
		classifier = projection("classifier", Head, 2*h, labels, true) // the class token beside the mean of the patches
	}
	b.head = c.head(map[task][]Tensor{bareModel: nil, imageClassification: classifier})
	return b
}
