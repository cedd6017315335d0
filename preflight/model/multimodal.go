package model

import "slices"

// gemma3Multimodal reads Gemma3Config, with the text model under text_config: transformers/models/gemma3.
// Gemma3ForCausalLM loads the text model alone from it.
func gemma3Multimodal(c *config) *blueprint {
	if c.task == causalLM {
		text := c.sectionOr("text_config")
		text.defaults = c.sizesOf("gemma3_text")
		return gemma3.blueprint(text)
	}
	b := c.tower("text_config", "gemma3_text")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", "siglip_vision_model")
	b.after(vision, "vision_tower.")
	b.embeddings = slices.Concat(b.embeddings,
		[]Tensor{tensor("multi_modal_projector", Other, vision.Hidden, b.Hidden)}, // a bare parameter, no nn.Linear
		inFront(scaleOnly.tensors("multi_modal_projector.mm_soft_emb_norm", vision.Hidden)))
	b.Tied = c.flag("tie_word_embeddings", true)
	b.head = c.head(imageTextHeads(b))
	return b
}

// A llavaKind is a text model and a vision tower joined by two linear layers: transformers/models/llava, llava_next,
// llava_onevision. The fields are defaults of the configuration class.
type llavaKind struct {
	text, vision string
	layer        int64 // vision_feature_layer
	newline      bool  // a learned vector stands between the lines of an image that is cut into tiles
	textTies     bool  // the text's own tie_word_embeddings counts too (__post_init__)
}

var (
	llava          = llavaKind{text: "llama", vision: "clip_vision_model", layer: -2, textTies: true}
	llavaNext      = llavaKind{text: "llama", vision: "clip_vision_model", layer: -2, newline: true}
	llavaOneVision = llavaKind{text: "qwen2", vision: "siglip_vision_model", layer: -1, newline: true, textTies: true}
)

func (k llavaKind) blueprint(c *config) *blueprint {
	for _, key := range []string{"text_config", "vision_config"} {
		if name, _ := c.find(key); name == "" {
			c.reject(key, "needed key %q is missing: take config.json from the model's own directory, or give "+
				"--params for a lower bound", key)
		}
	}
	b := c.tower("text_config", k.text)
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", k.vision)
	taken := []int64{} // hidden states of the tower that are joined for the projector; 0 is its input
	if name, text := c.find("vision_feature_layer"); name != "" && kind(text) == "a list" {
		taken = c.integers(name)
	} else {
		taken = append(taken, c.signedOr(k.layer, "vision_feature_layer"))
	}
	features := int64(len(taken))
	vision.unusedFrom(lastTaken(taken, vision.Layers))
	b.after(vision, "vision_tower.")
	bias := c.flag("multimodal_projector_bias", true)
	b.embeddings = slices.Concat(b.embeddings,
		linear(PartProjector, "multi_modal_projector.linear_1", features*vision.Hidden, b.Hidden, bias),
		linear(PartProjection, "multi_modal_projector.linear_2", b.Hidden, b.Hidden, bias))
	if k.newline {
		c.assume("an image is one tile: how many it is cut into depends on its size")
		b.embeddings = append(b.embeddings, tensor("", Other, b.Hidden)) // image_newline, of the model itself
	}
	b.Tied = c.flag("tie_word_embeddings", false) || k.textTies && b.Tied
	b.head = c.head(imageTextHeads(b))
	return b
}

// lastTaken is how many of the tower's layers lead to the last hidden state that is taken; negative numbers count from
// the end.
func lastTaken(taken []int64, layers int64) int64 {
	var last int64
	for _, n := range taken {
		if n < 0 {
			n += layers + 1
		}
		last = max(last, min(n, layers))
	}
	return last
}

// unusedFrom marks the blocks from number n on, and what follows them, as unused.
func (b *blueprint) unusedFrom(n int64) {
	if n >= b.Layers || len(b.blocks) != 1 {
		return
	}
	used, rest := b.blocks[0], b.blocks[0]
	used.Repeat, rest.Repeat = n, b.Layers-n
	for i := range b.Layers {
		if i < n {
			used.Indices = append(used.Indices, i)
		} else {
			rest.Indices = append(rest.Indices, i)
		}
	}
	rest.Tensors, b.final = unused(rest.Tensors), unused(b.final)
	b.blocks = []Unit{rest}
	if n > 0 {
		b.blocks = []Unit{used, rest}
	}
}

