"""Bytes that are kept once: large values, named bundles, the raw streams of providers.

Ids are keyed hashes, so that what was removed cannot be guessed from them.  References are counted in the transaction of
the append that makes them.  Used by the writer's thread, with the write connection; the `load_…` functions by readers.
"""

import json
import re
import sqlite3
import zlib
from collections.abc import Callable
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec

from eventstore.errors import CorruptEvent, Unwritten
from eventstore.log import Batch, NamedBlob, Seal
from eventstore.values import Big

_NAME = re.compile("(?:[0-9a-f]{2})+")
_RAW = b"r"
"""First byte of what is hashed of raw bytes; `values` has its own for texts and JSON."""


def keyed_by(secret: bytes) -> Callable[[bytes], str]:
    """Return the function that names content: 20 bytes of keyed BLAKE2b, in hex."""

    def name(content: bytes) -> str:
        return blake2b(content, key=secret, digest_size=20).hexdigest()

    return name


class BlobStore:
    """Writes blobs; every method belongs to the transaction that is open."""

    def __init__(self, db: sqlite3.Connection, name_of: Callable[[bytes], str]) -> None:
        self._db, self._name_of = db, name_of

    def refer(self, big: Big) -> None:
        """Keep a large value, or count one more reference to it."""
        self._keep(big.id, big.content)

    def name(self, blob: NamedBlob) -> None:
        """Keep bytes under a name; a name that exists keeps its bytes."""
        if self._db.execute("select 1 from named_blobs where name = ?", (blob.name,)).fetchone() is None:
            self._db.execute("insert into named_blobs values (?, ?)", (blob.name, self._keep_raw(blob.data)))

    def batch(self, run: int, batch: Batch) -> None:
        """Keep one read of a stream.

        Raises:
            Unwritten: there is such a batch, or the stream is sealed.
        """
        sealed = "select 1 from seals where run = ? and call = ?"
        taken = "select 1 from batches where run = ? and call = ? and number = ?"
        if (
            self._db.execute(sealed, (run, batch.call)).fetchone() is not None
            or self._db.execute(taken, (run, batch.call, batch.number)).fetchone() is not None
        ):
            raise Unwritten(f"batch {batch.number} of call {batch.call} of run {batch.run_id} is on record already")
        self._db.execute("insert into batches values (?, ?, ?, ?)", (run, batch.call, batch.number, batch.raw))

    def seal(self, run: int, seal: Seal) -> None:
        """Make one blob of a call's batches; a repeat, or a call without batches, changes nothing."""
        rows = self._db.execute("select raw from batches where run = ? and call = ? order by number", (run, seal.call))
        batches = [raw for (raw,) in rows.fetchall()]
        if batches:
            sizes = json.dumps(list(map(len, batches)), separators=(",", ":"))
            blob = self._keep_raw(b"".join(batches))
            self._db.execute("insert into seals values (?, ?, ?, ?)", (run, seal.call, blob, sizes))
            self._db.execute("delete from batches where run = ? and call = ?", (run, seal.call))

    def _keep_raw(self, raw: bytes) -> int:
        content = _RAW + raw
        return self._keep(self._name_of(content), content)

    def _keep(self, name: str, content: bytes) -> int:
        key = bytes.fromhex(name)
        row = self._db.execute("update blobs set refs = refs + 1 where key = ? returning id", (key,)).fetchall()
        if not row:
            new = (key, len(content) - 1, zlib.compress(content, 6))
            row = self._db.execute(
                "insert into blobs (key, size, refs, data) values (?, ?, 1, ?) returning id", new
            ).fetchall()
        return int(row[0][0])


def load_content(db: sqlite3.Connection, name: str) -> bytes:
    """Return the content of a large value.

    Raises:
        CorruptEvent: an event refers to it and it is not there.
    """
    key = bytes.fromhex(name) if _NAME.fullmatch(name) else b""
    row = db.execute("select data from blobs where key = ?", (key,)).fetchone()
    if row is None:
        raise CorruptEvent(f"the blob {name} is missing")
    return _unpacked(row[0])


def load_named(db: sqlite3.Connection, name: str) -> bytes | None:
    """Return the bytes under a name, or None.

    Raises:
        CorruptEvent: they are damaged.
    """
    joined = "select b.data from named_blobs n join blobs b on b.id = n.blob where n.name = ?"
    row = db.execute(joined, (name,)).fetchone()
    return _unpacked(row[0])[1:] if row else None


def load_sealed(db: sqlite3.Connection, run: int, call: int) -> list[bytes] | None:
    """Return all batches of a sealed call, cut as they were written, or None if it is not sealed.

    Raises:
        CorruptEvent: they are damaged.
    """
    joined = "select b.data, s.sizes from seals s join blobs b on b.id = s.blob where s.run = ? and s.call = ?"
    row = db.execute(joined, (run, call)).fetchone()
    if row is None:
        return None
    raw, sizes = memoryview(_unpacked(row[0]))[1:], _sizes(row[1])
    if sum(sizes) != len(raw):
        raise CorruptEvent(f"the stream of call {call} has {len(raw)} bytes, and its batches {sum(sizes)}")
    ends = list(accumulate(sizes, initial=0))
    return [bytes(raw[begin:end]) for begin, end in pairwise(ends)]


def _unpacked(packed: bytes) -> bytes:
    try:
        return zlib.decompress(packed)
    except zlib.error as exc:
        raise CorruptEvent(f"a blob is damaged: {exc}") from exc


def _sizes(text: str) -> list[int]:
    try:
        return msgspec.json.decode(text, type=list[Annotated[int, msgspec.Meta(ge=0)]])
    except msgspec.DecodeError as exc:
        raise CorruptEvent(f"the sizes of a stream's batches are damaged: {exc}") from exc


def load_batches(db: sqlite3.Connection, run: int, call: int, after: int, limit: int) -> list[tuple[int, bytes]]:
    """Return a page of number and bytes of batches that are not sealed yet."""
    sql = "select number, raw from batches where run = ? and call = ? and number > ? order by number limit ?"
    return db.execute(sql, (run, call, after, limit)).fetchall()
