package model

// encoderRows are models of text, images or sounds with one encoder, and those of an encoder and a decoder.
var encoderRows = []family{
	{
		modelType: "albert", usual: "AlbertModel", build: albert,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "bart", usual: "BartForConditionalGeneration", build: bart,
		facts: Facts{
			LoRA: []string{"q_proj", "v_proj"}, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:      Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
			TextEncoder: true,
		},
	},
	{
		modelType: "bert", usual: "BertModel", build: bert,
		facts: Facts{
			LoRA: []string{"query", "value"}, Attention: []string{"eager", "4.44=sdpa"}, Measured: Closely,
			Liger:  notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "camembert", usual: "CamembertModel", build: roberta,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "deberta", usual: "DebertaModel", build: deberta,
		facts: Facts{
			LoRA: []string{"in_proj"}, Attention: []string{"eager"}, Measured: Roughly, Liger: notInLiger,
			Quirks: Quirks{EagerOnly: true, NoRotary: true, PythonNorm: true},
		},
	},
	{
		modelType: "deberta-v2", usual: "DebertaV2Model", build: debertaV2,
		facts: Facts{
			LoRA: []string{"query_proj", "value_proj"}, Attention: []string{"eager"}, Measured: Closely,
			Liger:  notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, EagerOnly: true, NoRotary: true},
		},
	},
	{
		modelType: "dinov2", usual: "Dinov2Model", build: dinov2,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "distilbert", usual: "DistilBertModel", build: distilBERT,
		facts: Facts{
			LoRA: noDefault, Attention: []string{"eager", "4.46=sdpa"}, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "electra", usual: "ElectraModel", build: electra,
		facts: Facts{
			LoRA: []string{"query", "value"}, Attention: []string{"eager", "5.0=sdpa"}, Measured: Roughly,
			Liger:  notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "mbart", usual: "MBartForConditionalGeneration", build: mBART,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:      Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
			TextEncoder: true,
		},
	},
	{
		modelType: "modernbert", usual: "ModernBertModel", build: modernBERT,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Rotary32: true, AlwaysMasked: true, Windows: 3, WideLoss: true},
		},
	},
	{
		modelType: "mt5", usual: "MT5ForConditionalGeneration", build: mt5,
		facts: Facts{
			LoRA: []string{"q", "v"}, Attention: []string{"eager", "5.16=sdpa"}, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true, ScalesInput: true,
				FinalDropout: true},
			TextEncoder: true,
		},
	},
	{
		modelType: "pegasus", usual: "PegasusForConditionalGeneration", build: pegasus,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks:      Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
			TextEncoder: true,
		},
	},
	{
		modelType: "roberta", usual: "RobertaModel", build: roberta,
		facts: Facts{
			LoRA: []string{"query", "value"}, Attention: []string{"eager", "4.46=sdpa"}, Measured: Closely,
			Liger:  notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
	{
		modelType: "t5", usual: "T5ForConditionalGeneration", build: t5,
		facts: Facts{
			LoRA: []string{"q", "v"}, Attention: []string{"eager", "5.16=sdpa"}, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true, ScalesInput: true,
				FinalDropout: true},
			TextEncoder: true,
		},
	},
	{
		modelType: "vit", usual: "ViTForImageClassification", build: vit,
		facts: Facts{
			LoRA: noDefault, Attention: []string{"eager", "4.44=sdpa"}, Measured: Closely, Liger: notInLiger,
			Quirks:      Quirks{NoRotary: true},
			formerNames: map[string]string{"query": "q_proj", "key": "k_proj", "value": "v_proj"},
		},
	},
	{
		modelType: "whisper", usual: "WhisperForConditionalGeneration", build: whisper,
		facts: Facts{
			LoRA: noDefault, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true, BothOrders: true},
		},
	},
	{
		modelType: "xlm-roberta", usual: "XLMRobertaModel", build: roberta,
		facts: Facts{
			LoRA: []string{"query", "value"}, Attention: usualAttention, Measured: Closely, Liger: notInLiger,
			Quirks: Quirks{Softmax16: true, WideProbs: true, NoRotary: true},
		},
	},
}
