package job

import (
	"strings"
	"testing"

	"oomguard/preflight/model"
)

// Sources: training_args.py (_process_fsdp_args) of transformers 4.57.6, 5.2.0, 5.4.0, 5.6.2, 5.9.0, 5.10.1 and 5.24.0.
func TestFSDPByVersion(t *testing.T) {
	tests := []struct{ version, args, want string }{
		{"4.57.6", `--fsdp full_shard --fsdp_config v2.json`, "fsdp_version=1 sharding=fsdp-full fsdp_wrap=whole"},
		{"5.2.0", `--fsdp full_shard --fsdp_config v2.json`, "fsdp_version=2 sharding=fsdp-full"},
		// reshard_after_forward was false
		{"5.2.0", `--fsdp full_shard --fsdp_config plain2.json`, "fsdp_version=2 sharding=fsdp-grad"},
		{"5.4.0", `--fsdp full_shard --fsdp_config plain2.json`, "fsdp_version=2 sharding=fsdp-full"},
		{"5.4.0", `--fsdp shard_grad_op --fsdp_config plain2.json`, "sharding=fsdp-grad"},
		{"", `--fsdp full_shard --fsdp_config plain2.json`, "fsdp_version=2 sharding=unknown"},
		{"5.9.0", `--fsdp "full_shard auto_wrap"`, "fsdp_version=1 sharding=fsdp-full fsdp_wrap=layers"},
		{"5.10.1", `--fsdp full_shard`, "fsdp_version=2 sharding=fsdp-full fsdp_wrap=layers"},
		{"5.24.0", `--fsdp true`, "fsdp_version=2 sharding=fsdp-full fsdp_wrap=layers"},
		{"5.24.0", `--fsdp`, "fsdp_version=2 sharding=fsdp-full"},
		{"5.24.0", `--fsdp true --fsdp_config gathered.json`, "fsdp_version=2 fsdp_wrap=size"},
		{"5.24.0", `--fsdp true --fsdp_config {'version':1,'reshard_after_forward':'shard_grad_op'}`,
			"fsdp_version=1 sharding=fsdp-grad"},
		{"5.24.0", `--fsdp "full_shard offload"`, "sharding=fsdp-full"},
		{"", `--fsdp full_shard`, "fsdp_version=unknown sharding=fsdp-full"},
	}
	dir := write(t, models(t), "plain2.json", `{"version": 2}`)
	for _, tt := range tests {
		t.Run(tt.version+" "+tt.args, func(t *testing.T) {
			argv := shellWords("torchrun --nproc-per-node 2 run_clm.py --output_dir o --model_name_or_path half " +
				tt.args)
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], "'", `"`)
			}
			j := Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half,
				Versions: map[string]string{"transformers": tt.version}})
			if len(told(j)) > 0 {
				t.Error(told(j))
			}
			check(t, j, tt.want)
		})
	}
}

// Sources: _supports_sdpa in transformers' modeling files of these versions.
func TestAttentionByVersion(t *testing.T) {
	for _, tt := range []struct{ kind, version, want string }{
		{"llama", "4.35.2", "eager"}, {"llama", "4.57.1", "sdpa"}, {"gemma2", "4.46.3", "eager"},
		{"gemma2", "4.57.1", "sdpa"}, {"gemma2", "5.24.0", "eager"}, {"gemma2", "", "unknown"},
		{"bloom", "5.24.0", "eager"}, {"bloom", "", "eager"}, {"t5", "5.9.0", "eager"}, {"t5", "5.16.0", "sdpa"},
		{"gpt2", "4.40.2", "eager"}, {"gpt2", "4.46.3", "sdpa"}, {"llama", "", "sdpa"},
	} {
		load := func(string) (*model.Architecture, error) {
			return &model.Architecture{Type: tt.kind, Facts: model.FactsOf(tt.kind), Params: 1}, nil
		}
		j := Read(Sources{Argv: strings.Fields("torchrun run_clm.py --output_dir o --model_name_or_path half"),
			Dir: models(t), GPUs: 1, LoadModel: load, Versions: map[string]string{"transformers": tt.version}})
		check(t, j, "attention="+tt.want)
	}
}

// Sources: huggingface/transformers#43203 (5.0), huggingface/trl#4811 (0.27); accelerate's and LLaMA-Factory's own
// checkpointing.
func TestReentrantCheckpointing(t *testing.T) {
	dir := write(t, models(t), "lf.yaml",
		"model_name_or_path: half\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: llama3\ndataset: "+
			"d\noutput_dir: o\n")
	write(t, dir, "own.py", "from transformers import Trainer, TrainingArguments\nargs = "+
		"TrainingArguments(output_dir='o', gradient_checkpointing=True, "+
		"gradient_checkpointing_kwargs={'use_reentrant': False})\nTrainer(args=args).train()\n")
	write(t, dir, "loop.py", "import torch\nmodel.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})\n"+
		"model = torch.nn.parallel.DistributedDataParallel(model)\n")
	const clm = "torchrun run_clm.py --output_dir o --model_name_or_path half "
	for _, tt := range []struct{ command, versions, want string }{
		{clm + "--gradient_checkpointing", "transformers=4.57", "true"},
		{clm + "--gradient_checkpointing", "transformers=5.0", "false"},
		{clm + "--gradient_checkpointing", "", "unknown"},
		{clm, "", "false"}, // nothing is checkpointed
		{clm + `--gradient_checkpointing --gradient_checkpointing_kwargs {"use_reentrant":false}`, "transformers=4.57",
			"false"},
		{clm + `--gradient_checkpointing --gradient_checkpointing_kwargs {"use_reentrant":true}`, "transformers=5.9",
			"true"},
		{"trl sft --model_name_or_path half --output_dir o --dataset_name d --gradient_checkpointing true",
			"transformers=4.57 trl=0.27.1", "false"},
		{"trl sft --model_name_or_path half --output_dir o --dataset_name d --gradient_checkpointing true",
			"transformers=4.57 trl=0.26", "true"},
		{"llamafactory-cli train lf.yaml", "transformers=5.9", "true"},
		{"llamafactory-cli train lf.yaml use_reentrant_gc=false", "transformers=4.57", "false"},
		{"python own.py", "transformers=4.57", "false"},
		{"python loop.py", "", "false"},
	} {
		versions := map[string]string{}
		for word := range strings.FieldsSeq(tt.versions) {
			name, version, _ := strings.Cut(word, "=")
			versions[name] = version
		}
		j := Read(Sources{Argv: strings.Fields(tt.command), Dir: dir, GPUs: 1, LoadModel: half, Versions: versions})
		t.Run(tt.command+" "+tt.versions, func(t *testing.T) { check(t, j, "checkpointing_reentrant="+tt.want) })
	}
}

