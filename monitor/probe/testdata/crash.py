"""Dies where argument 1 says."""
import os
import sys

import torch

where = sys.argv[1]
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    x = torch.ones(4, 7 if where == "forward" and step == 1 else 8)
    loss = model(x).sum()
    loss.backward()
    if where == "clip" and step == 1:
        torch.nn.utils.clip_grad_norm_(model.parameters(), "much")
    if where == "step" and step == 1:
        model.weight.grad.data = torch.ones(3)
    if where == "hook" and step == 1:
        sys.excepthook = lambda *error: print("somebody else's hook", file=sys.stderr)
        raise ValueError("after backward")
    optimizer.step()
if where == "kill":
    os.kill(os.getpid(), 9)
