"""A small language model trained for a few steps in plain PyTorch: the job that `oomguard demo` measures.

A decoder of Llama's shape (config.json), the flags of a Hugging Face training script, DistributedDataParallel under torchrun, and
the loss as transformers computes it. It runs on GPUs (NCCL) and without (gloo), needs only torch, and reads and writes no data.

    torchrun --nproc_per_node=2 train.py --model_name_or_path . --max_steps 5
"""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

OPTIMIZERS = {
    "adamw_torch": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0),
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr),
}


# The model


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary_table(length, head_dim, theta, device):
    """cos and sin of the position angles, each length x head_dim."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angle = torch.outer(torch.arange(length, device=device).float(), frequency).repeat(1, 2)
    return angle.cos(), angle.sin()


def rotate(x, table):
    cos, sin = (part.to(x.dtype) for part in table)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5  # torch 1.x
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)

    def forward(self, x, table):
        batch, length, _ = x.shape

        def split(projected, heads):
            return projected.view(batch, length, heads, self.head_dim).transpose(1, 2)

        q = rotate(split(self.q_proj(x), self.heads), table)
        k = rotate(split(self.k_proj(x), self.kv_heads), table)
        v = split(self.v_proj(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        mixed = causal_attention(q, k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1))
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RMSNorm(hidden, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = MLP(config)

    def forward(self, x, table):
        x = x + self.self_attn(self.input_layernorm(x), table)
        return x + self.mlp(self.post_attention_layernorm(x))


class CausalLM(nn.Module):
    def __init__(self, config, gradient_checkpointing=False):
        super().__init__()
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        self.config, self.gradient_checkpointing = config, gradient_checkpointing
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(hidden, config["rms_norm_eps"])
        self.lm_head = nn.Linear(hidden, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens, before_head=None):
        x = self.embed_tokens(tokens)
        table = rotary_table(tokens.size(1), self.config["head_dim"], self.config["rope_theta"], tokens.device)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, table, use_reentrant=False)
            else:
                x = layer(x, table)
        if before_head is not None:
            before_head()
        logits = self.lm_head(self.norm(x)).float()
        labels = F.pad(tokens, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)


def read_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if config.get("model_type") != "llama":
        raise SystemExit("train.py: %s: model_type is %r, this demo builds only \"llama\"" % (file.name, config.get("model_type")))
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    config.setdefault("rope_theta", 10000.0)
    config.setdefault("tie_word_embeddings", False)
    return config


# Running out of memory on purpose


def exhaust_device():
    """Allocates ever larger tensors until the GPU is full and PyTorch raises."""
    hoard, size = [], 256 << 20
    while True:
        hoard.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        size += size // 4


def simulate_out_of_memory(args, config):
    """Raises what PyTorch raises on a GPU that is full, for machines without one. The memory of this process stands for the
    allocated memory, and the size of the GPU is made up so that the logits no longer fit."""
    print("train.py: no GPU here: the following out-of-memory error is simulated, its GPU does not exist", file=sys.stderr, flush=True)
    logits = args.per_device_train_batch_size * args.max_seq_length * config["vocab_size"] * 4
    tried = allocation_size(logits)
    allocated = resident_bytes()
    unallocated, context, free = tried // 4, 512 << 20, tried // 2
    used = allocated + unallocated + context
    error = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
    raise error(
        "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is free. "
        "Including non-PyTorch memory, this process has %s memory in use. "
        "Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  See documentation for Memory Management  "
        "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        % tuple(format_size(size) for size in (tried, used + free, free, used, allocated, unallocated)))


def allocation_size(size):
    """What the allocator asks of the driver for a tensor: get_allocation_size in c10/cuda/CUDACachingAllocator.cpp."""
    if size <= 1 << 20:
        return 2 << 20
    return 20 << 20 if size < 10 << 20 else -(-size // (2 << 20)) * (2 << 20)


def format_size(size):
    """As format_size in c10/cuda/CUDACachingAllocator.cpp prints it."""
    if size <= 1024:
        return "%d bytes" % size
    for limit, unit in ((1 << 20, "KiB"), (1 << 30, "MiB")):
        if size <= limit:
            return "%.2f %s" % (size / (limit >> 10), unit)
    return "%.2f GiB" % (size / (1 << 30))


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The training


def flag(text):
    return text.lower() in ("true", "1", "yes")


def parse_arguments():
    parser = argparse.ArgumentParser(description="A small training run on random tokens.")
    parser.add_argument("--model_name_or_path", required=True, help="folder with config.json")
    parser.add_argument("--output_dir", default="output")
    parser.add_argument("--per_device_train_batch_size", type=int, default=2)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_steps", type=int, default=5)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--torch_dtype", choices=["float32", "bfloat16"], default="float32", help="of the weights")
    parser.add_argument("--attn_implementation", choices=["sdpa"], default="sdpa")
    parser.add_argument("--optim", choices=sorted(OPTIMIZERS), default="adamw_torch")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--bf16", type=flag, nargs="?", const=True, default=False, help="autocast to bfloat16")
    parser.add_argument("--gradient_checkpointing", type=flag, nargs="?", const=True, default=False, help="recompute activations in backward")
    parser.add_argument("--save", type=flag, nargs="?", const=True, default=False, help="write the model to --output_dir at the end")
    parser.add_argument("--oom_at_step", type=int, default=0, help="run out of GPU memory in the forward pass of this step (1 is the first)")
    return parser.parse_args()


def random_tokens(args, vocab, device):
    """Runs of consecutive numbers from a random start among a few: something to learn in five steps."""
    start = torch.randint(64, (args.per_device_train_batch_size, 1), device=device)
    return (start + torch.arange(args.max_seq_length, device=device)) % min(64, vocab)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", local_rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(1)
        torch.manual_seed(args.seed)
        self.config = read_config(args.model_name_or_path)
        self.model = CausalLM(self.config, args.gradient_checkpointing).to(self.device, getattr(torch, args.torch_dtype))
        self.optimizer = OPTIMIZERS[args.optim](self.model.parameters(), args.learning_rate)
        if self.world > 1:
            dist.init_process_group("nccl" if self.cuda else "gloo")
            self.model = DistributedDataParallel(self.model, device_ids=[local_rank] if self.cuda else None)
        torch.manual_seed(args.seed + self.rank)

    def micro_batch(self, step, last):
        """Forward and backward of one micro-batch; gradients are averaged over the ranks only in the last one of a step."""
        tokens = random_tokens(self.args, self.config["vocab_size"], self.device)
        oom = self.out_of_memory if step == self.args.oom_at_step and self.rank == 0 else None
        quiet = contextlib.nullcontext() if last or self.world == 1 else self.model.no_sync()
        with quiet:
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.args.bf16):
                loss = self.model(tokens, oom) / self.args.gradient_accumulation_steps
            loss.backward()
        return loss.detach()

    def out_of_memory(self):
        if self.cuda:
            exhaust_device()
        simulate_out_of_memory(self.args, self.config)

    def step(self, number):
        count = self.args.gradient_accumulation_steps
        loss = sum(self.micro_batch(number, micro == count - 1) for micro in range(count))
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def run(self):
        args = self.args
        tokens = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.max_seq_length * self.world
        self.say("%.1fM parameters, %d ranks on %s, %d tokens a step" % (
            sum(p.numel() for p in self.model.parameters()) / 1e6, self.world, self.device.type, tokens))
        for number in range(1, args.max_steps + 1):
            began = time.perf_counter()
            loss = self.step(number)
            self.say("step %d/%d  loss %.4f  %.0f tokens/s" % (number, args.max_steps, loss, tokens / (time.perf_counter() - began)))
        if args.save and self.rank == 0:
            self.save()
        if self.world > 1:
            dist.destroy_process_group()

    def save(self):
        os.makedirs(self.args.output_dir, exist_ok=True)
        model = getattr(self.model, "module", self.model)
        torch.save(model.state_dict(), os.path.join(self.args.output_dir, "model.pt"))

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)


if __name__ == "__main__":
    Trainer(parse_arguments()).run()
