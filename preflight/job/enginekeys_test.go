package job

import (
	"maps"
	"testing"
)

const megatronSizes = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 " +
	"--num-attention-heads 32 " +
	"--micro-batch-size 1 --seq-length 2048 --max-position-embeddings 2048 --tensor-model-parallel-size 2 " +
	"--pipeline-model-parallel-size 2 "

// One setting has one value, however it is spelt: with a blank or an equals sign, on the command line, in a file or in
// a script.
func TestOneSettingEverySpelling(t *testing.T) {
	const loop = "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nopt = " +
		"torch.optim.AdamW([])\n"
	const trainer = "from transformers import Trainer, TrainingArguments\n"
	const galore = "optim='galore_adamw', output_dir='o'"
	config := "base_model: m\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\noptimizer: galore_adamw\n"
	factory := "model_name_or_path: m\nstage: sft\nfinetuning_type: full\noutput_dir: o\n"
	for name, c := range map[string]struct {
		files   map[string]string
		command string
		want    map[string]string
	}{
		"virtual stages by layers, blank": {nil, megatronSizes + "--num-layers-per-virtual-pipeline-stage 2",
			map[string]string{"virtual_stages": "8"}},
		"virtual stages by layers, equals": {nil, megatronSizes + "--num-layers-per-virtual-pipeline-stage=2",
			map[string]string{"virtual_stages": "8"}},
		"virtual stages by number": {nil, megatronSizes + "--num-virtual-stages-per-pipeline-rank=4",
			map[string]string{"virtual_stages": "4"}},
		"no virtual stages": {nil, megatronSizes,
			map[string]string{"virtual_stages": "1 @ default of Megatron-LM", "sequence_parallel": "false",
				"etp": "unknown: experts are split as other layers are", "grad_dtype": "fp32"}},
		"sequence parallel": {nil, megatronSizes + "--sequence-parallel --expert-tensor-parallel-size=1",
			map[string]string{"sequence_parallel": "true @ command line", "etp": "1"}},
		"gradients of fp16": {nil, megatronSizes + "--fp16", map[string]string{"grad_dtype": "fp16"}},
		"wide gradients of fp16": {nil, megatronSizes + "--fp16 --accumulate-allreduce-grads-in-fp32",
			map[string]string{"grad_dtype": "fp32 @ command line"}},
		"gradients of bf16": {nil, megatronSizes + "--bf16", map[string]string{"grad_dtype": "fp32"}},
		"narrow gradients of bf16": {nil, megatronSizes + "--bf16 --grad-reduce-in-bf16",
			map[string]string{"grad_dtype": "bf16"}},

		"rank, blank": {nil,
			"python run_clm.py --output_dir o --optim galore_adamw --optim_args rank=1024",
			map[string]string{"projection_rank": "1024 @ command line --optim_args"}},
		"rank, equals": {nil,
			"python run_clm.py --output_dir o --optim galore_adamw --optim_args=scale=2,rank=1024",
			map[string]string{"projection_rank": "1024"}},
		"rank of a script": {map[string]string{"train.py": trainer + "Trainer(args=TrainingArguments(" +
			galore + ", optim_args='rank=1024')).train()\n"}, "python train.py",
			map[string]string{"projection_rank": "1024 @ train.py:2"}},
		"rank in YAML": {map[string]string{"c.yaml": config + "optim_args: rank=1024\n"},
			"axolotl train c.yaml", map[string]string{"projection_rank": "1024 @ c.yaml:5"}},
		"rank in a YAML mapping": {map[string]string{"c.yaml": config + "optim_args:\n  rank: 1024\n  scale: 2\n"},
			"axolotl train c.yaml", map[string]string{"projection_rank": "1024 @ c.yaml"}},
		"rank of LLaMA-Factory": {map[string]string{"c.yaml": factory + "use_galore: true\ngalore_rank: 64\n"},
			"llamafactory-cli train c.yaml", map[string]string{"projection_rank": "64 @ c.yaml"}},
		"its default": {map[string]string{"c.yaml": factory + "use_apollo: true\n"},
			"llamafactory-cli train c.yaml", map[string]string{"projection_rank": "16 @ default of LLaMA-Factory"}},
		"nothing to project": {nil, "python run_clm.py --output_dir o --optim adamw_torch",
			map[string]string{"projection_rank": "unknown: projects no gradients"}},
		"evaluation, blank": {nil, "python run_clm.py --output_dir o --eval_strategy steps",
			map[string]string{"evaluation": "true @ command line --eval_strategy", "eval_batch": "8"}},
		"evaluation, equals": {nil,
			"python run_clm.py --output_dir o --eval_strategy=steps --per_device_eval_batch_size=3",
			map[string]string{"evaluation": "true", "eval_batch": "3"}},
		"no evaluation": {nil, "python run_clm.py --output_dir o --per_device_eval_batch_size=3",
			map[string]string{"evaluation": "false", "eval_batch": "0", "eval_generates": "false"}},
		"evaluation of a script": {map[string]string{"train.py": trainer +
			"Trainer(args=TrainingArguments(output_dir='o', eval_strategy='steps')).train()\n"}, "python train.py",
			map[string]string{"evaluation": "true @ train.py:2", "eval_batch": "8"}},
		"generation, bare": {nil,
			"python run_summarization.py --output_dir o --do_eval --predict_with_generate",
			map[string]string{"eval_generates": "true @ command line"}},
		"generation, equals": {nil,
			"python run_summarization.py --output_dir o --do_eval --predict_with_generate=True",
			map[string]string{"eval_generates": "true"}},
		"bucket view of a script": {map[string]string{"train.py": loop + "m = DDP(m, gradient_as_bucket_view=True)\n"},
			"torchrun --nproc-per-node 2 train.py", map[string]string{"gradient_as_bucket_view": "true @ train.py:4"}},
		"none in a script": {map[string]string{"train.py": loop + "m = DDP(m)\n"},
			"torchrun --nproc-per-node 2 train.py", map[string]string{"gradient_as_bucket_view": "false @ train.py:4"}},
		"an option of the script": {map[string]string{"train.py": "import argparse\np = " +
			"argparse.ArgumentParser()\np.add_argument('--view', action='store_true')\na = p.parse_args()\n" + loop +
			"m = DDP(m, gradient_as_bucket_view=a.view)\n"}, "torchrun --nproc-per-node 2 train.py --view",
			map[string]string{"gradient_as_bucket_view": "true"}},
		"a dictionary": {map[string]string{"train.py": loop +
			"k = dict(gradient_as_bucket_view=True)\nm = DDP(m, **k)\n"}, "torchrun --nproc-per-node 2 train.py",
			map[string]string{"gradient_as_bucket_view": "true"}},
		"decided at run time": {map[string]string{"train.py": loop + "m = DDP(m, gradient_as_bucket_view=f())\n"},
			"torchrun --nproc-per-node 2 train.py",
			map[string]string{"gradient_as_bucket_view": "unknown: when the script runs"}},
		"perhaps in a dictionary": {map[string]string{"train.py": loop + "m = DDP(m, **load())\n"},
			"torchrun --nproc-per-node 2 train.py",
			map[string]string{"gradient_as_bucket_view": "unknown: when the script runs"}},
		"a bare word is nothing": {map[string]string{"train.py": loop + "m = DDP(m)\n"},
			"torchrun --nproc-per-node 2 train.py gradient_as_bucket_view=True",
			map[string]string{"gradient_as_bucket_view": "false"}},
		"of Trainer": {nil, "torchrun --nproc-per-node 2 run_clm.py --output_dir o",
			map[string]string{"gradient_as_bucket_view": "false @ Trainer"}},
		"Accelerate": {map[string]string{"train.py": loop +
			"from accelerate import Accelerator, DistributedDataParallelKwargs\na = " +
			"Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])\n"},
			"accelerate launch --multi_gpu --num_processes 2 train.py",
			map[string]string{"gradient_as_bucket_view": "true"}},
		"Lightning's YAML": {map[string]string{"c.yaml": "trainer:\n  devices: 2\n  strategy:\n    " +
			"class_path: lightning.pytorch.strategies.DDPStrategy\n    init_args: {gradient_as_bucket_view: " +
			"true}\nmodel: {}\n"}, "python x.py fit --config c.yaml",
			map[string]string{"gradient_as_bucket_view": "true @ c.yaml"}},
		"state dict of accelerate": {nil,
			"accelerate launch --use_fsdp --num_processes 2 --fsdp_state_dict_type FULL_STATE_DICT run_clm.py " +
				"--output_dir o", map[string]string{"state_dict": "full"}},
		"state dict, equals": {nil,
			"accelerate launch --use_fsdp --num_processes 2 --fsdp_state_dict_type=SHARDED_STATE_DICT run_clm.py " +
				"--output_dir o", map[string]string{"state_dict": "sharded"}},
		"state dict of a script": {map[string]string{"train.py": loop +
			"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\nm = FSDP(m)\nwith " +
			"FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT):\n    pass\n"},
			"torchrun --nproc-per-node 2 train.py", map[string]string{"state_dict": "full @ train.py:6"}},
		"no FSDP": {nil, "torchrun --nproc-per-node 2 run_clm.py --output_dir o FULL_STATE_DICT",
			map[string]string{"state_dict": "unknown: FSDP is not used"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			maps.Copy(files, c.files)
			checkSettings(t, scriptJob(t, files, 8, versions2025, c.command), c.want)
		})
	}
}

