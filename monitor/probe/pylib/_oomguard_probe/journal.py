"""The file to which a rank appends what it sees: one JSON object a line.

A file needs no reader, never blocks, and keeps every line when the process is killed.
"""
import json
import os
import time

now = time.perf_counter_ns

DEFAULT_MAX_BYTES = 64 << 20
# Kept free for the last words: an exception's text and traceback (12,000 characters, up to 6 bytes each when escaped), then
# the folded windows of all stages and the goodbye.
RESERVE_BYTES = 96 << 10


class Journal:
    """Appends events; after the first failed write, and in forked children, it is silent."""

    def __init__(self, folder, name, max_bytes):
        path = os.path.join(folder, name)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._hold()
        self._left = max_bytes
        self._reserve = min(RESERVE_BYTES, max_bytes // 2)
        self._sequence = 0
        self._start = now()
        self.alive = True

    def _hold(self):
        """Says to oomguard that the file is in use, until it is closed or the process is gone."""
        try:
            import fcntl
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (ImportError, OSError):
            pass

    def elapsed(self):
        """Nanoseconds since the journal was opened."""
        return now() - self._start

    def has_room(self):
        """Whether ordinary events may still be written; the rest of the file is for the last words."""
        return self._left > self._reserve

    def event(self, kind, **fields):
        """Appends one event. ASCII with escapes, so that any text, lone surrogates too, makes a valid line."""
        line = {"e": kind, "q": self._sequence + 1, "t": self.elapsed()}
        line.update(fields)
        self._append(json.dumps(line).encode("ascii") + b"\n")

    def window(self, stage, step, micro, count, reading, peak, peak_reserved):
        """Appends one window. Formatted by hand: this is the only line that is written often."""
        now_bytes, _, reserved, _, inactive, retries, ooms, device = reading
        self._append(
            b'{"e":"w","q":%d,"t":%d,"s":"%s","st":%d,"mb":%d,"n":%d,"a":%d,"pa":%d,"r":%d,"pr":%d,"is":%d,"rt":%d,"ooms":%d,"d":%d}\n'
            % (self._sequence + 1, self.elapsed(), stage, step, micro, count,
               now_bytes, peak, reserved, peak_reserved, inactive, retries, ooms, device))

    def _append(self, line):
        if not self.alive or len(line) > self._left:
            return
        self._sequence += 1
        self._left -= len(line)
        try:
            if os.write(self._fd, line) != len(line):
                self.alive = False  # the disk is full: half a line is written and must stay the last
        except OSError:
            self.alive = False
