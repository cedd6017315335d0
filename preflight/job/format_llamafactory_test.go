package job

import (
	"strings"
	"testing"
)

const factoryBase = "model_name_or_path: half\nstage: sft\ntemplate: llama3\ndataset: d\noutput_dir: o\ndo_train: " +
	"true\n"

// Sources: llamafactory/hparams, launcher.py, model/adapter.py, model/model_utils and train/trainer_utils.py at the
// tags v0.9.0, v0.9.1, v0.9.3 and v0.9.5.
func TestLLaMAFactory(t *testing.T) {
	tests := []struct{ name, version, keys, args, want string }{
		{"defaults", "0.9.3", "bf16: true", "",
			"launcher=llamafactory-cli framework=llamafactory task=sft method=lora checkpointing=full seq_len=2048 " +
				"packing=false param_dtype=fp32 base_dtype=bf16 " +
				"precision=bf16 world_size=2 sharding=ddp micro_batch=8 grad_accum=1 attention=sdpa ref_model=false " +
				"fused_loss=none activation_offload=false master_fp32=false"},
		{"length before 0.9.1", "0.9.0", "", "", "seq_len=1024"},
		{"length of an unknown version", "", "", "", "seq_len=unknown"},
		{"full", "0.9.3", "finetuning_type: full\nbf16: true", "", "method=full param_dtype=fp32 precision=bf16"},
		{"pure bf16", "0.9.3", "finetuning_type: full\npure_bf16: true", "",
			"method=full param_dtype=bf16 precision=bf16 master_fp32=false"},
		{"neither", "0.9.3", "finetuning_type: full", "", "param_dtype=fp32"},
		{"freeze", "0.9.3", "finetuning_type: freeze\nfreeze_trainable_layers: 4\nbf16: true", "",
			"method=freeze trainable_layers=4 param_dtype=fp32 base_dtype=bf16"},
		{"qlora", "0.9.3", "quantization_bit: 4\nbf16: true", "", "method=qlora param_dtype=fp32"},
		{"8 bits", "0.9.3", "quantization_bit: 8\nbf16: true", "", "method=lora8bit"},
		{"checkpointing off", "0.9.3", "disable_gradient_checkpointing: true", "", "checkpointing=none"},
		{"unsloth's checkpoints", "0.9.3", "use_unsloth_gc: true", "", "checkpointing=unsloth"},
		{"attention", "0.9.3", "flash_attn: fa2", "", "attention=flash_attention_2"},
		{"eager", "0.9.3", "flash_attn: disabled", "", "attention=eager"},
		{"liger", "0.9.3", "enable_liger_kernel: true", "", "fused_loss=liger-flce layer_kernels=liger"},
		{"liger keeps logits in dpo", "0.9.3", "enable_liger_kernel: true\nstage: dpo", "",
			"fused_loss=none layer_kernels=liger"},
		{"pt packs", "0.9.3", "stage: pt", "", "task=pretrain packing=true"},
		{"dpo with adapters", "0.9.3", "stage: dpo", "", "task=dpo ref_model=false"},
		{"dpo full", "0.9.3", "stage: dpo\nfinetuning_type: full", "", "ref_model=true"},
		{"orpo", "0.9.3", "stage: dpo\nfinetuning_type: full\npref_loss: orpo", "", "ref_model=false"},
		{"kto", "0.9.3", "stage: kto\nfinetuning_type: full", "", "task=kto ref_model=true"},
		{"rm", "0.9.3", "stage: rm", "", "task=rm ref_model=false"},
		{"galore", "0.9.3", "finetuning_type: full\nuse_galore: true\npure_bf16: true", "", "optimizer=galore_adamw"},
		{"zero3", "0.9.3", "finetuning_type: full\nbf16: true\ndeepspeed: z3.json", "",
			"sharding=zero3 param_dtype=bf16 master_fp32=true"},
		{"fsdp", "0.9.3", "bf16: true\nfsdp: full_shard auto_wrap", "", "sharding=fsdp-full param_dtype=fp32"},
		{"overrides", "0.9.3", "cutoff_len: 4096", "cutoff_len=512 lora_rank=4 +bf16=true",
			"seq_len=512 precision=bf16"},
		{"interpolation", "0.9.3", "n: 3\nper_device_train_batch_size: ${n}", "", "micro_batch=3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, models(t), "z3.json", `{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}`)
			keys := factoryBase
			if strings.Contains(tt.keys, "stage: ") {
				keys = strings.Replace(keys, "stage: sft\n", "", 1)
			}
			write(t, dir, "c.yaml", keys+tt.keys+"\n")
			versions := "transformers=4.52.4,torch=2.6.0,peft=0.15.2"
			if tt.version != "" {
				versions += ",llamafactory=" + tt.version
			}
			j := readFamily(dir, versions, strings.TrimSpace("llamafactory-cli train c.yaml "+tt.args), 2)
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Errorf("problems %v, will fail %q", told(j), j.WillFail.Value)
			}
			check(t, j, tt.want)
		})
	}
}

