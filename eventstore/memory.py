"""The log in memory: for tests, and the model that the SQLite log is compared with.

It encodes like the real one, so that a test sees what a disk would give back, and answers from a writer's thread as well.
There is no hash chain: nobody can change it behind our back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import RLock

from eventstore.catalogue import MessageReceived, SessionCreated
from eventstore.errors import KeyTaken, Unwritten, VersionConflict
from eventstore.intake import Intake, Prepared, restored
from eventstore.log import Answer, Append, Committed, Envelope, Failed
from eventstore.memory_queries import MemoryQueries, MemoryRows
from eventstore.projections import project
from eventstore.redaction import Redactor
from eventstore.writer import CAPACITY, Listener, Writer


@dataclass(frozen=True, slots=True)
class _Stored:
    """An envelope whose event is kept encoded."""

    bare: Envelope
    tag: str
    schema: int
    data: bytes

    def envelope(self) -> Envelope:
        return replace(self.bare, event=restored(self.tag, self.schema, self.data))


class MemoryLog:
    """Keeps `EventLog`; `queries` answers from the same events."""

    def __init__(self, *, redactor: Redactor | None = None, capacity: int = CAPACITY) -> None:
        self._intake = Intake(redactor or Redactor())
        self._gate = RLock()
        self._events: list[_Stored] = []
        self._streams: dict[str, list[_Stored]] = defaultdict(list)
        self._batches: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        self._sealed: set[tuple[str, int]] = set()
        self._blobs: dict[str, bytes] = {}
        self._rows = MemoryRows()
        self.queries = MemoryQueries(self._rows, self._gate, self._page)
        self._writer = Writer(self._record, capacity=capacity)

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        """See `EventLog.append`."""
        prepared: Prepared | Unwritten
        try:
            prepared = self._intake.prepare(request)
        except Unwritten as exc:
            prepared = exc
        self._writer.append(prepared, answer)

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        """See `EventLog.read`."""
        with self._gate:
            stored = self._streams[stream][after:] if stream in self._streams else []
        return (one.envelope() for one in stored)

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        """See `EventLog.batches`."""
        with self._gate:
            kept = sorted(self._batches[run_id, call].items()) if (run_id, call) in self._batches else []
        return (raw for _, raw in kept)

    def blob(self, name: str) -> bytes | None:
        """See `EventLog.blob`."""
        with self._gate:
            return self._blobs.get(name)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `EventLog.subscribe`."""
        return self._writer.subscribe(listener)

    def rebuild(self) -> None:
        """Make the projections anew from the log."""
        self._writer.do(self._rebuild)

    def close(self) -> None:
        """See `EventLog.close`."""
        self._writer.close()

    def _rebuild(self) -> None:
        with self._gate:
            self._rows.clear()
            for stored in self._events:
                project(self._rows, stored.envelope())

    def _record(self, requests: Sequence[Prepared]) -> Sequence[Answer]:
        return [self._one(prepared) for prepared in requests]

    def _one(self, prepared: Prepared) -> Answer:
        with self._gate:
            try:
                self._refuse(prepared)
            except Unwritten as exc:
                return Failed(exc)
            return Committed(self._write(prepared))

    def _refuse(self, prepared: Prepared) -> None:
        """Look for every reason not to write, so that nothing has to be undone."""
        versions = {part.stream: len(self._streams.get(part.stream, ())) for part, _ in prepared.parts}
        seqs = {stream: max((one.bare.seq or 0 for one in self._streams.get(stream, ())), default=0) for stream in versions}
        for part, ready in prepared.parts:
            if versions[part.stream] != part.expected:
                raise VersionConflict(part.stream, part.expected, versions[part.stream])
            versions[part.stream] += len(ready)
            for seq in (one.seq for one in ready if one.seq is not None):
                if seq <= seqs[part.stream]:
                    raise Unwritten(f"stream {part.stream!r} is at seq {seqs[part.stream]}; {seq} cannot follow")
                seqs[part.stream] = seq
        self._refuse_keys(prepared)
        taken: set[tuple[str, int, int]] = set()
        for batch in prepared.batches:
            place = (batch.run_id, batch.call)
            if place in self._sealed or batch.number in self._batches.get(place, ()) or (*place, batch.number) in taken:
                raise Unwritten(f"batch {batch.number} of call {batch.call} of run {batch.run_id} is on record already")
            taken.add((*place, batch.number))

    def _refuse_keys(self, prepared: Prepared) -> None:
        owners: dict[str, str] = {}
        taken: set[tuple[str, str]] = set()
        for part, ready in prepared.parts:
            kind, _, session_id = part.stream.partition("-")
            row = self._rows.session(session_id)
            for event in (one.event for one in ready) if kind == "session" else ():
                match event:
                    case SessionCreated(owner=owner) if row is None:
                        owners.setdefault(session_id, owner)
                    case MessageReceived(key=str(key)) if row is not None or session_id in owners:
                        place = (row.owner if row else owners[session_id], key)
                        if place in taken or self._rows.has_key(*place):
                            raise KeyTaken(key)
                        taken.add(place)
                    case _:
                        pass

    def _write(self, prepared: Prepared) -> tuple[Envelope, ...]:
        request = prepared.request
        envelopes: list[Envelope] = []
        for part, ready in prepared.parts:
            for version, one in enumerate(ready, part.expected + 1):
                place = (len(self._events) + 1, part.stream, version, one.seq, request.at, request.actor)
                envelope = Envelope(*place, one.event, request.causation, request.correlation)
                stored = _Stored(envelope, one.tag, one.schema, one.data)
                self._events.append(stored)
                self._streams[part.stream].append(stored)
                project(self._rows, envelope)
                envelopes.append(envelope)
        for batch in prepared.batches:
            self._batches[batch.run_id, batch.call][batch.number] = batch.raw
        sealed = ((seal.run_id, seal.call) for seal in request.seals)
        self._sealed |= {call for call in sealed if call in self._batches}
        for blob in request.blobs:
            self._blobs.setdefault(blob.name, blob.data)
        return tuple(envelopes)

    def _page(self, stream: str | None, after: int) -> Iterator[Envelope]:
        with self._gate:
            stored = self._events[after:] if stream is None else list(self._streams.get(stream, ()))
        return (one.envelope() for one in stored)
