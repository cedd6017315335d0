"""Trains real models on this machine's GPU for three steps each, and writes allocated and reserved bytes by stage.

    python measure.py --out measured.json [--match TEXT] [--lanes N] [--limit SECONDS] [--list]

Cases are those of simulate.py and simulate_sharded.py, of the sizes that people train, with random weights and random tokens. One rank
of a sharded training runs alone, in a fake process group whose collectives return at once: what it allocates is what it would
allocate among the others, but for NCCL's buffers. Each case is a process of its own.

The results have the form of simulate_sharded.py's, as torch.cuda.memory_allocated and max_memory_allocated see it, and beside them
"reserved": for each step the highest of memory_reserved in forward, backward and optimizer step, and between steps; and "context": what the process
holds of the GPU beyond that (NVML), when it has made one tensor and at the end. "gpu" and "versions" say where it was measured.
"""

import argparse
import dataclasses
import gc
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # so that imports do not touch the GPU (see can_fork)

import simulate
import simulate_sharded
import torch
import torch.distributed as dist
from simulate_sharded import ShardedCase
from torch.testing._internal.distributed.fake_pg import FakeStore

KNOWN = pathlib.Path(__file__).resolve().parents[2] / "model" / "known"


@dataclasses.dataclass
class MeasuredCase(ShardedCase):
    model: str = ""  # name of a published model; its config is read when the case is listed
    sharding: str = "none"
    ranks: int = 1
    experts: str = ""  # transformers' experts_implementation, if not its own choice
    compiled: bool = False
    expandable: bool = False  # PyTorch's allocator with expandable segments
    zero: dict | None = None  # DeepSpeed's zero_optimization beside the stage
    heavy: bool = False  # needs the GPU for itself


def eight_bit(name):
    def make(parameters):
        import bitsandbytes

        return getattr(bitsandbytes.optim, name)(parameters)

    return make


def keep_embeddings_whole(model):
    """As Trainer does (transformers/trainer_optimizer.py): the states of embeddings stay in 32 bits."""
    import bitsandbytes

    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})


OPTIMIZERS = simulate.OPTIMIZERS | {"adamw_8bit": eight_bit("AdamW8bit"), "paged_adamw_8bit": eight_bit("PagedAdamW8bit")}


class Gauge:
    """Reads PyTorch's allocator in the way of tracker.Tracker."""

    def __init__(self):
        self.reserved = []

    def reset(self):
        torch.cuda.reset_peak_memory_stats()

    @property
    def peak(self):
        self.reserved.append(torch.cuda.max_memory_reserved())
        return torch.cuda.max_memory_allocated()

    @property
    def live(self):
        return torch.cuda.memory_allocated()

    def reserved_of_step(self):
        """The highest in forward and in backward of all micro-batches, in the optimizer's step, and what is there now."""
        *pairs, step = self.reserved
        self.reserved = []
        return [max(pairs[0::2]), max(pairs[1::2]), step, torch.cuda.memory_reserved()]


def context_bytes():
    """What NVML counts for this process beyond what PyTorch has reserved; None where it does not tell."""
    import pynvml

    pynvml.nvmlInit()
    for i in range(pynvml.nvmlDeviceGetCount()):
        for p in pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(i)):
            if p.pid == os.getpid() and p.usedGpuMemory:
                return p.usedGpuMemory - torch.cuda.memory_reserved()
    return None


def quantised(case):
    """A QLoRA model: 4-bit linear layers but for the head, as transformers and peft make it out of random weights."""
    import bitsandbytes as bnb
    import peft

    model = simulate.create(case, "meta")
    for path, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and path.rpartition(".")[2] != "lm_head":
            linear = bnb.nn.Linear4bit(
                module.in_features, module.out_features, module.bias is not None, compute_dtype=torch.bfloat16, quant_type="nf4", device="meta"
            )
            weight = torch.zeros(module.out_features, module.in_features, dtype=torch.bfloat16)
            linear.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", compress_statistics=True).cuda()
            model.get_submodule(path.rpartition(".")[0])._modules[path.rpartition(".")[2]] = linear
    simulate.materialise(model, "cuda")
    model.is_loaded_in_4bit = True
    checkpointing = case.checkpointing != "none"
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False})
    lora = peft.LoraConfig(r=case.lora_r, target_modules=case.lora_targets, lora_dropout=case.lora_dropout)
    return peft.get_peft_model(model, lora).train()


def build(case):
    if case.loss == "liger":
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel

        _apply_liger_kernel(case.config["model_type"])
    if case.sharding.startswith("zero"):  # Trainer leaves it to DeepSpeed to take the model to the GPU
        model = simulate.build(case)
        simulate.materialise(model)
    else:
        model = quantised(case) if case.method == "qlora" else simulate.build(case, "cuda")
    if case.experts:
        model.set_experts_implementation(case.experts)
    if case.compiled:
        model = torch.compile(model)
    return model


class Engine:
    """DeepSpeed's engine as an optimizer."""

    def __init__(self, engine):
        self.step = engine.step

    def zero_grad(self, set_to_none):
        """step has done it."""


def wrap_zero(case, model, mesh):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": case.micro_batch,
        "gradient_accumulation_steps": case.grad_accum,
        "bf16": {"enabled": case.mixed},
        "zero_optimization": {"stage": int(case.sharding[4])} | (case.zero or {}),
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


WRAPPERS = simulate_sharded.WRAPPERS | {f"zero{stage}": wrap_zero for stage in (1, 2, 3)}


