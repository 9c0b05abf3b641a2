"""The cap on active runs, and the line of those that wait for a place."""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from actors.errors import Refused

logger = logging.getLogger(__name__)


class Slots:
    """At most `limit` runs at once and `waiting` behind them, first come, first served; from any thread."""

    def __init__(self, limit: int, waiting: int) -> None:
        self._limit, self._waiting = limit, waiting
        self._lock = threading.Lock()
        self._active: set[str] = set()
        self._line: OrderedDict[str, Callable[[], None]] = OrderedDict()

    def take(self, run_id: str) -> bool:
        """Take a place if one is free and nobody waits; return whether the run has one.  A repeat changes nothing."""
        with self._lock:
            if run_id not in self._active and not self._line and len(self._active) < self._limit:
                self._active.add(run_id)
            return run_id in self._active

    def wait(self, run_id: str, granted: Callable[[], None]) -> None:
        """Call `granted` once when the run has a place: now, or later on the thread that releases one.

        A repeat keeps the place in the line; the last `granted` counts.  It must not block; if it fails, the place
        goes on to the next run, and this one has to come again.

        Raises:
            Refused: `overloaded`, the line is full.
        """
        with self._lock:
            if run_id not in self._active:
                if run_id not in self._line and len(self._line) >= self._waiting and len(self._active) >= self._limit:
                    raise Refused("overloaded", "too many runs wait for a place", retry_after=10)
                self._line[run_id] = granted
                granted_now = self._grant()
            else:
                granted_now = deque([(run_id, granted)])
        self._call(granted_now)

    def release(self, run_id: str) -> None:
        """Give the place back, or leave the line; a repeat changes nothing."""
        with self._lock:
            self._active.discard(run_id)
            self._line.pop(run_id, None)
            granted_now = self._grant()
        self._call(granted_now)

    def counts(self) -> tuple[int, int]:
        """Return how many runs are active and how many wait."""
        with self._lock:
            return len(self._active), len(self._line)

    def _grant(self) -> deque[tuple[str, Callable[[], None]]]:
        """Give free places to the line; under the lock."""
        granted: deque[tuple[str, Callable[[], None]]] = deque()
        while self._line and len(self._active) < self._limit:
            run_id, callback = self._line.popitem(last=False)
            self._active.add(run_id)
            granted.append((run_id, callback))
        return granted

    def _call(self, granted: deque[tuple[str, Callable[[], None]]]) -> None:
        """Call back outside the lock; a loop, since a callback that fails frees a place for the next."""
        while granted:
            run_id, callback = granted.popleft()
            try:
                callback()
            except Exception:
                # Without its callback the run would keep a place for ever.
                logger.exception("%s could not take its place", run_id)
                with self._lock:
                    self._active.discard(run_id)
                    granted.extend(self._grant())
