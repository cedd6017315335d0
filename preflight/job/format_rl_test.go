package job

import (
	"strings"
	"testing"
)

const verlPPO = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct " +
	"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 "

// Defaults: verl/trainer/config/*.yaml of January 2026; models beside the actor: trainer/ppo/utils.py; batches:
// workers/fsdp_workers.py.
func TestVerl(t *testing.T) {
	for _, c := range []formatCase{
		{name: "defaults", cmd: verlPPO,
			want: map[string]any{"launcher": "ray", "framework": "verl", "task": "ppo", "nnodes": 1, "nproc": 8,
				"world_size": 8, "micro_batch": 8, "grad_accum": 4, "global_batch": 256,
				"seq_len": 1024, "packing": false, "param_dtype": "fp32", "precision": "bf16", "master_fp32": false,
				"optimizer": "adamw", "checkpointing": "full", "activation_offload": false, "method": "full",
				"sharding": "fsdp-full", "fsdp_version": 1, "attention": "flash_attention_2", "fused_loss": "none",
				"ref_model": false, "inference_share": 0, "cp": 1, "model_params": 494032768}},
		{name: "more nodes, sequence parallel",
			cmd: verlPPO + "trainer.nnodes=2 actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 " +
				"actor_rollout_ref.rollout.n=4",
			want: map[string]any{"world_size": 16, "cp": 4, "global_batch": 1024, "grad_accum": 32}},
		{name: "KL in the reward", cmd: verlPPO + "algorithm.use_kl_in_reward=True algorithm.adv_estimator=rloo",
			want: map[string]any{"ref_model": true, "task": "rloo"}},
		{name: "adapters are their own reference",
			cmd: verlPPO + "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.model.lora_rank=32 " +
				"algorithm.adv_estimator=grpo",
			want: map[string]any{"ref_model": false, "method": "lora", "task": "grpo", "base_dtype": "fp32",
				"lora": map[string]any{"r": 32., "alpha": 16., "dropout": 0., "targets": "all-linear",
					"modules_to_save": nil, "dora": false, "rslora": false}}},
		{name: "FSDP2, offload, losses",
			cmd: verlPPO + "actor_rollout_ref.actor.strategy=fsdp2 " +
				"actor_rollout_ref.actor.fsdp_config.offload_policy=True " +
				"actor_rollout_ref.model.use_fused_kernels=True " +
				"+actor_rollout_ref.model.override_config.attn_implementation=sdpa " +
				"actor_rollout_ref.actor.fsdp_config.reshard_after_forward=False " +
				"actor_rollout_ref.actor.fsdp_config.model_dtype=bf16",
			want: map[string]any{"fsdp_version": 2, "sharding": "fsdp-grad",
				"offload": map[string]any{"optimizer": "cpu", "params": "cpu"}, "fused_loss": "chunked",
				"attention": "sdpa", "param_dtype": "bf16"}},
		{name: "Liger's kernels in the layers", cmd: verlPPO + "actor_rollout_ref.model.use_liger=True",
			want: map[string]any{"fused_loss": "none", "layer_kernels": "liger"}},
		{name: "hybrid sharding", cmd: verlPPO + "actor_rollout_ref.actor.fsdp_config.fsdp_size=4",
			want: map[string]any{"sharding": "fsdp-hybrid"}},
		{name: "engine stays", cmd: verlPPO +
			"actor_rollout_ref.rollout.free_cache_engine=False actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
			want: map[string]any{"inference_share": 0.4}},
		{name: "batches of tokens", cmd: "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.use_dynamic_bsz=True", want: map[string]any{"micro_batch": 16, "grad_accum": nil, "global_batch": 256}},
		{name: "Megatron", cmd: verlPPO +
			"--config-name=ppo_megatron_trainer actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 " +
			"actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 " +
			"+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full",
			want: map[string]any{"tp": 2, "pp": 2, "sharding": "dist-optim", "checkpointing": "full",
				"master_fp32": true, "param_dtype": "bf16"}},
		{name: "a file and references", cmd: verlPPO + "--config-path . --config-name mine data.max_prompt_length=100",
			file: "mine.yaml",
			text: "data: {max_prompt_length: 1, max_response_length: '${data.max_prompt_length}'}\ntrainer: " +
				"{n_gpus_per_node: 2}\n", want: map[string]any{"seq_len": 200, "nproc": 2}},
		{name: "file missing", cmd: verlPPO + "--config-path . --config-name mine", problem: "mine.yaml",
			want: map[string]any{"seq_len": nil, "micro_batch": nil}},
		{name: "a recipe", cmd: strings.Replace(verlPPO, "verl.trainer.main_ppo", "recipe.dapo.main_dapo", 1),
			want: map[string]any{"framework": "verl", "launcher": "ray", "micro_batch": 8}},
		{name: "behind ray job submit", cmd: "ray job submit --address http://x -- " + verlPPO,
			want: map[string]any{"framework": "verl", "nproc": 8}},
		{name: "words for numbers", cmd: verlPPO + "data.max_prompt_length=long", problem: "data.max_prompt_length",
			want: map[string]any{"seq_len": nil}},
		{name: "no micro-batch", cmd: "python3 -m verl.trainer.main_ppo a=1", fail: "Please set at least one",
			want: map[string]any{"micro_batch": nil}},
		{name: "batches do not divide", cmd: verlPPO + "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=7",
			fail: "should be divisible by ppo_micro_batch_size_per_gpu 7", want: map[string]any{"grad_accum": nil}},
		{name: "mini-batch above the batch", cmd: verlPPO + "data.train_batch_size=128",
			fail: "train_batch_size (128) must be >= actor.ppo_mini_batch_size (256)"},
		{name: "fine-tuning", cmd: "torchrun --nproc_per_node 4 -m verl.trainer.fsdp_sft_trainer " +
			"model.partial_pretrain=Qwen/Qwen2.5-0.5B model.lora_rank=8 optim.lr=1e-4",
			want: map[string]any{"launcher": "torchrun", "task": "sft", "nproc": 4, "micro_batch": 4, "grad_accum": 16,
				"global_batch": 256, "seq_len": 1024, "sharding": "fsdp-full", "fsdp_version": 2, "method": "lora",
				"precision": "bf16", "ref_model": false}},
		{name: "fine-tuning on engines",
			cmd: "torchrun --nproc_per_node 4 -m verl.trainer.sft_trainer model.path=Qwen/Qwen2.5-0.5B " +
				"engine.optimizer_offload=True",
			want: map[string]any{"task": "sft", "micro_batch": 8, "fsdp_version": 1,
				"offload": map[string]any{"optimizer": "cpu", "params": "none"}}},
	} {
		c.versions = map[string]string{"verl": "0.7.0"}
		t.Run(c.name, c.run)
	}
}

