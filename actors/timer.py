"""The one timer: a heap of callbacks and a thread that waits for the next, so that no actor ever sleeps."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Hashable

from actors.errors import Refused
from actors.ports import Clock

logger = logging.getLogger(__name__)

MAX_TIMERS = 100_000

_Entry = tuple[float, int, Hashable, Callable[[], None]]


class Timer:
    """Calls back at given times, on its own thread; callbacks send a message and must not block."""

    def __init__(self, clock: Clock, limit: int = MAX_TIMERS) -> None:
        self._clock, self._limit = clock, limit
        self._wake = threading.Condition()
        self._heap: list[_Entry] = []
        self._current: dict[Hashable, int] = {}
        self._numbers = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="timer", daemon=True)
        self._thread.start()

    def at(self, key: Hashable, when: float, callback: Callable[[], None]) -> None:
        """Call back when the clock's `monotonic()` reaches `when`; replaces what the key stood for.  From any thread.

        Raises:
            Refused: `overloaded`, there are too many timers.
        """
        with self._wake:
            if self._stopped:
                return
            if key not in self._current and len(self._current) >= self._limit:
                raise Refused("overloaded", "too many timers are set", retry_after=1)
            number = next(self._numbers)
            self._current[key] = number
            heapq.heappush(self._heap, (when, number, key, callback))
            self._compact()
            if self._heap[0][1] == number:
                self._wake.notify()

    def cancel(self, key: Hashable) -> None:
        """Forget the key's callback, if it was not called yet."""
        with self._wake:
            self._current.pop(key, None)
            self._compact()

    def wake(self) -> None:
        """Look at the clock again; for clocks that are moved by hand."""
        with self._wake:
            self._wake.notify()

    def __len__(self) -> int:
        """Return how many callbacks are to come."""
        return len(self._current)

    def stop(self, timeout: float) -> bool:
        """End the thread and forget all callbacks; return whether it ended within `timeout` seconds."""
        with self._wake:
            self._stopped = True
            self._heap.clear()
            self._current.clear()
            self._wake.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _compact(self) -> None:
        """Drop cancelled entries when they are the larger part, so that the heap stays bounded too."""
        if len(self._heap) > 2 * len(self._current) + 64:
            self._heap = [entry for entry in self._heap if self._current.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except Exception:
                # One callback's fault must not silence all others.
                logger.exception("a timer's callback failed")

    def _next(self) -> Callable[[], None] | None:
        with self._wake:
            while not self._stopped:
                left = self._heap[0][0] - self._clock.monotonic() if self._heap else None
                if left is not None and left <= 0:
                    _, number, key, callback = heapq.heappop(self._heap)
                    if self._current.get(key) == number:
                        del self._current[key]
                        return callback
                else:
                    self._wake.wait(left)
            return None
