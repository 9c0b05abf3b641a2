"""What an event log promises; `memory.py` and `sqlite.py` both keep it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from eventstore.catalogue import Event
from eventstore.errors import LogError

REMOVALS = "log-removals"
"""The stream in which the log tells what was removed from it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One recorded event and where it stands; `at` is UTC in microseconds since the epoch."""

    position: int
    stream: str
    version: int
    seq: int | None
    at: int
    actor: str
    event: Event
    causation: str | None = None
    correlation: str | None = None


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Events for one stream, which must be at version `expected` (0: it does not exist yet)."""

    stream: str
    expected: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Raw bytes of one read of a provider stream, cut at an event's end; `number` counts from 1 in the call."""

    run_id: str
    call: int
    number: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Seal:
    """Make one blob of all batches of a call; goes with a `stream.sealed` event."""

    run_id: str
    call: int


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """Bytes kept once under a name, such as `policy:<digest>`; a name that exists keeps its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """What an actor asks of the writer: all of it in one transaction, or none."""

    parts: tuple[StreamPart, ...]
    at: int
    actor: str
    batches: tuple[Batch, ...] = ()
    seals: tuple[Seal, ...] = ()
    blobs: tuple[NamedBlob, ...] = ()
    causation: str | None = None
    correlation: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The append is durable; one envelope for each event, parts in order."""

    envelopes: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The append is not durable (`Unwritten`), or nobody knows (`StoreError`)."""

    error: LogError


Answer = Committed | Failed


class EventLog(Protocol):
    """Append and read; nothing is changed, and nothing removed but by `erase`, which the log itself tells of."""

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        """Hand the request to the writer and return at once.

        `answer` is called exactly once, on the writer's thread, after the commit; it must not block.
        A conflict in one request fails that request alone.

        Raises:
            StoreBusy: the writer's queue is full; nothing was taken and `answer` is not called.
            StoreError: the log is closed.
        """

    def erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        """Remove what a session and its runs said, in one transaction between two others; return what tells of it.

        The events of their streams lose their data; batches, large values that nobody else refers to, and the rows of the
        projections go.  Two events are recorded: `session.erased` in the session's stream, `log.erased` in `REMOVALS`.
        Blocks until it is durable, so it is for gateways' threads only; `at` is UTC in microseconds.

        Raises:
            SessionMissing: there is no such session, or no more.
            SessionBusy: a run of it has not ended, or the session has not heard of its end.
            LogError: nothing was removed, or (`StoreError`) nobody knows.
        """

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        """Yield the stream's events in order from version `after + 1`, in pages, from any thread.

        Events whose data was removed are left out.
        """

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        """Yield the raw batches of a provider stream in order, sealed or not."""

    def blob(self, name: str) -> bytes | None:
        """Return the named blob, or None."""

    def subscribe(self, listener: Callable[[tuple[Envelope, ...]], None]) -> Callable[[], None]:
        """Call `listener` on the writer's thread with each commit's envelopes, in position order; return the way out.

        Listeners must not block and must not raise.
        """

    def close(self) -> None:
        """Finish what was taken, then close; later appends raise StoreError."""
