package job

import (
	"strings"
	"testing"
)

// readFamily reads a command in a folder with forced versions, as words separated by blanks.
func readFamily(dir, versions, command string, gpus int) *Job {
	list, err := ParseVersions(versions)
	if err != nil {
		panic(err)
	}
	return Read(Sources{Argv: shellWords(command), Dir: dir, GPUs: gpus, CPUs: 4, LoadModel: half, Versions: list})
}

// Defaults of trl/trainer/*_config.py at the tags v0.16.1, v0.18.2, v0.19.1, v0.21.0, v0.25.1, v1.2.0, v1.6.0 and
// v1.9.0.
func TestTRLDefaults(t *testing.T) {
	tests := []struct{ version, args, want string }{
		{"0.16.1", "sft", "precision=fp32 checkpointing=none seq_len=1024 packing=false fused_loss=none " +
			"activation_offload=false ref_model=false micro_batch=8"},
		{"0.19.1", "sft", "precision=bf16 checkpointing=none param_dtype=fp32"},
		{"0.19.1", "sft --fp16", "precision=fp16"},
		{"0.19.1", "sft --bf16 false", "precision=fp32"},
		{"0.22.0", "sft", "precision=bf16 checkpointing=full"},
		{"0.22.0", "sft --no_gradient_checkpointing", "checkpointing=none"},
		{"0.25.1", "sft --max_length 2048 --packing", "seq_len=2048 packing=true fused_loss=none"},
		{"1.6.0", "sft", "fused_loss=chunked"},
		{"1.6.0", "sft --use_liger_kernel", "fused_loss=liger-flce layer_kernels=liger"},
		{"1.6.0", "sft --loss_type nll", "fused_loss=none"},
		{"0.19.1", "dpo --use_liger_kernel", "fused_loss=none layer_kernels=liger"}, // its loss is computed from logits
		{"0.19.1", "dpo --use_liger_kernel --use_liger_loss", "fused_loss=liger-flce layer_kernels=liger"},
		{"1.6.0", "dpo --use_liger_kernel", "fused_loss=liger-flce"},
		{"", "sft", "checkpointing=unknown fused_loss=unknown seq_len=1024 packing=false"},
		{"0.12.2", "dpo", "seq_len=512 ref_model=true"},
		{"0.16.1", "dpo", "seq_len=1024 ref_model=true fused_loss=none packing=false"},
		{"0.16.1", "dpo --use_peft", "ref_model=false method=lora"},
		{"0.16.1", "dpo --precompute_ref_log_probs", "ref_model=false"},
		// without --use_peft the LoRA arguments have no effect
		{"0.16.1", "dpo --lora_r 8", "method=full ref_model=true"},
		{"0.21.0", "kto", "ref_model=true task=kto"},
		{"0.25.1", "reward", "task=rm ref_model=false seq_len=1024"},
		{"0.18.2", "grpo", "ref_model=true seq_len=768 inference_share=0"},
		{"0.19.1", "grpo", "ref_model=false"},
		{"0.19.1", "grpo --beta 0.1", "ref_model=true"},
		{"0.19.1", "grpo --beta 0.1 --use_peft", "ref_model=false"},
		{"1.2.0", "grpo --use_vllm", "inference_share=0.3 seq_len=unknown"},
		{"1.2.0", "grpo --use_vllm --vllm_gpu_memory_utilization 0.5", "inference_share=0.5"},
		{"0.21.0", "grpo --use_vllm", "inference_share=0"}, // the server has GPUs of its own
		{"0.21.0", "grpo --use_vllm --vllm_mode colocate --max_prompt_length 256 --max_completion_length 1024",
			"inference_share=0.3 seq_len=1280"},
		{"", "grpo", "ref_model=unknown"},
		{"1.2.0", "rloo", "ref_model=true"},
		{"0.27.2", "sft", "param_dtype=fp32"}, // ModelConfig.dtype: float32
		// trainer/utils.py, create_model_from_path: its "auto" never reaches from_pretrained
		{"0.26.2", "sft", "param_dtype=fp32"},
		{"0.16.1", "kto --use_peft --load_in_4bit --torch_dtype bfloat16",
			"ref_model=true method=lora param_dtype=fp32 base_dtype=fp32"},
		{"1.8.0", "kto --use_peft --load_in_4bit", "ref_model=false method=qlora param_dtype=bf16"},
		{"", "kto --use_peft", "ref_model=unknown"},
		{"1.2.0", "reward --dtype bfloat16", "param_dtype=fp32"}, // scripts/reward.py passes the name alone until 1.5
		{"1.5.0", "reward --dtype bfloat16", "param_dtype=bf16"},
		// peft_module_casting_to_bf16: 4 bits alone
		{"0.21.0", "sft --load_in_8bit --use_peft", "method=lora8bit param_dtype=fp32"},
		{"0.29.0", "dpo --load_in_8bit --use_peft", "method=lora8bit param_dtype=bf16"},
		{"0.25.1", "sft --dtype bfloat16 --load_in_4bit --use_peft", "method=qlora param_dtype=bf16 base_dtype=bf16"},
	}
	dir := models(t)
	for _, tt := range tests {
		t.Run(tt.version+" "+tt.args, func(t *testing.T) {
			versions := "transformers=4.57.1,torch=2.6.0,peft=0.18.0"
			if tt.version != "" {
				versions += ",trl=" + tt.version
			}
			program, args, _ := strings.Cut(tt.args, " ")
			j := readFamily(dir, versions, "torchrun --nproc-per-node 2 trl/scripts/"+program+
				".py --model_name_or_path half --output_dir o "+args, 2)
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Errorf("problems %v, will fail %q", told(j), j.WillFail.Value)
			}
			check(t, j, tt.want)
		})
	}
}

