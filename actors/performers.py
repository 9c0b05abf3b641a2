"""Bounded pools of named threads for work that blocks: replays, model requests, tools.

Performers hold no truth: kill one at any time, and the effect that asked for its work is still pending.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from actors.errors import Refused

logger = logging.getLogger(__name__)


class CancelToken:
    """Says from any thread that a piece of work is no longer wanted."""

    __slots__ = ("_callbacks", "_cancelled", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    def cancelled(self) -> bool:
        """Return whether the work is no longer wanted."""
        return self._cancelled

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` once on cancel, on the canceller's thread, or now if that has been; it must not block."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def cancel(self) -> None:
        """Say that the work is no longer wanted; a repeat changes nothing."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


Work = Callable[[CancelToken], None]
Failed = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    key: Hashable
    work: Work
    failed: Failed
    token: CancelToken = field(default_factory=CancelToken)


class Performers:
    """A pool for one kind of work: at most `threads` at once, at most `waiting` behind them, one per key at a time."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._name, self._most, self._waiting = name, threads, waiting
        self._wake = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._jobs: dict[Hashable, _Job] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def submit(self, key: Hashable, work: Work, failed: Failed) -> bool:
        """Take `work` in, from any thread, without waiting; return False if this key's work is under way already.

        `failed` gets what `work` raised, on the performer's thread.

        Raises:
            Refused: `overloaded`, too much waits, or `shutting_down`; nothing was taken.
        """
        with self._wake:
            if self._stopped:
                raise Refused("shutting_down", f"the {self._name} performers have stopped")
            if key in self._jobs:
                return False
            if len(self._jobs) >= self._most + self._waiting:
                raise Refused("overloaded", f"all {self._name} performers are busy", retry_after=1)
            job = _Job(key, work, failed)
            self._jobs[key] = job
            self._queue.append(job)
            self._staff()
            return True

    def cancel(self, key: Hashable) -> bool:
        """Cancel the token of this key's work; the work still runs and sees it.  Return whether there is such work."""
        with self._wake:
            job = self._jobs.get(key)
        if job is not None:
            job.token.cancel()
        return job is not None

    def active(self) -> int:
        """Return how many pieces of work run or wait."""
        return len(self._jobs)

    def stop(self, timeout: float) -> bool:
        """Refuse new work, cancel what runs, fail what waits; return whether all ended within `timeout` seconds."""
        with self._wake:
            self._stopped = True
            waiting, running = list(self._queue), [job for job in self._jobs.values() if job not in self._queue]
            self._queue.clear()
            self._wake.notify_all()
            threads = list(self._threads)
        for job in running:
            job.token.cancel()
        for job in waiting:
            self._fail(job, Refused("shutting_down", "the server stops"))
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _staff(self) -> None:
        """See to it that somebody takes what waits; under the lock."""
        if len(self._queue) <= self._idle:
            self._wake.notify()
        elif len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.work(job.token)
            except BaseException as error:  # noqa: BLE001 - SystemExit too: the thread is for others, `failed` gets it
                self._fail(job, error)
            finally:
                self._forget(job)

    def _next(self) -> _Job | None:
        with self._wake:
            self._idle += 1
            while not self._queue and not self._stopped:
                self._wake.wait()
            self._idle -= 1
            return self._queue.popleft() if self._queue else None

    def _forget(self, job: _Job) -> None:
        with self._wake:
            self._jobs.pop(job.key, None)

    def _fail(self, job: _Job, error: BaseException) -> None:
        try:
            job.failed(error)
        except Exception:
            # The effect stays pending; there is nobody else to tell.
            logger.exception("%s: failure of %s could not be reported", self._name, job.key)
