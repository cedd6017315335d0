package job

import (
	"reflect"
	"strings"
	"testing"
)

// A formatCase is a command with one configuration file, and some of the settings that it has by the source that source
// names.
type formatCase struct {
	name, cmd, file, text string
	gpus                  int
	versions              map[string]string
	want                  map[string]any
	fail                  string // part of will_fail; "" when the job starts
	problem               string // part of a problem
}

func (c formatCase) run(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if c.file != "" {
		write(t, dir, c.file, c.text)
	}
	write(t, dir, "run.sh", "tune run full_finetune_single_device --config c.yaml batch_size=$BS \"$@\"\n")
	j := Read(Sources{Argv: strings.Fields(c.cmd), Dir: dir, GPUs: c.gpus, CPUs: 2, Versions: c.versions})
	if got := j.WillFail.Value; !strings.Contains(got, c.fail) || (got == "") != (c.fail == "") {
		t.Errorf("will_fail %q, want %q", got, c.fail)
	}
	found := c.problem == "" && (len(told(j)) == 0 || c.fail != "")
	for _, problem := range told(j) {
		found = found || c.problem != "" && strings.Contains(problem.Error(), c.problem)
	}
	if !found {
		t.Errorf("problems %v, want %q", told(j), c.problem)
	}
	values := settingValues(t, j)
	for key, want := range c.want {
		if n, ok := want.(int); ok {
			want = float64(n)
		}
		if !reflect.DeepEqual(values[key], want) {
			t.Errorf("%s: got %v, want %v", key, values[key], want)
		}
	}
}

// recipe is a configuration of torchtune with everything that its recipes need.
func recipe(more string) string {
	return "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\ncheckpointer: {checkpoint_dir: " +
		"/gone}\ntokenizer: {max_seq_len: 512}\ndataset: {packed: no}\n" +
		"optimizer: {_component_: torch.optim.AdamW}\nloss: {_component_: torch.nn.CrossEntropyLoss}\nbatch_size: " +
		"2\ngradient_accumulation_steps: 1\ndtype: bf16\n" + more
}

