package job

import (
	"testing"

	"oomguard/preflight/model"
)

// Sources: accelerate/accelerator.py (native_amp: bf16 and fp16, but neither DeepSpeed nor Megatron-LM), transformers 4
// and 5 (modeling_utils.py: the dtype of from_pretrained), lightning/pytorch/plugins/precision (amp.py, half.py,
// fsdp.py).
func TestAutocast(t *testing.T) {
	const clm = "torchrun --nproc-per-node 1 run_clm.py --output_dir o --model_name_or_path half "
	loop := func(body string) map[string]string {
		return map[string]string{"train.py": "import torch\nfrom accelerate import Accelerator\nfrom transformers " +
			"import AutoModelForCausalLM\n" + body +
			"model = AutoModelForCausalLM.from_pretrained('gpt2', dtype=torch.bfloat16)\noptimizer = " +
			"torch.optim.AdamW(model.parameters())\n"}
	}
	const lightning = "import torch\nimport lightning as L\nfrom transformers import AutoModelForCausalLM\n" +
		"model = AutoModelForCausalLM.from_pretrained('gpt2', torch_dtype=torch.bfloat16)\ntrainer = " +
		"L.Trainer(devices=1, precision='"
	for _, tt := range []struct {
		command, versions string
		files             map[string]string
		want              map[string]string
	}{
		{clm + "--bf16", "transformers=5.9.0", nil,
			map[string]string{"autocast": "true @ command line --bf16", "param_dtype": "bf16", "precision": "bf16"}},
		{clm + "--bf16", "transformers=4.57.1", nil,
			map[string]string{"autocast": "true @ command line --bf16", "param_dtype": "fp32"}},
		{clm, "transformers=5.9.0", nil,
			map[string]string{"autocast": "false @ no mixed precision asked for", "param_dtype": "bf16"}},
		{clm + "--bf16 --deepspeed ds.json", "transformers=5.9.0",
			map[string]string{"ds.json": `{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}`},
			map[string]string{"autocast": "false @ DeepSpeed computes in the dtype of the weights",
				"master_fp32": "true"}},
		{clm + "--bf16 --fsdp full_shard", "transformers=5.9.0", nil,
			map[string]string{"autocast": "true @ command line --bf16", "param_dtype": "fp32"}},
		{"accelerate launch --mixed_precision bf16 train.py", "transformers=5.9.0",
			loop("accelerator = Accelerator()\n"), map[string]string{"autocast": "true", "param_dtype": "bf16"}},
		{"python train.py", "transformers=5.9.0", loop("accelerator = Accelerator(mixed_precision='bf16')\n"),
			map[string]string{"autocast": "true @ train.py:4", "param_dtype": "bf16"}},
		{"python train.py", "transformers=5.9.0",
			loop("with torch.autocast('cuda', dtype=torch.bfloat16):\n    pass\n"),
			map[string]string{"autocast": "true @ train.py:4", "param_dtype": "bf16"}},
		{"python train.py", "transformers=5.9.0", map[string]string{"train.py": lightning + "bf16-mixed')\n"},
			map[string]string{"autocast": "true @ train.py:5", "param_dtype": "bf16", "precision": "bf16"}},
		{"python train.py", "transformers=5.9.0", map[string]string{"train.py": lightning + "bf16-true')\n"},
			map[string]string{"autocast": "false", "param_dtype": "bf16"}},
		{"python train.py", "transformers=5.9.0",
			map[string]string{"train.py": lightning + "bf16-mixed', strategy='fsdp')\n"},
			map[string]string{"autocast": "false", "param_dtype": "fp32"}},
		{"trl sft --model_name_or_path half --dataset_name d --output_dir o", "transformers=5.9.0,trl=0.26.0", nil,
			map[string]string{"autocast": "true @ default of trl 0.26.0", "param_dtype": "bf16"}},
		{"axolotl train a.yaml", "transformers=5.9.0",
			map[string]string{"a.yaml": "base_model: half\nbf16: true\ndatasets:\n  - path: d\n    type: " +
				"alpaca\nmicro_batch_size: 1\n"},
			map[string]string{"autocast": "true @ a.yaml:2", "param_dtype": "bf16"}},
		{"axolotl train a.yaml", "transformers=5.9.0",
			map[string]string{"a.yaml": "base_model: half\nbf16: false\nbfloat16: true\ndatasets:\n  - path: d\n    " +
				"type: alpaca\nmicro_batch_size: 1\n"},
			map[string]string{"autocast": "false", "param_dtype": "bf16"}},
		{"llamafactory-cli train --stage sft --do_train --finetuning_type full --model_name_or_path half --dataset " +
			"d --template default --output_dir o --bf16 --pure_bf16",
			"transformers=5.9.0", nil, map[string]string{"autocast": "true @ command line --bf16",
				"param_dtype": "bf16"}},
	} {
		t.Run(tt.command+" "+tt.versions, func(t *testing.T) {
			dir := models(t)
			for name, text := range tt.files {
				write(t, dir, name, text)
			}
			versions, err := ParseVersions(tt.versions)
			if err != nil {
				t.Fatal(err)
			}
			load := func(string) (*model.Architecture, error) {
				return &model.Architecture{Type: "gpt2", Facts: model.FactsOf("gpt2"), Params: 1, Dtype: "bf16",
					Source: "half"}, nil
			}
			checkSettings(t, Read(Sources{Argv: shellWords(tt.command), Dir: dir, GPUs: 1, LoadModel: load,
				Versions: versions}), tt.want)
		})
	}
}

// --precision says all of it at once: bf16-true stays without autocast.
func TestAutocastOfPrecision(t *testing.T) {
	for word, want := range map[string]string{"bf16-true": "false", "bf16-mixed": "true", "bf16": "false",
		"fp32": "false"} {
		argv := shellWords("torchrun --nproc-per-node 1 run_clm.py --output_dir o --bf16 --model_name_or_path half")
		j := Read(Sources{Argv: argv, Dir: models(t), GPUs: 1, LoadModel: half,
			Flags: map[string]string{"precision": word}})
		checkSettings(t, j, map[string]string{"autocast": want + " @ flag --precision"})
	}
}
