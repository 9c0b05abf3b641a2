"""One client's view of one run as a stream of server-sent events: a cursor, a renderer, and when it is over.

No sockets here: a transport asks for pages and hands in events; a stream says what bytes go out.  One thread at a time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from eventstore.catalogue import tag_of
from eventstore.log import Envelope
from gateways.http import views
from gateways.http.answers import dump
from gateways.http.errors import Answer

Ending = Literal["finished", "disconnected", "stalled", "shutdown"]
RETRY_MS = 1000


class Renderer(Protocol):
    """Turns a run's canonical events, in order, into frames; may keep state between them."""

    @property
    def patient(self) -> bool:
        """Whether the response head may wait for the first frame, so that an early failure can be an HTTP error."""

    def begin(self, cursor: int) -> bytes:
        """Return what follows the response head."""

    def render(self, envelope: Envelope) -> bytes:
        """Return the event's frames, none if it is not shown."""

    def refusal(self, envelope: Envelope) -> Answer | None:
        """Return a plain HTTP answer if this event ends a stream that has shown nothing; only asked before the head."""

    @property
    def over(self) -> bool:
        """Whether the renderer wants no more events."""

    def farewell(self) -> bytes:
        """Return what a client reads when the server goes down."""


@dataclass(slots=True)
class EventStream:
    """A stream's state; `cursor` is the seq of the last event that was taken in, shown or not.

    `headers`: further response headers.  `on_closed(ending, others)`: called once when the connection is gone, on a thread
    that may block; `others` are the streams of the same run that stay.
    """

    run_id: str
    cursor: int
    renderer: Renderer
    headers: tuple[tuple[str, str], ...] = ()
    on_closed: Callable[[Ending, int], None] | None = None
    opened: bool = False
    over: bool = False
    answer: Answer | None = field(default=None)

    def begin(self) -> bytes:
        """Return the first bytes of the body; none while a patient renderer waits for its first frame."""
        return b"" if self.renderer.patient else self._open()

    def feed(self, envelope: Envelope) -> bytes:
        """Take in one event and return its bytes; one that came before is not shown again, but may still be the end."""
        if self.over:
            return b""
        frames = b""
        if envelope.seq is not None and envelope.seq > self.cursor:
            self.cursor = envelope.seq
            frames = self._frames(envelope)
        if self.renderer.over or views.is_end(envelope):
            self.over = True
        return frames

    def feed_page(self, envelopes: Iterable[Envelope], limit: int) -> bytes:
        """Take in events until the bytes reach `limit`; the cursor tells how far it came."""
        out = bytearray()
        for envelope in envelopes:
            out += self.feed(envelope)
            if self.over or len(out) >= limit:
                break
        return bytes(out)

    def idle(self) -> bytes:
        """Return a comment that keeps the connection alive, and opens a stream that waited long enough."""
        return (b"" if self.opened else self._open()) + b": ping\n\n"

    def farewell(self) -> bytes:
        """Return the last words on shutdown."""
        return (b"" if self.opened else self._open()) + self.renderer.farewell()

    def _frames(self, envelope: Envelope) -> bytes:
        if not self.opened:
            self.answer = self.renderer.refusal(envelope)
            if self.answer is not None:
                self.over = True
                return b""
        frames = self.renderer.render(envelope)
        return self._open() + frames if frames and not self.opened else frames

    def _open(self) -> bytes:
        self.opened = True
        return self.renderer.begin(self.cursor)


class RunRenderer:
    """Shows a run's events as deedbox's API documents them; stateless, so that many streams of one run share it."""

    patient = False
    over = False

    def __init__(self, parent_run_id: str | None = None, types: frozenset[str] = frozenset()) -> None:
        """Take what each event repeats, and the types to show (none: all); the end is always shown."""
        self._parent, self._types = parent_run_id, types
        self._last: tuple[Envelope, bytes] | None = None

    def begin(self, cursor: int) -> bytes:
        """Tell how soon to reconnect, and the cursor that the client has already, should it lose the stream early."""
        return b"retry: %d\n\n: cursor %d\n\n" % (RETRY_MS, cursor)

    def render(self, envelope: Envelope) -> bytes:
        """Return the event's frame; the last one is kept, since a live event goes to many streams in turn."""
        last = self._last
        if last is None or last[0] is not envelope:
            last = self._last = (envelope, self._frame(envelope))
        return last[1]

    def refusal(self, envelope: Envelope) -> Answer | None:
        """Never refuse: the head is out before the first event."""
        return None

    def farewell(self) -> bytes:
        """Say good-bye in a comment; the client comes back with its cursor."""
        return b": bye\n\n"

    def _frame(self, envelope: Envelope) -> bytes:
        tag = tag_of(envelope.event)
        if self._types and tag not in self._types and not views.is_end(envelope):
            return b""
        body = dump(views.event(envelope, self._parent))
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (envelope.seq or 0, tag.encode(), body)
