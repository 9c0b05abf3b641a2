"""Coalescing of a stream: raw bytes go in as they come, batches come out at a pace that the log can keep.

The first two batches are handed over at once (the first of many streams holds no text yet, and nobody should wait for the
second), each later one 40 ms after the one before it, sooner at 2 KB and at the end.  The rule looks at sizes and times
only, because no provider's format is known here.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from actors.ports import StreamBatch
from gateways.provider.errors import Broken

EAGER: Final = 2
WINDOW: Final = 0.040
ENOUGH: Final = 2048
BOUND: Final = 1 << 20


class BatchBuffer:
    """Whole events between the thread that reads the network and the one that records; bounded."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._bytes = bytearray()
        self._events = 0
        self._not_before = 0.0
        self._taken = 0
        self._ended = False
        self._error: Broken | None = None

    def put(self, raw: bytes, events: int) -> None:
        """Add whole events (and comments); blocks while a megabyte waits, until it is taken or the stream has ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._bytes) < BOUND or self._ended)
            if not self._ended:
                self._bytes += raw
                self._events += events
                self._changed.notify_all()

    @property
    def is_full(self) -> bool:
        """Whether `put` would block."""
        return len(self._bytes) >= BOUND

    def end(self, error: Broken | None) -> None:
        """No more will come; the first end counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def take(self) -> StreamBatch:
        """Wait until a batch is due and return it; after the end always the end."""
        with self._changed:
            while (wait := self._seconds_left()) != 0:
                self._changed.wait(wait)
            return self._batch()

    def _seconds_left(self) -> float | None:
        """Return 0 where a batch is due, else how long to wait; None: until something comes."""
        if self._ended or len(self._bytes) >= ENOUGH:
            return 0
        if not self._events:
            return None
        return max(self._not_before - self._monotonic(), 0)

    def _batch(self) -> StreamBatch:
        raw = bytes(self._bytes)
        self._bytes.clear()
        self._events = 0
        self._taken += 1
        if self._taken >= EAGER:
            self._not_before = self._monotonic() + WINDOW
        self._changed.notify_all()
        return StreamBatch(raw, self._ended, self._error.as_error() if self._error else None)
