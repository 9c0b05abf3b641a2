"""A log in front of another that dies at its n-th append, as a process does: from then on nobody gets an answer."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from eventstore.log import Answer, Append, Committed, Envelope, EventLog


class MortalLog:
    """Dies at append number `die_at`, before the write or after it; `died` tells, `count` counts what was asked."""

    def __init__(self, inner: EventLog, die_at: int, *, after_write: bool) -> None:
        self._inner, self._die_at, self._after_write = inner, die_at, after_write
        self._lock = threading.Lock()
        self._dying = False
        self.count = 0
        self.died = threading.Event()

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        with self._lock:
            if self._dying:
                return
            self.count += 1
            self._dying = self.count == self._die_at
            if not self._dying:
                self._inner.append(request, answer)
                return
        if self._after_write:
            self._inner.append(request, lambda _answer: self.died.set())
        else:
            self._inner.append(Append((), request.at, "nobody"), lambda _answer: self.died.set())

    def erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        return self._inner.erase(session_id, reason, at)

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        return self._inner.read(stream, after)

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        return self._inner.batches(run_id, call)

    def blob(self, name: str) -> bytes | None:
        return self._inner.blob(name)

    def subscribe(self, listener: Callable[[tuple[Envelope, ...]], None]) -> Callable[[], None]:
        return self._inner.subscribe(listener)

    def close(self) -> None:
        self.died.set()


class FailingLog(MortalLog):
    """Fails its n-th append, before the write or after it, with an error of a disk; goes on after that."""

    def __init__(self, inner: EventLog, fail_at: int, error: Any, *, after_write: bool) -> None:
        super().__init__(inner, fail_at, after_write=after_write)
        self._error = error

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        with self._lock:
            self.count += 1
            fails = self.count == self._die_at
        if not fails:
            self._inner.append(request, answer)
            return
        if self._after_write:
            self._inner.append(request, lambda given: self._fail(answer, written=isinstance(given, Committed)))
        else:
            self._fail(answer, written=False)

    def _fail(self, answer: Callable[[Answer], None], *, written: bool) -> None:
        from eventstore.log import Failed  # noqa: PLC0415

        self.died.set()
        answer(Failed(self._error))