// torchtune 0.6.1: _cli/run.py, config/_utils.py, recipes/full_finetune_distributed.py and its neighbours.
func TestTorchtune(t *testing.T) {
	const one, many = "tune run full_finetune_single_device --config c.yaml",
		"tune run --nproc_per_node 4 full_finetune_distributed --config c.yaml"
	for _, c := range []formatCase{
		{
			name: "one device", cmd: one, text: recipe("optimizer_in_bwd: True\nenable_activation_checkpointing: True\n"),
			want: map[string]any{"nproc": 1, "sharding": "none", "optimizer": "adamw", "optimizer_in_backward": true,
				"eval_batch": 0, "checkpointing": "full", "fused_loss": "none", "param_dtype": "bf16",
				"precision": "bf16", "method": "full", "seq_len": 512, "model_params": 1235814400, "task": "sft",
				"global_batch": 2},
		},
		{
			name: "overrides", cmd: one + " optimizer=bitsandbytes.optim.PagedAdamW8bit tokenizer.max_seq_len=None " +
				"dtype=fp32 ~dataset",
			text: recipe(""), want: map[string]any{"optimizer": "paged_adamw_8bit", "seq_len": nil, "packing": false,
				"precision": "fp32"},
		},
		{
			name: "mesh", cmd: many + " data_parallel_replicate_dim=2 fsdp_cpu_offload=True context_parallel_dim=2",
			text: recipe(""),
			want: map[string]any{"sharding": "fsdp-hybrid", "fsdp_version": 2, "cp": 2, "global_batch": 4,
				"offload": map[string]any{"optimizer": "cpu", "params": "cpu"}},
		},
		{name: "gathered", cmd: many + " fsdp_reshard_after_forward=False", text: recipe(""),
			want: map[string]any{"sharding": "fsdp-grad"}},
		{name: "every other block", cmd: many, text: recipe("ac_mode: selective\nac_option: 2\n"),
			want: map[string]any{"checkpointing": "selective:2"}},
		{
			name: "quantised base", cmd: "tune run lora_finetune_single_device --config c.yaml " +
				"model=torchtune.models.llama3_2.qlora_llama3_2_1b model.lora_attn_modules=[q_proj] model.use_dora=True",
			text: recipe(""), want: map[string]any{"method": "qlora", "base_dtype": "bf16",
				"lora": map[string]any{"r": 8.0, "alpha": 16.0, "dropout": 0.0, "targets": []any{"q_proj"},
					"modules_to_save": nil, "dora": true, "rslora": false},
				"quant": map[string]any{"method": "torchao", "bits": 4.0, "type": "nf4", "double": true,
					"compute_dtype": "bf16", "storage": "uint8"}},
		},
		{name: "interpolation", cmd: one, text: recipe("ac_mode: null\n") + "n: 3\n",
			want: map[string]any{"checkpointing": "none"}},
		{name: "full DPO", cmd: "tune run --nproc_per_node 2 full_dpo_distributed --config c.yaml", text: recipe(""),
			want: map[string]any{"task": "dpo", "ref_model": true}},
		{name: "LoRA DPO", cmd: "tune run lora_dpo_single_device --config c.yaml", text: recipe(""),
			want: map[string]any{"task": "dpo", "ref_model": false}},
		{name: "a file of one's own", cmd: "torchrun --nproc-per-node 2 recipes/full_finetune_distributed.py " +
			"--config c.yaml", text: recipe(""),
			want: map[string]any{"framework": "torchtune", "sharding": "fsdp-full"}},
		{name: "no torchrun options", cmd: "tune run full_finetune_distributed --config c.yaml", text: recipe(""),
			fail: "distributed recipe in one process"},
		{name: "torchrun options", cmd: "tune run --nnodes 1 full_finetune_single_device --config c.yaml",
			text: recipe(""), fail: "does not support distributed training"},
		{name: "no config", cmd: "tune run full_finetune_single_device batch_size=2",
			fail: "The '--config' argument is required"},
		{name: "two equal signs", cmd: one + " a.b=c=d", text: recipe(""), fail: "key=value with one ="},
		{name: "nothing to take away", cmd: one + " ~gone", text: recipe(""), fail: "there is no gone"},
		{name: "a flag", cmd: one + " --batch_size 3", text: recipe(""), fail: "unknown option"},
		{name: "fp16", cmd: one + " dtype=fp16", text: recipe(""), fail: "full fp16 training"},
		{name: "offloading alone", cmd: one + " enable_activation_offloading=True", text: recipe(""),
			fail: "enable_activation_checkpointing is True"},
		{name: "packed without a length", cmd: one + " dataset.packed=True tokenizer.max_seq_len=null",
			text: recipe(""), fail: "requires a max_seq_len"},
		{name: "accumulation in backward", cmd: one + " optimizer_in_bwd=True gradient_accumulation_steps=2",
			text: recipe(""), fail: "Gradient accumulation is not supported"},
		{name: "mesh does not fit", cmd: many + " data_parallel_shard_dim=3", text: recipe(""),
			fail: "Invalid parallel dims"},
		{name: "batch missing", cmd: one + " ~batch_size", text: recipe(""), fail: "needs batch_size"},
		{name: "open in a shell script", cmd: "bash run.sh", text: recipe(""), problem: "$BS is not known",
			want: map[string]any{"micro_batch": nil, "grad_accum": 1}},
		{name: "broken", cmd: one, text: "a: [1\nb: 2", problem: "c.yaml",
			want: map[string]any{"micro_batch": nil, "sharding": "none", "optimizer": nil}},
		{
			name: "torchtune's own, and no torchtune",
			cmd: "tune run lora_finetune_single_device --config qwen3/0.6B_lora batch_size=8 " +
				"enable_activation_checkpointing=True",
			problem: "tune cp qwen3/0.6B_lora",
			want:    map[string]any{"micro_batch": 8, "checkpointing": "full", "sharding": "none", "seq_len": nil},
		},
		{
			name: "PPO's answer", cmd: "tune run ppo_full_finetune_single_device --config c.yaml " +
				"tokenizer.max_seq_len=512", text: recipe("ppo_batch_size: 64\nmax_generated_tokens: 58\n"),
			want: map[string]any{"task": "ppo", "micro_batch": 64, "seq_len": 570},
		},
		{name: "wrong kind", cmd: one + " batch_size=many", text: recipe(""), problem: "batch_size",
			want: map[string]any{"micro_batch": nil}},
		{name: "circle", cmd: one + " batch_size=${gradient_accumulation_steps} " +
			"gradient_accumulation_steps=${batch_size}", text: recipe(""), problem: "refers to itself",
			want: map[string]any{"micro_batch": nil}},
	} {
		c.file, c.gpus, c.versions = "c.yaml", 4, map[string]string{"torchtune": "0.6.1"}
		t.Run(c.name, c.run)
	}
}

