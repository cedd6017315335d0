package job

import (
	"strings"
	"testing"
)

// axolotlBase is the least that axolotl takes.
const axolotlBase = "base_model: half\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: " +
	"2\ngradient_accumulation_steps: 4\n"

// Sources: axolotl/utils/schemas/config.py, training.py, peft.py, validation.py, utils/config/__init__.py and
// loaders/model.py at the tags v0.8.0, v0.13.2 and v0.18.0; integrations/liger and cut_cross_entropy for the losses.
func TestAxolotl(t *testing.T) {
	tests := []struct{ name, keys, args, want string }{
		{"defaults", "", "", "framework=axolotl task=sft micro_batch=2 grad_accum=4 global_batch=16 seq_len=512 " +
			"packing=false checkpointing=none optimizer=adamw_fused " +
			"param_dtype=bf16 precision=bf16 master_fp32=false method=full sharding=ddp attention=sdpa " +
			"fused_loss=none ref_model=false activation_offload=false"},
		{"bf16 off", "bf16: false", "", "param_dtype=fp32 precision=fp32"},
		{"float32 alone leaves bf16 auto", "float32: true", "", "param_dtype=bf16 precision=bf16"},
		{"fp16", "fp16: true", "", "param_dtype=fp16 precision=fp16"},
		{"no mixed precision", "bf16: false\nbfloat16: true", "", "param_dtype=bf16 precision=bf16"},
		{"qlora", "adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_alpha: 16\nlora_dropout: " +
			"0.05\nlora_target_linear: true", "", "method=qlora param_dtype=fp32 base_dtype=bf16"},
		{"lora in 8 bits", "adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_alpha: 16\nbf16: false", "",
			"method=lora8bit base_dtype=fp16"},
		{"accumulation from batch_size", "gradient_accumulation_steps:\nbatch_size: 8", "",
			"grad_accum=4 global_batch=16"},
		{"packing", "sample_packing: true\nsequence_len: 4096\nflash_attention: true", "",
			"packing=true seq_len=4096 attention=flash_attention_2"},
		{"one key for attention", "attn_implementation: flex_attention", "", "attention=flex_attention"},
		{"offloaded checkpoints", "gradient_checkpointing: offload", "",
			"checkpointing=offload activation_offload=true"},
		{"unsloth checkpoints", "gradient_checkpointing: unsloth", "", "checkpointing=unsloth"},
		{"offloading of its own", "gradient_checkpointing: true\nactivation_offloading: true", "",
			"checkpointing=full activation_offload=true"},
		{"liger without its plugin", "liger_fused_linear_cross_entropy: true\nliger_rope: true", "",
			"fused_loss=none layer_kernels=none"},
		{"liger", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true", "",
			"fused_loss=liger-flce layer_kernels=none"},
		{"liger's kernels one by one", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rms_norm: " +
			"true\nliger_swiglu: true", "", "fused_loss=none layer_kernels=liger:rms_norm+glu"},
		{"all of liger's kernels", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: " +
			"true\nliger_rms_norm: true\nliger_glu_activation: true", "", "layer_kernels=liger"},
		{"cut cross entropy is on once listed",
			"plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]", "", "fused_loss=cut-ce"},
		{"optimizer", "optimizer: ao_adamw_8bit", "", "optimizer=adamw_torch_8bit"},
		{"pretraining", "pretraining_dataset: [{path: c4}]", "", "task=pretrain"},
		{"dpo", "rl: dpo", "", "task=dpo ref_model=true"},
		{"dpo with adapters", "rl: dpo\nadapter: lora\nlora_r: 8\nlora_alpha: 16", "",
			"task=dpo ref_model=false method=lora"},
		{"orpo", "rl: orpo", "", "task=dpo ref_model=false"},
		{"grpo", "rl: grpo\ntrl: {beta: 0.0, num_generations: 8}", "", "task=grpo ref_model=false"},
		{"fsdp 1 by words", "fsdp: [full_shard, auto_wrap]\nfsdp_config: {fsdp_offload_params: true, " +
			"fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer}", "",
			"sharding=fsdp-full fsdp_version=1 fsdp_wrap=layers param_dtype=fp32"},
		{"fsdp 2", "fsdp_version: 2\nfsdp_config: {offload_params: false, auto_wrap_policy: TRANSFORMER_BASED_WRAP, " +
			"reshard_after_forward: true, activation_checkpointing: true}", "",
			"sharding=fsdp-full fsdp_version=2 fsdp_wrap=layers checkpointing=full offload=none"},
		{"fsdp 2 keeps parameters", "fsdp_version: 2\nfsdp_config: {reshard_after_forward: false}", "",
			"sharding=fsdp-grad fsdp_wrap=whole"},
		{"hybrid", "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\ndp_replicate_size: 2", "",
			"sharding=fsdp-hybrid"},
		{"sequence parallel", "sequence_parallel_degree: 2", "", "cp=2 global_batch=8"},
		{"deepspeed", "deepspeed: z2.json", "", "sharding=zero2 param_dtype=bf16 master_fp32=true"},
		{"deepspeed inline", "deepspeed: {zero_optimization: {stage: 3}, bf16: {enabled: true}}", "", "sharding=zero3"},
		{"overrides", "sequence_len: 4096",
			"--sequence-len 1024 --micro-batch-size=1 --no-sample-packing --gradient-checkpointing",
			"seq_len=1024 micro_batch=1 packing=false checkpointing=full"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, models(t), "z2.json",
				`{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}`)
			base := axolotlBase
			if strings.HasPrefix(tt.keys, "gradient_accumulation_steps:\n") {
				base = strings.Replace(base, "gradient_accumulation_steps: 4\n", "", 1)
			}
			write(t, dir, "c.yml", base+tt.keys+"\n")
			j := readFamily(dir, "axolotl=0.13.2,transformers=4.57.1,torch=2.8.0,peft=0.18.0",
				"torchrun --nproc-per-node 2 -m axolotl.cli.train c.yml "+tt.args, 2)
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Errorf("problems %v, will fail %q", told(j), j.WillFail.Value)
			}
			check(t, j, tt.want)
		})
	}
}