func TestLLaMAFactoryAdapters(t *testing.T) {
	dir := write(t, models(t), "c.yaml",
		factoryBase+"quantization_bit: 4\nbf16: true\nlora_rank: 16\nlora_target: q_proj,v_proj\nadditional_target: "+
			"embed_tokens\nuse_dora: true\n")
	j := readFamily(dir, "llamafactory=0.9.3,transformers=4.52.4", "lmf train c.yaml", 1)
	l, q := j.LoRA.Value, j.Quant.Value
	if l == nil || l.R != 16 || l.Alpha != 32 || l.Dropout != 0 || strings.Join(l.Targets, " ") != "q_proj v_proj" ||
		strings.Join(l.ModulesToSave, " ") != "embed_tokens" || !l.DoRA {
		t.Errorf("lora %+v, want rank 16, alpha twice that, no dropout", l)
	}
	if want := (Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: "bf16",
		Storage: "bf16"}); q == nil || *q != want {
		t.Errorf("quant %+v, want %+v", q, want)
	}
}

// An adapter that is trained on brings its own settings (model/adapter.py).
func TestResumedAdapter(t *testing.T) {
	dir := write(t, models(t), "adapter_config.json",
		`{"peft_type": "LORA", "r": 64, "lora_alpha": 7, "target_modules": ["q_proj"], "base_model_name_or_path": "other"}`)
	write(t, dir, "c.yaml", factoryBase+"adapter_name_or_path: .\n")
	write(t, dir, "a.yml", axolotlBase+"adapter: lora\nlora_model_dir: .\n")
	for _, command := range []string{"lmf train c.yaml", "axolotl train a.yml"} {
		j := readFamily(dir, "transformers=4.52.4", command, 1)
		if l := j.LoRA.Value; l == nil || l.R != 64 || l.Alpha != 7 || strings.Join(l.Targets, " ") != "q_proj" ||
			j.Model.Value != "half" {
			t.Errorf("%s: lora %+v of %s (%v)", command, l, j.Model.Value, told(j))
		}
	}
}

// launcher.py: torchrun when FORCE_TORCHRUN is set or several GPUs are visible.
func TestLLaMAFactoryCommand(t *testing.T) {
	dir := write(t, models(t), "c.yaml", factoryBase)
	write(t, dir, "v.yaml", "base_model: x\ndatasets: [1]\n")
	tests := []struct {
		command string
		gpus    int
		want    string
	}{
		{"lmf train c.yaml", 1, "world_size=1 sharding=none script=train"},
		{"CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train c.yaml", 8, "world_size=2"},
		{"FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train c.yaml", 8,
			"nnodes=2 nproc=4 world_size=8 sharding=ddp"},
		{"NPROC_PER_NODE=4 llamafactory-cli train c.yaml", 1, "world_size=1"},
		{"NPROC_PER_NODE=many FORCE_TORCHRUN=1 llamafactory-cli train c.yaml", 1, "nproc=unknown"},
		{"FORCE_TORCHRUN=1 RDZV_ID=x MIN_NNODES=1 MAX_NNODES=4 llamafactory-cli train c.yaml", 1,
			"nnodes=unknown nproc=1"},
		{"llamafactory-cli train c.yaml", -1, "nproc=unknown"},
		{"USE_RAY=1 llamafactory-cli train c.yaml", 2, "nnodes=1 nproc=1 world_size=1"},
		{"USE_RAY=1 llamafactory-cli train c.yaml ray_num_workers=4", 8, "nnodes=1 nproc=4 world_size=4 sharding=ddp"},
		{"USE_RAY=1 llamafactory-cli train c.yaml ray_num_workers=4", 2, "nnodes=unknown nproc=unknown world_size=4"},
		{"USE_RAY=1 llamafactory-cli train c.yaml ray_num_workers=many", 2, "nproc=unknown world_size=unknown"},
		{"USE_V1=1 llamafactory-cli train c.yaml", 2, "sharding=unknown micro_batch=unknown"},
		{"llamafactory-cli export c.yaml", 2, "script=unknown"},
		{"torchrun --nproc_per_node 2 src/train.py c.yaml", 2, "framework=llamafactory world_size=2 method=lora"},
		{"torchrun --nproc_per_node 2 src/train.py v.yaml", 2, "framework=unknown"},
		{"torchrun --nproc_per_node 2 src/train_bash.py --stage sft --finetuning_type full --output_dir o", 2,
			"framework=llamafactory method=full"},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			check(t, readFamily(dir, "llamafactory=0.9.3,transformers=4.52.4", tt.command, tt.gpus), tt.want)
		})
	}
}

