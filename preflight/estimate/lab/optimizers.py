"""Runs one step of real optimizers and writes what they hold: bytes of state, and the most that a step needs beside it.

    PYTHONPATH=<folder with bitsandbytes, galore-torch, apollo-torch, lomo-optim, torchao> python optimizers.py --out simulated.json

The tensors are those of a small model, with names that say what they are for. Real ones on the CPU: several optimizers look at values. Kernels
that are written for CUDA (bitsandbytes) are seen as one operation, as on a GPU. Optimizers of packages that are not installed are left out, and named.
"""

import argparse
import gc
import json
import sys

import torch

from tracker import Tracker

# What a weight is for (the roles of package model), its shape, and whether it is a module's own nn.Embedding.
TENSORS = [
    ("embedding", (1536, 192)),
    ("linear", (192, 192)),
    ("linear", (64, 192)),
    ("linear", (512, 192)),
    ("linear", (192, 512)),
    ("bias", (512,)),
    ("norm", (192,)),
    ("linear", (24, 150)),  # fewer than 4096 elements
    ("linear", (33, 200)),  # no multiple of 256
    ("head", (1600, 192)),
]
# A Llama of two layers with the same sizes, whose states TestStatesOfEveryOptimizer expects of the whole estimate.
LLAMA_LAYER = [("linear", (192, 192)), ("linear", (64, 192)), ("linear", (64, 192)), ("linear", (192, 192)), ("linear", (512, 192)),
               ("linear", (512, 192)), ("linear", (192, 512)), ("norm", (192,)), ("norm", (192,))]
LLAMA = [("embedding", (1536, 192)), *LLAMA_LAYER, *LLAMA_LAYER, ("norm", (192,)), ("head", (1536, 192))]
LLAMA_RANK = 128  # Trainer's, where --optim_args names none
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Holder(torch.nn.Module):
    """A module with the tensors as its parameters, for optimizers that want a model."""

    def __init__(self, dtype):
        super().__init__()
        self.roles = {}
        for i, (role, shape) in enumerate(TENSORS):
            p = torch.nn.Parameter(torch.randn(shape).to(dtype))
            self.roles[f"p{i}"] = role
            self.register_parameter(f"p{i}", p)

    def of(self, *roles):
        return [p for n, p in self.named_parameters() if self.roles[n] in roles]


def torch_optim(name, **kwargs):
    return lambda m: [getattr(torch.optim, name)(m.parameters(), **kwargs)]


def muon(m):
    """torch.optim.Muon takes two-dimensional hidden weights; the usual companion for all others is AdamW."""
    return [torch.optim.Muon(m.of("linear")), torch.optim.AdamW(m.of("embedding", "head", "bias", "norm"), foreach=True)]


def bnb(name, bits, huggingface=False):
    def make(m):
        import bitsandbytes

        kwargs = {} if name == "RMSprop" else {"is_paged": False}
        bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()  # forgets the model before
        out = getattr(bitsandbytes.optim, name)(m.parameters(), lr=1e-3, optim_bits=bits, **kwargs)
        if huggingface and bits == 8:  # as Trainer.create_optimizer does for every nn.Embedding
            for i, (role, _) in enumerate(TENSORS):
                if role == "embedding":
                    out.mng.register_module_override(m, f"p{i}", {"optim_bits": 32})
        return [out]

    return make


def low_rank(package, name, options, **more):
    def make(m):
        kind = getattr(__import__(package), name)
        groups = [{"params": m.of("embedding", "head", "bias", "norm")}, {"params": m.of("linear")} | options]
        return [kind(groups, lr=1e-3, **more)]

    return make


def torchao(name):
    """Its step is compiled, so that what it holds meanwhile is the compiler's choice: only the state is counted (COMPILED)."""

    def make(m):
        import torchao.optim

        torch.compile = lambda f, **options: f

        return [getattr(torchao.optim, name)(m.parameters(), lr=1e-3, block_size=256)]

    return make


def package(module, name, **kwargs):
    """An optimizer of a package of its own. Schedule-free ones want to be told that they train."""

    def make(m):
        out = getattr(__import__(module), name)(m.parameters(), lr=1e-3, **kwargs)
        if module == "schedulefree":
            out.train()
        return [out]

    return make


def adafactor(m):
    import transformers

    return [transformers.Adafactor(m.parameters(), lr=1e-3, scale_parameter=False, relative_step=False)]


