package model

// internLM2 reads InternLM2Config; its code comes with the checkpoint (modeling_internlm2.py). It is Llama with one
// projection to queries, keys and values, under other names.
func internLM2(c *config) *blueprint {
	b := &blueprint{base: "model"}
	d := decoder{}
	d.sizes(c, b)
	d.traits(c, b)
	h, i, bias := b.Hidden, b.Intermediate, c.flag("bias", true)
	b.embeddings = embedding("tok_embeddings", b.Vocab, h)
	b.blocks = layers(b.Layers, "layers.*.",
		linear(PartQKV, "attention.wqkv", h, (b.Heads+2*b.KVHeads)*b.HeadDim, bias),
		linear(PartO, "attention.wo", b.Heads*b.HeadDim, h, bias),
		mlp{gate: "w1", up: "w3", down: "w2"}.tensors("feed_forward.", h, i, false),
		scaleOnly.tensors("attention_norm", h),
		scaleOnly.tensors("ffn_norm", h))
	b.final = scaleOnly.tensors("norm", h)
	b.head = c.head(map[task][]Tensor{
		bareModel:              nil,
		causalLM:               projection("output", Head, h, b.Vocab, false),
		sequenceClassification: score(h, c.labels()),
	})
	return b
}
