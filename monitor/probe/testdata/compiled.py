"""Compiles what calls the functions that the probe watches; prints the graphs, the breaks and the errors."""
import io
import logging
import os
import sys

import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader

logging.disable(logging.CRITICAL)
folder = sys.argv[1]
x = torch.ones(2, 3)
file = os.path.join(folder, "x.pt")
torch.save(x, file)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.0), torch.nn.Linear(3, 1))


one = model()
optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=True)


def switches(x):
    one.train()
    y = one(x)
    one.eval()
    return y.sum() + one(x).sum()


def zeroes(x):
    one.zero_grad()
    return one(x).sum()


def gradient(x):
    w = one[0].weight
    return torch.autograd.grad((x @ w).sum(), w)[0]


def whole_step(x):
    loss = one(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    one.zero_grad()
    one.eval()
    one.train()
    return loss


def scaled(x):
    scaler.scale(one(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return x + 1


def saves(x):
    torch.save(x, file)
    save_file({"x": x}, os.path.join(folder, "y"))
    return torch.load(file) + x


def loads_data(x):
    for batch in DataLoader(range(2)):
        x = x + batch
    return x


def builds(x):
    other = torch.optim.SGD(one.parameters(), lr=0.1)
    other.load_state_dict(other.state_dict())
    return one(x).sum()


for function in (switches, zeroes, gradient, whole_step, scaled, saves, loads_data, builds):
    for fullgraph in (True, False):
        graphs = []

        def backend(graph, inputs):
            graphs.append(len(list(graph.graph.nodes)))
            return graph.forward

        torch._dynamo.reset()
        fast = torch.compile(function, backend=backend, fullgraph=fullgraph)
        try:
            results = [fast(x).sum().item() for _ in range(3)]
        except Exception as error:
            results = type(error).__name__, str(error).partition("\n")[0][:100]
        print(function.__name__, fullgraph, graphs, results)
