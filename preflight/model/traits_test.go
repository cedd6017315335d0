package model

import (
	"reflect"
	"strings"
	"testing"
)

// TestTraits checks what the estimator reads beside the weights. Sources: the configuration and modelling files of the
// model_type in transformers 5.12.1.
func TestTraits(t *testing.T) {
	tests := []struct {
		file string
		want Architecture
	}{
		{"meta-llama__Meta-Llama-3-8B.json", Architecture{
			Type: "llama", Class: "LlamaForCausalLM", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128,
			Intermediate: 14336,
			Vocab:        128256, MaxPositions: 8192, Causal: true, NormKind: "rms", Norms: 2, Activation: "silu",
			Gated:       true,
			LogitsWidth: 128256,
			Dtype:       "bf16"}},
		{"google__gemma-2-2b.json", Architecture{
			Type: "gemma2", Class: "Gemma2ForCausalLM", Hidden: 2304, Layers: 26, Heads: 8, KVHeads: 4, HeadDim: 256,
			Intermediate: 9216,
			Vocab:        256000, MaxPositions: 8192, Causal: true, NormKind: "rms-gemma", Norms: 4,
			Activation: "gelu_pytorch_tanh", Gated: true,
			Tied: true, LogitsWidth: 256000, FinalSoftcap: true, AttentionSoftcap: true, Dtype: "bf16"}},
		{"Qwen__Qwen3-0.6B.json", Architecture{
			Type: "qwen3", Class: "Qwen3ForCausalLM", Hidden: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128,
			Intermediate: 3072,
			Vocab:        151936, MaxPositions: 40960, Causal: true, NormKind: "rms", Norms: 2, QKNorm: true,
			Activation: "silu", Gated: true,
			Tied: true, LogitsWidth: 151936, Dtype: "bf16"}},
		{"openai-community__gpt2.json", Architecture{
			Type: "gpt2", Class: "GPT2LMHeadModel", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64,
			Intermediate: 3072,
			Vocab:        50257, MaxPositions: 1024, Causal: true, NormKind: "layer", Norms: 2, Activation: "gelu_new",
			Tied:        true,
			LogitsWidth: 50257, HiddenDropout: 0.1, AttentionDropout: 0.1, EmbeddingDropout: 0.1, Dtype: "fp32"}},
		{"EleutherAI__pythia-160m.json", Architecture{
			Type: "gpt_neox", Class: "GPTNeoXForCausalLM", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64,
			Intermediate: 3072,
			Vocab:        50304, MaxPositions: 2048, Causal: true, NormKind: "layer", Norms: 2, Activation: "gelu",
			Parallel:    true,
			LogitsWidth: 50304, Dtype: "fp16"}},
		{"google-bert__bert-base-uncased.json", Architecture{
			Type: "bert", Class: "BertModel", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64,
			Intermediate: 3072,
			Vocab:        30522, MaxPositions: 512, NormKind: "layer", Norms: 2, Activation: "gelu", PostNorm: true,
			HiddenDropout: 0.1, AttentionDropout: 0.1, EmbeddingDropout: 0.1, Dtype: "fp32"}},
		{"mistralai__Mixtral-8x7B-v0.1.json", Architecture{
			Type: "mixtral", Class: "MixtralForCausalLM", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128,
			Intermediate: 14336,
			Vocab:        32000, MaxPositions: 32768, Causal: true, NormKind: "rms", Norms: 2, Activation: "silu",
			Gated:       true,
			LogitsWidth: 32000,
			Experts:     8, ExpertsPerToken: 2, Dtype: "bf16"}},
		{"deepseek-ai__DeepSeek-V3.json", Architecture{
			Type: "deepseek_v3", Class: "DeepseekV3ForCausalLM", Hidden: 7168, Layers: 61, Heads: 128, KVHeads: 128,
			HeadDim:      192,
			Intermediate: 18432, Vocab: 129280, MaxPositions: 163840, Causal: true, NormKind: "rms", Norms: 2,
			Activation: "silu", Gated: true,
			LogitsWidth: 129280, Experts: 256, ExpertsPerToken: 8, SharedIntermediate: 2048, QueryRank: 1536,
			KVRank: 512, NopeDim: 128, RopeDim: 64,
			ValueDim: 128, Dtype: "bf16"}},
		{"google__flan-t5-base.json", Architecture{
			Type: "t5", Class: "T5ForConditionalGeneration", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12,
			HeadDim: 64, Intermediate: 2048,
			Vocab: 32128, Causal: true, NormKind: "rms", Norms: 3, Activation: "gelu_new", Gated: true,
			LogitsWidth: 32128, CrossAttention: true,
			PositionBias: true, HiddenDropout: 0.1, AttentionDropout: 0.1, EmbeddingDropout: 0.1,
			ActivationDropout: 0.1, Dtype: "fp32",
			Encoder: &Architecture{Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, HeadDim: 64, Intermediate: 2048,
				NormKind: "rms", Norms: 2,
				Activation: "gelu_new", Gated: true, PositionBias: true, HiddenDropout: 0.1, AttentionDropout: 0.1,
				EmbeddingDropout: 0.1, ActivationDropout: 0.1,
				// 12 * (4*768*768 + 3*768*2048 + 2*768) + 32*12 + 768
				Params: 84_954_240}}},
		{"Qwen__Qwen-7B.json", Architecture{
			Type: "qwen", Class: "QWenLMHeadModel", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 32, HeadDim: 128,
			Intermediate: 11008,
			Vocab:        151936, MaxPositions: 32768, Causal: true, NormKind: "rms", Norms: 2, Activation: "silu",
			Gated: true, LogitsWidth: 151936,
			Dtype: "bf16"}},
		{"google__vit-base-patch16-224.json", Architecture{
			Type: "vit", Class: "ViTForImageClassification", Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12,
			HeadDim: 64, Intermediate: 3072,
			MaxPositions: 197, NormKind: "layer", Norms: 2, Activation: "gelu", LogitsWidth: 1000, PooledLogits: true,
			Dtype: "fp32"}},
	}
	for _, test := range tests {
		got := *published(t, test.file)
		got.Assumptions, got.Facts = nil, Facts{}
		if got.Encoder != nil {
			got.Encoder.Facts = Facts{}
		}
		got.Name, got.Source, got.Units, got.TiedHead, got.TiedTables = "", "", nil, nil, nil
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
	if tied := published(t, "openai-community__gpt2.json").TiedHead; tied == nil || tied.Module != "lm_head" ||
		tied.Shape[0] != 50257 {
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
		a, err := Parse([]byte(with(`"vocab_size": 100`, `"vocab_size": 100, "quantization_config": `+text)),
			"config.json")
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
		`"torch_dtype": "bfloat16"`: "bf16", `"dtype": "torch.float16"`: "fp16", `"torch_dtype": "float32"`: "fp32",
		`"torch_dtype": null`:                           "",
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

// TestVisionEncoder: the tower of google/gemma-3-4b-it has 64 x 64 patches of an image of 896 and 416,866,032 weights
// (model.vision_tower on the meta device).
func TestVisionEncoder(t *testing.T) {
	const text = `{"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
		"model_type": "gemma3_text", "num_hidden_layers": 34}, "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
		"model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}}`
	a, err := Parse([]byte(text), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	want := Architecture{Type: "siglip_vision_model", Hidden: 1152, Layers: 27, Heads: 16, KVHeads: 16, HeadDim: 72,
		Intermediate: 4304,
		MaxPositions: 4096, NormKind: "layer", Norms: 2, Activation: "gelu_pytorch_tanh", Params: 416_866_032}
	want.Facts = FactsOf("siglip_vision_model")
	if a.Encoder == nil || !reflect.DeepEqual(*a.Encoder, want) {
		t.Errorf("encoder\n%+v, want\n%+v", a.Encoder, want)
	}
	if a.Layers != 34 || a.Heads != 8 || a.KVHeads != 4 || a.Vocab != 262_208 || a.Dtype != "bf16" || !a.Causal ||
		a.TiedHead == nil || a.Blocks() != 34+27 {
		t.Errorf("text model %+v", a)
	}
	alone, err := parse([]byte(text), "config.json", "Gemma3ForCausalLM")
	if err != nil || alone.Encoder != nil || alone.Blocks() != 34 ||
		alone.Units[0].Tensors[0].Path != "model.embed_tokens" {
		t.Errorf("the text model alone: %+v, %v", alone, err)
	}
	// The whole has the projector beside both: 1152*2560 + 1152.
	if rest := a.Parameters() - alone.Parameters() - a.Encoder.Parameters(); rest != 1152*2560+1152 {
		t.Errorf("%d weights in neither model", rest)
	}
}

// TestT5Head: see t5Tied.
func TestT5Head(t *testing.T) {
	const text = `{"model_type": "t5", "d_model": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 1000, "tie_word_embeddings": false%s}`
	for extra, tied := range map[string]bool{"": true, `, "transformers_version": "4.23.1"`: false,
		`, "eos_token_id": 1`: false} {
		a, err := Parse([]byte(strings.Replace(text, "%s", extra, 1)), "config.json")
		if err != nil || (a.TiedHead != nil) != tied ||
			!strings.Contains(strings.Join(a.Assumptions, " "), "transformers 5") {
			t.Errorf("%q: %+v, %v", extra, a, err)
		}
	}
}

func TestModules(t *testing.T) {
	a := published(t, "deepseek-ai__DeepSeek-V3.json")
	want := map[string]ModuleCount{
		"model.embed_tokens":                          {Role: Embedding, Count: 1, Elements: 129280 * 7168},
		"model.layers.*.self_attn.kv_a_proj_with_mqa": {Role: Linear, Count: 61, Elements: 61 * 576 * 7168},
		"model.layers.*.mlp.gate_proj":                {Role: Linear, Count: 3, Elements: 3 * 18432 * 7168},
		"model.layers.*.mlp.experts":                  {Role: Expert, Count: 58, Elements: 58 * 256 * 3 * 2048 * 7168},
		"lm_head":                                     {Role: Head, Count: 1, Elements: 129280 * 7168},
	}
	var sum int64
	for _, m := range a.Modules() {
		sum += m.Elements
		if w, ok := want[m.Path]; ok {
			w.Path = m.Path
			if m != w {
				t.Errorf("%+v, want %+v", m, w)
			}
			delete(want, m.Path)
		}
	}
	if sum != a.Parameters() || len(want) > 0 {
		t.Errorf("%d elements of %d; not found: %v", sum, a.Parameters(), want)
	}
	for _, m := range published(t, "openai-community__gpt2.json").Modules() {
		if m.Path == "transformer.h.*.ln_1" && (m.Count != 12 || m.Elements != 12*2*768) {
			t.Errorf("scale and shift are one module: %+v", m)
		}
	}
	if got := FromParams(7e9).Modules(); got != nil {
		t.Errorf("modules of a count: %v", got)
	}
}

func TestFrozen(t *testing.T) {
	var frozen []string
	for _, c := range readModules(t).Cases {
		a, err := Parse(c.Config, "config.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range a.Units {
			for _, w := range u.Tensors {
				if w.Frozen {
					frozen = append(frozen, a.Class+" "+w.Path)
				}
			}
		}
	}
	// WhisperEncoder.__init__, PegasusSinusoidalPositionalEmbedding and Ernie4_5_MoeStatics in transformers
	for _, f := range frozen {
		if !strings.HasSuffix(f, ".embed_positions") && !strings.HasSuffix(f, " decoder.embed_positions") &&
			!strings.HasSuffix(f, ".moe_statics") {
			t.Errorf("%s is frozen", f)
		}
	}
	if len(frozen) == 0 {
		t.Error("no frozen weight")
	}
}