// Sources: training_args.py of transformers 5.24 for activation_checkpointing and its kwargs; accelerate's
// DataLoaderConfiguration for split_batches; liger_kernel's apply_liger_kernel for the switches; trainer.py for the
// refusals.
func TestTrainerDictionaries(t *testing.T) {
	dir := write(t, models(t), "args.json",
		`{"model_name_or_path": "half", "output_dir": "o", "per_device_train_batch_size": 8, "accelerator_config": {"split_batches": true},
 "gradient_checkpointing": true, "activation_checkpointing_kwargs": {"offload": true}, "use_liger_kernel": true, "liger_kernel_config": {"fused_linear_cross_entropy": false, "rms_norm": false}}`)
	for args, want := range map[string]string{
		"args.json": "micro_batch=4 global_batch=8 checkpointing=full fused_loss=none layer_kernels=liger:rope+glu",
		"--output_dir o --activation_checkpointing --activation_checkpointing_kwargs {'every_n_layers':4}": "checkpointing=selective:4",
		"--output_dir o --activation_checkpointing --activation_checkpointing_kwargs {'offload':true}":     "checkpointing=offload activation_offload=true",
		"--output_dir o --gradient_checkpointing --gradient_checkpointing_kwargs {'use_reentrant':false}":  "checkpointing=full",
		"--output_dir o --optim paged_ademamix_8bit":                                                       "optimizer=paged_ademamix_8bit",
	} {
		argv := strings.Fields(strings.ReplaceAll("torchrun --nproc-per-node 2 run_clm.py "+args, "'", `"`))
		j := Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half,
			Versions: map[string]string{"transformers": "5.24.0", "torch": "2.10.0"}})
		if len(told(j)) > 0 {
			t.Error(told(j))
		}
		check(t, j, want)
	}
}

func TestTrainerRefusals(t *testing.T) {
	for command, want := range map[string]string{
		"torchrun --nproc-per-node 2 run_clm.py --fsdp full_shard --deepspeed z.json":                                 "together with --deepspeed",
		"torchrun --nproc-per-node 2 run_clm.py --fsdp offload":                                                       "can't work on its own",
		"python run_clm.py --fsdp full_shard":                                                                         "only works in distributed",
		"torchrun --nproc-per-node 2 run_clm.py --tf32":                                                               "--tf32: expected one argument",
		"torchrun --nproc-per-node 2 run_clm.py --load_best_model_at_end --save_strategy epoch":                       "requires the save and eval strategy",
		"torchrun --nproc-per-node 2 train.py --save_strategy no --device_map auto":                                   "device_map='auto'",
		"torchrun --nproc-per-node 2 run_clm.py --deepspeed z.json --bf16":                                            "bf16.enabled is false",
		"torchrun --nproc-per-node 2 run_clm.py --overwrite_output_dir":                                               "",
		"torchrun --nproc-per-node 2 run_clm.py --evaluation_strategy steps":                                          "not used by the HfArgumentParser: --evaluation_strategy",
		"torchrun --nproc-per-node 2 train.py --save_strategy no --evaluation_strategy steps":                         "",
		"torchrun --nproc-per-node 2 run_clm.py --deepspeed lr.json":                                                  "",
		"torchrun --nproc-per-node 2 run_clm.py --deepspeed lr.json --learning_rate 1e-4":                             "optimizer.params.lr is 5e-05",
		"torchrun --nproc-per-node 2 run_clm.py --deepspeed lr.json --max_grad_norm 0.5":                              "gradient_clipping is 1",
		"torchrun --nproc-per-node 2 run_clm.py --deepspeed lr.json --adam_beta2 0.95":                                "optimizer.params.betas is 0.999",
		"torchrun --nproc-per-node 2 run_clm.py --bf16_full_eval --fp16_full_eval":                                    "for full eval",
		"torchrun --nproc-per-node 2 run_clm.py --load_best_model_at_end --save_strategy epoch --eval_strategy epoch": "",
	} {
		dir := write(t, models(t), "z.json", `{"zero_optimization": {"stage": 2}, "bf16": {"enabled": false}}`)
		write(t, dir, "lr.json", `{"zero_optimization": {"stage": 2}, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.999], "eps": "auto", "weight_decay": 0.0}}}`)
		j := readFamily(dir, "transformers=4.57.1", command+" --output_dir o --model_name_or_path half", 1)
		if got := j.WillFail.Value; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: will fail %q, want %q", command, got, want)
		}
	}
}