def batch_of(case, model):
    """A micro-batch of random tokens on the GPU."""
    batch = simulate.inputs(case, model)
    words = getattr(model.config.get_text_config(), "vocab_size", 2)
    for name, tensor in batch.items():
        if tensor.dtype == torch.long and name != "attention_mask":
            tensor.random_(words if tensor.ndim > 1 else 2)
    if case.padded:  # a mask of ones alone is left out
        batch["attention_mask"][0, -case.seq_len // 4 :] = 0
    return {name: tensor.cuda() if isinstance(tensor, torch.Tensor) else tensor for name, tensor in batch.items()}


def measure(case):
    if case.expandable:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    torch.zeros(1, device="cuda")
    context = [context_bytes()]
    if case.sharding != "none":
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case.ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": "29555"}
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.ranks)
    gauge = Gauge()
    model = build(case)
    config, parameters = model.config, sum(p.numel() for n, p in model.named_parameters() if "lora_" not in n)
    if case.sharding != "none":
        model = WRAPPERS[case.sharding](case, model, dist.init_device_mesh("cuda", (case.ranks,)))
        if case.sharding != "fsdp1":
            model.config = config
    gc.collect()
    loaded = gauge.live, torch.cuda.memory_reserved()
    batch = batch_of(case, model if hasattr(model, "config") else model.module)
    zero = case.sharding.startswith("zero")
    if "8bit" in case.optimizer:
        keep_embeddings_whole(model)
    optimizer = Engine(model) if zero else OPTIMIZERS[case.optimizer](simulate_sharded.groups(model))
    result = {"parameters": parameters, "trainable_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad), "loaded": loaded[0]}
    reserved = {"loaded": loaded[1]}
    for name in ("first", "second", "steady"):
        start = time.monotonic()
        result[name] = simulate_sharded.run_step(case, model, optimizer, batch, gauge)
        reserved[name] = gauge.reserved_of_step()
        torch.cuda.synchronize()
        result["seconds"] = time.monotonic() - start
    if case.evaluates:
        result["eval"] = simulate.evaluate(case, model, batch, gauge)
    context.append(context_bytes())
    return result | {"reserved": reserved, "context": context}


def versions():
    """Without importing what may touch the GPU (see can_fork)."""
    names = ("torch", "transformers", "peft", "accelerate", "bitsandbytes", "deepspeed", "liger_kernel")
    installed = {name: importlib.util.find_spec(name) and importlib.metadata.version(name) for name in names}
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return {name: version for name, version in installed.items() if version} | {"cuda": torch.version.cuda, "gpu": gpu}


def attempt(case, path):
    """Measures in this process, and writes the result or what went wrong to a file."""
    try:
        signal.alarm(300)
        result = case | measure(MeasuredCase(**case))
    except BaseException as e:
        traceback.print_exc()
        result = case | {"error": f"{type(e).__name__}: {str(e)[:300]}"}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f)
    sys.stdout.flush()
    sys.stderr.flush()


def can_fork():
    """Whether a child of this process can use the GPU: not when an import has touched it."""
    pid = os.fork()
    if pid == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(pid, 0)[1] == 0


def in_child(case, path, fork):
    """Measures in a process of its own; a forked one has all imports already. Returns its pid."""
    if not fork:
        return subprocess.Popen([sys.executable, __file__, "--one", json.dumps(case), "--out", str(path)]).pid
    pid = os.fork()
    if pid == 0:
        attempt(case, path)
        os._exit(0)
    return pid


def run(cases, lanes, limit, write):
    """Keeps up to so many children busy, a heavy case alone, and starts none after the limit. Returns how many cases have no result."""
    folder = pathlib.Path(tempfile.mkdtemp())
    running, waiting, done, failed = {}, list(enumerate(cases)), [], 0
    fork, end = can_fork(), time.monotonic() + limit
    while waiting or running:
        late = time.monotonic() > end
        next_heavy = bool(waiting) and waiting[0][1].get("heavy", False)
        busy = len(running) >= (1 if next_heavy else lanes) or any(case.get("heavy") for case, *_ in running.values())
        if waiting and not late and not busy:
            number, case = waiting.pop(0)
            path = folder / f"{number}.json"
            running[in_child(case, path, fork)] = case, path, time.monotonic()
            continue
        if not running:
            break
        pid, _ = os.wait()
        if pid not in running:  # a helper of some package
            continue
        case, path, began = running.pop(pid)
        result = json.loads(path.read_text()) if path.exists() else case | {"error": "the process died"}
        if "error" in result:
            failed += 1
            print(f"FAILED {case['name']}: {result['error']}", flush=True)
            continue
        print(f"{case['name']}: {result['seconds']:.2f} s a step, {time.monotonic() - began:.0f} s in all", flush=True)
        done.append((list(cases).index(case), result))
        write([r for _, r in sorted(done, key=lambda d: d[0])])
    for _, case in waiting:
        print(f"LEFT OUT {case['name']}", flush=True)
    return failed + len(waiting)


def config_of(model):
    entry = json.loads((KNOWN / (model.replace("/", "__") + ".json")).read_text())
    return entry["config"]


def main():
    import measured_cases

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--match", default="", help="only cases whose name has this regular expression")
    parser.add_argument("--lanes", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which no case is started")
    parser.add_argument("--list", action="store_true", help="write the cases without measuring them")
    parser.add_argument("--one", help="a case as JSON, measured in this process")
    args = parser.parse_args()
    if args.one:
        attempt(json.loads(args.one), args.out)
        return 0
    cases = [c | {"config": config_of(c["model"]) | c.get("config", {})} for c in measured_cases.cases() if re.search(args.match, c["name"])]
    if args.list:
        simulate.write(args.out, cases)
        return 0
    made_with = versions()
    failed = run(cases, args.lanes, args.limit, lambda done: simulate.write(args.out, done, made_with))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
