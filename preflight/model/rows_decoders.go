package model

// decoderRows are dense models that write text, to the letter g.
var decoderRows = []family{
	{
		modelType: "arcee", usual: "ArceeForCausalLM", build: arcee.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
		},
	},
	{
		modelType: "baichuan", usual: "BaichuanForCausalLM", build: baichuan.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "biogpt", usual: "BioGptForCausalLM", build: bioGPT,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "bloom", usual: "BloomForCausalLM", build: bloom,
		facts: Facts{
			LoRA: []string{"query_key_value"}, Attention: []string{"eager"}, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true, EagerOnly: true, NamesScores: true, ReturnsScores: true, PythonGelu: true},
			words:  []string{"bloom"},
		},
	},
	{
		modelType: "chatglm", usual: "ChatGLMForConditionalGeneration", build: chatGLM,
		facts: Facts{
			LoRA: []string{"query_key_value"}, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			Quirks: Quirks{BothOrders: true},
		},
	},
	{
		modelType: "codegen", usual: "CodeGenForCausalLM", build: codeGen,
		facts: Facts{
			LoRA: []string{"qkv_proj"}, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Scores32: true, CopiesHeads: true},
		},
	},
	{
		modelType: "cohere", usual: "CohereForCausalLM", build: cohere.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{PythonNorm: true, Rotary32: true},
		},
	},
	{
		modelType: "cohere2", usual: "Cohere2ForCausalLM", build: cohere2.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{PythonNorm: true, Rotary32: true, Windows: 4},
		},
	},
	{
		modelType: "ernie4_5", usual: "Ernie4_5ForCausalLM", build: ernie45.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Rotary32: true, OwnRotary: true},
		},
	},
	{
		modelType: "exaone4", usual: "Exaone4ForCausalLM", build: exaone4.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: ligerBeside,
			Quirks: Quirks{NormAfter: true, Windows: 4},
		},
	},
	{
		modelType: "falcon", usual: "FalconForCausalLM", build: falcon,
		facts: Facts{
			LoRA: []string{"query_key_value"}, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, ExpandsHeads: true, Broadcasts: true, CopiesHeads: true,
				AlwaysMasked: true, ViewsWeights: true},
			words: []string{"falcon"},
		},
	},
	{
		modelType: "gemma", usual: "GemmaForCausalLM", build: gemma.blueprint,
		sizes: towerSizes(3072, 24576, 28, 16, 256000),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			words: []string{"gemma"},
		},
	},
	{
		modelType: "gemma2", usual: "Gemma2ForCausalLM", build: gemma2.blueprint,
		sizes: towerSizes(2304, 9216, 26, 8, 256000),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: []string{"sdpa", "4.46=eager", "4.48=sdpa", "5.22=eager"},
			Measured: Closely, Liger: ligerBeside,
			Quirks:       Quirks{Windows: 2},
			FactoryFlash: true,
			words:        []string{"gemma-2"},
		},
	},
	{
		modelType: "gemma3_text", usual: "Gemma3ForCausalLM", build: gemma3.blueprint,
		sizes: towerSizes(2304, 9216, 26, 8, 262208),
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: ligerBeside,
			Quirks: Quirks{Windows: 6},
			words:  []string{"gemma-3"},
		},
	},
	{
		modelType: "glm", usual: "GlmForCausalLM", build: glm.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{BothOrders: true},
		},
	},
	{
		modelType: "glm4", usual: "Glm4ForCausalLM", build: glm4.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely,
			Liger:  &Liger{Norm: true, GLU: true, Loss: true, NewGradient: true},
			Quirks: Quirks{BothOrders: true},
		},
	},
	{
		modelType: "gpt2", usual: "GPT2LMHeadModel", build: gpt2,
		facts: Facts{
			LoRA: []string{"c_attn"}, Attention: []string{"eager", "4.44=sdpa"}, Measured: Closely, Liger: notInLiger,
			Quirks:         Quirks{Softmax16: true, NoRotary: true},
			SixteenBitLoss: true,
			words:          []string{"gpt2"},
		},
	},
	{
		modelType: "gpt_bigcode", usual: "GPTBigCodeForCausalLM", build: gptBigCode,
		facts: Facts{
			LoRA: []string{"c_attn"}, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:         Quirks{NoRotary: true, MaskBuffers: 1},
			SixteenBitLoss: true,
		},
	},
	{
		modelType: "gpt_neo", usual: "GPTNeoForCausalLM", build: gptNeo,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: []string{"eager"}, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{NoRotary: true, EagerOnly: true, Scores32: true, ReturnsScores: true,
				MaskBuffers: PerLayer},
			SixteenBitLoss: true,
		},
	},
	{
		modelType: "gpt_neox", usual: "GPTNeoXForCausalLM", build: gptNeoX,
		facts: Facts{
			LoRA: []string{"query_key_value"}, Attention: []string{"eager", "4.44=sdpa"}, Measured: Closely,
			Liger:          notInLiger,
			Quirks:         Quirks{BothOrders: true},
			SixteenBitLoss: true,
			formerNames:    map[string]string{"embed_out": "lm_head"},
			words:          []string{"pythia"},
		},
	},
	{
		modelType: "gptj", usual: "GPTJForCausalLM", build: gptJ,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: []string{"eager", "5.24=sdpa"}, Measured: Closely,
			Liger:  notInLiger,
			Quirks: Quirks{Scores32: true},
		},
	},
	{
		modelType: "granite", usual: "GraniteForCausalLM", build: granite.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely,
			Liger: &Liger{Rope: true, Norm: true, GLU: true},
		},
	},
}
