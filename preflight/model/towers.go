package model

func towerSizes(hidden, intermediate, layers, heads, vocabulary int64) map[string]int64 {
	sizes := map[string]int64{"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
		"num_attention_heads": heads, "vocab_size": vocabulary}
	if vocabulary == 0 {
		delete(sizes, "vocab_size")
	}
	return sizes
}

// tower builds the model in the section key, without a head; absent is its model_type when it names none.
func (c *config) tower(key, absent string) *blueprint {
	section := c.sectionOr(key)
	section.task = bareModel
	modelType := section.text(absent, "model_type")
	t := find(c.types, modelType)
	if t == nil || t.sizes == nil {
		section.reject("model_type", "a %q model in %s cannot be counted: give --params for a lower bound", modelType,
			key)
		t = find(c.types, absent)
	}
	section.defaults = t.sizes
	b := t.build(section)
	b.Type, b.Dtype = modelType, section.dtype()
	return b
}

// sizesOf are the defaults of a type's sizes inside another's config.
func (c *config) sizesOf(modelType string) map[string]int64 { return find(c.types, modelType).sizes }
