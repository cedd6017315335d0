package job

import "testing"

// What a word of a shell script that nobody knows may decide is unknown in every framework: it may hold options, and no
// default counts. What one option of the command gives is known all the same, but nothing that a file says, which
// options change; and so is everything when the word is the value of another option.
func TestOpenWords(t *testing.T) {
	const titan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
	for _, c := range []struct {
		name, line, file, text string
		want                   map[string]any
	}{
		{"torchtune", "tune run --nproc_per_node 2 full_finetune_distributed --config c.yaml $(extra)", "c.yaml",
			recipe(""),
			map[string]any{"seq_len": nil, "sharding": nil, "tp": nil, "cp": nil}},
		{"torchtitan", "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file c.toml $(extra)", "c.toml",
			titan,
			map[string]any{"seq_len": nil, "tp": nil, "sharding": nil, "checkpointing": nil, "grad_accum": nil}},
		{"torchtitan, a value", "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file c.toml " +
			"--job.dump_folder $DIR", "c.toml", titan,
			map[string]any{"seq_len": 4096, "tp": 1, "sharding": "fsdp-full", "micro_batch": 2}},
		{"LitGPT", "litgpt finetune_full meta-llama/Llama-3.2-1B --precision bf16-true $(extra)", "", "",
			map[string]any{"model": "meta-llama/Llama-3.2-1B", "micro_batch": nil, "nproc": nil, "sharding": nil,
				"optimizer": nil}},
		{"Lightning", "python x.py fit --config c.yaml $(extra)", "c.yaml",
			"trainer: {devices: 2, strategy: deepspeed_stage_3_offload}\nmodel: {class_path: a.B}\n",
			map[string]any{"nproc": nil, "sharding": nil, "grad_accum": nil, "precision": nil, "offload": nil}},
		{"verl", "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B $(extra)", "", "",
			map[string]any{"model": "Qwen/Qwen3-8B", "task": nil, "nproc": nil, "method": nil, "sharding": nil,
				"offload": nil, "checkpointing": nil, "ref_model": nil}},
		{"OpenRLHF", "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain Qwen/Qwen3-8B --zero_stage " +
			"3 --save_path $OUT $(extra)", "", "",
			map[string]any{"model": "Qwen/Qwen3-8B", "sharding": nil, "checkpointing": nil, "param_dtype": nil,
				"offload": nil, "method": nil, "packing": nil, "attention": nil, "cp": nil}},
		{"OpenRLHF, a value", "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain Qwen/Qwen3-8B " +
			"--max_len $LEN --save_path $OUT", "", "",
			map[string]any{"sharding": "zero2", "checkpointing": "none", "seq_len": nil, "micro_batch": 8}},
		{"Megatron-LM, a value", megatronGPT + "--bf16 --save $CKPT --data-path $DATA", "", "",
			map[string]any{"param_dtype": "bf16", "checkpointing": "none", "sharding": "ddp"}},
		{"Megatron-LM", megatronGPT + "--bf16 --save $CKPT $(extra)", "", "",
			map[string]any{"micro_batch": 2, "checkpointing": nil, "precision": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "open.sh", c.line+"\n")
			if c.file != "" {
				write(t, dir, c.file, c.text)
			}
			values := settingValues(t, Read(Sources{Argv: []string{"bash", "open.sh"}, Dir: dir, GPUs: 8, CPUs: 2}))
			for key, want := range c.want {
				if n, ok := want.(int); ok {
					want = float64(n)
				}
				if !sameValue(key, values[key], want) {
					t.Errorf("%s: got %v, want %v", key, values[key], want)
				}
			}
		})
	}
}
