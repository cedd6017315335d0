"""Simulates trainings of real transformers models without a GPU and writes allocated bytes by stage.

    python simulate.py cases.json --out simulated.json [--match TEXT] [--jobs N]

A case names a config.json by its content and a way of training it (see `Case`). Tensors are fake: nothing is computed, every storage
is counted (tracker.py), and kernels behave as on CUDA (kernels.py) unless a case says "kernels": "cpu". The result repeats each case
with what was counted, in bytes: "loaded", and for a "steady" step (and the "first") the peaks of forward, backward and optimizer step and what is
saved at the end of forward. The file names the versions that made it.

Autograd adds up two gradients of one tensor in place on a GPU, but not under a dispatch mode: tracker.py does it instead.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import gc
import json
import multiprocessing
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_DISABLE_TORCH_CHECK", "1")  # LLaVA counts image tokens, whose values fake tensors do not have

import torch
import transformers.masking_utils
from torch._subclasses.fake_tensor import FakeTensorMode

import kernels
from tracker import Tracker

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclasses.dataclass
class Case:
    config: dict  # content of config.json; "architectures" names the class
    name: str = ""
    kernels: str = "cuda"  # or "cpu": plain CPU operations
    param_dtype: str = "bf16"
    autocast: bool = False  # to bf16; unless outputs_kept, outputs are turned to fp32 as accelerate does for Trainer
    method: str = "full"  # or "lora", "freeze"
    trained_layers: int = 0  # of "freeze": the last ones, or with a minus the first; in fp32 if adapter_fp32
    lora_r: int = 8
    lora_targets: list | None = None  # None: PEFT's default
    lora_dropout: float = 0.0
    lora_dora: bool = False
    lora_bias: str = "none"
    modules_to_save: list | None = None
    adapter_fp32: bool = True  # PEFT's autocast_adapter_dtype
    micro_batch: int = 2
    seq_len: int = 512
    grad_accum: int = 1
    checkpointing: str = "none"  # or "full", "selective:N" (every Nth layer)
    attention: str = "sdpa"  # or "eager"
    padded: bool = False  # a batch of unlike lengths, so that attention gets a mask
    optimizer: str = "adamw_foreach"
    outputs_kept: bool = False  # the loop holds the model's output through backward
    loss: str = "default"  # or "chunked": TRL's loss over 256 tokens at a time under checkpointing
    both_steps: bool = False  # also the step before there is optimizer state
    evaluates: bool = False  # also the peak of a forward pass without gradients between two steps: "eval"
    set: str = "develop"  # or "held-out"


OPTIMIZERS = {
    "adamw_foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw_loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, foreach=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, momentum=0.9, foreach=True),
    "adafactor": lambda p: transformers.Adafactor(p, lr=1e-3, relative_step=False, scale_parameter=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, foreach=True),
    "muon": lambda p: torch.optim.Muon([x for x in p if x.ndim == 2]),
}


def read_no_values():
    """Fake tensors have no values to look at. transformers looks for packed sequences in position ids; these batches have none, and
    it is what a run would find."""
    transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None


def create(case, device):
    """The model as its class makes it, with random weights."""
    config = dict(case.config)
    kind = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k not in ("dtype", "torch_dtype")})
    fused = kind._supports_sdpa or case.attention != "sdpa"
    config._attn_implementation = case.attention if fused else "eager"  # as transformers chooses when nothing is asked for
    config.use_cache = False
    previous = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[case.param_dtype])
    try:
        with torch.device(device):
            return kind(config)
    finally:
        torch.set_default_dtype(previous)


def build(case, device="meta"):
    """The model with the case's method on it, in training mode; on the meta device it has no storage yet."""
    model = create(case, device)
    if case.method == "lora":
        import peft

        if case.checkpointing != "none":
            model.enable_input_require_grads()
        lora = peft.LoraConfig(r=case.lora_r, target_modules=case.lora_targets, lora_dropout=case.lora_dropout, use_dora=case.lora_dora,
                               bias=case.lora_bias, modules_to_save=case.modules_to_save)
        model = peft.get_peft_model(model, lora, autocast_adapter_dtype=case.adapter_fp32)
    if case.method == "freeze":
        freeze(model, case)
    if case.checkpointing != "none":
        checkpoint(model, case.checkpointing)
    return model.train()


