package job

import (
	"strings"
	"testing"
)

const unslothScript = `from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Llama-3.2-3B-Instruct", max_seq_length=4096)
model = FastLanguageModel.get_peft_model(model, r=32)
SFTTrainer(model=model, args=SFTConfig(output_dir="o")).train()
`

// Defaults: from_pretrained and get_peft_model in unsloth/models/loader.py and llama.py, the configurations in
// unsloth/models/rl.py.
func TestUnsloth(t *testing.T) {
	change := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(unslothScript) }
	for _, row := range []struct {
		name, script string
		want         map[string]string
		fails        string
	}{
		{"defaults", unslothScript, map[string]string{"seq_len": "4096 @ train.py:4", "method": "qlora",
			"quant": "bnb 4 bits, nf4, scales quantised too", "micro_batch": "4 @ Unsloth", "grad_accum": "2",
			"optimizer": "adamw_8bit", "checkpointing": "unsloth", "sharding": "none", "precision": "unknown: Unsloth",
			"param_dtype": "unknown: Unsloth",
			"lora":        "r 32, alpha 16, dropout 0, targets q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"}, ""},
		{"16 bits", change("max_seq_length=4096", "load_in_4bit=False"),
			map[string]string{"method": "lora", "quant": "none", "seq_len": "2048 @ default"}, ""},
		{"full", change("max_seq_length=4096", "full_finetuning=True"),
			map[string]string{"method": "full", "quant": "none", "lora": "none"}, ""},
		{"8 bits beside the default", change("max_seq_length=4096", "load_in_8bit=True"), nil, "not a combination"},
		{"8 bits alone", change("max_seq_length=4096", "load_in_8bit=True, load_in_4bit=False"),
			map[string]string{"method": "lora8bit"}, ""},
		{"ordinary checkpointing", change("r=32", "use_gradient_checkpointing=True"),
			map[string]string{"checkpointing": "full",
				"lora": "r 16, alpha 16, dropout 0, targets q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"},
			""},
		{"a dtype", change("max_seq_length=4096", "dtype=torch.bfloat16"),
			map[string]string{"base_dtype": "bf16", "quant": "bnb 4 bits, nf4, scales quantised too, computes in bf16"},
			""},
		{"bf16 by the GPU", change(`output_dir="o"`, "bf16=is_bfloat16_supported()"),
			map[string]string{"precision": "unknown: is_bfloat16_supported(...)"}, ""},
		{"vLLM", change("max_seq_length=4096", "fast_inference=True, gpu_memory_utilization=0.6"),
			map[string]string{"inference_share": "0.6"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := scriptJob(t, map[string]string{"train.py": row.script}, 2, "trl=0.22.0", "python train.py")
			if got := j.WillFail.Value; !strings.Contains(got, row.fails) || row.fails == "" && got != "" {
				t.Errorf("will_fail %q, want %q", got, row.fails)
			}
			checkSettings(t, j, row.want)
		})
	}
}

// Options and defaults of unsloth-cli.py.
func TestUnslothCLI(t *testing.T) {
	j := scriptJob(t, nil, 1, "", "python unsloth-cli.py --model_name unsloth/llama-3-8b-Instruct --load_in_4bit "+
		"--r 64 --max_seq_length=8192")
	checkSettings(t, j, map[string]string{"framework": "unsloth", "model": "unsloth/llama-3-8b-Instruct",
		"seq_len": "8192 @ command line", "micro_batch": "2 @ default of unsloth-cli.py", "grad_accum": "4",
		"method": "qlora", "lora": "r 64, alpha 16, dropout 0, targets " +
			"q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj", "optimizer": "adamw_8bit",
		"checkpointing": "unsloth"})
}
