package job

import (
	"strings"
	"testing"
)

// A script that makes something in one of two branches leaves it open which; the readers of each thing must say so, and none may fall over
// what another reader has sorted out.
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
		{"optimizer", "", `bnb.optim.AdamW8bit(model.parameters())`, `torch.optim.AdamW(model.parameters())`, map[string]string{"optimizer": "unknown: make optimizers"}},
		{"loader", "opt = torch.optim.AdamW(model.parameters())", `torch.utils.data.DataLoader(rows, batch_size=2)`, `torch.utils.data.DataLoader(rows, batch_size=4)`,
			map[string]string{"micro_batch": "unknown: "}},
		{"engine", "", `deepspeed.initialize(model=model, config="a.json")`, `deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 2}})`,
			map[string]string{"sharding": "unknown: "}},
		{"accelerator", "opt = torch.optim.AdamW(model.parameters())", `Accelerator(mixed_precision="bf16")`, `Accelerator(mixed_precision="fp16")`, nil},
		{"mesh", "opt = torch.optim.AdamW(model.parameters())", `ParallelismConfig(tp_size=2)`, `ParallelismConfig(tp_size=4)`, nil},
		{"processes", "opt = torch.optim.AdamW(model.parameters())", `mp.spawn(main, nprocs=2)`, `mp.spawn(main, nprocs=4)`, map[string]string{"nproc": "unknown: starts the processes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.NewReplacer("BEFORE", c.before, "FIRST", c.first, "SECOND", c.second).Replace(frame)
			j := scriptJob(t, map[string]string{"train.py": text}, 4, versions2025, "python train.py")
			checkSettings(t, j, c.want)
		})
	}
}
