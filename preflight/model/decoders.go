package model

// The rows of decoders like Llama. Defaults are those of the configuration class, weights those of the modelling file,
// both in transformers/models/<name>/ (read in 5.12.1).

var llama = decoder{
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	mlpBias: toggle{key: "mlp_bias"},
}

var granite = llama

var smolLM3 = decoder{
	kvHeads: 4,
	tied:    true,
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	mlpBias: toggle{key: "mlp_bias"},
}

var mistral = decoder{kvHeads: 8}

var mixtral = decoder{kvHeads: 8, experts: localExperts{router: plainRouter(), absent: 8, perToken: 2}.replace}

var qwen2 = decoder{kvHeads: 32, qkvBias: toggle{on: true}}

var qwen2MoE = decoder{kvHeads: 16, qkvBias: toggle{key: "qkv_bias", on: true},
	experts: qwenExperts{absent: 60, width: 1408, perToken: 4, shared: true}.replace}

var qwen3 = decoder{
	kvHeads: 32,
	headDim: 128,
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	qkNorm:  qkNorm{enabled: toggle{on: true}},
}

var qwen3MoE = decoder{
	kvHeads: 4,
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	qkNorm:  qkNorm{enabled: toggle{on: true}},
	experts: qwenExperts{absent: 128, width: 768, perToken: 8}.replace,
}

var gemma = decoder{
	kvHeads:    16,
	headDim:    256,
	tied:       true,
	qkvBias:    toggle{key: "attention_bias"},
	outBias:    toggle{key: "attention_bias"},
	norm:       "rms-gemma",
	activation: "gelu_pytorch_tanh",
	// transformers 4 preferred hidden_activation to the hidden_act of the first published configs; 5 reads hidden_act
	// alone.
	activationKeys: []string{"hidden_activation", "hidden_act"},
}

// gemma2Norms are the four of a Gemma 2 block: before and after attention and MLP.
var gemma2Norms = []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
	"post_feedforward_layernorm"}

var gemma2 = decoder{
	kvHeads:          4,
	headDim:          256,
	tied:             true,
	qkvBias:          toggle{key: "attention_bias"},
	outBias:          toggle{key: "attention_bias"},
	norm:             "rms-gemma",
	blockNorms:       gemma2Norms,
	activation:       "gelu_pytorch_tanh",
	activationKeys:   []string{"hidden_activation"},
	finalSoftcap:     softcapOn,
	attentionSoftcap: softcapOn,
}

var gemma3 = decoder{
	kvHeads:          4,
	headDim:          256,
	tied:             true,
	qkvBias:          toggle{key: "attention_bias"},
	outBias:          toggle{key: "attention_bias"},
	norm:             "rms-gemma",
	blockNorms:       gemma2Norms,
	qkNorm:           qkNorm{enabled: toggle{on: true}},
	activation:       "gelu_pytorch_tanh",
	activationKeys:   []string{"hidden_activation"},
	finalSoftcap:     softcapOff,
	attentionSoftcap: softcapOff,
}

// layerNormNames are what Phi and StableLM call the norms of queries and keys.
var layerNormNames = [2]string{"q_layernorm", "k_layernorm"}

var phi = decoder{
	qkvBias:          toggle{on: true},
	outBias:          toggle{on: true},
	mlpBias:          toggle{on: true},
	out:              "dense",
	mlp:              mlp{up: "fc1", down: "fc2", plain: true},
	activation:       "gelu_new",
	norm:             "layer",
	weights:          scaleAndShift,
	finalNorm:        "final_layernorm",
	qkNorm:           qkNorm{enabled: toggle{key: "qk_layernorm"}, names: layerNormNames, weights: scaleAndShift},
	parallel:         toggle{on: true},
	headBias:         toggle{on: true},
	residualDropout:  "resid_pdrop",
	embeddingDropout: "embd_pdrop",
}

