"""Counts live bytes of a PyTorch program by following every storage from the operation that makes it to its release.

Works for real tensors and for fake ones (FakeTensorMode): no memory and no GPU are needed. What a kernel allocates for itself while it
runs is not seen, except where `kernels.py` says otherwise.
"""

import weakref

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512  # c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize


def _accumulates(func, args):
    """Whether autograd adds a second gradient of a tensor to one that nothing else holds. It does so in place, but not while a dispatch
    mode watches (torch/csrc/autograd/input_buffer.cpp: can_accumulate_inplace). A gradient that is a view keeps its base, and with it a
    second holder of the storage. In here an unshared tensor has four references and its storage two: autograd's, and those of this call."""
    if func is not torch.ops.aten.add.Tensor or torch.is_grad_enabled() or torch._C._current_autograd_node() is None or len(args) != 2:
        return False
    old, new = args
    if not isinstance(new, torch.Tensor) or old.dtype != new.dtype or old.shape != new.shape:
        return False
    return old._use_count() <= 4 and torch._C._storage_Use_Count(old.untyped_storage()._cdata) <= 2


class Tracker(TorchDispatchMode):
    """While it is entered, `live` is the bytes of all storages made so far and not yet released, and `peak` the most since `reset`."""

    def __init__(self, replace=None):
        """`replace` maps an operation to a function that turns its result into what the device modelled would return."""
        super().__init__()
        self._replace = replace or {}
        self.live = 0
        self.peak = 0
        self._known = {}
        self._size = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self._replace and _accumulates(func, args):
            return torch.ops.aten.add_.Tensor(*args)
        out = func(*args, **(kwargs or {}))
        if func in self._replace:
            out = self._replace[func](out)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf)
        return out

    def follow(self, tensor):
        """Counts the tensor's storage if it is new. Host scalars (zero dimensions on a CPU) count as well: 512 bytes."""
        if isinstance(tensor, DTensor):  # a name for a tensor of which this rank holds a part
            tensor = tensor._local_tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known and self._known[key]() is not None:
            return
        self._size[key] = 0
        self._grow(key, storage)

        def release(_):
            self.live -= self._size.pop(key)
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, release)

    def resized(self, storage):
        """Counts anew a storage that has been resized in place."""
        if storage._cdata in self._size:
            self._grow(storage._cdata, storage)

    def _grow(self, key, storage):
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        self.live += size - self._size[key]
        self._size[key] = size
        self.peak = max(self.peak, self.live)

    def reset(self):
        """Starts a new stage: as torch.cuda.reset_peak_memory_stats."""
        self.peak = self.live
