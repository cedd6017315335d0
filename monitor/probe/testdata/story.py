"""One process that does most of what a training script may do. Prints what it saw, for a comparison with and without the probe."""
import os
import resource
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
MIB = 1 << 20


def build():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024))
    return model, torch.optim.AdamW(model.parameters())


def loss_of(model, x):
    return model(x).pow(2).mean()


def train(folder):
    model, optimizer = build()
    # workers are forked, evaluate and compute gradients themselves, and must stay silent
    loader = DataLoader(TensorDataset(torch.randn(16, 1024)), batch_size=4, num_workers=1, multiprocessing_context="fork", collate_fn=collate)
    for count, x in enumerate(loader):  # two steps of two micro-batches
        loss = loss_of(model, x)
        loss.backward()
        if count % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print("loss %.6f" % loss.item())
    model.eval()
    with torch.no_grad():
        print("eval %.6f" % loss_of(model, x).item())
    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    model.train()
    return model, optimizer, x


def collate(rows):
    worker_model = torch.nn.Linear(4, 4)
    worker_optimizer = torch.optim.SGD(worker_model.parameters(), lr=0.1)
    worker_model.eval()
    loss_of(worker_model, torch.ones(4, 4)).backward()
    worker_optimizer.step()
    return torch.stack([row[0] for row in rows])


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        kind = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
        raise kind("CUDA out of memory. Tried to allocate 2.00 MiB.")


def caught(model, optimizer, x):
    """An out-of-memory error in backward that the script survives, and one more step."""
    try:
        loss_of(model, Failing.apply(x.requires_grad_())).backward()
    except RuntimeError as error:
        print("caught", type(error).__name__)
    loss_of(model, x.detach()).backward()
    optimizer.step()


def checkpointed(model, optimizer, x):
    """Re-entrant checkpointing runs backward inside backward."""
    from torch.utils.checkpoint import checkpoint

    checkpoint(lambda y: loss_of(model, y), x.detach().requires_grad_(), use_reentrant=True).backward()
    optimizer.step()


def compiled(x):
    """A whole training step compiled: torch 2.6 fails when dynamo sees the probe's frames."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    model, optimizer = build()

    def step(x):
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    fast = torch.compile(step, backend=backend)
    for _ in range(4):
        loss = fast(x)
    print("compiled %.6f, %d graphs" % (loss.item(), len(graphs)))
    model.eval()
    inference = torch.compile(model, backend=backend)
    inference(x)
    model.train()
    print("then %d graphs" % len(graphs))


def children():
    pid = os.fork()
    if pid == 0:
        loss_of(torch.nn.Linear(4, 4), torch.ones(4, 4)).backward()
        os._exit(0)
    os.waitpid(pid, 0)
    code = "import sys, torch; print('child', '_oomguard_probe' in sys.modules)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip())


def main():
    folder, end = sys.argv[1:3]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model, optimizer, x = train(folder)
    caught(model, optimizer, x)
    checkpointed(model, optimizer, x)
    children()
    compiled(x.detach())
    print("ru_maxrss falls:", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak)
    print("path clean:", not any("pylib" in entry for entry in sys.path), "sitecustomize:", sys.modules["sitecustomize"].__file__)
    print("engine:", type(torch.autograd.Variable._execution_engine).__name__, torch.save.__name__, torch.nn.Module.train.__module__)
    sys.stdout.flush()
    if end == "fail":
        loss_of(model, Failing.apply(x.requires_grad_())).backward()
    if end == "kill":
        os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main()
