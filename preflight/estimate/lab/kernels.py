"""Makes operations on CPU tensors save and allocate what their CUDA kernels do.

Autograd cannot run backward on fake CUDA tensors where there is no driver, so the laboratory runs on fake CPU tensors and replaces
what differs between the two: autocast's lists, dropout's mask, LayerNorm's statistics, and fused attention.
"""

import contextlib

import torch
import torch.nn.functional as F

# Operations that CUDA's autocast runs in fp32 and CPU's does not (aten/src/ATen/autocast_mode.h: AT_FORALL_FP32 and
# AT_FORALL_FP32_SET_OPT_DTYPE), as far as transformers' models use them.
_CUDA_FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "group_norm", "nll_loss",
    "nll_loss2d", "cosine_similarity", "smooth_l1_loss", "l1_loss", "mse_loss", "norm.Scalar", "cdist", "renorm",
)
_CUDA_FP32_DTYPE = ("softmax.int", "log_softmax.int", "cumsum", "cumprod", "prod", "prod.dim_int", "sum", "sum.dim_IntList")

_AUTOCAST_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def _wide(value):
    if isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value


def _in_fp32(op):
    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_CPU):
            return op(*[_wide(a) for a in args], **{k: _wide(v) for k, v in kwargs.items()})

    return kernel


def _with_fp32_output(op):
    def kernel(*args, **kwargs):
        chosen = kwargs.get("dtype") or next((a for a in args if isinstance(a, torch.dtype)), None)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_CPU):
            if chosen is None and args[0].dtype in (torch.bfloat16, torch.float16):
                if "softmax" in op.name():
                    return _Softmax.apply(args[0])
                args, kwargs = [a for a in args if a is not None], kwargs | {"dtype": torch.float32}
            return op(*args, **kwargs)

    return kernel


