"""Fails in everything that the probe watches and prints what a script would print: tracebacks, logs, warnings, stack depths."""
import importlib.util
import inspect
import io
import logging
import os
import pickle
import sys
import traceback
import warnings

import torch
from torch.utils.data import DataLoader

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(pathname)s:%(lineno)d %(message)s")
missing = os.path.join(sys.argv[1], "no", "such", "folder", "file")
parameter = torch.nn.Parameter(torch.ones(2))


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        warnings.warn("from backward", stacklevel=2)
        print("depth", len(inspect.stack(0)))
        raise RuntimeError("backward fails")


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def train(self, mode=True):
        raise RuntimeError("train fails")

    def parameters(self, recurse=True):
        raise RuntimeError("parameters fail")


class Stepless(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("step fails")


class Warns:
    """Pickled with a warning that names the caller of torch.save or torch.load."""

    def __init__(self, level):
        self.level = level

    def __getstate__(self):
        for level in range(1, 9):
            warnings.warn("level %d of save" % level, stacklevel=level)
        return {"level": self.level}

    def __setstate__(self, state):
        for level in range(1, 9):
            warnings.warn("level %d of load" % level, stacklevel=level)


class Data:
    def __len__(self):
        raise RuntimeError("len fails")

    def __getitem__(self, index):
        return index


def loss():
    return Failing.apply(parameter * 2).sum()


def save_twice():
    file = io.BytesIO()
    torch.save(Warns(1), file)
    file.seek(0)
    torch.load(file, **({"weights_only": False} if "weights_only" in inspect.signature(torch.load).parameters else {}))


def scaled_step():
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    scaler.step(Stepless([parameter], lr=0.1))


def safetensors():
    if importlib.util.find_spec("safetensors") is None:
        raise ImportError("no safetensors")
    from safetensors.torch import save_file
    save_file({}, missing)


def checkpoint():
    from torch.distributed.checkpoint import save
    save()


def bare_engine():
    """Ends before our own frame can show: the engine is called inside a function that is watched."""
    torch.autograd.grad(loss(), parameter)


ATTEMPTS = [
    lambda: torch.load(missing), lambda: torch.load(io.BytesIO(b"x")), lambda: torch.save({}, missing), lambda: torch.save(lambda: 0, io.BytesIO()),
    lambda: torch.save(), lambda: torch.load(nonsense=1), lambda: torch.save({}, io.BytesIO(), pickle_module=pickle, nonsense=2),
    save_twice, lambda: loss().backward(), bare_engine, lambda: torch.autograd.backward(None), lambda: parameter.backward(),
    lambda: torch.optim.SGD([], lr=0.1), lambda: torch.optim.SGD([parameter], lr=-1), lambda: torch.optim.SGD([parameter], lr=0.1).load_state_dict({}),
    lambda: torch.optim.Optimizer.zero_grad(None), lambda: torch.optim.Optimizer.__init__(), lambda: Stepless([parameter], lr=0.1).step(), scaled_step,
    lambda: Odd().eval(), lambda: Odd().zero_grad(), lambda: torch.nn.Module.train(Odd(), "no"), lambda: torch.nn.Module.zero_grad(3),
    lambda: iter(DataLoader(Data(), num_workers=0)), lambda: list(DataLoader(Data())), safetensors, checkpoint,
]


def main():
    warnings.simplefilter("always")
    for attempt in ATTEMPTS:
        try:
            attempt()
        except Exception as error:
            traceback.print_exc()
            logging.exception("logged")
            print([(frame.f_code.co_filename, frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)])
            print(type(error.__cause__), type(error.__context__))
    print(sys.excepthook is sys.__excepthook__, type(sys.excepthook))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    print(model.eval() is model, model.train() is model, model.training, model.zero_grad(), model.train(False).training)
    model.train()
    loss().backward()


main()