// phi3's embd_pdrop is in its configs, but no layer uses it.
var phi3 = decoder{fusedQKV: "qkv_proj", mlp: fusedMLP, residualDropout: "resid_pdrop"}

var glm = decoder{
	kvHeads: 2,
	headDim: 128,
	qkvBias: toggle{key: "attention_bias", on: true},
	mlp:     fusedMLP,
}

// glm4 also normalises what attention and MLP put out.
var glm4 = decoder{
	kvHeads: 2,
	headDim: 128,
	qkvBias: toggle{key: "attention_bias", on: true},
	mlp:     fusedMLP,
	blockNorms: []string{"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
		"post_mlp_layernorm"},
}

var glm4MoE = decoder{
	kvHeads: 8,
	qkvBias: toggle{key: "attention_bias"},
	qkNorm:  qkNorm{enabled: toggle{key: "use_qk_norm"}},
	experts: deepseekExperts{absent: 128, width: 1408, shared: 1, dense: 1, perToken: 8}.replace,
}

var starcoder2 = decoder{
	kvHeads:          2,
	tied:             true,
	qkvBias:          toggle{key: "use_bias", on: true},
	outBias:          toggle{key: "use_bias", on: true},
	mlpBias:          toggle{key: "use_bias", on: true},
	mlp:              mlp{up: "c_fc", down: "c_proj", plain: true},
	activation:       "gelu_pytorch_tanh",
	norm:             "layer",
	weights:          scaleAndShift,
	residualDropout:  "residual_dropout",
	embeddingDropout: "embedding_dropout",
}

var stableLM = decoder{
	kvHeads:         32,
	evenHeads:       true,
	qkvBias:         toggle{key: "use_qkv_bias"},
	norm:            "layer",
	weights:         scaleAndShift,
	qkNorm:          qkNorm{enabled: toggle{key: "qk_layernorm"}, names: layerNormNames, each: true},
	parallel:        toggle{key: "use_parallel_residual"},
	residualDropout: "hidden_dropout",
}

var olmo = decoder{
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	norm:    "layer",
	weights: noWeights,
}

// olmo2 normalises what attention and MLP put out, before the residual addition.
var olmo2 = decoder{
	qkvBias:    toggle{key: "attention_bias"},
	outBias:    toggle{key: "attention_bias"},
	blockNorms: []string{"post_attention_layernorm", "post_feedforward_layernorm"},
	qkNorm:     qkNorm{enabled: toggle{on: true}, wide: true},
}

// olmo3 has windows in most layers, which change no weight.
var olmo3 = olmo2

// exaone4 normalises outputs too, and heads one by one.
var exaone4 = decoder{
	kvHeads:    32,
	blockNorms: []string{"post_attention_layernorm", "post_feedforward_layernorm"},
	qkNorm:     qkNorm{enabled: toggle{on: true}},
}

var ernie45 = decoder{
	kvHeads: 2,
	headDim: 128,
	tied:    true,
	qkvBias: toggle{key: "use_bias"},
	outBias: toggle{key: "use_bias"},
	mlpBias: toggle{key: "use_bias"},
}

var ernie45MoE = decoder{
	kvHeads:  4,
	tied:     true,
	qkvBias:  toggle{key: "use_bias"},
	outBias:  toggle{key: "use_bias"},
	mlpBias:  toggle{key: "use_bias"},
	headBias: toggle{key: "use_bias"},
	experts:  ernieExperts,
}

// hunYuan is Hunyuan's dense models, which normalise queries and keys after their rotation.
var hunYuan = decoder{
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	qkNorm:  qkNorm{enabled: toggle{on: true}, names: [2]string{"query_layernorm", "key_layernorm"}},
}

var seedOSS = decoder{
	kvHeads:         8,
	headDim:         128,
	qkvBias:         toggle{key: "attention_bias", on: true},
	outBias:         toggle{key: "attention_out_bias"},
	mlpBias:         toggle{key: "mlp_bias"},
	residualDropout: "residual_dropout",
	dropout:         0.1,
}

