package model

import "slices"

// llama4 reads Llama4TextConfig: transformers/models/llama4. Every so many blocks have experts, which all tokens visit
// with a weight that may be 0, beside an MLP for every token.
var llama4 = decoder{
	kvHeads: 8,
	headDim: 128,
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	experts: llama4Experts,
}

func llama4Text(c *config) *blueprint {
	b := llama4.blueprint(c)
	b.base = "model"
	b.moved(".mlp.", ".feed_forward.")
	b.QKNorm = c.flag("use_qk_norm", true) // without weights
	return b
}

func llama4Experts(c *config, b *blueprint) {
	width := b.Intermediate
	b.Experts = c.countOr(16, "num_local_experts")
	b.ExpertsPerToken = c.countOr(1, "num_experts_per_tok")
	b.SharedIntermediate = width
	b.Intermediate = c.sizeOr(16384, "intermediate_size_mlp")
	for _, u := range b.blocks { // blocks without experts have an MLP of a width of their own
		for i, t := range u.Tensors {
			switch t.Part {
			case PartDown:
				u.Tensors[i].Shape = []int64{b.Hidden, b.Intermediate}
			case PartGate, PartUp:
				u.Tensors[i].Shape = []int64{b.Intermediate, b.Hidden}
			default: // others keep their shapes
			}
		}
	}
	step := c.countOr(1, "interleave_moe_layer_step")
	sparse := func(i int64) bool { return (i+1)%step == 0 }
	if name, _ := c.find("moe_layers"); name != "" {
		listed := c.integers(name)
		sparse = func(i int64) bool { return slices.Contains(listed, i) }
	}
	b.mix(slices.Concat(routed(namedRouter(Linear), b.Hidden, width, b.Experts),
		gatedMLP.tensors("mlp.shared_expert.", b.Hidden, width, false)), sparse)
}

// llama4Multimodal reads Llama4Config. Llama4ForCausalLM loads the text model alone from it.
func llama4Multimodal(c *config) *blueprint {
	text := c.sectionOr("text_config")
	text.defaults = c.sizesOf("llama4_text")
	if c.task == causalLM {
		return llama4Text(text)
	}
	text.task = bareModel
	b := llama4Text(text)
	b.Type, b.Dtype = "llama4_text", text.dtype()
	b.base, b.TextType = "", b.Type
	b.under("language_model.model.")
	vision := c.tower("vision_config", "llama4_vision_model")
	b.after(vision, "vision_model.")
	section := c.sectionOr("vision_config")
	b.embeddings = slices.Concat(b.embeddings,
		linear(PartProjector, "multi_modal_projector.linear_1", section.sizeOr(7680, "vision_output_dim"), b.Hidden,
			false))
	c.assume("an image is one tile: how many it is cut into depends on its size")
	b.Tied = text.flag("tie_word_embeddings", false)
	b.head = c.head(map[task][]Tensor{conditionalGeneration: projection("language_model.lm_head", Head, b.Hidden,
		b.Vocab, false)})
	return b
}

// llama4Vision has a class token, norms around its blocks, and an MLP that takes squares of patches.
func llama4Vision(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	b.Activation = c.text("gelu", "hidden_act")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	c.defaultImage = 448
	patch := patches(c, b, 14, 1)
	h, i := b.Hidden, b.Intermediate
	// class_embedding, positional_embedding_vlm
	b.embeddings = slices.Concat([]Tensor{tensor("", Other, h), tensor("", Other, b.MaxPositions, h)},
		linear(PartProjection, "patch_embedding.linear", patch.Elements()/h, h, false), layerNorm("layernorm_pre", h))
	b.blocks = layers(b.Layers, "model.layers.*.",
		linear(PartQ, "self_attn.q_proj", h, h, true), linear(PartK, "self_attn.k_proj", h, h, true),
		linear(PartV, "self_attn.v_proj", h, h, true),
		linear(PartO, "self_attn.o_proj", h, h, true), linear(PartUp, "mlp.fc1", h, i, true),
		linear(PartDown, "mlp.fc2", i, h, true),
		layerNorm("input_layernorm", h), layerNorm("post_attention_layernorm", h))
	joined, out := c.sizeOr(4096, "projector_input_dim"), c.sizeOr(4096, "projector_output_dim")
	b.final = slices.Concat(layerNorm("layernorm_post", h),
		linear(PartProjection, "vision_adapter.mlp.fc1", i, joined, false),
		linear(PartProjection, "vision_adapter.mlp.fc2", out, out, false))
	return b
}
