package job

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/model"
)

const tinyConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
	"intermediate_size": 128, "vocab_size": 100, "torch_dtype": "float16"}`

// tinyParameters: 2*100*64 + 2*(4*64*64 + 3*64*128 + 2*64) + 64.
const tinyParameters = 12800 + 2*(16384+24576+128) + 64

// cache makes a Hugging Face cache in dir/home/hub that holds org/tiny (main, and as v2 without files) and the adapter
// org/lora.
func cache(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for file, text := range map[string]string{
		"home/hub/models--org--tiny/refs/main":                            commit,
		"home/hub/models--org--tiny/refs/v2":                              strings.Repeat("f", 40),
		"home/hub/models--org--tiny/snapshots/" + commit + "/config.json": tinyConfig,
		"home/hub/models--org--lora/refs/main":                            commit,
		"home/hub/models--org--lora/snapshots/" + commit +
			"/adapter_config.json": `{"peft_type": "LORA", "base_model_name_or_path": "org/tiny", "r": 4, "target_modules": ["q_proj"]}`,
		"home/hub/models--org--code/refs/main":                               commit,
		"home/hub/models--org--code/.no_exist/" + commit + "/config.json":    "",
		"home/hub/models--org--code/snapshots/" + commit + "/tokenizer.json": "{}",
		"fetched/config.json": tinyConfig,
	} {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Where a hub name is looked for: huggingface_hub/constants.py and file_download.py; the old variable is not read by
// transformers 5.
func TestHubNames(t *testing.T) {
	dir := cache(t)
	hub := filepath.Join(dir, "home", "hub")
	for _, test := range []struct {
		name, cmd string
		env       map[string]string
		params    int64
		origin    string // part of where the size comes from, or of why it is not known
		fail      string
	}{
		{"relative HF_HOME", "train.py --model_name_or_path org/tiny", map[string]string{"HF_HOME": "home"},
			tinyParameters, "config.json", ""},
		{"HF_HOME in the command", "env HF_HOME=./home python train.py --model_name_or_path org/tiny", nil,
			tinyParameters, "config.json", ""},
		{"cache_dir wins", "train.py --model_name_or_path org/tiny --cache_dir home/hub",
			map[string]string{"HF_HUB_CACHE": "/elsewhere"}, tinyParameters, "config.json", ""},
		{"old variable", "train.py --model_name_or_path org/tiny", map[string]string{"TRANSFORMERS_CACHE": hub},
			tinyParameters, "config.json", ""},
		{"old variable in transformers 5", "five.py --model_name_or_path org/tiny",
			map[string]string{"TRANSFORMERS_CACHE": hub}, 0, "--online", ""},
		{"another revision is not taken", "train.py --model_name_or_path org/tiny --model_revision v3",
			map[string]string{"HF_HOME": "home"}, 0, "neither in the Hugging Face cache", ""},
		{"its files are not there", "train.py --model_name_or_path org/tiny --model_revision v2",
			map[string]string{"HF_HOME": "home"}, 0, "neither in the Hugging Face cache", ""},
		{"adapter in the cache", "train.py --model_name_or_path org/lora", map[string]string{"HF_HOME": "home"},
			tinyParameters, "config.json", ""},
		{"known to have no config", "train.py --model_name_or_path org/code", map[string]string{"HF_HOME": "home"}, 0,
			"the hub has no config.json", ""},
		{"built-in", "train.py --model_name_or_path gpt2", nil, 124_439_808, "built-in table of public models", ""},
		{"the table knows no revisions", "train.py --model_name_or_path gpt2 --model_revision v3", nil, 0, "--online",
			""},
		{"offline", "train.py --model_name_or_path gpt2 --output_dir o --save_strategy no",
			map[string]string{"HF_HUB_OFFLINE": "1"}, 124_439_808, "built-in", "HF_HUB_OFFLINE"},
		{"offline, cached", "train.py --model_name_or_path org/tiny --output_dir o --save_strategy no",
			map[string]string{"HF_HUB_OFFLINE": "1", "HF_HOME": "home"}, tinyParameters, "config.json", ""},
		{"no name", "train.py --model_name_or_path org--x", nil, 0, "neither a folder nor a hub name", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			argv, versions := strings.Fields(test.cmd), map[string]string{"transformers": "4.51.3"}
			if strings.HasPrefix(test.cmd, "five") {
				versions["transformers"] = "5.2.0"
			}
			j := Read(Sources{Argv: argv, Dir: dir, GPUs: 1, Getenv: func(name string) string { return test.env[name] },
				Versions: versions})
			if j.ModelParams.Or(0) != test.params || !strings.Contains(j.ModelParams.Origin, test.origin) {
				t.Errorf("%+v, want %d from %q", j.ModelParams, test.params, test.origin)
			}
			if !strings.Contains(j.WillFail.Value, test.fail) || (test.fail == "") != (j.WillFail.Value == "") {
				t.Errorf("will_fail %q, want %q", j.WillFail.Value, test.fail)
			}
		})
	}
}

// With --online the hub is asked after the cache and before the table.
func TestOnline(t *testing.T) {
	dir := cache(t)
	var asked []model.HubModel
	fetch := func(m model.HubModel) (string, error) {
		asked = append(asked, m)
		if m.Name == "org/broken" || m.Name == "gpt2" {
			return "", errors.New("the hub does not answer")
		}
		return filepath.Join(dir, "fetched"), nil
	}
	for _, test := range []struct {
		args   string
		params int64
		origin string
		asked  int
	}{
		{"--model_name_or_path org/tiny", tinyParameters, "snapshots", 0},
		{"--model_name_or_path org/other --model_revision v9", tinyParameters, "fetched", 1},
		{"--model_name_or_path gpt2", 124_439_808, "built-in", 1},
		{"--model_name_or_path org/broken", 0, "the hub does not answer", 1},
	} {
		asked = nil
		j := Read(Sources{Argv: strings.Fields("python train.py " + test.args), Dir: dir, FetchModel: fetch,
			Getenv: func(name string) string { return map[string]string{"HF_HOME": "home"}[name] }})
		if j.ModelParams.Or(0) != test.params || !strings.Contains(j.ModelParams.Origin, test.origin) ||
			len(asked) != test.asked {
			t.Errorf("%s: %+v after %v", test.args, j.ModelParams, asked)
		}
	}
}

// Keys and defaults of adapter_config.json: peft/tuners/lora/config.py.
func TestAdapterFolder(t *testing.T) {
	for _, test := range []struct{ name, text, want, problem string }{
		{"defaults", `{"base_model_name_or_path": "gpt2"}`, "method=lora model=gpt2 model_params=124439808", ""},
		{"base in a folder", `{"base_model_name_or_path": "./base"}`, "method=lora model=./base", ""},
		{"revision of the base", `{"base_model_name_or_path": "gpt2", "revision": "old"}`,
			"model=gpt2 model_params=unknown", ""},
		{"no base", `{"r": 8}`, "method=lora model_params=unknown", ""},
		{"IA3", `{"base_model_name_or_path": "gpt2", "peft_type": "IA3"}`, "method=adapter model=gpt2", ""},
		{"OFT", `{"base_model_name_or_path": "gpt2", "peft_type": "OFT"}`, "method=oft", ""},
		{"AdaLoRA", `{"base_model_name_or_path": "gpt2", "peft_type": "ADALORA", "init_r": 12}`, "method=lora", ""},
		{"wrong number", `{"base_model_name_or_path": "gpt2", "r": "many"}`, "method=lora", "adapter_config.json:1"},
		{"broken", `{"r": 8`, "method=unknown lora=unknown model_params=unknown", "adapter_config.json:1"},
		{"a list", `[1]`, "method=unknown model_params=unknown", "need an object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, folder := range []string{"a", "base"} {
				if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			write(t, filepath.Join(dir, "a"), "adapter_config.json", test.text)
			write(t, filepath.Join(dir, "base"), "config.json", tinyConfig)
			j := Read(Sources{Argv: strings.Fields("python run_sft.py --model_name_or_path a --output_dir o " +
				"--save_strategy no"), Dir: dir, GPUs: 1})
			check(t, j, test.want)
			if test.problem == "" && len(told(j)) > 0 ||
				test.problem != "" && (len(told(j)) == 0 || !strings.Contains(told(j)[0].Error(), test.problem)) {
				t.Errorf("problems %v, want %q", told(j), test.problem)
			}
		})
	}
	dir := t.TempDir()
	// transformers loads the adapter's base even where a config.json stands beside it
	write(t, dir, "config.json", tinyConfig)
	write(t, dir, "adapter_config.json",
		`{"base_model_name_or_path": "gpt2", "r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_fc"], "layers_to_transform": [0, 11],
		"rank_pattern": {"c_fc": 2}, "bias": "all", "use_dora": true, "modules_to_save": ["wte"]}`)
	lora := Read(Sources{Argv: strings.Fields("python run_sft.py --model_name_or_path " + dir +
		" --output_dir o --save_strategy no"), GPUs: 1}).LoRA.Value
	if lora == nil || lora.R != 4 || lora.Alpha != 8 || !lora.DoRA || lora.Bias != "all" ||
		lora.RankPattern["c_fc"] != 2 || len(lora.ModulesToSave) != 1 {
		t.Fatalf("%+v", lora)
	}
	gpt2, err := model.Known("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	targets, err := gpt2.LoRATargets(lora.Targets)
	if err != nil || len(targets) != 2 || targets[0].Count != 2 { // in two blocks each
		t.Errorf("%v: %v", targets, err)
	}
}

// A checkpoint that is stored quantised: bitsandbytes stays as it is, formats that cannot be trained on are unpacked.
func TestQuantisedCheckpoints(t *testing.T) {
	for quantization, want := range map[string]string{
		`{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": "bfloat16"}`: "base_dtype=fp16",
		`{"_load_in_8bit": true, "quant_method": "bitsandbytes"}`:                                                                    "method=lora8bit",
		`{"quant_method": "mxfp4"}`:                                "quant=none base_dtype=bf16",
		`{"quant_method": "fp8", "weight_block_size": [128, 128]}`: "quant=none base_dtype=bf16",
		`{"quant_method": "gptq", "bits": 4}`:                      "method=qlora",
	} {
		dir := t.TempDir()
		write(t, dir, "config.json", strings.TrimSuffix(tinyConfig, "}")+`, "quantization_config": `+quantization+"}")
		j := Read(Sources{Argv: strings.Fields("python run_sft.py --model_name_or_path . --output_dir o " +
			"--save_strategy no --use_peft --lora_r 8"), Dir: dir, GPUs: 1,
			Versions: map[string]string{"transformers": "5.2.0"}})
		check(t, j, want)
		if strings.Contains(quantization, "storage") && (j.Quant.Value == nil || j.Quant.Value.Storage != "bfloat16") {
			t.Errorf("%+v", j.Quant)
		}
	}
}

func FuzzAdapterConfig(f *testing.F) {
	for _, seed := range []string{`{"r": 1e99, "lora_dropout": 7}`,
		`{"target_modules": {"a": 1}, "layers_to_transform": 3}`, `{"peft_type": 3, "rank_pattern": [1]}`,
		`{"base_model_name_or_path": ["x"], "modules_to_save": "x"}`, `null`, `{"base_model_name_or_path": "."}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		write(t, dir, "adapter_config.json", text)
		settingValues(t, Read(Sources{Argv: strings.Fields("python run_sft.py --model_name_or_path . --output_dir o " +
			"--save_strategy no"), Dir: dir, GPUs: 1}))
	})
}