const openrlhfSFT = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft "

// Defaults: openrlhf/cli/*.py of v0.8.0 to v0.9.10 (flat options) and of August 2026 (options with dots).
func TestOpenRLHF(t *testing.T) {
	for _, test := range []struct {
		version string
		formatCase
	}{
		{"0.8.0", formatCase{name: "flat defaults", cmd: openrlhfSFT + "--pretrain Qwen/Qwen2.5-0.5B",
			want: map[string]any{"framework": "openrlhf", "task": "sft", "micro_batch": 8, "grad_accum": 2,
				"global_batch": 128,
				"seq_len":      2048, "packing": false, "sharding": "zero2", "param_dtype": "fp32",
				"master_fp32": false,
				"attention":   "eager", "checkpointing": "none", "optimizer": "adamw_fused", "method": "full",
				"ref_model": false}}},
		{"0.9.10", formatCase{name: "later flat defaults", cmd: openrlhfSFT + "--pretrain Qwen/Qwen2.5-0.5B",
			want: map[string]any{"param_dtype": "bf16", "master_fp32": true, "attention": "flash_attention_2"}}},
		{"", formatCase{name: "version unknown", cmd: openrlhfSFT + "--pretrain Qwen/Qwen2.5-0.5B",
			want: map[string]any{"param_dtype": nil, "attention": nil, "seq_len": 2048}}},
		{"", formatCase{name: "dots tell the era",
			cmd: openrlhfSFT + "--model.model_name_or_path Qwen/Qwen2.5-0.5B --train.micro_batch_size 2 " +
				"--train.batch_size 64 --data.max_len 4096 --ds.zero_stage 3 --ds.adam_offload " +
				"--ds.packing_samples --model.gradient_checkpointing_enable --ds.lora.rank 16 --ds.lora.target_modules " +
				"q_proj v_proj --ds.load_in_4bit",
			want: map[string]any{"micro_batch": 2, "grad_accum": 4, "global_batch": 64, "seq_len": 4096,
				"sharding": "zero3", "optimizer": "cpu_adam", "packing": true, "checkpointing": "full",
				"param_dtype": "bf16",
				"attention":   "flash_attention_2", "method": "qlora",
				"offload": map[string]any{"optimizer": "cpu", "params": "none"},
				"lora": map[string]any{"r": 16., "alpha": 16., "dropout": 0., "targets": []any{"q_proj", "v_proj"},
					"modules_to_save": nil, "dora": false, "rslora": false},
				"quant": map[string]any{"method": "bnb", "bits": 4., "type": "nf4", "double": true,
					"compute_dtype": "bf16", "storage": "uint8"}}}},
		{"0.11.0", formatCase{name: "muon", cmd: openrlhfSFT + "--optim muon",
			want: map[string]any{"optimizer": "muon", "model": nil}}},
		{"0.8.0", formatCase{name: "ring and tensor parallel",
			cmd:  openrlhfSFT + "--ring_attn_size 2 --packing_samples --ds_tensor_parallel_size 2 --bf16",
			want: map[string]any{"cp": 2, "tp": 2, "grad_accum": 8, "global_batch": 128}}},
		{"0.8.0", formatCase{name: "abbreviated", cmd: openrlhfSFT + "--micro_train 4 --zero 3 --bf16",
			want: map[string]any{"micro_batch": 4, "sharding": "zero3"}}},
		{"0.8.0", formatCase{name: "pretraining", cmd: openrlhfSFT + "--pretrain_mode --bf16",
			want: map[string]any{"task": "pretrain"}}},
		{"0.8.0", formatCase{name: "preferences",
			cmd: "deepspeed --num_gpus 8 --module openrlhf.cli.train_dpo --bf16 --lora_rank 8",
			want: map[string]any{"task": "dpo", "ref_model": true, "seq_len": 512, "method": "lora",
				"param_dtype": "bf16", "base_dtype": "bf16"}}},
		{"0.8.0", formatCase{name: "reward", cmd: "deepspeed --num_gpus 8 --module openrlhf.cli.train_rm --bf16",
			want: map[string]any{"task": "rm", "micro_batch": 1, "grad_accum": 16}}},
		{"0.8.0", formatCase{name: "on Ray",
			cmd: "python3 -m openrlhf.cli.train_ppo_ray --bf16 --actor_num_gpus_per_node 4 --colocate_all_models " +
				"--vllm_num_engines 4 --vllm_gpu_memory_utilization 0.5 --advantage_estimator group_norm",
			want: map[string]any{"launcher": "ray", "task": "grpo", "nproc": 4, "micro_batch": 4, "grad_accum": 8,
				"seq_len": 2048, "ref_model": true, "inference_share": 0.5}}},
		{"0.8.0", formatCase{name: "on Ray, apart",
			cmd:  "python3 -m openrlhf.cli.train_ppo_ray --bf16 --vllm_num_engines 4",
			want: map[string]any{"task": "ppo", "nproc": 8, "ref_model": false, "inference_share": 0}}},
		{"0.8.0", formatCase{name: "batches do not divide", cmd: openrlhfSFT + "--train_batch_size 100 --bf16",
			fail: "train_batch_size 100", want: map[string]any{"grad_accum": nil}}},
		{"0.8.0", formatCase{name: "ring without packing", cmd: openrlhfSFT + "--ring_attn_size 2 --bf16",
			fail: "packing_samples must be enabled"}},
		{"0.8.0", formatCase{name: "a word for a number", cmd: openrlhfSFT + "--max_len long --bf16",
			fail: "invalid int value", want: map[string]any{"seq_len": nil}}},
	} {
		c := test.formatCase
		c.gpus = 8
		if test.version != "" {
			c.versions = map[string]string{"openrlhf": test.version}
		}
		t.Run(c.name, c.run)
	}
}

func FuzzReinforcementLearning(f *testing.F) {
	f.Add("actor_rollout_ref.rollout.n=0 ~data +a.b=[1] trainer.nnodes=-1 --config-name",
		"data: {max_prompt_length: 1e99}")
	f.Add("--zero_stage 9 --lora_rank -1 --target_modules --ring_attn_size 0", "trainer: [1]")
	f.Add("actor_rollout_ref=1 actor_rollout_ref.actor.strategy=${x} data.train_batch_size=null --ds.lora.rank=x",
		"- a")
	f.Fuzz(func(t *testing.T, words, text string) {
		dir := t.TempDir()
		write(t, dir, "c.yaml", text)
		for _, cmd := range []string{verlPPO + "--config-path . --config-name c ",
			"torchrun -m verl.trainer.sft_trainer ", openrlhfSFT, "python -m openrlhf.cli.train_ppo_ray "} {
			settingValues(t, Read(Sources{Argv: strings.Fields(cmd + words), Dir: dir, GPUs: 4}))
		}
	})
}
