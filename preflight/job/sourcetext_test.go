package job

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scriptJob reads a command in a folder with the given files.
func scriptJob(t testing.TB, files map[string]string, gpus int, versions, command string) *Job {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	known, err := ParseVersions(versions)
	if err != nil {
		t.Fatal(err)
	}
	return Read(Sources{Argv: strings.Fields(command), Dir: dir, GPUs: gpus, CPUs: 8, Versions: known})
}

// checkSettings compares settings as people see them; a wanted "unknown: text" demands an unknown whose reason has the
// text, and "value @ text" an origin that has it.
func checkSettings(t *testing.T, j *Job, want map[string]string) {
	t.Helper()
	got := map[string]Named{}
	for _, n := range j.Settings() {
		got[n.Key] = n
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		n := got[key]
		value, origin, _ := strings.Cut(want[key], " @ ")
		if reason, unknown := strings.CutPrefix(want[key], "unknown: "); unknown {
			value, origin = "unknown", reason
		}
		if n.Value != value || !strings.Contains(n.Origin, origin) {
			t.Errorf("%s: got %s (%s), want %s", key, n.Value, n.Origin, want[key])
		}
	}
}

const versions2025 = "transformers=4.51.3,trl=0.17.0,peft=0.15.2,torch=2.6.0"

// trainScript is shaped like the scripts of many tutorials: literals, constants, options of its own parser, QLoRA.
const trainScript = `import argparse, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from peft import LoraConfig, prepare_model_for_kbit_training
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--base-model", type=str, default="meta-llama/Llama-3.1-8B")
parser.add_argument("--bs", type=int, default=2)
parser.add_argument("--len", dest="max_len", type=int, default=1024)
parser.add_argument("--no_gc", action="store_true")
args = parser.parse_args()

ACCUM = 2 * 8

bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                         bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(
    args.base_model,
    quantization_config=bnb,
    torch_dtype=torch.bfloat16,
    attn_implementation="flash_attention_2",
)
model = prepare_model_for_kbit_training(model)
lora = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", use_rslora=True)
cfg = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=args.bs,
    gradient_accumulation_steps=ACCUM,
    max_seq_length=args.max_len,
    packing=True,
    optim="paged_adamw_8bit",
    bf16=True,
)
SFTTrainer(model=model, args=cfg, peft_config=lora, train_dataset=None).train()
`