// torchtitan v0.2.2: config/job_config.py, distributed/parallel_dims.py, train.py; old spellings: v0.1.0 and
// config_manager.py of November 2024.
func TestTorchtitan(t *testing.T) {
	const cmd = "torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file c.toml"
	for _, c := range []formatCase{
		{
			name: "defaults", cmd: cmd, text: "[model]\nflavor = \"8B\"\n",
			want: map[string]any{"micro_batch": 8, "grad_accum": 1, "global_batch": 64, "seq_len": 2048,
				"checkpointing": "selective:2", "optimizer": "adamw_fused", "sharding": "fsdp-full",
				"param_dtype": "fp32", "precision": "bf16", "model": map[string]any{"family": "llama3", "flavor": "8B"},
				"model_params": 8030261248, "packing": true, "attention": "sdpa"},
		},
		{name: "the spellings of 2024", cmd: cmd,
			text: "[training]\nbatch_size = 2\ntensor_parallel_degree = 2\n[experimental]\npipeline_parallel_degree " +
				"= 2\npipeline_parallel_microbatches = 2\n[optimizer]\nfused = " +
				"false\n[float8]\nenable_float8_linear = true\n",
			want: map[string]any{"micro_batch": 1, "grad_accum": 2, "tp": 2, "pp": 2, "optimizer": "adamw",
				"precision": "fp8", "sharding": "fsdp-grad"}},
		{name: "options", cmd: cmd + " --training.local-batch-size=1 --training.global_batch_size 32 " +
			"--model.converters float8 other --compile.enable --training.no-enable_cpu_offload --model.flavor 8B_flex",
			text: "[training]\nenable_cpu_offload = true\n",
			want: map[string]any{"grad_accum": 4, "precision": "fp8", "attention": "flex_attention",
				"offload": map[string]any{"optimizer": "none", "params": "none"}}},
		{name: "tensor parallelism alone", cmd: cmd + " --parallelism.tensor_parallel_degree 8", text: "",
			want: map[string]any{"precision": "fp32", "sharding": "none", "global_batch": 8}},
		{name: "replicas", cmd: cmd + " --parallelism.data_parallel_replicate_degree 8 " +
			"--parallelism.data_parallel_shard_degree 1", text: "",
			want: map[string]any{"sharding": "ddp", "precision": "bf16"}},
		{name: "validation", cmd: cmd + " --validation.enable", text: "[validation]\nlocal_batch_size = 2\n",
			want: map[string]any{"eval_batch": 2}},
		{name: "hybrid", cmd: cmd + " --parallelism.data_parallel_replicate_degree 2", text: "",
			want: map[string]any{"sharding": "fsdp-hybrid", "fsdp_version": 2}},
		{name: "memory budget", cmd: cmd + " --activation_checkpoint.mode memory_budget", text: "",
			want: map[string]any{"checkpointing": nil}},
		{name: "degrees do not fit", cmd: cmd + " --parallelism.data_parallel_shard_degree 3", text: "",
			fail: "Invalid parallel dims"},
		{name: "batch does not divide", cmd: cmd + " --training.global_batch_size 12", text: "",
			fail: "global batch size must be multiple"},
		{name: "length does not divide", cmd: cmd + " --parallelism.tensor_parallel_degree 8 --training.seq_len 100",
			text: "", fail: "must be divisible by the product"},
		{name: "replicas of more dimensions",
			cmd:  cmd + " --parallelism.tensor_parallel_degree 2 --parallelism.data_parallel_replicate_degree 4",
			text: "", fail: "DDP has not supported"},
		{name: "option of checkpointing", cmd: cmd + " --activation_checkpoint.selective_ac_option=ops", text: "",
			fail: "Invalid selective AC option"},
		{name: "key twice", cmd: cmd, text: "[training]\nseq_len = 1\nseq_len = 2\n", problem: "c.toml:3",
			want: map[string]any{"seq_len": nil, "micro_batch": nil}},
		{name: "missing file", cmd: strings.Replace(cmd, "c.toml", "gone.toml", 1), text: "", problem: "no such file",
			want: map[string]any{"seq_len": nil}},
		{name: "wrong kind", cmd: cmd, text: "[training]\nseq_len = \"long\"\n", problem: "training.seq_len",
			want: map[string]any{"seq_len": nil}},
	} {
		c.file, c.gpus, c.versions = "c.toml", 8, map[string]string{"torchtitan": "0.2.2"}
		t.Run(c.name, c.run)
	}
}