def freeze(model, case):
    """LLaMA-Factory's way (model/adapter.py): some layers are trained, as fp32 copies, and nothing else is."""
    model.requires_grad_(False)
    layers = decoder_layers(model)
    for layer in layers[-case.trained_layers:] if case.trained_layers > 0 else layers[:-case.trained_layers]:
        layer.requires_grad_(True)
        if case.adapter_fp32:
            layer.float()


def decoder_layers(model):
    return [m for m in model.modules() if isinstance(m, transformers.modeling_layers.GradientCheckpointingLayer)]


def materialise(model, device="cpu"):
    """Gives every weight and buffer of a meta model a storage of zeros, tied ones the same."""
    made = {}

    def fresh(tensor):
        if id(tensor) not in made:
            empty = torch.zeros(tensor.shape, dtype=tensor.dtype, device=device)
            made[id(tensor)] = torch.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else empty
        return made[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and tensor.is_meta:
                    tensors[name] = fresh(tensor)
    for module in model.modules():  # rotary embeddings keep a second name for a buffer
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.device.type == "meta":
                setattr(module, name, fresh(value))


def checkpoint(model, mode):
    kwargs = {"use_reentrant": False, "preserve_rng_state": False}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    every = int(mode.partition(":")[2] or 1)
    for i, layer in enumerate(decoder_layers(model)):
        layer.gradient_checkpointing = i % every == 0


def pixels(case, config):
    """An image for every sequence."""
    shape = case.micro_batch, config.num_channels, config.image_size, config.image_size
    return {"pixel_values": torch.zeros(shape, dtype=DTYPES[case.param_dtype])}


def inputs(case, model):
    """One micro-batch, as a data collator would make it."""
    config = model.config
    shape = case.micro_batch, case.seq_len
    name = case.config["architectures"][0]
    ids = torch.zeros(shape, dtype=torch.long)
    if name.endswith("ForImageClassification"):
        return pixels(case, config) | {"labels": torch.zeros(case.micro_batch, dtype=torch.long)}
    if name in ("CLIPModel", "SiglipModel"):
        return pixels(case, config.vision_config) | {"input_ids": ids, "return_loss": True}
    if "features" in getattr(model, "main_input_name", ""):
        frames = 2 * config.max_source_positions
        features = torch.zeros(case.micro_batch, config.num_mel_bins, frames, dtype=DTYPES[case.param_dtype])
        return {"input_features": features, "labels": ids}
    batch = {"input_ids": ids}
    if hasattr(config, "vision_config"):
        batch |= pixels(case, config.vision_config)
    if name.endswith("ForSequenceClassification"):
        batch["labels"] = torch.zeros(case.micro_batch, dtype=torch.long)
    else:
        batch["labels"] = torch.zeros(shape, dtype=torch.long)
    if case.padded:
        batch["attention_mask"] = torch.ones(shape, dtype=torch.long)
    return batch


def chunked_loss(model, batch):
    """TRL's loss_type="chunked_nll": the head and the loss for 256 tokens at a time, recomputed in backward."""
    from torch.utils.checkpoint import checkpoint as recomputed

    body = model.get_base_model() if hasattr(model, "get_base_model") else model
    hidden = body.model(**{k: v for k, v in batch.items() if k != "labels"}).last_hidden_state
    hidden, labels = hidden[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()

    def piece(h, target):
        return torch.nn.functional.cross_entropy(body.lm_head(h).float(), target, reduction="sum")

    losses = [
        recomputed(piece, h, target, use_reentrant=False, preserve_rng_state=False)
        for h, target in zip(hidden.split(256), labels.split(256))
    ]
    return torch.stack(losses).sum() / labels.numel()


def forward(case, model, batch):
    """The loss, and the model's output where the loop keeps it."""
    context = torch.autocast(next(iter(batch.values())).device.type, dtype=torch.bfloat16) if case.autocast else contextlib.nullcontext()
    if case.loss == "chunked":
        with context:
            return chunked_loss(model, batch), None
    with context:
        out = model(**batch)
    if case.autocast and not case.outputs_kept:  # Trainer's way; a loop of one's own takes the output as it is
        from accelerate.utils.operations import convert_to_fp32

        out = convert_to_fp32(out)
    return out["loss"], out if case.outputs_kept else None


def run_step(case, model, optimizer, batch, tracker):
    """One optimizer step: peaks of forward and backward (over the micro-batches) and of the optimizer's step, and what is left when forward
    has returned."""
    forward_peak = backward_peak = saved = 0
    for _ in range(case.grad_accum):
        tracker.reset()
        loss, kept = forward(case, model, batch)
        forward_peak, saved = max(forward_peak, tracker.peak), tracker.live
        tracker.reset()
        loss.backward()
        backward_peak = max(backward_peak, tracker.peak)
        del loss, kept
    tracker.reset()
    optimizer.step()
    step_peak = tracker.peak
    optimizer.zero_grad(set_to_none=True)
    return [forward_peak, backward_peak, step_peak, saved]


def evaluate(case, model, batch, tracker):
    """The peak of what Trainer does for one batch of an evaluation: the loss and the logits, in training's precision."""
    model.eval()
    tracker.reset()
    with torch.no_grad():
        held = forward(case, model, batch)
    del held
    model.train()
    return tracker.peak


def simulate(case):
    tracker = Tracker(kernels.CUDA_RESULTS if case.kernels == "cuda" else None)
    behaviour = kernels.cuda_kernels() if case.kernels == "cuda" else contextlib.nullcontext()
    # Adafactor reads values on the host, which fake tensors do not have: it needs a model that fits in memory.
    tensors = contextlib.nullcontext() if "adafactor" in case.optimizer else FakeTensorMode(allow_non_fake_inputs=True)
    model = build(case)
    with behaviour, tensors, tracker:
        materialise(model)
        gc.collect()
        loaded = tracker.live
        batch = inputs(case, model)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = OPTIMIZERS[case.optimizer](trained)
        real = case.both_steps or "vision_feature_layer" in case.config  # some weights of LLaVA never get a gradient, nor states
        first = run_step(case, model, optimizer, batch, tracker) if real else warm(optimizer)
        steps = {"first": first} if case.both_steps else {}
        steps["steady"] = run_step(case, model, optimizer, batch, tracker)
        parameters = sum(p.numel() for n, p in model.named_parameters() if "lora_" not in n)
        if case.evaluates:
            steps["eval"] = evaluate(case, model, batch, tracker)
        counts = {"parameters": parameters, "trainable_parameters": sum(p.numel() for p in trained)}
    return counts | {"loaded": loaded} | steps


def warm(optimizer):
    """Lets the optimizer make its state, as a first step would have."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def versions():
    import accelerate
    import peft

    return {m.__name__: m.__version__ for m in (torch, transformers, peft, accelerate)}


def attempt(case):
    """The case with its result, or with the exception that ended it."""
    read_no_values()
    try:
        return case | simulate(Case(**case))
    except Exception as e:  # one case that a version cannot build must not cost the others
        return case | {"error": f"{type(e).__name__}: {e}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", help="JSON list of cases")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--match", default="", help="only cases whose name has this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    args = parser.parse_args()
    with open(args.cases, encoding="utf-8") as f:
        cases = [c for c in json.load(f) if args.match in c.get("name", "")]
    done, failed = [], 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        for case in pool.map(attempt, cases):
            if "error" in case:
                failed += 1
                print(f"{case['name']}: {case['error']}", file=sys.stderr, flush=True)
                continue
            done.append(case)
            write(args.out, done)
    print(f"{len(done)} cases, {failed} failed", file=sys.stderr)
    return failed > 0


def write(path, cases, made_with=None):
    """One case a line; configs once, under the numbers that cases use. made_with are the versions, if there is more to say than versions()."""
    configs, rows = [], []
    for case in cases:
        if case["config"] not in configs:
            configs.append(case["config"])
        rows.append(case | {"config": configs.index(case["config"])})
    lines = lambda items: ",\n".join(json.dumps(i, separators=(",", ":")) for i in items)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'{{"versions":{json.dumps(made_with or versions())},\n"configs":[\n{lines(configs)}],\n"cases":[\n{lines(rows)}]}}\n')


if __name__ == "__main__":
    sys.exit(main())
