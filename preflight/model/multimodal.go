package model

import "slices"

// gemma3Multimodal reads Gemma3Config, with the text model under text_config: transformers/models/gemma3. Gemma3ForCausalLM loads the
// text model alone from it.
func gemma3Multimodal(c *config) *blueprint {
	if c.task == causalLM {
		text := c.sectionOr("text_config")
		text.defaults = towers["gemma3_text"].defaults
		return gemma3.blueprint(text)
	}
	b := c.tower("text_config", "gemma3_text")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", "siglip_vision_model")
	b.after(vision, "vision_tower.")
	b.embeddings = slices.Concat(b.embeddings,
		[]Tensor{tensor("multi_modal_projector", Other, vision.Hidden, b.Hidden)}, // a bare parameter, no nn.Linear
		scaleOnly.tensors("multi_modal_projector.mm_soft_emb_norm", vision.Hidden))
	b.Tied = c.flag("tie_word_embeddings", true)
	b.head = c.head(imageTextHeads(b))
	return b
}

// llava reads LlavaConfig, a text model and a vision tower joined by two linear layers: transformers/models/llava.
func llava(c *config) *blueprint {
	for _, key := range []string{"text_config", "vision_config"} {
		if name, _ := c.find(key); name == "" {
			c.reject(key, "needed key %q is missing: take config.json from the model's own directory, or give the number of parameters with --params", key)
		}
	}
	b := c.tower("text_config", "llama")
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.tower("vision_config", "clip_vision_model")
	taken := []int64{} // hidden states of the tower that are joined for the projector; 0 is its input
	if name, text := c.find("vision_feature_layer"); name != "" && kind(text) == "a list" {
		taken = c.integers(name)
	} else {
		taken = append(taken, c.signedOr(-2, "vision_feature_layer"))
	}
	features := int64(len(taken))
	vision.unusedFrom(lastTaken(taken, vision.Layers))
	b.after(vision, "vision_tower.")
	bias := c.flag("multimodal_projector_bias", true)
	b.embeddings = slices.Concat(b.embeddings,
		linear("multi_modal_projector.linear_1", features*vision.Hidden, b.Hidden, bias),
		linear("multi_modal_projector.linear_2", b.Hidden, b.Hidden, bias))
	b.Tied = c.flag("tie_word_embeddings", false) || b.Tied // LlavaConfig.__post_init__
	b.head = c.head(imageTextHeads(b))
	return b
}

// lastTaken is how many of the tower's layers lead to the last hidden state that is taken; negative numbers count from the end.
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
	return map[task][]Tensor{bareModel: nil, conditionalGeneration: projection("lm_head", Head, b.Hidden, b.Vocab, false)}
}
