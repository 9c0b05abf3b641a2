"""The cap on active runs, and the line of those that wait for a place."""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from actors.errors import Refused

logger = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Runs whose end is remembered: a session may still ask for their place until it has heard of the end."""


class Slots:
    """At most `limit` runs at once and `waiting` behind them, first come, first served; from any thread.

    A message books before it is on record.  What came of it decides: its run begins (`hold`), waits (`give_back`, then
    `wait`) or does not exist (`give_back`).  An end is for good.
    """

    def __init__(self, limit: int, waiting: int) -> None:
        self._limit, self._waiting = limit, waiting
        self._lock = threading.Lock()
        self._active: set[str] = set()
        self._unclaimed: set[str] = set()  # of the active: booked, and not come for
        self._booked: set[str] = set()  # they wait, and not in the line yet: their session is busy with another run
        self._line: OrderedDict[str, Callable[[], None]] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def book(self, run_id: str, *, place: bool) -> bool:
        """Book a place, where one is wanted and free and nobody waits for it, else the right to wait; return whether place.

        Raises:
            Refused: `overloaded`, too many wait; nothing was booked.
        """
        with self._lock:
            if place and not self._line and len(self._active) < self._limit:
                self._active.add(run_id)
                self._unclaimed.add(run_id)
                return True
            if len(self._booked) + len(self._line) >= self._waiting:
                raise Refused("overloaded", "too many runs wait for a place", retry_after=10)
            self._booked.add(run_id)
            return False

    def give_back(self, run_id: str, *, waits: bool) -> None:
        """Give back a place that nobody came for, and the right to wait too, unless the run `waits`."""
        with self._lock:
            if run_id in self._unclaimed:
                self._unclaimed.discard(run_id)
                self._active.discard(run_id)
                if waits:
                    self._booked.add(run_id)
            if not waits:
                self._booked.discard(run_id)
            granted_now = self._grant()
        self._call(granted_now)

    def hold(self, run_id: str) -> None:
        """Count a run that has begun, booked or not; a repeat changes nothing."""
        with self._lock:
            if run_id not in self._ended:
                self._active.add(run_id)
                self._unclaimed.discard(run_id)
                self._booked.discard(run_id)
                self._line.pop(run_id, None)

    def expect(self, run_id: str) -> None:
        """Count a run that was admitted before the server started, and waits still."""
        with self._lock:
            self._booked.add(run_id)

    def wait(self, run_id: str, granted: Callable[[], None]) -> None:
        """Call `granted` once when the run has a place: now, or later on the thread that frees one.

        A repeat keeps the place in the line; the last `granted` counts.  It must not block; if it fails, the place
        goes on to the next run, and this one has to come again.  A run that has ended needs no place.
        """
        with self._lock:
            if run_id in self._active or run_id in self._ended:
                self._unclaimed.discard(run_id)
                granted_now = deque([(run_id, granted)])
            else:
                self._booked.discard(run_id)
                self._line[run_id] = granted
                granted_now = self._grant()
        self._call(granted_now)

    def end(self, run_id: str) -> None:
        """Give the place back, or leave the line, for good; a repeat changes nothing."""
        with self._lock:
            self._ended[run_id] = None
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
            for places in (self._active, self._unclaimed, self._booked):
                places.discard(run_id)
            self._line.pop(run_id, None)
            granted_now = self._grant()
        self._call(granted_now)

    def counts(self) -> tuple[int, int]:
        """Return how many runs are active and how many wait, for a place or for their session."""
        with self._lock:
            return len(self._active), len(self._booked) + len(self._line)

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
