"""Where the numbers come from: PyTorch's CUDA allocator, or the resident memory of the process when there is no CUDA.

A reading is a tuple: bytes now, their peak since the last reset, reserved now, its peak, inactive split bytes, cudaMalloc retries,
failed allocations, device index. Reading never synchronises with the GPU: the allocator counts when the host asks for memory.
"""
import mmap
import os
import re


class HostMemory:
    """Resident memory without file pages, which are mostly libraries. Linux keeps the peak since the start (VmHWM, file pages included): a
    window in which that rises has it as its own peak, of any other only the memory at its borders is known. Linux also resets the peak
    when 5 is written to clear_refs (both files are described in proc(5)), and then each window has its own; but /usr/bin/time and
    whoever else asks the kernel for the peak of the process would be told a lower one. So that is done only where it is asked for."""

    kind = "rss"
    PROOF_BYTES = 4 << 20  # touched once to see that the peak rises and falls again
    STATUS = re.compile(rb"VmHWM:\s+(\d+) kB\s+VmRSS:\s+(\d+) kB(?:\s+RssAnon:\s+\d+ kB\s+RssFile:\s+(\d+) kB)?")

    def __init__(self):
        self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        self._reset = None
        self._highest = 0
        self._discount = 0
        self.highest_resident = 0  # ever, file pages included
        self._resident()
        self._risen = self.highest_resident  # when the window began
        self.exact = False
        if not os.environ.get("OOMGUARD_RESET_PEAKS"):
            return
        try:
            self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            self.exact = self._peak_resets()
        except OSError:
            self.exact = False

    def _peak_resets(self):
        before = self._resident()[0]
        pages = mmap.mmap(-1, self.PROOF_BYTES)
        for offset in range(0, self.PROOF_BYTES, mmap.PAGESIZE):
            pages[offset] = 1
        pages.close()
        raised = self._resident()[1]
        os.write(self._reset, b"5")
        lowered = self._resident()[1]
        return raised >= before + self.PROOF_BYTES // 2 and lowered < raised

    def _resident(self):
        """Bytes now and at the peak, without file pages. Those of the peak are not known: they are taken to be those of now."""
        peak, resident, file_pages = self.STATUS.search(os.pread(self._status, 4096, 0)).groups(b"0")
        self.highest_resident = max(self.highest_resident, int(peak) << 10)
        now = (int(resident) - int(file_pages)) << 10
        return now, max(now, (int(peak) - int(file_pages)) << 10)

    def read(self):
        now, peak = self._resident()
        if not self.exact and self.highest_resident == self._risen:
            peak = max(now, self._highest)
        return now - self._discount, peak - self._discount, 0, 0, 0, 0, 0, 0

    def reset(self, reading):
        if self.exact:
            os.write(self._reset, b"5")
        else:
            self._highest = reading[0] + self._discount  # the end of one window is the start of the next
            self._risen = self.highest_resident

    def discount(self, before):
        """Leaves out of all later readings what the process has gained since a reading: code, not tensors."""
        reading = self.read()
        self._discount += max(0, reading[0] - before[0])
        self.reset(self.read())

    def keep_user_peaks(self):
        """Resetting VmHWM lowers ru_maxrss too: hand the user the highest value that we have seen."""
        import resource

        original = resource.getrusage

        def getrusage(who):
            usage = original(who)
            if who != resource.RUSAGE_SELF or usage.ru_maxrss >= self.highest_resident >> 10:
                return usage
            fields = list(usage)
            fields[2] = self.highest_resident >> 10  # ru_maxrss, KiB
            return resource.struct_rusage(fields)

        copy_name(getrusage, original)
        resource.getrusage = getrusage


class CudaMemory:
    """PyTorch's caching allocator on the current device, read with one C call: torch.cuda.memory_stats flattens and sorts 180 keys."""

    kind = "cuda"
    PEAKS = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
             "allocation", "segment", "active", "inactive_split")
    # Getter and resetter of the same counters.
    COUNTERS = (("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"),
                ("_accelerator_getDeviceStats", "_accelerator_resetPeakStats"))

    def __init__(self, torch):
        self._c = torch._C
        self._device = torch._C._cuda_getDevice
        self._stats = torch._C._cuda_memoryStats
        self._reset = torch._C._cuda_resetPeakMemoryStats
        self._user_peaks = {}  # device -> {(counter, pool): highest since the user's own reset}
        self._last = {}

    def read(self):
        device = self._device()
        self._last = stats = self._stats(device)
        allocated = stats["allocated_bytes"]["all"]
        reserved = stats["reserved_bytes"]["all"]
        return (allocated["current"], allocated["peak"], reserved["current"], reserved["peak"],
                stats["inactive_split_bytes"]["all"]["current"], stats["num_alloc_retries"], stats["num_ooms"], device)

    def reset(self, reading):
        device = reading[7]
        kept = self._user_peaks.setdefault(device, {})
        for counter in self.PEAKS:
            for pool, values in self._last.get(counter, {}).items():
                if values["peak"] > kept.get((counter, pool), -1):
                    kept[counter, pool] = values["peak"]
        self._reset(device)

    def keep_user_peaks(self):
        """Our resets must not show in the peaks that the user reads: replaces the C functions behind torch.cuda and
        torch.accelerator by ones that add the peaks we have reset away."""
        for getter, resetter in self.COUNTERS:
            if hasattr(self._c, getter) and hasattr(self._c, resetter):
                self._replace(getter, resetter)

    def _replace(self, getter, resetter):
        get, reset, kept = getattr(self._c, getter), getattr(self._c, resetter), self._user_peaks

        def memory_stats(device):
            stats = get(device)
            for (counter, pool), peak in kept.get(device, {}).items():
                values = stats.get(counter, {}).get(pool)
                if values is not None and values["peak"] < peak:
                    values["peak"] = peak
            return stats

        def reset_peak(device):
            kept.pop(device, None)
            return reset(device)

        for new, old, name in ((memory_stats, get, getter), (reset_peak, reset, resetter)):
            copy_name(new, old)
            setattr(self._c, name, new)


class Memory:
    """Resident memory until CUDA is initialised, from then on the CUDA allocator."""

    def __init__(self, torch):
        self._cuda_module = torch.cuda
        self._cuda = CudaMemory(torch) if hasattr(torch._C, "_cuda_memoryStats") else None
        self._source = self._host = HostMemory()
        if self._host.exact:
            self._host.keep_user_peaks()
        if self._cuda is not None:
            self._cuda.keep_user_peaks()
        self.exact = self._host.exact

    @property
    def kind(self):
        return self._source.kind

    def read(self):
        if self._source is self._host and self._cuda is not None and self._cuda_module.is_initialized():
            self._source = self._cuda
        return self._source.read()

    def reset(self, reading):
        self._source.reset(reading)

    def describe(self, device):
        """What the numbers are, and which GPU the index is (torch 2.4 and later know the UUID): CUDA counts otherwise than NVML."""
        fields = {"mem": self.kind, "d": device}
        if self._source is self._cuda:
            uuid = getattr(self._cuda_module.get_device_properties(device), "uuid", None)
            if uuid is not None:
                fields["uuid"] = str(uuid)
        return fields

    def before_import(self):
        """To be given to after_import."""
        return self._host.read() if self._source is self._host else None

    def after_import(self, before):
        """The memory gained since then is code that torch has imported, not the training's."""
        if self._source is self._host and before is not None:
            self._host.discount(before)


def copy_name(new, old):
    """Makes a replacement look like the function it stands for."""
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:
            setattr(new, name, getattr(old, name))
        except (AttributeError, TypeError):
            pass
    new.__wrapped__ = old
