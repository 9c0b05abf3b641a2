"""The log in memory: for tests, and the model that the SQLite log is compared with.

It encodes like the real one, so that a test sees what a disk would give back, and answers from a writer's thread as well.
There is no hash chain: nobody can change it behind our back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import RLock

from eventstore.catalogue import Erased, MessageReceived, SessionCreated, SessionErased
from eventstore.errors import KeyTaken, SessionBusy, SessionMissing, Unwritten, VersionConflict
from eventstore.intake import Intake, Prepared, restored
from eventstore.log import REMOVALS, Answer, Append, Committed, Envelope, Failed, StreamPart
from eventstore.memory_queries import OPEN, MemoryQueries, MemoryRows
from eventstore.projections import project
from eventstore.redaction import Redactor
from eventstore.writer import CAPACITY, Listener, Writer


@dataclass(frozen=True, slots=True)
class _Stored:
    """An envelope whose event is kept encoded; `data` None: it was erased."""

    bare: Envelope
    tag: str
    schema: int
    data: bytes | None

    def envelope(self) -> Envelope:
        return replace(self.bare, event=restored(self.tag, self.schema, self.data or b""))


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
        self.queries = MemoryQueries(self._rows, self._gate, self._page, self._last_seq)
        self._writer = Writer(self._record, capacity=capacity)

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        """See `EventLog.append`."""
        prepared: Prepared | Unwritten
        try:
            prepared = self._intake.prepare(request)
        except Unwritten as exc:
            prepared = exc
        self._writer.append(prepared, answer)

    def erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        """See `EventLog.erase`."""
        return self._writer.do(lambda: self._erase(session_id, reason, at))

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        """See `EventLog.read`."""
        with self._gate:
            stored = self._streams[stream][after:] if stream in self._streams else []
        return (one.envelope() for one in stored if one.data is not None)

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
            for stored in filter(_is_whole, self._events):
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
        seqs = {stream: self._last_seq(stream) for stream in versions}
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

    def _erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        stream = f"session-{session_id}"
        with self._gate:
            owner, runs = self._erasable(session_id)
            streams = {stream, *(f"run-{run_id}" for run_id in runs)}
            positions = tuple(one.bare.position for one in self._events if one.bare.stream in streams and _is_whole(one))
            spent = self._rows.drop(session_id, runs)
            told = Erased(positions=positions, reason=reason, owner=owner, spent=spent)
            for position in positions:
                self._forget(position, told)
            for place in [place for place in self._batches if place[0] in runs]:
                del self._batches[place]
                self._sealed.discard(place)
            lengths = [len(self._streams.get(name, ())) for name in (stream, REMOVALS)]
            parts = (
                StreamPart(stream, lengths[0], (SessionErased(reason=reason),)),
                StreamPart(REMOVALS, lengths[1], (told,)),
            )
            envelopes = self._write(self._intake.prepare(Append(parts, at, stream)))
        self._writer.publish(envelopes)
        return envelopes

    def _erasable(self, session_id: str) -> tuple[str, frozenset[str]]:
        """Return a session's owner and its runs, if it can be erased."""
        row = self._rows.session(session_id)
        if row is None:
            raise SessionMissing("there is no such session")
        runs = [run for run in self._rows.runs.values() if run.session_id == session_id]
        if row.active_run_id is not None or any(run.status in OPEN for run in runs):
            raise SessionBusy("a run of the session has not ended")
        return row.owner, frozenset(run.run_id for run in runs)

    def _forget(self, position: int, why: Erased) -> None:
        """Keep of an event where it stood alone; `why` takes its place in the envelope, which is never shown."""
        stored = self._events[position - 1]
        gone = replace(stored, bare=replace(stored.bare, event=why), data=None)
        self._events[position - 1] = self._streams[stored.bare.stream][stored.bare.version - 1] = gone

    def _page(self, stream: str | None, after: int) -> Iterator[Envelope]:
        with self._gate:
            stored = self._events[after:] if stream is None else list(self._streams.get(stream, ()))
        return (one.envelope() for one in stored if one.data is not None)

    def _last_seq(self, stream: str) -> int:
        with self._gate:
            return max((one.bare.seq or 0 for one in self._streams.get(stream, ())), default=0)


def _is_whole(stored: _Stored) -> bool:
    return stored.data is not None
