package model

import "slices"

// gpt2 and its relatives share names and keys: transformers/models/{gpt2,gpt_bigcode,gptj}.

// gpt2Sizes reads GPT2Config's keys, with the aliases of its attribute_map. n_inner null or absent means 4 times the
// hidden size.
func gpt2Sizes(c *config, b *blueprint) {
	b.base = "transformer"
	b.Hidden = c.size("n_embd", "hidden_size")
	b.Layers = c.count("n_layer", "num_hidden_layers")
	b.Heads = c.count("n_head", "num_attention_heads")
	b.KVHeads = b.Heads
	b.HeadDim = perHead(b.Hidden, b.Heads)
	b.Vocab = c.size("vocab_size")
	b.Intermediate = c.sizeOr(4*b.Hidden, "n_inner")
	b.NormKind = "layer"
}

// gpt2Dropouts reads the three rates; absent is the default of the configuration class.
func gpt2Dropouts(c *config, b *blueprint, absent float64) {
	b.HiddenDropout = c.probability(absent, "resid_pdrop")
	b.EmbeddingDropout = c.probability(absent, "embd_pdrop")
	b.AttentionDropout = c.probability(absent, "attn_pdrop")
}

func gpt2(c *config) *blueprint { return gpt2Like(c, "gelu_new", false) }

// gptBigCode is GPT-2 whose heads share one key and one value (multi_query).
func gptBigCode(c *config) *blueprint {
	return gpt2Like(c, "gelu_pytorch_tanh", c.flag("multi_query", true))
}

func gpt2Like(c *config, activation string, multiQuery bool) *blueprint {
	b := &blueprint{}
	gpt2Sizes(c, b)
	gpt2Dropouts(c, b, 0.1)
	if multiQuery {
		b.KVHeads = 1
	}
	if c.flag("add_cross_attention", false) {
		c.reject("add_cross_attention",
			"models with cross-attention cannot be counted: give --params for a lower bound")
	}
	b.MaxPositions = c.sizeOr(1024, "n_positions", "max_position_embeddings")
	b.Activation = c.text(activation, "activation_function")
	b.Norms = 2
	b.Tied = c.flag("tie_word_embeddings", true)
	h, i := b.Hidden, b.Intermediate
	b.embeddings = slices.Concat(embedding("wte", b.Vocab, h), embedding("wpe", b.MaxPositions, h))
	b.blocks = layers(b.Layers, "h.*.",
		layerNorm("ln_1", h),
		linear(PartQKV, "attn.c_attn", h, h+2*b.KVHeads*b.HeadDim, true),
		linear(PartO, "attn.c_proj", h, h, true),
		layerNorm("ln_2", h),
		linear(PartUp, "mlp.c_fc", h, i, true),
		linear(PartDown, "mlp.c_proj", i, h, true))
	b.final = layerNorm("ln_f", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), false))
	return b
}

// gptJ has rotary positions, one norm before parallel attention and MLP, and a bias on its head.
func gptJ(c *config) *blueprint {
	b := &blueprint{}
	gpt2Sizes(c, b)
	gpt2Dropouts(c, b, 0)
	b.MaxPositions = c.sizeOr(2048, "n_positions", "max_position_embeddings")
	b.Activation = c.text("gelu_new", "activation_function")
	b.Norms = 1
	b.Parallel = true
	b.Tied = c.flag("tie_word_embeddings", false)
	h, i := b.Hidden, b.Intermediate
	b.embeddings = embedding("wte", b.Vocab, h)
	b.blocks = layers(b.Layers, "h.*.",
		layerNorm("ln_1", h),
		linear(PartQ, "attn.q_proj", h, h, false),
		linear(PartK, "attn.k_proj", h, h, false),
		linear(PartV, "attn.v_proj", h, h, false),
		linear(PartO, "attn.out_proj", h, h, false),
		linear(PartUp, "mlp.fc_in", h, i, true),
		linear(PartDown, "mlp.fc_out", i, h, true))
	b.final = layerNorm("ln_f", h)
	b.head = c.head(decoderHeads("lm_head", "classifier", h, b.Vocab, c.labels(), true))
	return b
}

// codeGen is GPT-J with one projection to queries, values and keys: transformers/models/codegen.
func codeGen(c *config) *blueprint {
	b := gptJ(c)
	h := b.Hidden
	for i := range b.blocks {
		b.blocks[i].Tensors = slices.DeleteFunc(slices.Clone(b.blocks[i].Tensors),
			func(t Tensor) bool { return t.Part == PartQ || t.Part == PartK || t.Part == PartV })
		b.blocks[i].Tensors = append(b.blocks[i].Tensors,
			within("h.*.", linear(PartQKV, "attn.qkv_proj", h, 3*h, false))...)
	}
	return b
}
