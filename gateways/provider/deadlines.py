"""Deadlines of all exchanges: one thread and one heap; a deadline that only moves later costs nothing."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_NEVER: Final = float("inf")
_SLACK: Final = 64


class Alarm:
    """A deadline that may be moved or stopped, from any thread; it fires once, on the watchdog's thread."""

    __slots__ = ("_watchdog", "action", "queued", "when")

    def __init__(self, watchdog: "Watchdog") -> None:
        self._watchdog = watchdog
        self.when = self.queued = _NEVER
        self.action: Callable[[], None] | None = None

    def move(self, when: float, action: Callable[[], None]) -> None:
        """Fire at `when` (monotonic seconds) with this action, and no longer at the earlier time."""
        self._watchdog.place(self, when, action)

    def stop(self) -> None:
        """Never fire; it may be moved again."""
        self._watchdog.place(self, _NEVER, None)


class Watchdog:
    """Fires alarms on its own daemon thread, which starts with the first alarm and ends with `close`."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` is the injected clock; after moving a manual one, call `look`."""
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Alarm]] = []
        self._number = itertools.count()
        self._armed = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def alarm(self) -> Alarm:
        """Return an alarm that is not set."""
        return Alarm(self)

    def place(self, alarm: Alarm, when: float, action: Callable[[], None] | None) -> None:
        """Set, move or (with `inf`) stop an alarm."""
        with self._changed:
            if self._closed:
                return
            self._armed += (when < _NEVER) - (alarm.when < _NEVER)
            alarm.when, alarm.action = when, action
            if when < alarm.queued:
                self._push(alarm)
            self._tidy()

    def look(self) -> None:
        """Look at the clock again now."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """End the thread; what is set will not fire."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _push(self, alarm: Alarm) -> None:
        alarm.queued = alarm.when
        heapq.heappush(self._heap, (alarm.when, next(self._number), alarm))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="provider-deadlines", daemon=True)
            self._thread.start()
        elif self._heap[0][2] is alarm:
            self._changed.notify()

    def _tidy(self) -> None:
        """Drop what is stopped or stale, once it is most of the heap."""
        if len(self._heap) <= 2 * self._armed + _SLACK:
            return
        kept = [entry for entry in self._heap if entry[2].when < _NEVER and entry[2].queued == entry[0]]
        for entry in self._heap:
            if entry[2].when == _NEVER:
                entry[2].queued = _NEVER
        heapq.heapify(kept)
        self._heap = kept

    def _run(self) -> None:
        while (due := self._next_due()) is not None:
            try:
                due()
            except Exception:  # an alarm that fails must not end all others
                log.exception("a deadline's action failed")

    def _next_due(self) -> Callable[[], None] | None:
        """Wait for the next alarm that is due and return its action; None when closed."""
        with self._changed:
            while not self._closed:
                wait = self._heap[0][0] - self._monotonic() if self._heap else None
                if wait is not None and wait <= 0:
                    action = self._pop()
                    if action is not None:
                        return action
                    continue
                self._changed.wait(wait)
            return None

    def _pop(self) -> Callable[[], None] | None:
        when, _, alarm = heapq.heappop(self._heap)
        if alarm.queued != when:
            return None
        alarm.queued = _NEVER
        if alarm.when > when:
            if alarm.when < _NEVER:
                self._push(alarm)
            return None
        action, alarm.action, alarm.when = alarm.action, None, _NEVER
        self._armed -= 1
        return action
