package model

// chatGLM reads the ChatGLMConfig of ChatGLM2, ChatGLM3 and GLM-4; their code comes with the checkpoint
// (modeling_chatglm.py). The published configs name the class ChatGLMModel, which has the output layer, and load
// ChatGLMForConditionalGeneration around it.
func chatGLM(c *config) *blueprint {
	b := &blueprint{base: "transformer"}
	if name, _ := c.find("inner_hidden_size", "position_encoding_2d"); name != "" {
		c.reject(name, "%s is a key of the first ChatGLM-6B, which cannot be counted: give --params for a lower bound",
			name)
	}
	if c.task == bareModel {
		c.task = conditionalGeneration
	}
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_layers", "num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.HeadDim = c.sizeOr(perHead(b.Hidden, b.Heads), "kv_channels")
	b.KVHeads = c.countOr(b.Heads, "num_key_value_heads")
	if c.flag("multi_query_attention", false) {
		b.KVHeads = c.countOr(1, "multi_query_group_num")
	}
	b.Intermediate = c.size("ffn_hidden_size", "intermediate_size")
	b.Vocab = c.size("padded_vocab_size", "vocab_size")
	b.MaxPositions = c.sizeOr(0, "seq_length", "max_position_embeddings")
	b.Gated, b.Norms, b.Activation = true, 2, "silu"
	norm := scaleOnly
	b.NormKind = "rms"
	if !c.flag("rmsnorm", true) {
		norm, b.NormKind = scaleAndShift, "layer"
	}
	b.HiddenDropout = c.probability(0, "hidden_dropout")
	b.AttentionDropout = c.probability(0, "attention_dropout")
	if name, _ := c.find("add_qkv_bias"); name == "" {
		c.assume("the projection to queries, keys and values has a bias, as in every published ChatGLM " +
			"(add_qkv_bias is not in the config)")
	}
	bias := c.flag("add_bias_linear", false)
	h, i, q, kv := b.Hidden, b.Intermediate, b.Heads*b.HeadDim, b.KVHeads*b.HeadDim
	b.embeddings = embedding("embedding.word_embeddings", b.Vocab, h)
	b.blocks = layers(b.Layers, "encoder.layers.*.",
		norm.tensors("input_layernorm", h),
		linear(PartQKV, "self_attention.query_key_value", h, q+2*kv, bias || c.flag("add_qkv_bias", true)),
		linear(PartO, "self_attention.dense", q, h, bias),
		norm.tensors("post_attention_layernorm", h),
		linear(PartGateUp, "mlp.dense_h_to_4h", h, 2*i, bias),
		linear(PartDown, "mlp.dense_4h_to_h", i, h, bias))
	if c.flag("post_layer_norm", true) {
		b.final = norm.tensors("encoder.final_layernorm", h)
	}
	b.head = c.head(map[task][]Tensor{conditionalGeneration: projection("transformer.output_layer", Head, h, b.Vocab,
		false)})
	return b
}