func unused(tensors []Tensor) []Tensor {
	out := slices.Clone(tensors)
	for i := range out {
		out[i].Unused = true
	}
	return out
}

func imageTextHeads(b *blueprint) map[task][]Tensor {
	return map[task][]Tensor{bareModel: nil,
		conditionalGeneration: projection("lm_head", Head, b.Hidden, b.Vocab, false)}
}

// paliGemma reads PaliGemmaConfig: transformers/models/paligemma.
func paliGemma(c *config) *blueprint {
	b := c.tower("text_config", "gemma")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", "siglip_vision_model")
	b.after(vision, "vision_tower.")
	b.embeddings = slices.Concat(b.embeddings,
		linear(PartProjection, "multi_modal_projector.linear", vision.Hidden, c.sizeOr(2048, "projection_dim"), true))
	b.Tied = c.flag("tie_word_embeddings", true)
	b.head = c.head(imageTextHeads(b))
	return b
}

// idefics3 reads Idefics3Config and SmolVLMConfig: transformers/models/idefics3, smolvlm. A square of patches becomes
// one token.
func idefics3(c *config) *blueprint {
	b := c.tower("text_config", "llama")
	b.base, b.TextType = "model", b.Type
	b.under("text_model.")
	vision := c.tower("vision_config", "idefics3_vision")
	b.after(vision, "vision_model.")
	factor := c.countOr(2, "scale_factor")
	b.embeddings = slices.Concat(b.embeddings,
		linear(PartProjection, "connector.modality_projection.proj", vision.Hidden*factor*factor, b.Hidden, false))
	c.assume("there is one image of image_size for each sample: how many it is cut into depends on its size")
	b.Tied = c.flag("tie_word_embeddings", false)
	b.head = c.head(imageTextHeads(b))
	return b
}

func idefics3Vision(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	clipTraits(c, b, "gelu_pytorch_tanh")
	patch := patches(c, b, 32, 0)
	b.embeddings = slices.Concat([]Tensor{patch.named("embeddings.patch_embedding"),
		tensor("embeddings.patch_embedding", Bias, b.Hidden)},
		embedding("embeddings.position_embedding", b.MaxPositions, b.Hidden))
	b.blocks = clipBlocks(b)
	b.final = layerNorm("post_layernorm", b.Hidden)
	return b
}

// mistral3 reads Mistral3Config: transformers/models/mistral3. Images may have any size up to image_size.
func mistral3(c *config) *blueprint {
	b := c.tower("text_config", "mistral")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", "pixtral")
	features := int64(1)
	if name, text := c.find("vision_feature_layer"); name != "" && kind(text) == "a list" {
		features = int64(len(c.integers(name)))
	}
	b.after(vision, "vision_tower.")
	merge := c.countOr(2, "spatial_merge_size")
	h, bias := vision.Hidden, c.flag("multimodal_projector_bias", false)
	b.embeddings = slices.Concat(b.embeddings,
		within("multi_modal_projector.", slices.Concat(inFront(scaleOnly.tensors("norm", h)),
			linear(PartProjection, "patch_merger.merging_layer", h*merge*merge, h, false),
			linear(PartProjector, "linear_1", h*features, b.Hidden, bias),
			linear(PartProjection, "linear_2", b.Hidden, b.Hidden, bias))))
	c.assume("there is one image of image_size for each sample")
	b.Tied = c.flag("tie_word_embeddings", true)
	b.head = c.head(imageTextHeads(b))
	return b
}

// pixtral reads PixtralVisionConfig, a decoder like Llama's over patches: transformers/models/pixtral.
func pixtral(c *config) *blueprint {
	b := &blueprint{}
	visionSizes(c, b)
	b.NormKind, b.Gated = "rms", true
	b.Activation = c.text("gelu", "hidden_act")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	h, patch := b.Hidden, patches(c, b, 16, 0)
	b.embeddings = slices.Concat([]Tensor{patch.named("patch_conv")}, scaleOnly.tensors("ln_pre", h))
	b.blocks = layers(b.Layers, "transformer.layers.*.", scaleOnly.tensors("attention_norm", h),
		gatedMLP.tensors("feed_forward.", h, b.Intermediate, false),
		linear(PartK, "attention.k_proj", h, h, false), linear(PartV, "attention.v_proj", h, h, false),
		linear(PartQ, "attention.q_proj", h, h, false),
		linear(PartO, "attention.o_proj", h, h, false), scaleOnly.tensors("ffn_norm", h))
	return b
}
