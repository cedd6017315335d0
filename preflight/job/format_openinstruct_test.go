package job

import (
	"strings"
	"testing"
)

// open_instruct/finetune.py, dpo_utils.py and grpo_utils.py of August 2026.
func TestOpenInstruct(t *testing.T) {
	dir := write(t, models(t), "c.yaml", "model_name_or_path: half\nper_device_train_batch_size: 2\nuse_lora: true\n")
	for command, want := range map[string]string{
		"torchrun --nproc-per-node 2 open_instruct/finetune.py --model_name_or_path half --dataset_mixer_list a 1.0 " +
			"b 0.5 --gradient_checkpointing": "framework=open-instruct task=sft checkpointing=full " +
			"micro_batch=8 grad_accum=1 optimizer=adamw_fused attention=unknown param_dtype=bf16 ref_model=false " +
			"packing=false seq_len=unknown method=full",
		"torchrun open_instruct/finetune.py --model_name_or_path half --use_lora --use_qlora --max_seq_length 1024": "method=qlora optimizer=paged_adamw seq_len=1024",
		"torchrun open_instruct/finetune.py c.yaml --per_device_train_batch_size=4":                                 "micro_batch=4 method=lora model=half",
		"torchrun open_instruct/dpo_tune_cache.py --model_name_or_path half":                                        "task=dpo ref_model=false optimizer=adamw_fused",
		"python open_instruct/grpo_fast.py --model_name_or_path half --num_learners_per_node 6 6 --deepspeed_stage " +
			"3 --pack_length 4096": "task=grpo nnodes=2 nproc=6 sharding=zero3 seq_len=4096 packing=true ref_model=true",
	} {
		t.Run(command, func(t *testing.T) {
			check(t, readFamily(dir, "transformers=4.56.0,torch=2.8.0,peft=0.18.0", command, 2), want)
		})
	}
}

func FuzzOpenInstruct(f *testing.F) {
	for _, seed := range []string{"model_name_or_path: half\nuse_lora: true\nlora_alpha: x", "- 1", "\xff",
		"num_learners_per_node: [1, a]", "a: &x [*x]", "deepspeed_stage: 9"} {
		f.Add(seed, "--num_learners_per_node 1 2 --use_qlora")
	}
	dir := models(f)
	f.Fuzz(func(t *testing.T, text, args string) {
		write(t, dir, "c.yaml", text)
		argv := append([]string{"python", "open_instruct/grpo_fast.py", "c.yaml"}, strings.Fields(args)...)
		settingValues(t, Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half}))
	})
}