// LitGPT 0.5: finetune/lora.py, finetune/full.py, pretrain.py, args.py.
func TestLitGPT(t *testing.T) {
	for _, c := range []formatCase{
		{
			name: "defaults", cmd: "litgpt finetune microsoft/phi-2",
			want: map[string]any{"script": "finetune_lora", "nproc": 1, "method": "lora", "micro_batch": 1,
				"grad_accum": 16, "param_dtype": "fp32", "base_dtype": "fp32", "precision": "bf16",
				"sharding": "none", "checkpointing": "none", "seq_len": nil, "optimizer": "adamw",
				"model": "microsoft/phi-2",
				"lora": map[string]any{"r": 8.0, "alpha": 16.0, "dropout": 0.05, "targets": []any{"query", "value"},
					"modules_to_save": nil, "dora": false, "rslora": false}},
		},
		{
			name: "full on several", cmd: "litgpt finetune_full meta-llama/Llama-3.2-1B --devices 4 --precision " +
				"bf16-true --train.micro_batch_size=2 --optimizer SGD --optimizer.momentum 0.9",
			want: map[string]any{"nproc": 4, "sharding": "fsdp-full", "fsdp_version": 1, "checkpointing": "full",
				"param_dtype": "bf16", "grad_accum": 2, "optimizer": "sgd_momentum", "model_params": 1235814400},
		},
		{name: "LoRA on several, older", cmd: "litgpt finetune_lora a/b --devices 2",
			versions: map[string]string{"litgpt": "0.5.10"}, want: map[string]any{"fsdp_version": 1}, problem: ""},
		{
			name: "pretraining", cmd: "litgpt pretrain pythia-410m --config c.yaml --train.max_seq_length 1024",
			file: "c.yaml", text: "train:\n  global_batch_size: 64\n  micro_batch_size: 8\nprecision: bf16-mixed\n",
			want: map[string]any{"nproc": 4, "sharding": "fsdp-hybrid", "checkpointing": "none", "task": "pretrain",
				"grad_accum": 2, "optimizer": "adamw_fused", "packing": true, "seq_len": 1024},
		},
		{name: "8 bits", cmd: "litgpt finetune_lora a/b --quantize bnb.int8-training --precision 16-true",
			want: map[string]any{"method": "lora8bit", "base_dtype": "fp16"}},
		{name: "two words", cmd: "litgpt finetune adapter_v2 a/b",
			want: map[string]any{"script": "finetune_adapter_v2", "method": "adapter", "lora": nil}},
		{name: "script", cmd: "python litgpt/finetune/full.py a/b --devices 2",
			want: map[string]any{"framework": "litgpt", "launcher": "python", "nproc": 2, "method": "full"}},
		{name: "quantised and mixed", cmd: "litgpt finetune_lora a/b --quantize bnb.nf4",
			fail: "Quantization and mixed precision"},
		{name: "quantised on several", cmd: "litgpt finetune_lora a/b --quantize bnb.nf4-dq --precision bf16-true " +
			"--devices 2", fail: "not supported for multi-GPU"},
		{name: "batch too small", cmd: "litgpt finetune_full a/b --devices 4 --train.global_batch_size 4 " +
			"--train.micro_batch_size 2", fail: "AssertionError"},
		{name: "no precision", cmd: "litgpt finetune_full a/b --precision bf8", fail: "Precision bf8 is invalid"},
		{name: "broken", cmd: "litgpt finetune_full a/b --config c.yaml", file: "c.yaml", text: "train: {",
			problem: "c.yaml", want: map[string]any{"micro_batch": nil, "precision": nil}},
		{
			name: "an address", cmd: "litgpt finetune_lora google/gemma-2-9b --config https://x.org/lora.yaml",
			problem: "download the file",
			want:    map[string]any{"model": "google/gemma-2-9b", "micro_batch": nil, "precision": nil},
		},
		{name: "a list", cmd: "litgpt finetune_full a/b --config c.yaml", file: "c.yaml", text: "- 1",
			problem: "need an object", want: map[string]any{"micro_batch": nil}},
		{name: "does not train", cmd: "litgpt chat a/b", want: map[string]any{"micro_batch": nil}},
	} {
		c.gpus = 4
		t.Run(c.name, c.run)
	}
}