// Each such key is a flag too, which wins over what the command says.
func TestFlagsOfEngines(t *testing.T) {
	command := shellWords(megatronSizes + "--sequence-parallel --num-layers-per-virtual-pipeline-stage 2 --fp16")
	for flag, text := range map[string]string{"grad-dtype": "fp32", "virtual-stages": "3", "sequence-parallel": "false",
		"etp": "4", "projection-rank": "7",
		"gradient-as-bucket-view": "true", "state-dict": "sharded", "optimizer-in-backward": "true",
		"evaluation": "true", "eval-batch": "5",
		"eval-generates": "true"} {
		j := Read(Sources{Argv: command, Flags: map[string]string{flag: text}, GPUs: 8})
		key := ""
		for _, k := range Keys() {
			if k.Flag == flag {
				key = k.Name
			}
		}
		checkSettings(t, j, map[string]string{key: text + " @ flag --" + flag})
		if wrong := Read(Sources{Flags: map[string]string{flag: "nonsense"}}); len(wrong.Problems) != 1 {
			t.Errorf("--%s nonsense: %v", flag, wrong.Problems)
		}
	}
	for on, rows := range map[string]string{"true": "8", "false": "0"} {
		for _, options := range []string{"", " --do_eval"} {
			j := Read(Sources{Argv: shellWords("python run_clm.py --output_dir o" + options),
				Flags: map[string]string{"evaluation": on}, GPUs: 1})
			checkSettings(t, j, map[string]string{"evaluation": on, "eval_batch": rows})
		}
	}
}