# Those that treat hidden matrices in a way of their own are also seen with no other gradients.
MATRICES = ("muon", "galore_adamw", "galore_adafactor", "apollo_adamw")
COMPILED = ("adamw_torch_8bit", "adamw_4bit")
STEPS = {"radam": 8, "schedule_free_radam": 8}  # which adapt from the sixth step on
GALORE = {"rank": 48, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
APOLLO = {"rank": 48, "update_proj_gap": 200, "scale": 1.0, "proj": "random", "proj_type": "std", "scale_type": "channel"}

# name in oomguard's vocabulary -> what makes it; "hf " marks what only Trainer does, "linear " that only hidden matrices have gradients.
OPTIMIZERS = {
    "adamw": torch_optim("AdamW", foreach=True),
    "adamw_fused": torch_optim("AdamW", fused=True),
    "adamw_loop": torch_optim("AdamW", foreach=False),
    "adam": torch_optim("Adam", foreach=True),
    "sgd": torch_optim("SGD", foreach=True),
    "sgd_momentum": torch_optim("SGD", momentum=0.9, foreach=True),
    "adagrad": torch_optim("Adagrad", foreach=True),
    "rmsprop": torch_optim("RMSprop", foreach=True),
    "nadam": torch_optim("NAdam", foreach=True),
    "radam": torch_optim("RAdam", foreach=True),
    "adamax": torch_optim("Adamax", foreach=True),
    "adadelta": torch_optim("Adadelta", foreach=True),
    "asgd": torch_optim("ASGD", foreach=True),
    "adafactor": adafactor,
    "adafactor_torch": torch_optim("Adafactor"),
    "muon": muon,
    "adamw_8bit": bnb("AdamW", 8),
    "hf adamw_8bit": bnb("AdamW", 8, huggingface=True),
    "adamw_bnb": bnb("AdamW", 32),
    "lion": bnb("Lion", 32),
    "lion_pytorch": package("lion_pytorch", "Lion"),
    "stable_adamw": package("optimi", "StableAdamW", foreach=True, triton=False),
    "adamw_optimi": package("optimi", "AdamW", foreach=False, triton=False),
    "schedule_free_adamw": package("schedulefree", "AdamWScheduleFree"),
    "schedule_free_radam": package("schedulefree", "RAdamScheduleFree"),
    "schedule_free_sgd": package("schedulefree", "SGDScheduleFree"),
    "lion_8bit": bnb("Lion", 8),
    "hf lion_8bit": bnb("Lion", 8, huggingface=True),
    "rmsprop_bnb": bnb("RMSprop", 32),
    "rmsprop_8bit": bnb("RMSprop", 8),
    "ademamix": bnb("AdEMAMix", 32),
    "ademamix_8bit": bnb("AdEMAMix", 8),
    "hf ademamix_8bit": bnb("AdEMAMix", 8, huggingface=True),
    "adamw_torch_8bit": torchao("AdamW8bit"),
    "adamw_4bit": torchao("AdamW4bit"),
    "galore_adamw": low_rank("galore_torch", "GaLoreAdamW", GALORE),
    "galore_adafactor": low_rank("galore_torch", "GaLoreAdafactor", GALORE, scale_parameter=False, relative_step=False),
    "apollo_adamw": low_rank("apollo_torch", "APOLLOAdamW", APOLLO),
}


def tensors_in(value, seen):
    """All tensors that an optimizer's state holds, in dictionaries, lists and projectors."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__") and type(value) is not torch.Tensor and not isinstance(value, torch.nn.Parameter):
            for name in value.__tensor_flatten__()[0]:
                yield from tensors_in(getattr(value, name), seen)
            return
        yield value
    elif isinstance(value, dict):
        for k, v in value.items():
            if not str(k).startswith("qmap"):  # one lookup table of a kilobyte for all
                yield from tensors_in(v, seen)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v, seen)
    elif type(value).__name__.endswith("Projector"):
        yield from tensors_in(vars(value), seen)


def state_bytes(optimizers):
    storages = {}
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for t in tensors_in(state, set()):
                if t.dim() > 0:
                    storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return sum(storages.values())


def give_gradients(model, roles):
    for p in model.of(*roles) if roles else model.parameters():
        p.grad = torch.randn_like(p)


def measure(make, dtype, roles=(), steps=2):
    torch.manual_seed(0)
    with Tracker() as tracker:
        model = Holder(dtype)
        optimizers = make(model)
        give_gradients(model, roles)
        first = steady = 0
        for number in range(steps):
            gc.collect()
            before = tracker.live
            tracker.reset()
            for o in optimizers:
                o.step()
            peak = tracker.peak - before
            gc.collect()
            first, steady = (peak, 0) if number == 0 else (first, peak)
    return {"state_bytes": state_bytes(optimizers), "first_step_bytes": first, "step_bytes": steady}


def fused_into_backward(kind, dtype):
    """LOMO updates each weight from a hook on its gradient: what is alive at once is one weight's update."""
    torch.Tensor.cuda = lambda self, *a, **k: self
    import lomo_optim

    with Tracker() as tracker:
        model = Holder(dtype)
        optimizer = getattr(lomo_optim, kind)(model, lr=1e-3)
        largest = model.of("head")[0]
        held = [t for name in ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col") for t in getattr(optimizer, name, {}).values()]
        optimizer.loss_scale, optimizer.step_num = None, 1
        largest.grad = torch.randn_like(largest)
        gc.collect()
        before = tracker.live
        tracker.reset()
        optimizer.grad_func(0)
        peak = tracker.peak - before
    return {"state_bytes": sum(t.untyped_storage().nbytes() for t in held), "first_step_bytes": peak, "step_bytes": peak}


def versions():
    import importlib.metadata as metadata

    found = {}
    for name in ("torch", "transformers", "bitsandbytes", "galore-torch", "apollo-torch", "lomo-optim", "torchao", "lion-pytorch", "torch-optimi", "schedulefree"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            print(f"{name} is not installed; its optimizers are left out", file=sys.stderr)
    return found


def llama_states():
    """Only the bytes of state, by optimizer and dtype, of the tensors of LLAMA. What Trainer alone does is left out."""
    global TENSORS
    TENSORS, GALORE["rank"], APOLLO["rank"] = LLAMA, LLAMA_RANK, LLAMA_RANK
    makers = {n: lambda d, m=m: measure(m, d) for n, m in OPTIMIZERS.items() if not n.startswith("hf ")}
    makers |= {"lomo": lambda d: fused_into_backward("Lomo", d), "adalomo": lambda d: fused_into_backward("AdaLomo", d)}
    states = {}
    for name, make in makers.items():
        try:
            states[name] = {dtype: make(torch_dtype)["state_bytes"] for dtype, torch_dtype in DTYPES.items()}
        except ImportError as e:
            print(f"{name}: {e}", file=sys.stderr)
    return states


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file to write")
    args = parser.parse_args()
    rows = []
    makers = {n: lambda d, n=n, m=m: measure(m, d, steps=STEPS.get(n, 2)) for n, m in OPTIMIZERS.items()}
    makers |= {f"linear {n}": lambda d, n=n: measure(OPTIMIZERS[n], d, ("linear",)) for n in MATRICES}
    makers |= {"lomo": lambda d: fused_into_backward("Lomo", d), "adalomo": lambda d: fused_into_backward("AdaLomo", d)}
    for name, make in makers.items():
        for dtype, torch_dtype in DTYPES.items():
            try:
                row = make(torch_dtype)
            except ImportError as e:
                print(f"{name}: {e}", file=sys.stderr)
                continue
            mark, _, plain = name.rpartition(" ")
            if plain in COMPILED:
                row = {"state_bytes": row["state_bytes"]}
            rows.append({"optimizer": plain, "huggingface": mark == "hf", "only_linear": mark == "linear", "param_dtype": dtype} | row)
    tensors = [{"role": role, "shape": shape} for role, shape in TENSORS]
    lines = ",\n".join(json.dumps(r) for r in rows)
    rank = GALORE["rank"]
    llama = ",\n".join(f"{json.dumps(n)}: {json.dumps(s)}" for n, s in llama_states().items())
    with open(args.out, "w", encoding="utf-8") as f:
        f.write(f'{{"versions": {json.dumps(versions())},\n"rank": {rank},\n"tensors": {json.dumps(tensors)},\n"rows": [\n{lines}],\n')
        f.write(f'"llama": {{\n{llama}}}}}\n')


if __name__ == "__main__":
    main()
