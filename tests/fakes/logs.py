"""Logs for tests: append and wait, and a log whose disk fails when it is told to."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from eventstore import Append, Committed, Envelope, Event, EventLog, Failed, StoreError, StreamPart
from eventstore.errors import LogError
from eventstore.log import Answer
from eventstore.queries import Queries

NOON = 1_900_000_000_000_000
"""A moment, in microseconds UTC."""

SECRET = "correct horse battery staple"  # noqa: S105 - it is a test's
"""What the logs of the contract suite know as a secret."""


class Rebuildable(EventLog, Protocol):
    """A log that can make its projections anew."""

    def rebuild(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Both:
    """A log and the queries over it."""

    log: Rebuildable
    queries: Queries


def send(log: EventLog, request: Append, timeout: float = 20) -> Answer:
    """Append and wait for the answer."""
    answers: list[Answer] = []
    done = threading.Event()

    def answer(given: Answer) -> None:
        answers.append(given)
        done.set()

    log.append(request, answer)
    assert done.wait(timeout), "the log did not answer"
    return answers[0]


def commit(log: EventLog, request: Append) -> tuple[Envelope, ...]:
    """Append, wait, and return the envelopes or raise why there are none."""
    match send(log, request):
        case Committed(envelopes):
            return envelopes
        case Failed(error):
            raise error


def record(log: EventLog, stream: str, expected: int, *events: Event, at: int = NOON, **more: Any) -> tuple[Envelope, ...]:
    """Append events to one stream, wait, and return their envelopes."""
    return commit(log, Append((StreamPart(stream, expected, events),), at, more.pop("actor", stream), **more))


class FailingLog:
    """Another log whose append number `fail_at` fails: nothing written, or written and not told (`after_write`)."""

    def __init__(self, log: EventLog, fail_at: int, *, after_write: bool = False, error: LogError | None = None) -> None:
        self._log, self._fail_at, self._after_write = log, fail_at, after_write
        self._error = error or StoreError("the disk is gone")
        self.appends = 0

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        self.appends += 1
        if self.appends != self._fail_at:
            self._log.append(request, answer)
        elif self._after_write:
            self._log.append(request, lambda _: answer(Failed(self._error)))
        else:
            threading.Thread(target=answer, args=(Failed(self._error),), daemon=True).start()

    def erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        return self._log.erase(session_id, reason, at)

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        return self._log.read(stream, after)

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        return self._log.batches(run_id, call)

    def blob(self, name: str) -> bytes | None:
        return self._log.blob(name)

    def subscribe(self, listener: Callable[[tuple[Envelope, ...]], None]) -> Callable[[], None]:
        return self._log.subscribe(listener)

    def close(self) -> None:
        self._log.close()


class SickLog(FailingLog):
    """Another log that takes nothing from actors whose stream begins with `refuses`, as long as that is set."""

    def __init__(self, log: EventLog, refuses: str | None = None, error: LogError | None = None) -> None:
        super().__init__(log, 0, error=error)
        self.refuses = refuses

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        if self.refuses is None or not request.actor.startswith(self.refuses):
            self._log.append(request, answer)
        else:
            self.appends += 1
            threading.Thread(target=answer, args=(Failed(self._error),), daemon=True).start()