// The expected values follow from the literals, the defaults of LoraConfig and BitsAndBytesConfig (peft 0.15,
// transformers 4.51) and what each keyword does there.
func TestTrainerInScript(t *testing.T) {
	dpo := strings.NewReplacer("SFTConfig", "DPOConfig", "SFTTrainer", "DPOTrainer", "peft_config=lora",
		"peft_config=None", "quantization_config=bnb", "",
		"model = prepare_model_for_kbit_training(model)", "", "max_seq_length", "max_length", "packing=True,",
		"").Replace(trainScript)
	for _, row := range []struct {
		name, script, args string
		want               map[string]string
	}{
		{"literals", trainScript, "--bs 4", map[string]string{
			"framework": "trl", "task": "sft",
			"model":       "meta-llama/Llama-3.1-8B @ train.py:18: default of --base-model in train.py:7",
			"micro_batch": "4 @ train.py:27: command line --bs",
			"grad_accum":  "16 @ train.py:28", "seq_len": "1024 @ default of --len in train.py:9",
			"packing": "true @ train.py:30", "optimizer": "paged_adamw_8bit @ train.py:31",
			"precision": "bf16", "method": "qlora", "quant": "bnb 4 bits, nf4, scales quantised too, computes in bf16",
			"base_dtype": "bf16 @ train.py:20", "param_dtype": "bf16",
			"lora":      "r 32, alpha 64, dropout 0.05, targets all-linear, rank-stabilised",
			"attention": "flash_attention_2 @ train.py:21", "checkpointing": "full @ train.py:23",
			"ref_model": "false",
		}},
		{"an option of the parser is no field of TrainingArguments", trainScript,
			"--bf16 false --gradient_accumulation_steps 3", map[string]string{"precision": "bf16", "grad_accum": "16"}},
		{"DPO without adapters", dpo, "",
			map[string]string{"framework": "trl", "task": "dpo", "method": "full", "ref_model": "true",
				"param_dtype": "bf16", "lora": "none", "quant": "none", "seq_len": "1024"}},
		{"a ternary decides", strings.Replace(trainScript, "peft_config=lora",
			"peft_config=lora if args.bs > 2 else None", 1), "--bs 4", map[string]string{"method": "qlora"}},
		{"a ternary decides otherwise",
			strings.Replace(trainScript, "quantization_config=bnb", "quantization_config=bnb if args.bs > 2 else None",
				1), "", map[string]string{"method": "lora", "quant": "none"}},
		{"unknown adapters", strings.Replace(trainScript, "peft_config=lora", "peft_config=make()", 1), "",
			map[string]string{"method": "unknown: train.py:34", "lora": "unknown: make(...)"}},
		{"unknown batch", strings.Replace(trainScript, "=args.bs,", "=guess(),", 1), "",
			map[string]string{"micro_batch": "unknown: train.py:27 passes per_device_train_batch_size, which is " +
				"decided when the script runs (guess(...))", "global_batch": "unknown: micro_batch"}},
		{"f-string", strings.Replace(trainScript, "args.base_model,", `f"{org}/llama",`, 1), "",
			map[string]string{"model": "unknown: train.py:17"}},
		{"loaded in fp16 by a cast", strings.Replace(trainScript, `attn_implementation="flash_attention_2",
)`, `).half()`, 1), "", map[string]string{"base_dtype": "fp16 @ train.py:21", "attention": "sdpa"}},
		{"assigned behind", strings.Replace(trainScript, "SFTTrainer(model",
			"cfg.gradient_accumulation_steps = 1\nSFTTrainer(model", 1), "",
			map[string]string{"grad_accum": "1 @ train.py:34"}},
		{"assigned under a condition", strings.Replace(trainScript, "SFTTrainer(model",
			"if hard():\n    cfg.gradient_accumulation_steps = 1\nSFTTrainer(model", 1), "",
			map[string]string{"grad_accum": "unknown: train.py:35: "}},
		{"two configurations, one for the trainer",
			strings.Replace(trainScript, "SFTTrainer(model", "other = SFTConfig(output_dir='x')\nSFTTrainer(model", 1),
			"", map[string]string{"micro_batch": "2"}},
		{"two configurations", strings.NewReplacer("SFTTrainer(model",
			"other = SFTConfig(output_dir='x')\nSFTTrainer(model", "args=cfg",
			"args=pick(cfg, other)").Replace(trainScript), "",
			map[string]string{"micro_batch": "unknown: both make a configuration"}},
		{"keywords from a dict", strings.Replace(trainScript, "    bf16=True,\n", "    **dict(fp16=True),\n", 1), "",
			map[string]string{"precision": "fp16"}},
		{"a list's order", strings.Replace(trainScript, `"all-linear"`, `["q_proj", "v_proj"]`, 1), "",
			map[string]string{"lora": "r 32, alpha 64, dropout 0.05, targets q_proj,v_proj, rank-stabilised"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := scriptJob(t, map[string]string{"train.py": row.script}, 1, versions2025, "python train.py "+row.args)
			for _, problem := range told(j) {
				t.Errorf("problem: %v", problem)
			}
			checkSettings(t, j, row.want)
		})
	}
}

// HfArgumentParser makes options of TrainingArguments and of the script's own dataclasses; a class may change their
// defaults.
func TestParserInScript(t *testing.T) {
	const script = `from dataclasses import dataclass, field
import transformers
from transformers import AutoModelForCausalLM, Trainer

@dataclass
class ModelArguments:
    model_name: str = field(default="gpt2", metadata={"help": "x"})
    ctx: int = 256

@dataclass
class Args(transformers.TrainingArguments):
    gradient_checkpointing: bool = field(default=True)
    optim: str = "adafactor"

def main():
    parser = transformers.HfArgumentParser((ModelArguments, Args))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name)
    Trainer(model=model, args=training_args).train()

if __name__ == "__main__":
    main()
`
	j := scriptJob(t, map[string]string{"train.py": script}, 2, versions2025,
		"torchrun --nproc-per-node 2 train.py --model_name EleutherAI/pythia-160m --per_device_train_batch_size 4 "+
			"--bf16 --output_dir o")
	checkSettings(t, j, map[string]string{"framework": "hf-trainer",
		"model": "EleutherAI/pythia-160m @ command line --model_name", "micro_batch": "4 @ command line",
		"precision": "bf16",
		"sharding":  "ddp", "param_dtype": "fp32", "optimizer": "adafactor @ train.py:13",
		"checkpointing": "full @ train.py:12", "packing": "false", "method": "full"})
}

