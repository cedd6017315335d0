package model

import (
	"reflect"
	"strings"
	"testing"
)

// TestTraits checks what the estimator reads beside the weights. Sources: the configuration and modelling files of the model_type in
// transformers 5.12.1.
func TestTraits(t *testing.T) {
	tests := []struct {
		file string
		want Architecture
	}{
		{"meta-llama__Meta-Llama-3-8B.json", Architecture{
			Type: "llama", Class: "LlamaForCausalLM", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 14336,
			Vocab: 128256, MaxPositions: 8192, Causal: true, NormKind: "rms", Norms: 2, Activation: "silu", Gated: true, LogitsWidth: 128256,
			Dtype: "bf16"}},
		{"google__gemma-2-2b.json", Architecture{
			Type: "gemma2", Class: "Gemma2ForCausalLM", Hidden: 2304, Layers: 26, Heads: 8, KVHeads: 4, HeadDim: 256, Intermediate: 9216,
			Vocab: 256000, MaxPositions: 8192, Causal: true, NormKind: "rms-gemma", Norms: 4, Activation: "gelu_pytorch_tanh", Gated: true,
			Tied: true, LogitsWidth: 256000, FinalSoftcap: true, AttentionSoftcap: true, Dtype: "bf16"}},
		{"Qwen__Qwen3-0.6B.json", Architecture{
			Type: "qwen3", Class: "Qwen3ForCausalLM", Hidden: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, Intermediate: 3072,
			Vocab: 151936, MaxPositions: 40960, Causal: true, NormKind: "rms", Norms: 2, QKNorm: true, Activation: "silu", Gated: true,
			Tied: true, LogitsWidth: 151936, Dtype: "bf16"}},
		{"openai-community__gpt2.json", Architecture{
			Type: "gpt2", Class: "GPT2LMHeadModel", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64, Intermediate: 3072,
			Vocab: 50257, MaxPositions: 1024, Causal: true, NormKind: "layer", Norms: 2, Activation: "gelu_new", Tied: true,
			LogitsWidth: 50257, HiddenDropout: 0.1, AttentionDropout: 0.1, EmbeddingDropout: 0.1, Dtype: "fp32"}},
		{"EleutherAI__pythia-160m.json", Architecture{
			Type: "gpt_neox", Class: "GPTNeoXForCausalLM", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64, Intermediate: 3072,
			Vocab: 50304, MaxPositions: 2048, Causal: true, NormKind: "layer", Norms: 2, Activation: "gelu", Parallel: true,
			LogitsWidth: 50304, Dtype: "fp16"}},
		{"google-bert__bert-base-uncased.json", Architecture{
			Type: "bert", Class: "BertModel", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64, Intermediate: 3072,
			Vocab: 30522, MaxPositions: 512, NormKind: "layer", Norms: 2, Activation: "gelu", PostNorm: true,
			HiddenDropout: 0.1, AttentionDropout: 0.1, EmbeddingDropout: 0.1, Dtype: "fp32"}},
		{"mistralai__Mixtral-8x7B-v0.1.json", Architecture{
			Type: "mixtral", Class: "MixtralForCausalLM", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 14336,
			Vocab: 32000, MaxPositions: 32768, Causal: true, NormKind: "rms", Norms: 2, Activation: "silu", Gated: true, LogitsWidth: 32000,
			Experts: 8, ExpertsPerToken: 2, Dtype: "bf16"}},
	}
	for _, test := range tests {
		got := *published(t, test.file)
		got.Name, got.Source, got.Units, got.TiedHead = "", "", nil, nil
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.file, got, test.want)
		}
	}
}

