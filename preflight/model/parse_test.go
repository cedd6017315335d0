package model

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
)

// tinyLlama is a complete config; tests change it.
const tinyLlama = `{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 64,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 128,
  "vocab_size": 100
}`

func with(old, new string) string { return strings.Replace(tinyLlama, old, new, 1) }

func TestTypes(t *testing.T) {
	want := strings.Fields(`albert arcee baichuan bart bert biogpt bloom camembert chatglm clip codegen cohere cohere2
		deberta deberta-v2
		deepseek deepseek_v2 deepseek_v3 dinov2 distilbert electra ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1
		falcon_mamba gemma gemma2 gemma3 gemma3_text glm glm4 glm4_moe glm4v gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss
		gptj
		granite granitemoe granitemoehybrid granitemoeshared hunyuan_v1_dense idefics3 internlm2 internvl jamba llama
		llama4
		llama4_text llava llava_next llava_onevision mamba mamba2 mbart minimax_m2 ministral ministral3 mistral mistral3
		mixtral modernbert mpt mt5 nemotron olmo olmo2 olmo3 olmoe opt paligemma pegasus phi phi3 phimoe qwen qwen2
		qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe roberta seed_oss
		siglip
		siglip2 smollm3 smolvlm stablelm starcoder2 t5 vit whisper xglm xlm-roberta`)
	if got := Types(); !slices.Equal(got, want) {
		t.Errorf("types\n%q, want\n%q", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // all are in the message
	}{
		{"empty", " \n", []string{"config.json is empty"}},
		{"truncated", tinyLlama[:70], []string{"config.json:4:3", "broken JSON", "unexpected end"}},
		{"a comma too many", with(`"vocab_size": 100`, `"vocab_size": 100,`),
			[]string{"config.json:9:1", "broken JSON", "correct the file"}},
		{"two documents", tinyLlama + "{}", []string{"config.json:9:2", "broken JSON"}},
		{"a list", `[1]`, []string{"config.json:1:1", "found a list, want a JSON object"}},
		{"Latin-1", with("Llama", "Ll\xe4ma"), []string{"config.json:2:24", "0xe4", "UTF-8"}},
		{"byte order mark", "\xef\xbb\xbf" + tinyLlama, []string{"byte order mark"}},
		{"a size that is no number", with("64", "NaN"), []string{"config.json:4:3", "hidden_size is NaN"}},
		{"half a number", with("64", "64NaN"), []string{"config.json:4:20", "broken JSON"}},
		{"all missing keys", `{"model_type": "llama"}`,
			[]string{"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
				"--params"}},
		{"a string", with("64", `"64"`),
			[]string{"config.json:4:3", `hidden_size is "64" (a string)`, "want a whole number"}},
		{"a fraction", with("64", "64.5"), []string{"hidden_size is 64.5", "want a whole number"}},
		{"negative", with("64", "-64"), []string{"config.json:4:3", "hidden_size is -64", "from 1 to"}},
		{"zero", with(`layers": 2`, `layers": 0`), []string{"num_hidden_layers is 0"}},
		{"absurd", with("64", "1e300"), []string{"hidden_size is 1e300"}},
		{"more than int64", with("64", "99999999999999999999"), []string{"hidden_size is 99999999999999999999"}},
		{"product overflows", strings.NewReplacer("64", "2147483600", "128", "2147483647", `layers": 2`,
			`layers": 65536`).Replace(tinyLlama),
			[]string{"multiply to more than"}},
		{"heads do not divide", with("64", "66"), []string{"66 is not a multiple of its 4 attention heads"}},
		{"key-value heads do not divide", with(`"vocab_size": 100`, `"vocab_size": 100, "num_key_value_heads": 3`),
			[]string{"4 attention heads are not a multiple of 3 key-value heads"}},
		{"default key-value heads do not divide", with("llama", "mistral"), []string{"8 key-value heads (the default"}},
		{"flag", with(`"vocab_size": 100`, `"vocab_size": 100, "tie_word_embeddings": "false"`),
			[]string{"tie_word_embeddings", "want true or false"}},
		{"dropout", with(`"vocab_size": 100`, `"vocab_size": 100, "attention_dropout": 1.5`),
			[]string{"attention_dropout is 1.5", "probability"}},
		{"activation", with(`"vocab_size": 100`, `"vocab_size": 100, "hidden_act": 3`),
			[]string{"hidden_act is 3 (a number), want a string"}},
		{"class", with("LlamaForCausalLM", "LlamaForRewardModel"), []string{"LlamaForRewardModel", "--params"}},
		{"class of another kind", with("LlamaForCausalLM", "LlamaForMaskedLM"),
			[]string{"LlamaForMaskedLM", "--params"}},
		{"classes", with(`["LlamaForCausalLM"]`, `"LlamaForCausalLM"`), []string{"architectures is", "want a list"}},
		{"model_type", with(`"llama"`, `7`), []string{"model_type is 7"}},
		{"soft cap", strings.NewReplacer(`"llama"`, `"gemma2"`, `100`,
			`100, "final_logit_softcapping": "x"`).Replace(tinyLlama),
			[]string{`final_logit_softcapping is "x"`, "number or null"}},
		{"cross-attention", `{"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9, "add_cross_attention": true}`,
			[]string{"cross-attention", "--params"}},
		{"text model of another kind", `{"model_type": "llava", "text_config": {"model_type": "mamba"}, "vision_config": {"model_type": "swin"}}`,
			[]string{`a "mamba" model in text_config cannot be counted`, `a "swin" model in vision_config`,
				"--params"}},
		{"no towers", `{"model_type": "llava"}`, []string{`"text_config" is missing`, `"vision_config" is missing`}},
		{"tower's place", "{\"model_type\": \"gemma3\",\n \"text_config\": {\"hidden_size\": \"x\"}}",
			[]string{"config.json:2:18", "hidden_size is"}},
		{"towers' heads", `{"model_type": "clip", "text_config": {}, "vision_config": {"num_attention_heads": 7}}`,
			[]string{"768 is not a multiple of its 7"}},
		{"tower is a list", `{"model_type": "gemma3", "text_config": [1]}`, []string{"config.json:1:41", "a list"}},
		{"first ChatGLM", `{"model_type": "chatglm", "hidden_size": 8, "num_layers": 1, "num_attention_heads": 2, "inner_hidden_size": 32, "vocab_size": 9, "intermediate_size": 9}`,
			[]string{"inner_hidden_size is a key of the first ChatGLM-6B", "--params"}},
		{"image", `{"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9, "image_size": [3, 4, 5]}`,
			[]string{"image_size is [3, 4, 5]", "height and width"}},
		{"patch", `{"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9, "image_size": 3, "patch_size": 4}`,
			[]string{"an image of 3 x 3 in patches of 4 x 4"}},
		{"task", `{"model_type": "whisper", "architectures": ["WhisperForCausalLM"]}`,
			[]string{"WhisperForCausalLM", "--params"}},
		{"newer DeBERTa head", `{"model_type": "deberta-v2", "architectures": ["DebertaV2ForMaskedLM"], "legacy": false, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9, "vocab_size": 9}`,
			[]string{"legacy false cannot be counted", "--params"}},
		{"relative positions", `{"model_type": "deberta-v2", "pos_att_type": [1], "relative_attention": true, "position_buckets": 0.5, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9, "vocab_size": 9}`,
			[]string{"pos_att_type is [1]", "position_buckets is 0.5"}},
		{"long value", with("64", `"`+strings.Repeat("é", 500)+`"`), []string{"...", "a string"}},
		{"neither 4 nor 8 bits", with(`"vocab_size": 100`,
			`"vocab_size": 100, "quantization_config": {"quant_method": "bitsandbytes"}`),
			[]string{"load_in_4bit", "correct"}},
		{"quantisation dtype", with(`"vocab_size": 100`,
			`"vocab_size": 100, "quantization_config": {"load_in_4bit": true, "bnb_4bit_compute_dtype": "int3"}`),
			[]string{"bnb_4bit_compute_dtype", "int3"}},
		{"label names", strings.NewReplacer("ForCausalLM", "ForSequenceClassification", `100`,
			`100, "id2label": ["a"]`).Replace(tinyLlama),
			[]string{"config.json:8:34", "a list"}},
		{"quantisation", with(`"vocab_size": 100`, `"vocab_size": 100, "quantization_config": {"bits": 4}`),
			[]string{"no quant_method"}},
		{"quantisation type", with(`"vocab_size": 100`, `"vocab_size": 100, "quantization_config": [4]`),
			[]string{"config.json:8:45", "a list"}},
		{"quantisation bits", with(`"vocab_size": 100`,
			`"vocab_size": 100, "quantization_config": {"quant_method": "gptq", "bits": "x"}`),
			[]string{"config.json:8:70", "bits"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, err := Parse([]byte(test.text), "config.json")
			if a != nil || err == nil {
				t.Fatalf("got %v, %v, want an error", a, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestParseReportsAllProblems(t *testing.T) {
	_, err := Parse([]byte(with(`"hidden_size": 64,`, `"attention_bias": 1,`)), "config.json")
	var all *multierror.Error
	if !errors.As(err, &all) || len(all.Errors) != 2 {
		t.Errorf("got %v, want the missing hidden_size and the wrong attention_bias", err)
	}
}

func TestUnknownType(t *testing.T) {
	for _, text := range []string{with(`"llama"`, `"rwkv"`), `{"hidden_size": 64}`, `{"model_type": null}`} {
		_, err := Parse([]byte(text), "dir/config.json")
		var unknown *UnknownTypeError
		if !errors.As(err, &unknown) {
			t.Fatalf("got %v, want an UnknownTypeError", err)
		}
		if unknown.Path != "dir/config.json" || !slices.Equal(unknown.Known, Types()) ||
			!strings.Contains(err.Error(), "--params") {
			t.Errorf("error %q", err)
		}
	}
}

func TestAcceptedForms(t *testing.T) {
	want, err := Parse([]byte(tinyLlama), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"whole float":      with("64", "64.0"),
		"exponent":         with("100", "1e2"),
		"same value twice": with(`"vocab_size": 100`, `"vocab_size": 100, "vocab_size": 100`),
		"twice, the last":  with(`"vocab_size": 100`, `"vocab_size": 900, "vocab_size": 100`),
		"not finite": with(`"vocab_size": 100`,
			`"time_step_limit": [0.0, Infinity], "a": {"b": -Infinity, "c": [NaN]}, "attention_dropout": 0.0, "d": NaN, "vocab_size": 100`),
		"null": with(`"vocab_size": 100`,
			`"vocab_size": 100, "head_dim": null, "num_key_value_heads": null`),
		"unread keys": with(`"vocab_size": 100`,
			`"vocab_size": 100, "rope_scaling": {"a": [1]}, "eos_token_id": [1, 2]`),
		"another class name":  with("LlamaForCausalLM", "LLaMAForCausalLM"),
		"no class":            with(`"architectures": ["LlamaForCausalLM"],`, ``),
		"labels of a decoder": with(`"vocab_size": 100`, `"vocab_size": 100, "num_labels": 0`),
	} {
		got, err := Parse([]byte(text), "config.json")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got.Parameters() != want.Parameters() {
			t.Errorf("%s: %d parameters, want %d", name, got.Parameters(), want.Parameters())
		}
	}
}

func TestAssumptions(t *testing.T) {
	a, err := Parse([]byte(with(`"architectures": ["LlamaForCausalLM"],`, `"torch_dtype": "float8_e4m3fn",`)),
		"config.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Assumptions, "\n"); !strings.Contains(got, "LlamaForCausalLM") ||
		!strings.Contains(got, "float8_e4m3fn") || a.Dtype != "" {
		t.Errorf("dtype %q, assumptions %q", a.Dtype, got)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("llama/config.json", tinyLlama)
	write("empty/readme", "")
	write("adapter/adapter_config.json", "{}")
	write("nested/config.json/x", "")
	write("broken/config.json", "{")
	if err := os.Truncate(write("shard.safetensors", ""), maxFileBytes+1); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{file, filepath.Dir(file)} {
		a, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if a.Name != path || a.Source != file || a.Parameters() == 0 {
			t.Errorf("name %q, source %q, %d parameters", a.Name, a.Source, a.Parameters())
		}
	}
	for class, want := range map[string]string{
		"ForSequenceClassification": "LlamaForSequenceClassification", "LlamaModel": "LlamaModel",
		"": "LlamaForCausalLM"} {
		if a, err := LoadAs(file, class); err != nil || a.Class != want {
			t.Errorf("as %q: %v, want class %s", class, err, want)
		}
	}
	if _, err := LoadAs(file, "LlamaForDreaming"); err == nil || !strings.Contains(err.Error(), "LlamaForDreaming") {
		t.Errorf("as an unknown class: %v", err)
	}
	for path, want := range map[string]string{
		"nowhere":           "does not exist",
		"empty":             "holds no config.json",
		"adapter":           "base model",
		"nested":            "is a directory, want a file",
		"broken":            "config.json:1:2: broken JSON",
		"shard.safetensors": "larger than 64 MiB",
		"/dev/zero":         "not a regular file",
	} {
		full := path
		if !filepath.IsAbs(path) {
			full = filepath.Join(dir, path)
		}
		a, err := Load(full)
		if a != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names it and says %q", path, err, want)
		}
	}
	for _, missing := range []string{"nowhere", "empty", "adapter"} {
		if _, err := Load(filepath.Join(dir, missing)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v is not os.ErrNotExist", missing, err)
		}
	}
}

// FuzzParse: no input panics, and what is accepted has weights whose number agrees with itself.
func FuzzParse(f *testing.F) {
	f.Add([]byte(tinyLlama))
	f.Add([]byte(`{"model_type": "gpt2"}`))
	f.Add([]byte(with(`"vocab_size": 100`,
		`"vocab_size": 100, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true}`)))
	for _, c := range readModules(f).Cases {
		f.Add([]byte(c.Config))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Parse(data, "config.json")
		if err != nil {
			if a != nil || err.Error() == "" {
				t.Errorf("architecture %v with error %q", a, err)
			}
			return
		}
		if a.Parameters() <= 0 || a.Parameters() > maxParameters {
			t.Errorf("%d parameters", a.Parameters())
		}
		if all := a.Elements(func(Tensor) bool { return true }); all != a.Parameters() {
			t.Errorf("%d elements of %d parameters", all, a.Parameters())
		}
		if _, err := a.LoRAParameters(1, nil, true); err != nil && len(a.Facts.LoRA) > 0 {
			t.Errorf("default adapters: %v", err)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	file := filepath.Join(b.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(tinyLlama), 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Load(file); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDefaultTargetsExist: every family's default adapters can be counted.
func TestDefaultTargetsExist(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range readModules(t).Cases {
		a, err := Parse(c.Config, "config.json")
		if err != nil {
			t.Fatal(err)
		}
		if targets := a.Facts.LoRA; targets != nil {
			seen[a.Type] = true
			if unknown := a.UnknownTargets(targets); len(unknown) > 0 {
				t.Errorf("%s: %q are not there", a.Type, unknown)
			}
		}
	}
	if len(seen) < 15 {
		t.Errorf("only %q have default targets", slices.Sorted(maps.Keys(seen)))
	}
}
