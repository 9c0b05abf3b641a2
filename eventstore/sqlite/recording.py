"""One append as rows: versions checked, events numbered, chained and written, projections fed.

All of it happens inside the transaction and the savepoint that `log.py` opens.  What is cached here is true as long as
nobody else writes; after a failed transaction `forget` makes it read everything again.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from eventstore.chain import GENESIS, Header, digest, following
from eventstore.errors import Unwritten, VersionConflict
from eventstore.intake import Prepared, Ready
from eventstore.layers import Layers
from eventstore.log import Append, Envelope, StreamPart
from eventstore.projections import project
from eventstore.sqlite.blobs import BlobStore
from eventstore.sqlite.rows import SqlRows

SALT_BYTES = 16
_INSERT = "insert into events values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_HEAD = """select id, (select max(version) from events where stream = id),
    (select seq from events where stream = id and seq is not null order by version desc limit 1)
    from streams where name = ?"""


@dataclass(frozen=True, slots=True)
class _Head:
    """Where a stream stands; `seq` 0: it has no canonical event yet."""

    id: int
    version: int
    seq: int


@dataclass(frozen=True, slots=True)
class _Tip:
    """Where the log stands."""

    position: int
    hash: bytes


class Recorder:
    """Writes prepared appends; used by the writer's thread alone."""

    def __init__(self, db: sqlite3.Connection, blobs: BlobStore, random: Callable[[int], bytes]) -> None:
        self._db, self._blobs, self._random = db, blobs, random
        self._heads: Layers[_Head] = Layers(self._load_head)
        self._rows = SqlRows(db, self.stream_id)
        self._tip: _Tip | None = None
        self._before: _Tip | None = None

    def record(self, prepared: Prepared) -> tuple[Envelope, ...]:
        """Write one append and return its envelopes; `accept` or `refuse` must follow.

        Raises:
            Unwritten: a stream is elsewhere, a key or a batch is taken; the savepoint must be rolled back.
            sqlite3.Error: the transaction must be rolled back.
        """
        self._before = self._tip
        request = prepared.request
        envelopes = [one for part, ready in prepared.parts for one in self._part(request, part, ready)]
        for batch in prepared.batches:
            self._blobs.batch(self.stream_id(f"run-{batch.run_id}"), batch)
        for seal in request.seals:
            self._blobs.seal(self.stream_id(f"run-{seal.run_id}"), seal)
        for blob in request.blobs:
            self._blobs.name(blob)
        return tuple(envelopes)

    def accept(self) -> None:
        """The append stands."""
        self._heads.accept()
        self._rows.accept()

    def refuse(self) -> None:
        """The append's savepoint was rolled back."""
        self._heads.refuse()
        self._rows.refuse()
        self._tip = self._before

    def flush(self) -> None:
        """Write what waits for the transaction's end."""
        self._rows.flush()

    def committed(self) -> None:
        """The transaction is durable."""
        self._heads.committed()
        self._rows.committed()

    def forget(self) -> None:
        """The transaction was rolled back, or its fate is not known."""
        self._heads.forget()
        self._rows.forget()
        self._tip = None

    def project(self, envelope: Envelope) -> None:
        """Feed an event that is on record to the projections, to rebuild them."""
        project(self._rows, envelope)

    def stream_id(self, name: str) -> int:
        """Return a stream's number, making one if there is none."""
        head = self._heads.get(name)
        if head is None:
            number = self._db.execute("insert into streams (name) values (?) returning id", (name,)).fetchall()[0][0]
            head = _Head(number, 0, 0)
            self._heads.put(name, head)
        return head.id

    def _part(self, request: Append, part: StreamPart, ready: tuple[Ready, ...]) -> list[Envelope]:
        head = self._heads.get(part.stream)
        version, seq = (head.version, head.seq) if head else (0, 0)
        if version != part.expected:
            raise VersionConflict(part.stream, part.expected, version)
        number = self.stream_id(part.stream)
        rows: list[tuple[object, ...]] = []
        envelopes: list[Envelope] = []
        for one in ready:
            version += 1
            if one.seq is not None:
                seq = _next_seq(part.stream, seq, one.seq)
            envelope, row = self._event(request, part.stream, version, one)
            envelopes.append(envelope)
            rows.append((envelope.position, number, *row))
            for big in one.big:
                self._blobs.refer(big)
        self._db.executemany(_INSERT, rows)
        self._heads.put(part.stream, _Head(number, version, seq))
        for envelope in envelopes:
            project(self._rows, envelope)
        return envelopes

    def _event(self, request: Append, stream: str, version: int, one: Ready) -> tuple[Envelope, tuple[object, ...]]:
        tip = self._tip or self._load_tip()
        position = tip.position + 1
        whence = (request.causation, request.correlation)
        header = Header(position, stream, version, one.seq, one.tag, one.schema, request.at, request.actor, *whence)
        salt = self._random(SALT_BYTES)
        data_sha256 = digest(salt, one.data)
        self._tip = _Tip(position, following(tip.hash, header, data_sha256))
        envelope = Envelope(position, stream, version, one.seq, request.at, request.actor, one.event, *whence)
        actor = None if request.actor == stream else request.actor
        place = (version, one.seq, one.tag, one.schema, request.at, actor, *whence)
        return envelope, (*place, one.data.decode(), salt, data_sha256, self._tip.hash)

    def _load_head(self, name: str) -> _Head | None:
        row = self._db.execute(_HEAD, (name,)).fetchone()
        return None if row is None else _Head(row[0], row[1] or 0, row[2] or 0)

    def _load_tip(self) -> _Tip:
        row = self._db.execute("select position, hash from events order by position desc limit 1").fetchone()
        return _Tip(0, GENESIS) if row is None else _Tip(*row)


def _next_seq(stream: str, last: int, seq: int) -> int:
    if seq <= last:
        raise Unwritten(f"stream {stream!r} is at seq {last}; {seq} cannot follow")
    return seq
