import argparse
import torch
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from gptlib.model import GPT
from gptlib.data import loader

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
p.add_argument("--ctx", type=int, default=2048)
p.add_argument("--bf16", action="store_true")
args = p.parse_args()
model = GPT(args)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for x, y in loader(args.batch, args.ctx):
    loss = model(x, y)
    loss.backward()
    opt.step()
    opt.zero_grad()
