package model

// mixtureRows are mixtures of experts, and models with recurrences.
var mixtureRows = []family{
	{
		modelType: "deepseek", usual: "DeepseekForCausalLM", build: deepseek.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			experts: projections{gate: "gate_proj", up: "up_proj", down: "down_proj", separate: true},
		},
	},
	{
		modelType: "deepseek_v2", usual: "DeepseekV2ForCausalLM", build: deepseekV2.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely,
			Liger:   &Liger{Norm: true, GLU: true, Loss: true},
			Quirks:  Quirks{Router32: true},
			experts: routerWeights,
		},
	},
	{
		modelType: "deepseek_v3", usual: "DeepseekV3ForCausalLM", build: deepseekV3.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely,
			Liger:   &Liger{Norm: true, GLU: true, Loss: true},
			Quirks:  Quirks{Router32: true},
			experts: routerWeights,
		},
	},
	{
		modelType: "ernie4_5_moe", usual: "Ernie4_5_MoeForCausalLM", build: ernie45MoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:  Quirks{Rotary32: true, OwnRotary: true, Router32: true, SharedFirst: true, Weights16: true},
			experts: mlpProjections,
		},
	},
	{
		modelType: "falcon_h1", usual: "FalconH1ForCausalLM", build: falconH1,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: allOfLiger,
			refused: keptFromLoRA,
		},
	},
	{
		modelType: "falcon_mamba", usual: "FalconMambaForCausalLM", build: mamba,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			refused: keptFromLoRA,
		},
	},
	{
		modelType: "glm4_moe", usual: "Glm4MoeForCausalLM", build: glm4MoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:  Quirks{BothOrders: true, Router32: true},
			experts: routerWeights,
		},
	},
	{
		modelType: "gpt_oss", usual: "GptOssForCausalLM", build: gptOSS.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: []string{"eager"}, Measured: Closely,
			Liger:  &Liger{Rope: true, Norm: true, Loss: true},
			Quirks: Quirks{EagerOnly: true, Sinks: true, ClampedGate: true, Norm32: true, Windows: 2, Weights16: true},
		},
	},
	{
		modelType: "granitemoe", usual: "GraniteMoeForCausalLM", build: graniteMoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Weights16: true},
		},
	},
	{
		modelType: "granitemoehybrid", usual: "GraniteMoeHybridForCausalLM", build: graniteHybrid,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
		},
	},
	{
		modelType: "granitemoeshared", usual: "GraniteMoeSharedForCausalLM", build: graniteMoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Weights16: true},
		},
	},
	{
		modelType: "jamba", usual: "JambaForCausalLM", build: jamba,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			experts: projections{gate: "gate_proj", up: "up_proj", down: "down_proj", router: "router"},
		},
	},
	{
		modelType: "llama4_text", usual: "Llama4ForCausalLM", build: llama4Text,
		sizes: towerSizes(5120, 8192, 48, 40, 202048),
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely,
			Liger:  &Liger{Norm: true, GLU: true, Loss: true},
			Quirks: Quirks{Softmax16: true, Rotary32: true, NormsRotated: true, BareHeadNorm: true, EveryExpert: true},
		},
	},
	{
		modelType: "mamba", usual: "MambaForCausalLM", build: mamba,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			refused: keptFromLoRA,
		},
	},
	{
		modelType: "mamba2", usual: "Mamba2ForCausalLM", build: mamba2,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			refused: keptFromLoRA,
		},
	},
	{
		modelType: "minimax_m2", usual: "MiniMaxM2ForCausalLM", build: miniMaxM2.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:  Quirks{BothOrders: true},
			experts: mixtralProjections,
		},
	},
	{
		modelType: "mixtral", usual: "MixtralForCausalLM", build: mixtral.blueprint,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			experts: mixtralProjections,
			words:   []string{"mixtral"},
		},
	},
	{
		modelType: "olmoe", usual: "OlmoeForCausalLM", build: olmoe.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:  Quirks{Weights16: true},
			experts: mlpProjections,
		},
	},
	{
		modelType: "phimoe", usual: "PhimoeForCausalLM", build: phimoe.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured, Liger: notInLiger,
			experts: projections{gate: "w1", up: "w3", down: "w2"},
		},
	},
	{
		modelType: "qwen2_moe", usual: "Qwen2MoeForCausalLM", build: qwen2MoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:  Quirks{Weights16: true, SharedFirst: true},
			experts: projections{gate: "gate_proj", up: "up_proj", down: "down_proj", router: "gate"},
		},
	},
	{
		modelType: "qwen3_moe", usual: "Qwen3MoeForCausalLM", build: qwen3MoE.blueprint,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: allOfLiger,
			Quirks:  Quirks{Weights16: true},
			experts: mlpProjections,
			words:   []string{"qwen3-moe"},
		},
	},
	{
		modelType: "qwen3_next", usual: "Qwen3NextForCausalLM", build: qwen3Next,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Unmeasured,
			Liger:   &Liger{Norm: true, GLU: true, Loss: true, NewGradient: true},
			experts: mlpProjections,
		},
	},
}