// plainMLP has no gate.
var plainMLP = mlp{up: "up_proj", down: "down_proj", plain: true}

// nemotron covers Nemotron-4 and Minitron; the later Nemotrons are llama.
var nemotron = decoder{
	qkvBias:    toggle{key: "attention_bias"},
	outBias:    toggle{key: "attention_bias"},
	mlpBias:    toggle{key: "mlp_bias"},
	mlp:        plainMLP,
	activation: "relu2",
	norm:       "layer",
	weights:    scaleAndShift,
}

var arcee = decoder{
	qkvBias:    toggle{key: "attention_bias"},
	outBias:    toggle{key: "attention_bias"},
	mlpBias:    toggle{key: "mlp_bias"},
	mlp:        plainMLP,
	activation: "relu2",
}

var ministral3 = decoder{kvHeads: 8, headDim: 128}

// gptOSS adds a sink to the softmax of each head, a parameter of the attention itself.
var gptOSS = decoder{
	kvHeads: 8,
	headDim: 64,
	qkvBias: toggle{key: "attention_bias", on: true},
	outBias: toggle{key: "attention_bias", on: true},
	sinks:   true,
	experts: gptOSSExperts,
}

var graniteMoE = decoder{
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	experts: graniteExperts,
}

var miniMaxM2 = decoder{
	kvHeads: 8,
	headDim: 128,
	qkNorm:  qkNorm{enabled: toggle{on: true}, wide: true},
	experts: localExperts{router: plainRouter(), absent: 256, perToken: 8}.replace,
}

// cohere2 has windows in most layers, which alone rotate queries and keys.
var cohere2 = decoder{
	tied:     true,
	qkvBias:  toggle{key: "attention_bias"},
	outBias:  toggle{key: "attention_bias"},
	norm:     "layer",
	parallel: toggle{on: true},
}

var cohere = decoder{
	tied:     true,
	qkvBias:  toggle{key: "attention_bias"},
	outBias:  toggle{key: "attention_bias"},
	norm:     "layer",
	qkNorm:   qkNorm{enabled: toggle{key: "use_qk_norm"}, each: true},
	parallel: toggle{on: true},
}

// baichuan covers both sizes of Baichuan 2: rotary positions in the 7B, ALiBi in the 13B, neither with parameters. Its
// code comes with the checkpoint (modeling_baichuan.py).
var baichuan = decoder{fusedQKV: "W_pack"}

var olmoe = decoder{
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	qkNorm:  qkNorm{enabled: toggle{on: true}, wide: true},
	experts: olmoeExperts,
}

var phimoe = decoder{
	kvHeads:  8,
	qkvBias:  toggle{key: "attention_bias"},
	outBias:  toggle{key: "attention_bias"},
	norm:     "layer",
	weights:  scaleAndShift,
	headBias: toggle{key: "lm_head_bias"},
	experts:  localExperts{router: namedRouter(Linear), absent: 16, perToken: 2}.replace,
}

// deepseek is the first DeepSeek mixture of experts; its code comes with the checkpoint (modeling_deepseek.py).
// DeepSeek's first dense models are llama.
var deepseek = decoder{
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	experts: deepseekExperts{width: 1407, stepKey: "moe_layer_freq"}.replace,
}

var deepseekV2 = decoder{
	qkvBias: toggle{key: "attention_bias"},
	mlpBias: toggle{key: "mlp_bias"},
	latent:  true,
	experts: deepseekExperts{absent: 64, width: 1407, shared: 2, sharedBias: toggle{key: "mlp_bias"}}.replace,
}

// deepseekV3 leaves out the extra block that predicts the token after next (num_nextn_predict_layers): transformers
// does not build it. The router's correction bias is a buffer.
var deepseekV3 = decoder{
	qkvBias: toggle{key: "attention_bias"},
	latent:  true,
	experts: deepseekExperts{absent: 256, width: 2048, shared: 1, dense: 3, perToken: 8}.replace,
}
