package job

import (
	"strings"
	"testing"
)

// A script that makes something in one of two branches leaves it open which; the readers of each thing must say so, and
// none may fall over what another reader has sorted out.
func TestOneOfTwoBranches(t *testing.T) {
	const frame = `import sys
import bitsandbytes as bnb
import deepspeed
import torch
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import ParallelismConfig
from transformers import AutoModelForCausalLM


def main(fast):
    model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16)
    BEFORE
    if fast:
        made = FIRST
    else:
        made = SECOND
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if len(sys.argv) > 3 else None
    for batch in rows:
        model(**batch).loss.backward()


main(len(sys.argv) > 1)
`
	for _, c := range []struct {
		name, before, first, second string
		want                        map[string]string
	}{
		{"optimizer", "", `bnb.optim.AdamW8bit(model.parameters())`, `torch.optim.AdamW(model.parameters())`,
			map[string]string{"optimizer": "unknown: make optimizers"}},
		{"loader", "opt = torch.optim.AdamW(model.parameters())", `torch.utils.data.DataLoader(rows, batch_size=2)`,
			`torch.utils.data.DataLoader(rows, batch_size=4)`,
			map[string]string{"micro_batch": "unknown: "}},
		{"engine", "", `deepspeed.initialize(model=model, config="a.json")`,
			`deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 2}})`,
			map[string]string{"sharding": "unknown: "}},
		{"accelerator", "opt = torch.optim.AdamW(model.parameters())", `Accelerator(mixed_precision="bf16")`,
			`Accelerator(mixed_precision="fp16")`, nil},
		{"mesh", "opt = torch.optim.AdamW(model.parameters())", `ParallelismConfig(tp_size=2)`,
			`ParallelismConfig(tp_size=4)`, nil},
		{"processes", "opt = torch.optim.AdamW(model.parameters())", `mp.spawn(main, nprocs=2)`,
			`mp.spawn(main, nprocs=4)`, map[string]string{"nproc": "unknown: starts the processes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.NewReplacer("BEFORE", c.before, "FIRST", c.first, "SECOND", c.second).Replace(frame)
			j := scriptJob(t, map[string]string{"train.py": text}, 4, versions2025, "python train.py")
			checkSettings(t, j, c.want)
		})
	}
}

// An option that the script itself changes after the command line was parsed is not what the command line says.
func TestOptionsThatTheScriptChanges(t *testing.T) {
	const script = `import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=256)
args = parser.parse_args()
CHANGE
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in rows:
    model(batch).sum().backward()
    optimizer.step()
`
	for change, want := range map[string]string{
		"": "64", "args.batch_size = int(args.batch_size / torch.cuda.device_count())": "unknown",
		"args.lr = args.batch_size / 256": "64",
	} {
		j := scriptJob(t, map[string]string{"train.py": strings.Replace(script, "CHANGE", change, 1)}, 4, versions2025,
			"python train.py -b 64")
		if got := j.MicroBatch.named("micro_batch").Value; got != want {
			t.Errorf("%q: micro_batch %s, want %s", change, got, want)
		}
	}
}

// A class's own default says nothing where the command line gives its field to a parser that is not read; nor does what
// only evaluates, or the length of a prompt in a script that trains a diffusion model.
func TestSourceSaysNothing(t *testing.T) {
	const script = `from dataclasses import dataclass
import draccus
import torch
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


@dataclass
class Config:
    grad_accumulation_steps: int = 1
    seq_len: int = 512


@draccus.wrap()
def finetune(cfg: Config):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model = get_peft_model(model, LoraConfig(r=4))
    optimizer = torch.optim.AdamW(model.parameters())
    for i, batch in enumerate(rows):
        model(**batch).loss.backward()
        if (i + 1) % cfg.grad_accumulation_steps == 0:
            optimizer.step()


def evaluate(model):
    with torch.autocast("cuda"):
        model(rows[0])


finetune()
`
	for _, row := range []struct {
		name, script, words string
		want                map[string]string
	}{
		{"given to another parser", script, "--grad_accumulation_steps 2",
			map[string]string{"grad_accum": "2 @ command line --grad_accumulation_steps", "method": "lora"}},
		{"autocast of an evaluation", script, "", map[string]string{"precision": "unknown: "}},
		{"quantised by an option of its own", script, "--quant_bits 4",
			map[string]string{"quant": "unknown: given as --quant_bits 4 and not understood",
				"method": "unknown: whether on quantised weights"}},
		{"parallel by an option of its own", script, "--tensor-parallel-size 2 --cpu_offload",
			map[string]string{"tp": "unknown: given as --tensor-parallel-size 2",
				"offload": "unknown: given as --cpu_offload"}},
		{"prompts of diffusion", "from diffusers import UNet2DConditionModel\n" + script +
			"tokens = tokenizer(prompt, max_length=77)\n", "", map[string]string{"seq_len": "unknown: "}},
		{"code by name", "import importlib\n" +
			strings.Replace(script, "    model = get_peft_model(model, LoraConfig(r=4))\n",
				"    model = importlib.import_module(cfg.network).wrap(model)\n", 1), "",
			map[string]string{"method": "unknown: loads code by its name"}},
		{"engine's autocast", "from accelerate import Accelerator\naccelerator = Accelerator()\n" + script +
			"with accelerator.autocast():\n    loss.backward()\n", "", map[string]string{"precision": "unknown: "}},
		{"several processes, nothing that joins them", script, "",
			map[string]string{"sharding": "unknown: how several processes share the training"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkSettings(t, scriptJob(t, map[string]string{"train.py": row.script}, 2, versions2025,
				"torchrun --nproc_per_node 2 train.py "+row.words), row.want)
		})
	}
}
