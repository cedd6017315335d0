"""Simulates one rank of a sharded training without a GPU and without other ranks, and writes allocated bytes by stage.

    python simulate_sharded.py --out simulated_sharded.json [--match TEXT] [--jobs N]

The rank belongs to a fake process group (torch.testing._internal.distributed.fake_pg), whose collectives return at once; tensors are fake
too, and every storage is counted (tracker.py). PyTorch's own wrappers run: DistributedDataParallel, FSDP 1, fully_shard (FSDP 2), and
tensor parallelism by DTensor. Results have the form of simulate.py's: "loaded" is what lies there when the model is wrapped; for the "first"
and the "steady" step, the peaks of forward, backward and optimizer step, and what is left at the end of forward and between steps.

What it does not see: NCCL's own buffers, which lie outside PyTorch's allocator, and blocks that a stream other than the one they
were freed on still uses, which count as reserved but not as allocated.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import gc
import multiprocessing
import os
import sys

import simulate
import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel
from simulate import DTYPES, OPTIMIZERS, Case
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from tracker import Tracker

import kernels


@dataclasses.dataclass
class ShardedCase(Case):
    sharding: str = "ddp"  # or "fsdp1", "fsdp2", "tp"
    ranks: int = 2
    bucket_view: bool = False  # DDP's gradient_as_bucket_view
    bucket_mb: int = 25  # DDP's bucket_cap_mb
    static_graph: bool = False
    mixed: bool = False  # FSDP's mixed precision: bf16 weights are gathered from fp32 shards
    reduce_dtype: str = "fp32"  # of FSDP's reduce-scatter under mixed precision
    reshard: bool | None = None  # FSDP 2's reshard_after_forward; FSDP 1: False is SHARD_GRAD_OP
    wrap: str = "layers"  # or "whole": one unit
    prefetch: str = "pre"  # FSDP 1's backward_prefetch: pre, post, none
    no_sync: bool = False  # accumulate without communication
    offload: bool = False  # FSDP 2's CPUOffloadPolicy; FSDP 1's CPUOffload


class ResizingTracker(Tracker):
    """Also follows storages that are resized in place, as FSDP does with what it gathers."""

    def __enter__(self):
        self._resize = torch.UntypedStorage.resize_
        tracker = self

        def resize_(storage, size):
            out = tracker._resize(storage, size)
            tracker.resized(storage)
            return out

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *error):
        torch.UntypedStorage.resize_ = self._resize
        return super().__exit__(*error)


def layers_of(model):
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]


def wrap_ddp(case, model, mesh):
    if case.mixed:
        raise ValueError("DDP has no mixed precision of its own: use autocast")
    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_: None  # would read the other ranks' shapes
    model = torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=case.bucket_view, bucket_cap_mb=case.bucket_mb, static_graph=case.static_graph
    )
    model.register_comm_hook(None, reduced_at_once)
    return model


def reduced_at_once(_, bucket):
    """All-reduce in place, as DDP does of its own accord; a fake group's result would be none."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def wrap_fsdp1(case, model, mesh):
    from torch.distributed import fsdp

    mixed = None
    if case.mixed:
        mixed = fsdp.MixedPrecision(torch.bfloat16, reduce_dtype=DTYPES[case.reduce_dtype], buffer_dtype=torch.bfloat16)
    kinds = {type(layer) for layer in layers_of(model)}
    policy = fsdp.wrap.ModuleWrapPolicy(kinds) if case.wrap == "layers" else None
    return fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        mixed_precision=mixed,
        sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP if case.reshard is False else fsdp.ShardingStrategy.FULL_SHARD,
        backward_prefetch={"pre": fsdp.BackwardPrefetch.BACKWARD_PRE, "post": fsdp.BackwardPrefetch.BACKWARD_POST, "none": None}[case.prefetch],
        cpu_offload=fsdp.CPUOffload(case.offload),
        device_id=torch.device(mesh.device_type),
        use_orig_params=case.reshard is not False,  # with SHARD_GRAD_OP, it looks at storages that fake tensors do not have
    )