// Sources: hf_argparser.py for Optional[bool]; the field lists of trl/trainer/*_config.py; grpo_config.py,
// __post_init__; scripts/utils.py.
func TestTRLRefusals(t *testing.T) {
	tests := []struct{ version, args, want string }{
		{"0.19.1", "sft --bf16 --output_dir o", "argument --bf16: expected one argument"},
		{"0.18.2", "sft --bf16 --output_dir o", ""},
		{"1.0.0", "sft --max_seq_length 512", "--max_seq_length"},
		{"0.28.0", "sft --torch_dtype bfloat16", ""}, // ignored: a problem, but no end
		{"0.21.0", "dpo --torch_dtype bfloat16", ""},
		{"0.19.1", "grpo --num_generations 5", "generation_batch_size (16) must be divisible by num_generations (5)"},
		{"0.19.1", "grpo --num_generations 16", ""},
		{"0.19.1", "sft --use_peft --load_in_4bit --load_in_8bit", "load_in_4bit and load_in_8bit"},
		{"0.19.1", "sft --load_in_4bit", "purely quantized"},
		{"0.19.1", "sft --bf16 true --fp16", "At most one of fp16 and bf16"},
		{"0.22.0", "sft --fsdp full_shard --fsdp_config {\x22activation_checkpointing\x22:true}", "can't both be True"},
		{"0.21.0", "sft --fsdp full_shard --fsdp_config {\x22activation_checkpointing\x22:true}", ""},
	}
	dir := models(t)
	for _, tt := range tests {
		program, args, _ := strings.Cut(tt.args, " ")
		argv := append([]string{"torchrun", "--nproc-per-node", "2", "trl/scripts/" + program + ".py",
			"--model_name_or_path", "half"}, strings.Fields(args)...)
		j := Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half,
			Versions: map[string]string{"trl": tt.version, "transformers": "4.57.1"}})
		if got := j.WillFail.Value; tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: will fail %q, want %q", tt.version, tt.args, got, tt.want)
		}
	}
}

func TestTRLConfig(t *testing.T) {
	dir := write(t, models(t), "sft.yaml",
		"model_name_or_path: half\nper_device_train_batch_size: 4\nmax_length: 128\nlora_target_modules: [q_proj, "+
			"v_proj]\nuse_peft: true\nenv:\n  ACCELERATE_MIXED_PRECISION: fp16\n")
	write(t, dir, "broken.yaml", "a: [1\nb: 2")
	versions := "trl=0.16.1,transformers=4.50.0"
	j := readFamily(dir, versions, "torchrun trl/scripts/sft.py --config sft.yaml --max_length 256", 1)
	check(t, j, "micro_batch=4 seq_len=256 method=lora precision=fp16")
	if got := strings.Join(j.LoRA.Value.Targets, " "); got != "q_proj v_proj" {
		t.Errorf("targets %q", got)
	}
	if j.MicroBatch.Origin != "sft.yaml:2" {
		t.Errorf("origin %q, want file and line", j.MicroBatch.Origin)
	}
	// TrlParser looks for the word --config alone.
	check(t, readFamily(dir, versions, "torchrun trl/scripts/sft.py --config=sft.yaml", 1),
		"micro_batch=8 model=unknown")
	for args, want := range map[string]string{"--config none.yaml": "none.yaml: no such file",
		"--config broken.yaml": "broken.yaml:", "--config .": "is a directory"} {
		j := readFamily(dir, versions, "torchrun trl/scripts/sft.py "+args, 1)
		if len(told(j)) != 1 || !strings.Contains(told(j)[0].Error(), want) {
			t.Errorf("%s: problems %v, want %q", args, told(j), want)
		}
		check(t, j, "sharding=unknown")
	}
}