// A script copied from TRL's, with its parser: the command line and ModelConfig's defaults decide.
func TestCopyOfTRLScript(t *testing.T) {
	const script = `from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config
from transformers import AutoModelForCausalLM
parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype=model_args.torch_dtype)
trainer = SFTTrainer(model=model, args=training_args, peft_config=get_peft_config(model_args))
`
	j := scriptJob(t, map[string]string{"finetune.py": script}, 1, versions2025,
		"python finetune.py --model_name_or_path gpt2 --use_peft --bf16 --torch_dtype bfloat16 --output_dir o")
	checkSettings(t, j, map[string]string{"framework": "trl", "model": "gpt2 @ command line", "method": "lora",
		"lora": "r 16, alpha 32, dropout 0.05, targets c_attn", "base_dtype": "bf16", "precision": "bf16",
		"packing": "false", "seq_len": "1024"})
}

// A parser of another package: what the command line gives under the name of an attribute is its value.
func TestParserElsewhere(t *testing.T) {
	const script = "from tools import get_args\nfrom transformers import Trainer, TrainingArguments\nargs = " +
		"get_args()\nTrainer(m, TrainingArguments(per_device_train_batch_size=args.bs, " +
		"gradient_accumulation_steps=args.accum)).train()\n"
	j := scriptJob(t, map[string]string{"t.py": script}, 1, versions2025, "python t.py --bs 3")
	checkSettings(t, j, map[string]string{"micro_batch": "3 @ command line --bs", "grad_accum": "unknown: args.accum"})
}

// Constants may stand in a module beside the script.
func TestLocalModule(t *testing.T) {
	files := map[string]string{
		"src/config.py": "MODEL = 'gpt2'\nBATCH = 4 * 2\n\nclass Train:\n    accum = 3\n",
		"src/train.py": "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nfrom config " +
			"import BATCH\nimport config\n" +
			"model = AutoModelForCausalLM.from_pretrained(config.MODEL)\nTrainer(model, TrainingArguments('o', " +
			"per_device_train_batch_size=BATCH, gradient_accumulation_steps=config.Train.accum)).train()\n",
	}
	j := scriptJob(t, files, 1, versions2025, "python src/train.py")
	checkSettings(t, j, map[string]string{"model": "gpt2 @ src/train.py:4: src/config.py",
		"micro_batch": "8 @ src/config.py", "grad_accum": "3"})
	if len(told(j)) > 0 {
		t.Error(told(j))
	}
}

