"""Counts live bytes of a PyTorch program by following every storage from the operation that makes it to its release.

Works for real tensors and for fake ones (FakeTensorMode): no memory and no GPU are needed. What a kernel allocates for itself while it
runs is not seen, except where `kernels.py` says otherwise.
"""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512  # c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize


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
        out = func(*args, **(kwargs or {}))
        if func in self._replace:
            out = self._replace[func](out)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf)
        return out

    def follow(self, tensor):
        """Counts the tensor's storage if it is new. Host scalars (zero dimensions on a CPU) count as well: 512 bytes."""
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
