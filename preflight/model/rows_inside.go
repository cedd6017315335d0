package model

// insideRows are models that stand only inside others.
var insideRows = []family{
	{
		modelType: "clip_text_model", build: clipText, sizes: towerSizes(512, 2048, 12, 8, 49408),
		facts: Facts{
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "clip_vision_model", build: clipVision, sizes: towerSizes(768, 3072, 12, 12, 0),
		facts: Facts{
			Quirks: Quirks{NoRotary: true},
		},
	},
	{modelType: "glm4v_text", build: glm4VText.blueprint, sizes: towerSizes(4096, 13696, 40, 32, 151552)},
	{modelType: "idefics3_vision", build: idefics3Vision, sizes: towerSizes(1152, 3072, 12, 16, 0)},
	{
		modelType: "internvl_vision", build: internVision, sizes: towerSizes(1024, 4096, 24, 16, 0),
		facts: Facts{
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "llama4_vision_model", build: llama4Vision, sizes: towerSizes(768, 5632, 34, 16, 0),
		facts: Facts{
			Quirks: Quirks{Softmax16: true, Rotary32: true},
		},
	},
	{modelType: "pixtral", build: pixtral, sizes: towerSizes(1024, 4096, 24, 16, 0)},
	{
		modelType: "siglip2_text_model", build: siglipText, sizes: towerSizes(768, 3072, 12, 12, 32000),
		facts: Facts{
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "siglip2_vision_model", build: siglip2Vision, sizes: towerSizes(768, 3072, 12, 12, 0),
		facts: Facts{
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "siglip_text_model", build: siglipText, sizes: towerSizes(768, 3072, 12, 12, 32000),
		facts: Facts{
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "siglip_vision_model", build: siglipVision, sizes: towerSizes(768, 3072, 12, 12, 0),
		facts: Facts{
			Quirks: Quirks{NoRotary: true},
		},
	},
	{modelType: "smolvlm_vision", build: idefics3Vision, sizes: towerSizes(1152, 3072, 12, 16, 0)},
	{modelType: "qwen2_5_vl_text", facts: Facts{Liger: allOfLiger}},
	{modelType: "qwen2_vl_text", facts: Facts{Liger: allOfLiger}},
}