// Loops of their own: what PyTorch's, DeepSpeed's and Accelerate's calls say.
func TestLoopInScript(t *testing.T) {
	const loop = `import argparse, torch
import torch.nn as nn
from torch.utils.data import DataLoader
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM, AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=4)
p.add_argument("--lr", type=float, default=1e-4)
args = p.parse_args()
tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
model = DDP(model.cuda())
opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
loader = DataLoader(data, batch_size=args.batch_size)
val_loader = DataLoader(val_data, batch_size=64)
for row in loader:
    x = tokenizer(row, truncation=True, max_length=512)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**x).loss
    loss.backward()
    opt.step()
`
	fsdp := strings.NewReplacer("from torch.nn.parallel import DistributedDataParallel as DDP",
		"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy",
		"DDP(model.cuda())", "FSDP(model, auto_wrap_policy=policy, "+
			"sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, "+
			"mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))").Replace(loop)
	fsdp2 := strings.NewReplacer("from torch.nn.parallel import DistributedDataParallel as DDP",
		"from torch.distributed.fsdp import fully_shard",
		"model = DDP(model.cuda())", "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)").Replace(loop)
	for _, row := range []struct {
		name, script, command string
		want                  map[string]string
	}{
		{"DDP", loop, "torchrun --nproc-per-node 2 train.py --batch-size 8",
			map[string]string{"framework": "custom", "model": "gpt2 @ train.py:12",
				"micro_batch": "8 @ command line --batch-size", "seq_len": "512 @ train.py:18",
				"precision": "bf16 @ train.py:19", "optimizer": "adamw_fused @ train.py:14",
				"sharding": "ddp @ train.py:13", "param_dtype": "fp32", "grad_accum": "1", "checkpointing": "none",
				"master_fp32": "false"}},
		{"FSDP", fsdp, "torchrun --nproc-per-node 2 train.py",
			map[string]string{"sharding": "fsdp-grad @ train.py:13", "fsdp_version": "1", "fsdp_wrap": "layers",
				"precision": "bf16"}},
		{"FSDP2", fsdp2, "torchrun --nproc-per-node 2 train.py",
			map[string]string{"sharding": "fsdp-full", "fsdp_version": "2", "fsdp_wrap": "layers"}},
		{"DataParallel", strings.Replace(loop, "DDP(model.cuda())", "nn.DataParallel(model)", 1), "python train.py",
			map[string]string{"sharding": "dp @ train.py:13", "micro_batch": "2 @ split"}},
		{"two optimizers", strings.Replace(loop, "opt = ", "other = torch.optim.SGD(x)\nopt = ", 1), "python train.py",
			map[string]string{"optimizer": "unknown: train.py:14 and train.py:15 make optimizers"}},
		{"accelerate", strings.Replace(loop, "args = p",
			"from accelerate import Accelerator\naccelerator = Accelerator(mixed_precision='fp16', "+
				"gradient_accumulation_steps=4)\nargs = p", 1), "python train.py",
			map[string]string{"precision": "fp16 @ train.py:11", "grad_accum": "4 @ train.py:11"}},
		{"dtype decided at run time", strings.Replace(loop, "dtype=torch.bfloat16", "dtype=pick()", 1),
			"python train.py", map[string]string{"precision": "unknown: train.py:19"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := scriptJob(t, map[string]string{"train.py": row.script}, 2, versions2025, row.command)
			for _, problem := range told(j) {
				t.Errorf("problem: %v", problem)
			}
			checkSettings(t, j, row.want)
		})
	}
	// nanoGPT replaces its globals by a file and by words of the command line.
	gpt := map[string]string{"train.py": "import torch\nbatch_size = 12\nblock_size = " +
		"1024\ngradient_accumulation_steps = 40\ndtype = 'bfloat16'\nexec(open('configurator.py').read())\nif " +
		"ddp:\n    gradient_accumulation_steps //= world\n" +
		"ctx = torch.amp.autocast(device_type='cuda', dtype=torch.bfloat16)\nopt = torch.optim.AdamW(p)\n",
		"config/small.py": "batch_size = 4\nblock_size = 256\n"}
	small := scriptJob(t, gpt, 2, versions2025, "python train.py config/small.py --batch_size=6")
	checkSettings(t, small, map[string]string{"micro_batch": "6 @ command line --batch_size",
		"seq_len": "256 @ config/small.py:2", "grad_accum": "unknown: ", "precision": "bf16"})
	shared := map[string]string{"train.py": strings.Replace(gpt["train.py"],
		"if ddp:\n    gradient_accumulation_steps //= world\n",
		"if ddp:\n    ddp_world_size = int(os.environ['WORLD_SIZE'])\n    gradient_accumulation_steps //= "+
			"ddp_world_size\n", 1), "config/big.py": "gradient_accumulation_steps = 5 * 8\n"}
	big := scriptJob(t, shared, 8, versions2025, "torchrun --nproc_per_node=8 train.py config/big.py")
	checkSettings(t, big, map[string]string{"grad_accum": "5 @ train.py:9: config/big.py:1, shared out over 8 processes"})
	fire := map[string]string{"finetune.py": "import fire, transformers\ndef train(base_model: str = '', " +
		"micro_batch_size: int = 4, batch_size: int = 128, cutoff_len: int = 256):\n    accum = batch_size // " +
		"micro_batch_size\n" +
		"    model = transformers.AutoModelForCausalLM.from_pretrained(base_model, load_in_8bit=True)\n    " +
		"transformers.Trainer(model=model, " +
		"args=transformers.TrainingArguments(per_device_train_batch_size=micro_batch_size, " +
		"gradient_accumulation_steps=accum, fp16=True))\n" +
		"if __name__ == '__main__':\n    fire.Fire(train)\n"}
	alpaca := scriptJob(t, fire, 1, versions2025,
		"python finetune.py --base_model=huggyllama/llama-7b --micro_batch_size 8")
	checkSettings(t, alpaca, map[string]string{"model": "huggyllama/llama-7b",
		"micro_batch": "8 @ command line --micro_batch_size", "grad_accum": "16", "precision": "fp16"})
	lightning := "import lightning as L\nfrom lightning.pytorch.strategies import FSDPStrategy\nimport torch\nclass " +
		"M(L.LightningModule):\n    def configure_optimizers(self):\n        return " +
		"torch.optim.SGD(self.parameters(), momentum=0.9)\n" +
		"trainer = L.Trainer(devices=2, strategy=FSDPStrategy(auto_wrap_policy={Block}, cpu_offload=True), " +
		"precision='bf16-true', accumulate_grad_batches=4)\n"
	j := scriptJob(t, map[string]string{"train.py": lightning}, 2, versions2025, "python train.py")
	checkSettings(t, j, map[string]string{"framework": "lightning", "nproc": "2 @ train.py:7", "sharding": "fsdp-full",
		"fsdp_wrap": "layers", "param_dtype": "bf16", "grad_accum": "4", "optimizer": "sgd_momentum @ train.py:6",
		"offload": "optimizer cpu, params cpu"})
	native := "import deepspeed\nengine, *_ = deepspeed.initialize(model=m, " +
		"config={'train_micro_batch_size_per_gpu': 2, 'gradient_accumulation_steps': 4, 'zero_optimization': " +
		"{'stage': 2}, 'bf16': {'enabled': True}})\n"
	j = scriptJob(t, map[string]string{"train.py": native}, 2, versions2025, "torchrun --nproc-per-node 2 train.py")
	checkSettings(t, j, map[string]string{"framework": "deepspeed", "sharding": "zero2 @ train.py:2",
		"micro_batch": "2", "grad_accum": "4", "precision": "bf16"})
}