// Lightning 2.5: pytorch/trainer/trainer.py, pytorch/strategies, fabric/connector.py,
// fabric/utilities/device_parser.py.
func TestLightning(t *testing.T) {
	const cmd = "python main.py fit --config c.yaml"
	for _, c := range []formatCase{
		{name: "defaults", cmd: cmd, text: "trainer: {}\nmodel: {class_path: my.Net}\n",
			want: map[string]any{"nproc": 4, "sharding": "ddp", "param_dtype": "fp32", "precision": "fp32",
				"grad_accum": 1, "model": nil}},
		{name: "one device", cmd: cmd + " --trainer.devices=1 --trainer.precision bf16",
			text: "trainer: {}\nmodel: {}\n",
			want: map[string]any{"nproc": 1, "sharding": "none", "param_dtype": "fp32", "precision": "bf16"}},
		{name: "a list of devices", cmd: cmd,
			text: "trainer: {devices: [0, 2], num_nodes: 2, strategy: ddp_find_unused_parameters_true}\nmodel: {}\n",
			want: map[string]any{"nproc": 2, "nnodes": 2, "sharding": "ddp"}},
		{name: "one unit", cmd: cmd, text: "trainer: {strategy: fsdp_cpu_offload, precision: bf16-true}\nmodel: {}\n",
			want: map[string]any{"sharding": "fsdp-full", "fsdp_wrap": "whole", "fsdp_version": 1,
				"offload": map[string]any{"optimizer": "cpu", "params": "cpu"}}},
		{
			name: "DeepSpeed", cmd: cmd + " --trainer.precision=bf16-mixed",
			text: "trainer: {strategy: deepspeed_stage_3_offload, accumulate_grad_batches: 2}\nmodel: {}\ndata: " +
				"{batch_size: 3}\noptimizer: {class_path: torch.optim.AdamW, init_args: {fused: true}}\n",
			want: map[string]any{"sharding": "zero3", "param_dtype": "bf16", "master_fp32": true,
				"optimizer": "adamw_fused", "micro_batch": 3, "global_batch": 24,
				"offload": map[string]any{"optimizer": "cpu", "params": "cpu"}},
		},
		{name: "strategy in short", cmd: cmd +
			" --trainer.strategy FSDPStrategy --trainer.strategy.sharding_strategy HYBRID_SHARD",
			text: "trainer: {}\nmodel: {}\n", want: map[string]any{"sharding": "fsdp-hybrid"}},
		{name: "model parallel", cmd: cmd,
			text: "trainer: {strategy: {class_path: ModelParallelStrategy, init_args: {data_parallel_size: 2, " +
				"tensor_parallel_size: 2}}}\nmodel: {}\n",
			want: map[string]any{"sharding": "fsdp-full", "tp": 2, "fsdp_version": 2}},
		{name: "without a subcommand", cmd: "python train.py --config c.yaml",
			text: "trainer: {devices: 2}\nmodel: {}\n", want: map[string]any{"framework": "lightning", "nproc": 2}},
		{name: "below torchrun", cmd: "torchrun --nproc-per-node 2 main.py fit --config c.yaml",
			text: "trainer: {devices: 4}\nmodel: {}\n", want: map[string]any{"nproc": 2, "launcher": "torchrun"}},
		{name: "anchors", cmd: cmd, text: "x: &t {devices: 2}\ntrainer:\n  <<: *t\n  precision: 16-true\nmodel: {}\n",
			want: map[string]any{"nproc": 2, "precision": "fp16"}},
		{name: "fabric run", cmd: "fabric run --devices=2 --strategy fsdp --precision bf16-true train.py --lr 1",
			want: map[string]any{"launcher": "fabric", "nproc": 2, "sharding": "fsdp-full", "param_dtype": "bf16",
				"script": "train.py"}},
		{name: "lightning run model", cmd: "lightning run model --accelerator cuda --devices auto train.py",
			want: map[string]any{"nproc": 1, "script": "train.py", "sharding": "none"}},
		{name: "unknown strategy", cmd: cmd + " --trainer.strategy=colossal", text: "trainer: {}\nmodel: {}\n",
			want: map[string]any{"sharding": nil}},
		{name: "validates", cmd: "python main.py validate --config c.yaml", text: "trainer: {}\nmodel: {}\n",
			want: map[string]any{"micro_batch": nil, "sharding": nil}},
		{name: "no such precision", cmd: cmd + " --trainer.precision=fp4", text: "trainer: {}\nmodel: {}\n",
			fail: "Precision fp4 is invalid"},
		{name: "no devices", cmd: cmd + " --trainer.devices=none", text: "trainer: {}\nmodel: {}\n",
			fail: "devices must be"},
		{name: "not UTF-8", cmd: cmd, text: "trainer: \xff\n", problem: "not UTF-8",
			want: map[string]any{"sharding": nil, "precision": nil}},
	} {
		c.file, c.gpus, c.versions = "c.yaml", 4, map[string]string{"lightning": "2.5.2"}
		t.Run(c.name, c.run)
	}
}

