"""Writes what torch.compile keeps between forward and backward, for small models of several families.

    python compiled.py --out simulated_compiled.json [--match TEXT]

Each model is traced and cut by PyTorch's own partitioner, with Inductor's decompositions, as torch.compile would do it; nothing is
computed. What crosses the cut is exact: outputs of the forward graph that are neither weights nor
inputs, each storage once, views counted as what they are views of. Attention's statistics and result are those of the CPU's fused
kernel, which keeps the same tensors as CUDA's.
"""

import argparse
import contextlib
import sys
import warnings

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table

import cases
from simulate import Case, build, forward, inputs, read_no_values, write

VIEWS = {"view", "permute", "alias", "transpose", "expand", "t", "select", "slice", "unsqueeze", "_unsafe_view", "reshape", "squeeze", "detach"}

# Not gpt2, which asks the logger for something while it is traced.
FAMILIES = ("llama", "qwen3", "gpt_neox", "qwen2", "gemma", "opt", "phi3", "starcoder2", "phi")
SIZE = {"micro_batch": 2, "seq_len": 160}
WAYS = [
    {},
    {"attention": "eager"},
    {"param_dtype": "fp32", "autocast": True, "outputs_kept": True},
    {"checkpointing": "full"},
    {"method": "lora", "lora_targets": "all-linear", "adapter_fp32": False},
]


class Traced(Exception):
    """The forward graph is there; running it would show nothing more."""


def owner(node):
    """What a chain of views looks at."""
    while node.op == "call_function" and getattr(node.target, "__name__", "").partition(".")[0] in VIEWS:
        node = node.args[0]
    return node


def crossing(graph, user_outputs):
    """Bytes that the forward graph hands to backward."""
    results = next(n for n in graph.nodes if n.op == "output").args[0]
    kept = {owner(n) for n in results[user_outputs:]}
    values = [n.meta["val"] for n in kept if n.op != "placeholder"]
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def saved(case):
    """Bytes kept by one forward pass of the compiled model."""
    read_no_values()
    torch._dynamo.reset()
    total = 0

    def cut(joint, args, *, num_fwd_outputs, **more):
        nonlocal total
        there, back = min_cut_rematerialization_partition(joint, args, num_fwd_outputs=num_fwd_outputs, **more)
        total += crossing(there.graph, num_fwd_outputs)
        return there, back

    def stop(*_):
        raise Traced

    backend = aot_autograd(fw_compiler=lambda *_: stop, partition_fn=cut, decompositions=select_decomp_table())
    model = build(case).to_empty(device="cpu")
    with contextlib.suppress(Traced):
        forward(case, torch.compile(model, backend=backend, fullgraph=True), inputs(case, model))
    return {"saved": total, "parameters": sum(p.numel() for n, p in model.named_parameters() if "lora_" not in n)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--match", default="", help="only cases whose name has this text")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    done, failed = [], 0
    for family in FAMILIES:
        kind, config, still = cases.FAMILIES[family]
        config = {"model_type": family, "architectures": [kind]} | config | still
        config |= {key: 2 for key in ("num_hidden_layers", "n_layer") if key in config}
        for way in WAYS:
            case = cases.case(family, config, way) | SIZE
            if args.match not in case["name"]:
                continue
            try:
                done.append(case | saved(Case(**case)))
            except Exception as e:  # one that this version cannot trace must not cost the others
                failed += 1
                print(f"{case['name']}: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
            write(args.out, done)
    print(f"{len(done)} cases, {failed} failed", file=sys.stderr)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
