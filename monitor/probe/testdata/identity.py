"""Tells what an interpreter's public and private names stand for, so that one with the probe can be compared with one without.

    identity.py names          a line for every name of every module: what it stands for
    identity.py judge NAMES    what pickle, inspect, copy, typing, multiprocessing and others say of these names
"""
import copy
import functools
import hashlib
import inspect
import multiprocessing
import pickle
import pydoc
import re
import resource  # noqa: F401 the probe needs it
import sys
import types
import typing
import unittest.mock
import weakref

import torch
import torch.distributed.checkpoint
import safetensors.torch

OURS = ("_oomguard_probe", "__main__", "__mp_main__")


def prepare():
    """Lets the parts of torch that wait for a first use come up."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()


def walk():
    """Every name of every module, and those inside classes where they are defined."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in OURS or not isinstance(module, types.ModuleType):
            continue
        for key, value in sorted(vars(module).items()):
            if isinstance(key, str):
                yield name + ":" + key, value
                if isinstance(value, type) and value.__module__ == name:
                    for member, inner in sorted(vars(value).items()):
                        yield name + ":" + key + "." + member, inner


def find(name):
    module, _, path = name.partition(":")
    value = sys.modules[module]
    for step in path.split("."):
        value = getattr(value, step)
    return value


def code_of(code):
    constants = [code_of(value) if inspect.iscode(value) else sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
                 for value in code.co_consts]
    return hashlib.sha256(repr((code.co_filename, code.co_firstlineno, code.co_code, code.co_names, constants)).encode()).hexdigest()[:12]


def fingerprint(value):
    kind = type(value)
    parts = [kind.__module__, kind.__qualname__, kind.__flags__]
    if isinstance(value, types.FunctionType):
        parts += [value.__module__, value.__qualname__, code_of(value.__code__)]
        inside = inspect.unwrap(value)
        if isinstance(inside, types.FunctionType):
            parts += [code_of(inside.__code__)]
    return plain(" ".join(map(str, parts)))


def plain(text):
    return re.sub(r"0x[0-9a-f]+", "0x", text).replace("\n", "\\n")


def describe(value, name):
    """In a child process: what has arrived, and whether it is what the child has under that name."""
    return "%s %s" % (fingerprint_of_kind(value), value is find(name))


def fingerprint_of_kind(value):
    return "%s %s %s" % (type(value).__name__, getattr(value, "__module__", None), getattr(value, "__qualname__", None))


@functools.lru_cache
def index():
    names = {}
    for name, value in walk():
        names.setdefault(id(value), []).append(name)
    return names


def same_names(value):
    return index().get(id(value))


def patched(name):
    value = find(name)
    module, _, path = name.partition(":")
    with unittest.mock.patch(module + "." + path, autospec=False) as mine:
        wins = find(name) is mine
    return wins, find(name) is value


QUESTIONS = {
    "kind": fingerprint_of_kind,
    "class": lambda value: (type(value), value.__class__),
    "predicates": lambda value: [ask.__name__ for ask in (inspect.isfunction, inspect.isbuiltin, inspect.isroutine, inspect.ismethod, callable) if ask(value)],
    "dir": dir,
    "vars": lambda value: sorted(vars(value)),
    "defaults": lambda value: (value.__defaults__, value.__kwdefaults__, value.__closure__, value.__globals__["__name__"]),
    "annotations": lambda value: value.__annotations__,
    "code": lambda value: (value.__code__.co_varnames, value.__code__.co_flags, value.__code__.co_firstlineno, value.__code__.co_filename, hash(value.__code__) != 0),
    "signature": inspect.signature,
    "argspec": inspect.getfullargspec,
    "source": inspect.getsource,
    "lines": lambda value: inspect.getsourcelines(value)[1],
    "file": inspect.getfile,
    "module": inspect.getmodule,
    "unwrap": lambda value: inspect.unwrap(value) is value,
    "hints": typing.get_type_hints,
    "help": pydoc.render_doc,
    "names": same_names,
    "pickle": lambda value: [pickle.loads(pickle.dumps(value, protocol)) is value for protocol in (2, 4, 5)],
    "pickle partial": lambda value: pickle.loads(pickle.dumps(functools.partial(value, 1))).func is value,
    "copy": lambda value: (copy.copy(value) is value, copy.deepcopy(value) is value, copy.deepcopy({"a": [value]})["a"][0] is value),
    "equal": lambda value: (value == value, hash(value) == hash(value), {value: 1}[value]),
    "weakref": lambda value: weakref.ref(value)() is value,
    "wraps": lambda value: str(inspect.signature(functools.wraps(value)(lambda: None))),
    "script": lambda value: type(torch.jit.script(value)),
}


def ask(question, *args):
    try:
        return plain(str(question(*args)))
    except Exception as error:
        return plain("%s: %s" % (type(error).__name__, error))


def judge(names):
    for name in names:
        for label, question in QUESTIONS.items():
            print(name, "|", label, "|", ask(question, find(name)))
        print(name, "| patch |", ask(patched, name))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            for name in names:
                print(name, "|", method, "|", ask(lambda: pool.apply(describe, (find(name), name))))


if __name__ == "__main__":
    prepare()
    if sys.argv[1] == "names":
        for name, value in walk():
            print(name, fingerprint(value))
    else:
        judge(sys.argv[2:])
