"""What gradients-*.jsonl were recorded of: torch 2.15.0 on a CPU, each with its name as the argument. The last backward pass raises."""
import sys

import torch

mode = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)


class Fail(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. ...")


model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(12)])
opt = torch.optim.AdamW(model.parameters())
for step in range(14):
    h = model(torch.randn(64, 2048))
    if step == 13:
        h = Fail.apply(h)
    h.pow(2).mean().backward()
    opt.step()
    if mode == "clear":
        opt.zero_grad()
    if mode == "zeros":
        opt.zero_grad(set_to_none=False)