// TestOwnClassesOfKnownNames: a class of the script that is called like one of a library has nothing to do with it, and
// the script's own options count.
func TestOwnClassesOfKnownNames(t *testing.T) {
	const loop = `import argparse, torch
from torch.nn.parallel import DistributedDataParallel as DDP

%s

class Trainer:
    def __init__(self, args):
        self.model = DDP(Net().to(getattr(torch, args.torch_dtype)))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
    def step(self):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.args.bf16):
            loss = self.model(self.batch())
        loss.backward()

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=2)
parser.add_argument("--max_seq_length", type=int, default=128)
parser.add_argument("--torch_dtype", default="float32")
parser.add_argument("--bf16", type=flag, nargs="?", const=True, default=False)
Trainer(parser.parse_args()).run()
`
	tests := map[string]struct {
		other, flags string
		want         map[string]string
	}{
		"its own options": {"", "--per_device_train_batch_size 4 --torch_dtype float32",
			map[string]string{"framework": "custom", "micro_batch": "4", "seq_len": "128",
				"precision": "fp32 @ no autocast"}},
		"autocast is on": {"", "--bf16 True",
			map[string]string{"framework": "custom", "micro_batch": "2", "precision": "bf16"}},
		"another's as well": {"from mylib import SFTTrainer\n\nclass DPOTrainer(SFTTrainer):\n    pass\n\nDPOTrainer()",
			"", map[string]string{"framework": "custom", "seq_len": "128"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := scriptJob(t, map[string]string{"train.py": strings.Replace(loop, "%s", tt.other, 1)}, 1, versions2025,
				"torchrun train.py "+tt.flags)
			checkSettings(t, j, tt.want)
		})
	}
}