// trl/cli/commands/training.py: what the script does not know goes to accelerate launch; before 0.29 only sft passed it
// on.
func TestTRLCommand(t *testing.T) {
	dir := write(t, models(t), "dpo.yaml", "model_name_or_path: half\nnum_processes: 3\n")
	tests := []struct{ versions, command, want string }{
		{"trl=1.2.0,transformers=5.3.0",
			"trl sft --model_name_or_path half --accelerate_config zero3 --num_processes 2 " +
				"--gradient_accumulation_steps 4",
			"launcher=trl framework=trl task=sft world_size=2 sharding=zero3 precision=bf16 grad_accum=4 " +
				"param_dtype=bf16 master_fp32=true"},
		{"trl=1.2.0,transformers=4.57.1", "trl sft --model_name_or_path half --accelerate_config fsdp2",
			"world_size=8 sharding=fsdp-full fsdp_version=2"},
		{"trl=1.2.0,transformers=5.3.0", "trl sft --model_name_or_path half --accelerate_config single_gpu",
			"world_size=1"},
		{"trl=1.2.0,transformers=5.3.0", "trl dpo --config dpo.yaml", "world_size=3 sharding=ddp task=dpo"},
		{"trl=0.21.0,transformers=4.53.0", "trl dpo --config dpo.yaml --accelerate_config zero3",
			"world_size=4 sharding=ddp"},
		{"trl=1.2.0", "trl env", "script=unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) { check(t, readFamily(dir, tt.versions, tt.command, 4), tt.want) })
	}
}

// A script of the name alone is TRL's only when it makes a trainer of TRL's.
func TestTRLScripts(t *testing.T) {
	dir := write(t, models(t), "sft.py", "import trl\n")
	write(t, dir, "kto.py", "from trl import KTOConfig, KTOTrainer, ModelConfig, ScriptArguments, TrlParser\nparser "+
		"= TrlParser((ScriptArguments, KTOConfig, "+
		"ModelConfig))\nKTOTrainer(args=parser.parse_args_and_config()[1]).train()\n")
	write(t, dir, "rloo.py", "try:\n    from trl import RLOOTrainer\nexcept ImportError:\n    RLOOTrainer = "+
		"None\nRLOOTrainer(model).train()\n")
	write(t, dir, "dpo.py", "import torch\n")
	for script, want := range map[string]string{"trl/scripts/sft.py": "trl", "-m trl.scripts.kto": "trl",
		"examples/scripts/sft.py": "trl", "sft.py": "unknown", "kto.py": "trl", "rloo.py": "unknown",
		"dpo.py":          "unknown",
		"scripts/grpo.py": "unknown", "scripts/ppo.py": "unknown"} {
		check(t, readFamily(dir, "trl=0.19.1", "torchrun "+script+" --beta 0.1", 1), "framework="+want)
	}
}

func FuzzTRLConfig(f *testing.F) {
	for _, seed := range []string{"a: 1", "max_length: 2\nmax_length: 3", "env: [1]", "env: {A: {B: 1}}", "a: &x [*x]",
		"<<: *b", "- 1", "\xff", "use_peft: maybe\nlora_r: -1", "base_model: x", "num_processes: many",
		"max_length: 1e30\nper_device_train_batch_size: 99999999999999999999",
		"vllm_gpu_memory_utilization: x\nuse_vllm: true\nvllm_mode: colocate",
		"fsdp_config: {a: 1}\nfsdp: full_shard", "deepspeed: {zero_optimization: {stage: x}}"} {
		f.Add(seed)
	}
	dir := models(f)
	f.Fuzz(func(t *testing.T, text string) {
		write(t, dir, "c.yaml", text)
		for _, command := range []string{"trl grpo --config c.yaml", "python trl/scripts/sft.py --config c.yaml"} {
			j := readFamily(dir, "trl=1.2.0,transformers=5.3.0", command, 2)
			settingValues(t, j)
		}
	})
}
