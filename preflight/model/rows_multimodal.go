package model

// multimodalRows are models of text and images or sounds.
var multimodalRows = []family{
	{
		modelType: "clip", usual: "CLIPModel", build: clipTowers,
		facts: Facts{
			LoRA: noDefault, Attention: []string{"eager", "4.44=sdpa"}, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "gemma3", usual: "Gemma3ForConditionalGeneration", build: gemma3Multimodal,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: ligerBeside,
			Quirks: Quirks{Windows: 6},
		},
	},
	{
		modelType: "glm4v", usual: "Glm4vForConditionalGeneration", build: glm4V,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "idefics3", usual: "Idefics3ForConditionalGeneration", build: idefics3,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "internvl", usual: "InternVLForConditionalGeneration", build: internVL,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "llama4", usual: "Llama4ForConditionalGeneration", build: llama4Multimodal,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, Rotary32: true, NormsRotated: true, BareHeadNorm: true, EveryExpert: true},
		},
	},
	{
		modelType: "llava", usual: "LlavaForConditionalGeneration", build: llava.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
		},
	},
	{
		modelType: "llava_next", usual: "LlavaNextForConditionalGeneration", build: llavaNext.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "llava_onevision", usual: "LlavaOnevisionForConditionalGeneration", build: llavaOneVision.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "mistral3", usual: "Mistral3ForConditionalGeneration", build: mistral3,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "paligemma", usual: "PaliGemmaForConditionalGeneration", build: paliGemma,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "qwen2_5_vl", usual: "Qwen2_5_VLForConditionalGeneration", build: qwen25VL.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: allOfLiger,
		},
	},
	{
		modelType: "qwen2_audio", usual: "Qwen2AudioForConditionalGeneration", build: qwen2Audio,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "qwen2_vl", usual: "Qwen2VLForConditionalGeneration", build: qwen2VL.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: allOfLiger,
		},
	},
	{
		modelType: "qwen3_vl", usual: "Qwen3VLForConditionalGeneration", build: qwen3VL.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured,
			Liger: &Liger{Rope: true, Norm: true, Loss: true},
		},
	},
	{
		modelType: "qwen3_vl_moe", usual: "Qwen3VLMoeForConditionalGeneration", build: qwen3VLMoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "siglip", usual: "SiglipModel", build: siglip,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "siglip2", usual: "Siglip2Model", build: siglip2,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true},
		},
	},
	{
		modelType: "smolvlm", usual: "SmolVLMForConditionalGeneration", build: idefics3,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
}