// TestLoopOfManyFiles: what a script spawns, splits and leaves to others' modules.
func TestLoopOfManyFiles(t *testing.T) {
	const head = "import torch\nimport torch.multiprocessing as mp\nfrom torch.distributed.device_mesh import " +
		"init_device_mesh\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
	const tail = "model = DDP(Net())\nopt = torch.optim.Adam(model.parameters())\nloss.backward()\n"
	for _, row := range []struct {
		name, script, command string
		want                  map[string]string
	}{
		{"spawn for each GPU", head + tail + "n = torch.cuda.device_count()\nmp.spawn(main, args=(n,), nprocs=n)\n",
			"python train.py",
			map[string]string{"nproc": "4 @ train.py:9 starts one for each visible GPU", "sharding": "ddp"}},
		{"spawn of a number", head + tail + "mp.spawn(main, nprocs=2)\n", "python train.py",
			map[string]string{"nproc": "2", "sharding": "ddp"}},
		{"spawn under a condition", head + tail + "if many():\n    mp.spawn(main, nprocs=2)\n", "python train.py",
			map[string]string{"nproc": "unknown: train.py:9 starts the processes"}},
		{"spawn below torchrun", head + tail + "mp.spawn(main, nprocs=2)\n", "torchrun --nproc-per-node 4 train.py",
			map[string]string{"nproc": "4"}},
		{"mesh", head + tail + "tp = 2\nmesh = init_device_mesh('cuda', (world // tp, tp), mesh_dim_names=('dp', " +
			"'tp'))\n", "torchrun --nproc-per-node 4 train.py", map[string]string{"tp": "2 @ train.py"}},
		{"layers split over what nobody knows", head + tail + "parallelize_module(model, mesh, plan)\n",
			"torchrun --nproc-per-node 4 train.py", map[string]string{"tp": "unknown: train.py:8"}},
		{"a number that nothing reads", head + tail + "batch_size = 2\n", "torchrun --nproc-per-node 4 train.py",
			map[string]string{"micro_batch": "unknown: "}},
		{"a model's own defaults", head + "from model import Args\n" + tail, "torchrun --nproc-per-node 4 train.py",
			map[string]string{"seq_len": "unknown: "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			files := map[string]string{"train.py": row.script,
				"model.py": "class Args:\n    max_seq_len: int = 32768\n    def f(self):\n        return " +
					"self.max_seq_len\n"}
			checkSettings(t, scriptJob(t, files, 4, versions2025, row.command), row.want)
		})
	}
}

// TestAdapterOfAnotherModule: a function of the script's own makes the model and the adapter's configuration.
func TestAdapterOfAnotherModule(t *testing.T) {
	files := map[string]string{
		"train.py": `from dataclasses import dataclass
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer
from build import build

@dataclass
class Args:
    model_name_or_path: str
    lora: bool = False
    four: bool = False
    flash: bool = False
    store: str = "uint8"

args, training = HfArgumentParser((Args, SFTConfig)).parse_args_into_dataclasses()
model, peft_config = build(args)
SFTTrainer(model=model, args=training, peft_config=peft_config)
`,
		"build.py": `import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def build(args):
    quant = None
    if args.four:
        quant = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
            bnb_4bit_quant_storage=getattr(torch, args.store))
    kwargs = {"dtype": torch.bfloat16}
    if args.flash:
        if torch.xpu.is_available():
            kwargs["attn_implementation"] = "eager"
        else:
            kwargs["attn_implementation"] = "flash_attention_2"
    if quant is not None:
        kwargs["quantization_config"] = quant
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, **kwargs)
    config = None
    if args.lora:
        config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    return model, config
`}
	for command, want := range map[string]map[string]string{
		"python train.py --model_name_or_path m/x": {"method": "full",
			"quant": "none"},
		"python train.py --model_name_or_path m/x --lora True --flash True": {"method": "lora @ build.py:21",
			"attention": "flash_attention_2 @ build.py", "base_dtype": "bf16"},
		"python train.py --model_name_or_path m/x --lora True --four True --store bfloat16": {"method": "qlora",
			"quant": "bnb 4 bits, nf4, computes in fp32"},
	} {
		checkSettings(t, scriptJob(t, files, 1, versions2025, command), want)
	}
}