def wrap_fsdp2(case, model, mesh):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    options = {
        "mesh": mesh,
        "reshard_after_forward": case.reshard,
        "offload_policy": CPUOffloadPolicy(pin_memory=False) if case.offload else OffloadPolicy(),
    }
    if case.mixed:
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=DTYPES[case.reduce_dtype])
    if case.wrap == "layers":
        for layer in layers_of(model):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def wrap_tp(case, model, mesh):
    """torchtitan's plan without sequence parallelism: layers, embedding and head are split, and the loss works on split logits."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    split = {
        "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(),
    }
    for layer in layers_of(model):
        parallelize_module(layer, mesh, split)
    ends = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate()), "lm_head": ColwiseParallel(use_local_output=False)}
    return parallelize_module(model, mesh, ends)


WRAPPERS = {"ddp": wrap_ddp, "fsdp1": wrap_fsdp1, "fsdp2": wrap_fsdp2, "tp": wrap_tp}


def accumulating(case, model, last):
    """Switches communication off for all but the last micro-batch. An engine of DeepSpeed is told which one that is, as accelerate does."""
    if hasattr(model, "set_gradient_accumulation_boundary"):
        model.set_gradient_accumulation_boundary(last)
    if not case.no_sync or last:
        if case.no_sync and case.sharding == "fsdp2":
            model.set_requires_gradient_sync(True)
        return contextlib.nullcontext()
    if case.sharding == "fsdp2":
        model.set_requires_gradient_sync(False)
        return contextlib.nullcontext()
    return model.no_sync()


def backward(model, loss):
    """DeepSpeed's engine has its own way."""
    model.backward(loss) if hasattr(model, "backward") else loss.backward()


def run_step(case, model, optimizer, batch, tracker):
    forward_peak = backward_peak = saved = 0
    for i in range(case.grad_accum):
        with accumulating(case, model, i == case.grad_accum - 1):
            tracker.reset()
            loss, kept = simulate.forward(case, model, batch)
            forward_peak, saved = max(forward_peak, tracker.peak), tracker.live
            tracker.reset()
            backward(model, loss)
            backward_peak = max(backward_peak, tracker.peak)
            del loss, kept
    tracker.reset()
    optimizer.step()
    step_peak = tracker.peak
    optimizer.zero_grad(set_to_none=True)
    gc.collect()
    return [forward_peak, backward_peak, step_peak, saved, tracker.live]


def groups(model):
    """Trained weights; those of DTensor's apart, because lists of both kinds cannot be updated together."""
    trained = [p for p in model.parameters() if p.requires_grad]
    kinds = {type(p) for p in trained}
    return [{"params": [p for p in trained if type(p) is kind]} for kind in sorted(kinds, key=str)]


def simulate_rank(case):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.ranks)
    mesh = dist.init_device_mesh("cpu", (case.ranks,))
    tracker = ResizingTracker(kernels.CUDA_RESULTS)
    model = simulate.build(case)
    # DDP's reducer looks at what it is given, in C++: it needs tensors with values.
    tensors = contextlib.nullcontext() if case.sharding == "ddp" else FakeTensorMode(allow_non_fake_inputs=True)
    split_loss = dist.tensor.parallel.loss_parallel() if case.sharding == "tp" else contextlib.nullcontext()
    with kernels.cuda_kernels(), tensors, tracker, split_loss:
        parameters = sum(p.numel() for p in model.parameters())
        config = model.config
        simulate.materialise(model)
        model = WRAPPERS[case.sharding](case, model, mesh)
        gc.collect()
        loaded = tracker.live
        model.config = config
        batch = simulate.inputs(case, model)
        optimizer = OPTIMIZERS[case.optimizer](groups(model))
        steps = {name: run_step(case, model, optimizer, batch, tracker) for name in ("first", "steady")}
    dist.destroy_process_group()
    return {"parameters": parameters, "loaded": loaded} | steps


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 1408, "vocab_size": 4096, "max_position_embeddings": 2048}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 448, "n_layer": 5, "n_head": 7, "vocab_size": 5120, "n_positions": 1024,
        "n_ctx": 1024, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 640, "num_hidden_layers": 4, "num_attention_heads": 10,
         "num_key_value_heads": 2, "intermediate_size": 1920, "vocab_size": 6144, "max_position_embeddings": 2048, "tie_word_embeddings": True}