def cuda_autocast():
    """Registers CUDA's fp32 list for CPU autocast, and takes off CPU's list what CUDA's does not have: cross entropy there is a log_softmax in
    the logits' own dtype and an nll_loss in fp32. The library must be kept alive."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("cross_entropy_loss", torch.library.fallthrough_kernel, "AutocastCPU", allow_override=True)
    for names, wrap in ((_CUDA_FP32, _in_fp32), (_CUDA_FP32_DTYPE, _with_fp32_output)):
        for name in names:
            base, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, base), overload or "default")
            library.impl(name, wrap(op), "AutocastCPU", allow_override=True)
    return library


class _Softmax(torch.autograd.Function):
    """Softmax or its logarithm from 16 bit to fp32 in one kernel, and back in one (aten/src/ATen/native/cuda/SoftMax.cu: half_to_float)."""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x, dtype=torch.float32)
        ctx.save_for_backward(out)
        ctx.width = x.dtype
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return torch.empty_like(out, dtype=ctx.width)


def _widens(x, dtype):
    autocast = torch.is_autocast_enabled("cpu") and dtype is None
    return x.dtype in (torch.bfloat16, torch.float16) and (autocast or dtype is torch.float32)


def _softmax(original):
    def kernel(x, dim=None, _stacklevel=3, dtype=None):
        return _Softmax.apply(x) if _widens(x, dtype) else original(x, dim=dim, dtype=dtype)

    return kernel


class _Dropout(torch.autograd.Function):
    """native_dropout of CUDA (aten/src/ATen/native/cuda/Dropout.cu): a result and a mask of one byte an element."""

    @staticmethod
    def forward(ctx, x, p):
        mask = torch.empty_like(x, dtype=torch.bool)
        ctx.save_for_backward(mask)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return torch.empty_like(grad), None


def _dropout(x, p=0.5, training=True, inplace=False):
    return _Dropout.apply(x, p) if training and p > 0 else x


def _up(n, to):
    return -(-n // to) * to


class _Flash(torch.autograd.Function):
    """FlashAttention 2 as PyTorch calls it (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp): q, k, v, the result in
    q's memory order, and the fp32 log-sum-exp are kept; backward has an fp32 accumulator for dq, and whole
    heads' dk and dv when heads share them."""

    @staticmethod
    def forward(ctx, q, k, v):
        b, n, s, _ = q.shape
        out = torch.empty_like(q.transpose(1, 2)).transpose(1, 2)
        lse = torch.empty(b, n, s, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        b, n, s, d = q.shape
        rows, width = _up(s, 128), _up(d, 32 if d <= 128 else 64)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        softmax = torch.empty(b, n, rows, dtype=torch.float32)
        accumulator = torch.empty(b, n, rows, width, dtype=torch.float32)
        if k.shape[1] < n:
            wide = torch.empty(b, k.shape[2], n, d, dtype=k.dtype), torch.empty(b, k.shape[2], n, d, dtype=k.dtype)
            del wide
        del softmax, accumulator
        return dq, dk, dv


class _Efficient(torch.autograd.Function):
    """Memory-efficient attention (aten/src/ATen/native/transformers/cuda/attention.cu), which PyTorch takes for fp32 and for explicit
    masks: the same tensors, rows of statistics padded to 32, and the expanded mask."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        b, n, s, d = q.shape
        out = torch.empty(b, s, n, v.shape[-1], dtype=q.dtype).transpose(1, 2)
        lse = torch.empty(b, n, _up(s, 32), dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse, mask)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse, mask = ctx.saved_tensors
        delta = torch.empty_like(lse)
        grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dmask = torch.empty_like(mask) if mask is not None and mask.requires_grad else None
        del delta
        return *grads, dmask


def _math(q, k, v, mask):
    """What is left when no fused kernel takes the tensors (aten/src/ATen/native/transformers/attention.cpp:
    _scaled_dot_product_attention_math): everything in fp32, keys and values repeated for every head, scores and probabilities built."""
    dtype, scale = q.dtype, q.shape[-1] ** -0.25
    with torch.autocast("cpu", enabled=False):
        q, k, v = q.float(), k.float(), v.float()
        if 1 < k.shape[1] < q.shape[1]:
            k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
        scores = (q * scale) @ (k * scale).transpose(-2, -1)
        if mask is not None:
            scores = scores.add_(mask)
        del q, k
        hidden = torch.empty(scores.shape, dtype=torch.bool)  # rows without a key are looked for
        probabilities = torch.softmax(scores, -1)
        del hidden
        return (probabilities @ v).to(dtype)


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    if k.shape[1] != q.shape[1] and (q.dtype is torch.float32 or attn_mask is not None or not enable_gqa):
        return _math(q, k, v, attn_mask)  # only FlashAttention takes shared heads, and no kernel broadcasts them
    if q.dtype is not torch.float32 and attn_mask is None and q.shape[-1] == v.shape[-1] <= 256:
        return _Flash.apply(q, k, v)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.empty(attn_mask.shape, dtype=q.dtype)
    return _Efficient.apply(q, k, v, attn_mask)


def _fp32_statistics(out):
    return (out[0], *(t if t.dtype is torch.float32 else torch.empty_like(t, dtype=torch.float32) for t in out[1:]))


# CUDA keeps LayerNorm's mean and reciprocal deviation in fp32, the CPU kernel in the input's dtype.
CUDA_RESULTS = {torch.ops.aten.native_layer_norm.default: _fp32_statistics}


@contextlib.contextmanager
def cuda_kernels():
    """Within it, models on CPU tensors behave as on a GPU."""
    names = ("dropout", "scaled_dot_product_attention", "softmax", "log_softmax")
    saved = {name: getattr(F, name) for name in names}
    asks = torch.is_autocast_enabled
    library = cuda_autocast()
    replaced = {"dropout": _dropout, "scaled_dot_product_attention": _attention}
    replaced |= {name: _softmax(saved[name]) for name in ("softmax", "log_softmax")}
    try:
        for name, kernel in replaced.items():
            setattr(F, name, kernel)
        torch.is_autocast_enabled = lambda device="cpu": asks(device)  # without a device it asks for CUDA's
        yield library
    finally:
        torch.is_autocast_enabled = asks
        for name, kernel in saved.items():
            setattr(F, name, kernel)
