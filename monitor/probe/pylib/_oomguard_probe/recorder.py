"""Measures windows, folds and thins them: many steps must cost little time and little disk, and no peak may be lost."""
from .journal import now

# The first windows of each stage are all written: 50 steps without gradient accumulation.
FULL_WINDOWS = 50
# Then the probe skips whole iterations while it has used more than this share of the run's time.
BUDGET = 0.003
# And a stage is written again when its peak rises by this much ...
NEW_PEAK_BYTES = 1 << 20
# ... or when this share of the run's time has passed, at least a second: the file grows with the logarithm of the run's length.
INTERVAL_SHARE = 0.001
SECOND = 1_000_000_000


class Fold:
    """The windows of one stage that are not yet written."""

    __slots__ = ("seen", "count", "peak", "peak_reserved", "told", "due", "last")

    def __init__(self):
        self.seen = 0    # windows ever
        self.told = -1   # highest peak written
        self.due = 0     # when to write again, nanoseconds since hello
        self.clear()

    def clear(self):
        self.count = self.peak = self.peak_reserved = 0
        self.last = None

    def add(self, step, micro, count, reading):
        self.seen += 1
        self.count += count
        self.peak = max(self.peak, reading[1])
        self.peak_reserved = max(self.peak_reserved, reading[3])
        self.last = (step, micro, reading)


class Recorder:
    """Closes windows. One is closed by reading the memory, remembering it under its stage, and resetting the peaks."""

    def __init__(self, memory, journal):
        self.memory, self.journal = memory, journal
        self.cost = 0          # nanoseconds spent here
        self._folds = {}
        self._source = None    # kind of memory and device of the last reading
        self._highest = 0      # highest peak of any stage
        self._border = 0       # bytes held when the running window began
        self._sampling = True
        self._skipped = 0      # windows not measured since sampling paused
        self._windows = 0
        self._full_until = 3 * FULL_WINDOWS
        self._capped = False

    def close(self, stage, step, micro, count=1):
        """Closes the running window as one of the stage."""
        if not self._sampling:
            self._skipped += 1
            return
        began = now()
        reading = self.read()
        self._windows += 1
        fold = self._folds.setdefault(stage, Fold())
        fold.add(step, micro, count, reading)
        self._highest = max(self._highest, reading[1])
        elapsed = self.journal.elapsed()
        if fold.seen <= FULL_WINDOWS or fold.peak > fold.told + NEW_PEAK_BYTES or elapsed >= fold.due:
            self._tell(stage, fold, elapsed)
        self._reset(reading)
        self.cost += now() - began

    def _reset(self, reading):
        self._border = reading[0]
        self.memory.reset(reading)

    def is_quiet(self):
        """Whether the running window has taken no memory so far. While sampling is paused nobody knows: no."""
        return self._sampling and self.read()[1] <= self._border + NEW_PEAK_BYTES

    def pace(self, step, micro):
        """Decides, at the border of an iteration, whether the next one is measured."""
        if self._windows < self._full_until:
            return
        affordable = self.cost <= BUDGET * self.journal.elapsed()
        if self._sampling:
            self._sampling = affordable
        elif affordable:
            self.resume(step, micro)

    def resume(self, step, micro):
        """Measures again. A new peak among the windows that were not measured is kept as "other": nobody knows its stage; and the
        next steps are all measured, to find it."""
        if self._sampling:
            return
        self._sampling, skipped, self._skipped = True, self._skipped, 0
        reading = self.read()
        if reading[1] > self._highest + NEW_PEAK_BYTES:
            self._full_until = self._windows + 3 * FULL_WINDOWS
            self.close("other", step, micro, max(skipped, 1))
        else:
            self._reset(reading)

    def flush(self):
        """Writes what is folded: the process is about to end."""
        elapsed = self.journal.elapsed()
        for stage, fold in self._folds.items():
            self._tell(stage, fold, elapsed, last_words=True)

    def read(self):
        """Reads the memory; says so first when it is another memory than before."""
        reading = self.memory.read()
        source = (self.memory.kind, reading[7])
        if source != self._source:
            self._change_source(source)
        return reading

    def _change_source(self, source):
        """CUDA came up, or another GPU is the current one. What went before was other memory."""
        if self._source is not None:
            self.flush()
            self._folds.clear()
            self._highest = 0
            self.journal.event("mem", **self.memory.describe(source[1]))
        self._source = source

    def _tell(self, stage, fold, elapsed, last_words=False):
        if fold.last is None:
            return
        if not last_words and not self.journal.has_room():
            if not self._capped:
                self._capped = True
                self.journal.event("note", msg="the probe's file is full (OOMGUARD_MAXBYTES): from here on only the peaks of each stage are kept, and written at the end")
            return
        step, micro, reading = fold.last
        self.journal.window(stage.encode(), step, micro, fold.count, reading, fold.peak, fold.peak_reserved)
        fold.told = max(fold.told, fold.peak)
        fold.due = elapsed + max(SECOND, int(elapsed * INTERVAL_SHARE))
        fold.clear()
