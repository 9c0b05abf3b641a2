"""A log in a list whose answers, reads and failures a test controls; it keeps `EventLog`'s promises otherwise."""

import threading
from collections.abc import Callable, Iterator

from eventstore.catalogue import seq_of
from eventstore.errors import LogError, StoreError, VersionConflict
from eventstore.log import Answer, Append, Committed, Envelope, Failed


class ListLog:
    """Answers at once, on the caller's thread, unless held back.

    `hold()`: answers wait until `release()`.  `fail_with(error, after=False)`: the next append fails, before or after it
    is written.  `refuse_with(error)`: the next `append` raises.  `break_reads(error)`: reads raise until None is given.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.envelopes: list[Envelope] = []
        self.requests: list[Append] = []
        self._versions: dict[str, list[Envelope]] = {}
        self._held: list[Callable[[], None]] | None = None
        self._failures: list[tuple[LogError, bool]] = []
        self._refusals: list[LogError] = []
        self._unreadable: LogError | None = None
        self.closed = False
        self.reads = 0

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        with self._lock:
            if self.closed:
                raise StoreError("closed")
            if self._refusals:
                raise self._refusals.pop(0)
            self.requests.append(request)
            given = self._decide(request)
            if self._held is not None:
                self._held.append(lambda: answer(given))
                return
        answer(given)

    def _decide(self, request: Append) -> Answer:
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None and not failure[1]:
            return Failed(failure[0])
        answer = self._write(request)
        return Failed(failure[0]) if failure is not None else answer

    def _write(self, request: Append) -> Answer:
        reached: dict[str, int] = {}
        for part in request.parts:
            actual = reached.get(part.stream, len(self._versions.get(part.stream, ())))
            if actual != part.expected:
                return Failed(VersionConflict(part.stream, part.expected, actual))
            reached[part.stream] = actual + len(part.events)
        written = []
        for part in request.parts:
            stream = self._versions.setdefault(part.stream, [])
            for event in part.events:
                envelope = Envelope(
                    position=len(self.envelopes) + 1,
                    stream=part.stream,
                    version=len(stream) + 1,
                    seq=seq_of(event),
                    at=request.at,
                    actor=request.actor,
                    event=event,
                    causation=request.causation,
                    correlation=request.correlation,
                )
                self.envelopes.append(envelope)
                stream.append(envelope)
                written.append(envelope)
        return Committed(tuple(written))

    def erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        raise NotImplementedError

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        with self._lock:
            self.reads += 1
            if self._unreadable is not None:
                raise self._unreadable
            found = list(self._versions.get(stream, ()))[after:]
        yield from found

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        found = [b for request in self.requests for b in request.batches if (b.run_id, b.call) == (run_id, call)]
        return iter([batch.raw for batch in found])

    def blob(self, name: str) -> bytes | None:
        found = [blob.data for request in self.requests for blob in request.blobs if blob.name == name]
        return found[0] if found else None

    def subscribe(self, listener: Callable[[tuple[Envelope, ...]], None]) -> Callable[[], None]:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True

    # --- what tests control ------------------------------------------------------------

    def hold(self) -> None:
        with self._lock:
            self._held = []

    def release(self) -> None:
        with self._lock:
            held, self._held = self._held or [], None
        for give in held:
            give()

    def fail_with(self, *errors: LogError, after: bool = False) -> None:
        with self._lock:
            self._failures.extend((error, after) for error in errors)

    def refuse_with(self, *errors: LogError) -> None:
        with self._lock:
            self._refusals.extend(errors)

    def break_reads(self, error: LogError | None) -> None:
        with self._lock:
            self._unreadable = error
