package model

// laterDecoderRows are dense models that write text, from the letter h.
var laterDecoderRows = []family{
	{
		modelType: "hunyuan_v1_dense", usual: "HunYuanDenseV1ForCausalLM", build: hunYuan.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			Quirks: Quirks{NormsRotated: true},
		},
	},
	{
		modelType: "internlm2", usual: "InternLM2ForCausalLM", build: internLM2,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "llama", usual: "LlamaForCausalLM", build: llama.blueprint,
		sizes: towerSizes(4096, 11008, 32, 32, 32000),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			words: []string{"llama", "vicuna"},
		},
	},
	{
		modelType: "ministral", usual: "MinistralForCausalLM", build: mistral.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
		},
	},
	{
		modelType: "ministral3", usual: "Ministral3ForCausalLM", build: ministral3.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
		},
	},
	{
		modelType: "mistral", usual: "MistralForCausalLM", build: mistral.blueprint,
		sizes: towerSizes(4096, 14336, 32, 32, 32000),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			words: []string{"mistral"},
		},
	},
	{
		modelType: "mpt", usual: "MptForCausalLM", build: mpt,
		facts: Facts{
			LoRA: []string{"Wqkv"}, Attention: []string{"eager"}, Measured: Roughly, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true, EagerOnly: true, ReturnsScores: true, Alibi32: true},
		},
	},
	{
		modelType: "nemotron", usual: "NemotronForCausalLM", build: nemotron.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: &Liger{Loss: true},
			Quirks: Quirks{BothOrders: true, Norm16: true},
		},
	},
	{
		modelType: "olmo", usual: "OlmoForCausalLM", build: olmo.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Norm32: true, Rotary32: true},
		},
	},
	{
		modelType: "olmo2", usual: "Olmo2ForCausalLM", build: olmo2.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: ligerBeside,
			Quirks: Quirks{Norm32: true, NormAfter: true, Rotary32: true},
		},
	},
	{
		modelType: "olmo3", usual: "Olmo3ForCausalLM", build: olmo3.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: ligerBeside,
			Quirks: Quirks{Norm32: true, NormAfter: true, Rotary32: true, Windows: 4},
		},
	},
	{
		modelType: "opt", usual: "OPTForCausalLM", build: opt,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: []string{"eager", "4.46=sdpa"}, Measured: Closely,
			Liger:  notInLiger,
			Quirks: Quirks{NoRotary: true},
			words:  []string{"opt-"},
		},
	},
	{
		modelType: "phi", usual: "PhiForCausalLM", build: phi.blueprint,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj", "fc1", "fc2"}, Attention: usualAttention, Measured: Closely,
			Liger:  notInLiger,
			Quirks: Quirks{BothOrders: true},
			words:  []string{"phi-2"},
		},
	},
	{
		modelType: "phi3", usual: "Phi3ForCausalLM", build: phi3.blueprint,
		sizes: towerSizes(3072, 8192, 32, 32, 32064),
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			Quirks: Quirks{BothOrders: true},
		},
	},
	{
		modelType: "qwen", usual: "QWenLMHeadModel", build: qwen,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "qwen2", usual: "Qwen2ForCausalLM", build: qwen2.blueprint,
		sizes: towerSizes(4096, 22016, 32, 32, 151936),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			words: []string{"qwen2", "qwen1.5"},
		},
	},
	{
		modelType: "qwen3", usual: "Qwen3ForCausalLM", build: qwen3.blueprint,
		sizes: towerSizes(4096, 22016, 32, 32, 151936),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			words: []string{"qwen3"},
		},
	},
	{
		modelType: "seed_oss", usual: "SeedOssForCausalLM", build: seedOSS.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
		},
	},
	{
		modelType: "smollm3", usual: "SmolLM3ForCausalLM", build: smolLM3.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
		},
	},
	{
		modelType: "stablelm", usual: "StableLmForCausalLM", build: stableLM.blueprint,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{BothOrders: true},
			words:  []string{"stablelm"},
		},
	},
	{
		modelType: "starcoder2", usual: "Starcoder2ForCausalLM", build: starcoder2.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
		},
	},
	{
		modelType: "xglm", usual: "XGLMForCausalLM", build: xglm,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true, EagerOnly: true, Softmax16: true, ClampsScores: true, Sinusoids: true},
		},
	},
}