// hparams/parser.py and finetuning_args.py at v0.9.5.
func TestLLaMAFactoryRefusals(t *testing.T) {
	for keys, want := range map[string]string{
		"finetuning_type: full\nquantization_bit: 4":                 "Quantization is only compatible",
		"finetuning_type: full\npure_bf16: true\ndeepspeed: z3.json": "`pure_bf16` is incompatible",
		"use_galore: true": "Cannot use LoRA with GaLore",
		"finetuning_type: full\nuse_galore: true\ndeepspeed: z3.json":     "incompatible with DeepSpeed",
		"finetuning_type: full\nuse_galore: true\ngalore_layerwise: true": "layer-wise GaLore",
		"finetuning_type: full\nuse_badam: true":                          "only supports DeepSpeed ZeRO-3",
		"finetuning_type: freeze\nuse_dora: true":                         "`use_dora` is only valid for LoRA",
		"bf16: true\nfp16: true":                                          "At most one of fp16 and bf16",
		"quantization_bit: 4\nquantization_device_map: auto":              "Cannot use device map",
	} {
		dir := write(t, models(t), "c.yaml", factoryBase+keys+"\n")
		write(t, dir, "z3.json", `{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}`)
		j := readFamily(dir, "llamafactory=0.9.5,transformers=4.57.1", "llamafactory-cli train c.yaml", 2)
		if !strings.Contains(j.WillFail.Value, want) {
			t.Errorf("%q: will fail %q, want %q", keys, j.WillFail.Value, want)
		}
	}
	dir := write(t, models(t), "c.yaml", factoryBase+"deepspeed: z3.json\n")
	write(t, dir, "z3.json", `{"zero_optimization": {"stage": 3}}`)
	if j := readFamily(dir, "llamafactory=0.9.5,transformers=4.57.1", "llamafactory-cli train c.yaml",
		1); !strings.Contains(j.WillFail.Value, "FORCE_TORCHRUN=1") {
		t.Errorf("one GPU and DeepSpeed: will fail %q", j.WillFail.Value)
	}
}

func FuzzLLaMAFactory(f *testing.F) {
	for _, seed := range []string{factoryBase, "stage: [a]", "quantization_bit: four", "lora_target: {a: 1}",
		"deepspeed: {a: b}", "fsdp: [full_shard]", "a: ${b}\nb: ${a}", "a: ${oc.env:X}", "\xff", "- a",
		"lora_rank: 99999999999999999999"} {
		f.Add(seed, "cutoff_len=4")
	}
	f.Add("a: 1", "a.b.c=3 ~a =x ++y=2 --cutoff_len 3")
	dir := models(f)
	f.Fuzz(func(t *testing.T, text, args string) {
		write(t, dir, "c.yaml", text)
		argv := append([]string{"llamafactory-cli", "train", "c.yaml"}, strings.Fields(args)...)
		settingValues(t, Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half,
			Versions: map[string]string{"transformers": "4.57.1"}}))
	})
}