func TestClassifier(t *testing.T) {
	text := strings.NewReplacer("ForCausalLM", "ForSequenceClassification", `"vocab_size"`,
		`"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 3, "tie_word_embeddings": true, "vocab_size"`).Replace(tinyLlama)
	a, err := Parse([]byte(text), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	if a.LogitsWidth != 3 || a.Causal || a.Tied || a.TiedHead != nil {
		t.Errorf("logits %d, causal %v, tied %v %v", a.LogitsWidth, a.Causal, a.Tied, a.TiedHead)
	}
}

// TestSizes uses Llama-3-8B: a layer has 4096*(4096+1024+1024+4096) + 3*4096*14336 + 2*4096 weights.
func TestSizes(t *testing.T) {
	a := published(t, "meta-llama__Meta-Llama-3-8B.json")
	const layer, table = 218_112_000, 128256 * 4096
	for name, got := range map[string][2]int64{
		"largest unit":   {a.LargestUnit(), layer},
		"root":           {a.RootElements(), 2*table + 4096},
		"largest tensor": {a.LargestTensor(), table},
		"embeddings":     {a.Elements(func(w Tensor) bool { return w.Role == Embedding }), table},
		"linears":        {a.Elements(func(w Tensor) bool { return w.Role == Linear }), 32 * (layer - 2*4096)},
		"all":            {a.RootElements() + 32*layer, a.Parameters()},
		"of a count":     {FromParams(7e9).LargestUnit() + FromParams(7e9).RootElements() + FromParams(7e9).LargestTensor(), 0},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
	if tied := published(t, "openai-community__gpt2.json").TiedHead; tied == nil || tied.Module != "lm_head" || tied.Shape[0] != 50257 {
		t.Errorf("GPT-2's tied head is %+v", tied)
	}
}

func TestQuantization(t *testing.T) {
	type quant struct {
		method, kind, compute string
		bits                  int
		double                bool
	}
	for text, want := range map[string]quant{
		`{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true, "bnb_4bit_compute_dtype": "bfloat16"}`: {
			"bnb", "nf4", "bf16", 4, true},
		`{"load_in_4bit": true}`: {"bnb", "fp4", "fp32", 4, false}, // BitsAndBytesConfig's defaults
		`{"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false}`: {"bnb", "int8", "", 8, false},
		`{"quant_method": "gptq", "bits": 8, "group_size": 128}`:                        {"gptq", "int8", "", 8, false},
		`{"quant_method": "awq"}`: {"awq", "int4", "", 4, false},
		`{"quant_method": "fp8"}`: {"fp8", "", "", 0, false},
		`null`:                    {},
	} {
		a, err := Parse([]byte(with(`"vocab_size": 100`, `"vocab_size": 100, "quantization_config": `+text)), "config.json")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := (quant{a.QuantMethod, a.QuantType, a.QuantComputeDtype, a.QuantBits, a.QuantDouble}); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestDtypes(t *testing.T) {
	for text, want := range map[string]string{
		`"torch_dtype": "bfloat16"`: "bf16", `"dtype": "torch.float16"`: "fp16", `"torch_dtype": "float32"`: "fp32", `"torch_dtype": null`: "",
		`"dtype": "bfloat16", "torch_dtype": "float32"`: "bf16",
	} {
		a, err := Parse([]byte(with(`"vocab_size": 100`, `"vocab_size": 100, `+text)), "config.json")
		if err != nil || a.Dtype != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestSoftcaps: Gemma 2 caps its logits unless the config says null (Gemma2Config).
func TestSoftcaps(t *testing.T) {
	for text, want := range map[string][2]bool{
		``: {true, true},
		`"final_logit_softcapping": null, "attn_logit_softcapping": null,`: {false, false},
		`"attn_logit_softcapping": 0,`:                                     {true, false},
	} {
		config := strings.NewReplacer(`"llama"`, `"gemma2"`, `"vocab_size"`, text+`"vocab_size"`).Replace(tinyLlama)
		a, err := Parse([]byte(config), "config.json")
		if err != nil || [2]bool{a.FinalSoftcap, a.AttentionSoftcap} != want {
			t.Errorf("%s: %+v, %v, want %v", text, a, err, want)
		}
	}
}
