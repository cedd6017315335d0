package model

// tower is a model_type that may stand inside another's config, under text_config or vision_config. Such a section leaves out what equals
// the default of its configuration class, sizes too.
type tower struct {
	build    func(*config) *blueprint
	defaults map[string]int64
}

// The defaults are those of transformers 5.12.1.
var towers = map[string]tower{
	"clip_text_model":      {clipText, towerSizes(512, 2048, 12, 8, 49408)},
	"clip_vision_model":    {clipVision, towerSizes(768, 3072, 12, 12, 0)},
	"gemma":                {gemma.blueprint, towerSizes(3072, 24576, 28, 16, 256000)},
	"gemma2":               {gemma2.blueprint, towerSizes(2304, 9216, 26, 8, 256000)},
	"gemma3_text":          {gemma3.blueprint, towerSizes(2304, 9216, 26, 8, 262208)},
	"llama":                {llama.blueprint, towerSizes(4096, 11008, 32, 32, 32000)},
	"mistral":              {mistral.blueprint, towerSizes(4096, 14336, 32, 32, 32000)},
	"phi3":                 {phi3.blueprint, towerSizes(3072, 8192, 32, 32, 32064)},
	"qwen2":                {qwen2.blueprint, towerSizes(4096, 22016, 32, 32, 151936)},
	"qwen3":                {qwen3.blueprint, towerSizes(4096, 22016, 32, 32, 151936)},
	"idefics3_vision":      {idefics3Vision, towerSizes(1152, 3072, 12, 16, 0)},
	"pixtral":              {pixtral, towerSizes(1024, 4096, 24, 16, 0)},
	"smolvlm_vision":       {idefics3Vision, towerSizes(1152, 3072, 12, 16, 0)},
	"siglip_text_model":    {siglipText, towerSizes(768, 3072, 12, 12, 32000)},
	"siglip2_text_model":   {siglipText, towerSizes(768, 3072, 12, 12, 32000)},
	"siglip2_vision_model": {siglip2Vision, towerSizes(768, 3072, 12, 12, 0)},
	"internvl_vision":      {internVision, towerSizes(1024, 4096, 24, 16, 0)},
	"glm4v_text":           {glm4VText.blueprint, towerSizes(4096, 13696, 40, 32, 151552)},
	"llama4_text":          {llama4Text, towerSizes(5120, 8192, 48, 40, 202048)},
	"llama4_vision_model":  {llama4Vision, towerSizes(768, 5632, 34, 16, 0)},
	"siglip_vision_model":  {siglipVision, towerSizes(768, 3072, 12, 12, 0)},
}

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
	t, ok := towers[modelType]
	if !ok {
		section.reject("model_type", "a %q model in %s cannot be counted: give --params for a lower bound", modelType, key)
		t = towers[absent]
	}
	section.defaults = t.defaults
	b := t.build(section)
	b.Type, b.Dtype = modelType, section.dtype()
	return b
}