MODELS = {"llama": LLAMA, "gpt2": GPT2, "qwen2": QWEN2}

TRAINER = {"reduce_dtype": "bf16"}  # accelerate reduces in the dtype of computation

# What a wrapper's users change, beside the model, the precision and the number of ranks.
VARIANTS = {
    "ddp": [{}, {"bucket_view": True}, {"bucket_mb": 1}, {"static_graph": True}, {"checkpointing": "full"}, {"grad_accum": 2, "no_sync": True},
            {"grad_accum": 2}, {"bucket_view": True, "grad_accum": 2, "no_sync": True}],
    "fsdp1": [{}, {"reshard": False}, {"prefetch": "post"}, {"prefetch": "none"}, {"checkpointing": "full"}, TRAINER | {"grad_accum": 2, "no_sync": True},
              {"grad_accum": 2}, {"wrap": "whole"}, TRAINER],
    "fsdp2": [{}, {"reshard": True}, {"reshard": False}, {"checkpointing": "full"}, TRAINER | {"grad_accum": 2, "no_sync": True}, {"grad_accum": 2},
              {"wrap": "whole"}, TRAINER, TRAINER | {"autocast": True}],
    "tp": [{}, {"checkpointing": "full"}],
}


# A batch whose activations outweigh what is gathered, and one whose do not.
BATCHES = {"large": {"micro_batch": 2, "seq_len": 256}, "small": {"micro_batch": 1, "seq_len": 48}}


def cases():
    """The plain wrapper for every model, precision and batch, on 2, 4 or 8 ranks; and every variant thrice."""
    out = []

    def add(kind, model, precision, batch, ranks, settings, variant=True):
        mixed = precision == "mixed"
        if not mixed:
            settings = {k: v for k, v in settings.items() if k not in ("autocast", "reduce_dtype")}
        if kind == "tp" and model != "llama" or not settings and variant:
            return
        if kind == "ddp" and model == "gpt2" and precision == "bf16":
            return  # real tensors (see simulate_rank): CUDA's LayerNorm keeps fp32 statistics, the CPU's backward wants 16-bit ones
        if kind in ("ddp", "tp"):
            ranks = 2
        case = {"sharding": kind, "config": MODELS[model], "ranks": ranks, "param_dtype": "bf16" if precision == "bf16" else "fp32"}
        if mixed:
            case["autocast" if kind in ("ddp", "tp") else "mixed"] = True
        words = [f"{k}={v}" for k, v in settings.items()]
        case["name"] = " ".join([kind, model, precision, batch, f"ranks={ranks}", *words])
        out.append(case | BATCHES[batch] | settings)

    for kind, variants in VARIANTS.items():
        for i, model in enumerate(MODELS):
            for j, precision in enumerate(("mixed", "bf16", "fp32")):
                for batch in BATCHES:
                    add(kind, model, precision, batch, (2, 4, 8)[(i + j) % 3], {}, variant=False)
        for settings in variants[1:]:
            for model, precision, batch, ranks in (("llama", "mixed", "small", 4), ("qwen2", "bf16", "large", 2), ("gpt2", "mixed", "small", 8)):
                add(kind, model, precision, batch, ranks, settings)
    return out


def attempt(case):
    simulate.read_no_values()
    try:
        return case | simulate_rank(ShardedCase(**case))
    except Exception as e:  # one case that a version cannot wrap must not cost the others
        if dist.is_initialized():
            dist.destroy_process_group()
        return case | {"error": f"{type(e).__name__}: {e}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--match", default="", help="only cases whose name has this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    args = parser.parse_args()
    done, failed = [], 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        for case in pool.map(attempt, [c for c in cases() if args.match in c["name"]]):
            if "error" in case:
                failed += 1
                print(f"{case['name']}: {case['error']}", file=sys.stderr, flush=True)
                continue
            done.append(case)
            simulate.write(args.out, done)
    print(f"{len(done)} cases, {failed} failed", file=sys.stderr)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