func FuzzNativeFormats(f *testing.F) {
	f.Add("a=1 ~b --config", recipe("ac_mode: ${x}\n"))
	f.Add("--trainer.devices 2 --trainer.strategy fsdp",
		"trainer: {strategy: {class_path: FSDPStrategy}}\nmodel: {}\ntrain: {micro_batch_size: 0}\n")
	f.Add("--parallelism.tensor_parallel_degree=9999999999",
		"[training]\nseq_len = 0\n[parallelism]\ndata_parallel_shard_degree = -7\n")
	f.Add("--train.global_batch_size -1 --quantize bnb.nf4",
		"devices: [1, {a: 2}]\nprecision: 3\noptimizer: {class_path: [x]}\n")
	f.Fuzz(func(t *testing.T, words, text string) {
		dir := t.TempDir()
		write(t, dir, "c.yaml", text)
		write(t, dir, "c.toml", text)
		for _, cmd := range []string{"tune run --nproc_per_node 2 lora_finetune_distributed --config c.yaml",
			"torchrun --nproc_per_node 4 -m torchtitan.train --job.config_file c.toml",
			"litgpt finetune_lora a/b --config c.yaml", "python main.py fit --config c.yaml"} {
			j := Read(Sources{Argv: append(strings.Fields(cmd), strings.Fields(words)...), Dir: dir, GPUs: 4})
			settingValues(t, j)
		}
	})
}