// Sources: the validators of axolotl/utils/schemas at v0.18.0.
func TestAxolotlRefusals(t *testing.T) {
	for keys, want := range map[string]string{
		"adapter: qlora\nlora_r: 8":             "requires load_in_4bit",
		"load_in_4bit: true":                    "without an adapter",
		"rl: dpo\nsample_packing: true":         "does not work with RLHF",
		"batch_size: 8":                         "takes only one of them",
		"deepspeed: z.json\nfsdp: [full_shard]": "cannot be used together",
		"activation_offloading: true":           "requires gradient_checkpointing",
		"fsdp_version: 2\nfsdp_config: {a: 1}\noptimizer: adamw_bnb_8bit":                              "FSDP2 not compatible",
		"fsdp_version: 2\nfsdp_config: {activation_checkpointing: true}\ngradient_checkpointing: true": "can't both be True",
	} {
		dir := write(t, models(t), "c.yml", axolotlBase+keys+"\n")
		j := readFamily(dir, "axolotl=0.18.0,transformers=5.3.0",
			"torchrun --nproc-per-node 2 -m axolotl.cli.train c.yml", 2)
		if !strings.Contains(j.WillFail.Value, want) {
			t.Errorf("%q: will fail %q, want %q", keys, j.WillFail.Value, want)
		}
	}
}

// axolotl/cli/utils/train.py: accelerate launch by default, the launcher's words behind --.
func TestAxolotlCommand(t *testing.T) {
	dir := write(t, models(t), "c.yml", axolotlBase)
	for command, want := range map[string]string{
		"axolotl train c.yml": "launcher=axolotl world_size=4 sharding=ddp micro_batch=2 framework=axolotl",
		"axolotl train c.yml --num-processes 2 --micro-batch-size 3":          "world_size=2 micro_batch=3",
		"axolotl train c.yml --launcher torchrun -- --nproc_per_node=2":       "launcher=axolotl world_size=2",
		"axolotl train c.yml --launcher python":                               "launcher=axolotl world_size=1",
		"axolotl train c.yml --sweep s.yml":                                   "script=unknown micro_batch=unknown",
		"axolotl preprocess c.yml":                                            "script=unknown",
		"torchrun --nproc_per_node 2 -m axolotl.cli.train none.yml":           "micro_batch=unknown sharding=unknown",
		"torchrun --nproc_per_node 2 -m axolotl.cli.train --micro-batch-size": "micro_batch=unknown",
	} {
		t.Run(command, func(t *testing.T) {
			check(t, readFamily(dir, "axolotl=0.13.2,transformers=4.57.1", command, 4),
				want)
		})
	}
}

func FuzzAxolotl(f *testing.F) {
	for _, seed := range []string{axolotlBase, "fsdp_config: 3\nfsdp: 3", "deepspeed: [1]", "adapter: [lora]",
		"batch_size: 0", "micro_batch_size: 0\nbatch_size: 5", "plugins: {a: b}", "optimizer: {a: 1}", "a: &x [*x]",
		"\xff",
		"- a", "gradient_checkpointing: [offload]", "rl: {}", "trl: 3", "bf16: [1]",
		"bnb_config_kwargs: 7\nadapter: qlora\nload_in_4bit: true", "model_name_or_path: x\nstage: sft"} {
		f.Add(seed, "--micro-batch-size 2")
	}
	f.Add("a: 1", "--a.b.c=3 --no- --= --")
	dir := models(f)
	f.Fuzz(func(t *testing.T, text, args string) {
		write(t, dir, "c.yml", text)
		argv := append([]string{"axolotl", "train", "c.yml"}, strings.Fields(args)...)
		settingValues(t, Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half,
			Versions: map[string]string{"transformers": "4.57.1"}}))
	})
}
