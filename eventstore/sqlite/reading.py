"""Read-only connections and the pages that are read through them; safe from any thread.

A connection is lent for one page and given back before anything is handed out, so no cursor stays open while somebody
works with the rows, and a slow reader never holds the write-ahead log.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue
from typing import Any

from eventstore.chain import Header, Link
from eventstore.errors import CorruptEvent, StoreError
from eventstore.intake import restored
from eventstore.log import Envelope
from eventstore.redaction import clean
from eventstore.sqlite import blobs
from eventstore.sqlite.schema import open_for_reading
from eventstore.values import inflate

_MOST = 2**63 - 1
PAGE = 256
"""Rows of a page at most."""
CONNECTIONS = 4
"""Pages that are read at the same time at most; one more waits."""

COLUMNS = (
    "e.position, s.name, e.version, e.seq, e.type, e.schema, e.at, e.actor, e.causation, e.correlation, cast(e.data as blob)"
)
_EVENTS = f"select {COLUMNS} from events e join streams s on s.id = e.stream"
_LINKS = f"select {COLUMNS}, e.salt, e.data_sha256, e.hash from events e join streams s on s.id = e.stream"

Row = tuple[int, str, int, int | None, str, int, int, str | None, str | None, str | None, bytes | None]


class Reader:
    """Lends connections to one database and turns rows into envelopes."""

    def __init__(self, path: Path) -> None:
        """Open the first connection.

        Raises:
            StoreUnusable: there is no such database, or it cannot be opened.
        """
        self._path = path
        self._slots: LifoQueue[sqlite3.Connection | None] = LifoQueue()
        for _ in range(CONNECTIONS - 1):
            self._slots.put(None)
        self._slots.put(open_for_reading(path))
        self._closed = False
        self._gate = threading.Lock()

    @contextmanager
    def lent(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one page.

        Raises:
            StoreError: the database cannot be read, or the reader is closed.
        """
        slot = self._slots.get()
        try:
            if self._closed:
                raise StoreError("the log is closed")
            if slot is None:
                slot = open_for_reading(self._path)
            yield slot
        except sqlite3.Error as exc:
            raise StoreError(f"the log cannot be read: {exc}") from exc
        finally:
            self._slots.put(slot)

    def rows(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """Return all rows of a query that is bounded by itself."""
        if (fitting := _fitting(values)) is None:
            return []
        with self.lent() as db:
            return db.execute(sql, fitting).fetchall()

    def row(self, sql: str, values: tuple[object, ...] = ()) -> tuple[object, ...] | None:
        """Return the first row, or None."""
        if (fitting := _fitting(values)) is None:
            return None
        with self.lent() as db:
            found: tuple[object, ...] | None = db.execute(sql, fitting).fetchone()
            return found

    def stream_id(self, name: str) -> int | None:
        """Return a stream's number, or None if there is no such stream."""
        row = self.row("select id from streams where name = ?", (name,))
        return None if row is None else int(str(row[0]))

    def page(self, where: str, values: tuple[object, ...], limit: int = PAGE) -> list[Row]:
        """Return at most a page of event rows; `where` is a condition and an order."""
        found: list[Any] = self.rows(f"{_EVENTS} where {where} limit ?", (*values, min(limit, PAGE)))
        return found

    def stream(self, name: str, after: int) -> Iterator[Envelope]:
        """Yield a stream's events by version, a page at a time."""
        number = self.stream_id(name)
        while number is not None:
            page = self.page("e.stream = ? and e.version > ? order by e.version", (number, after))
            yield from self.envelopes(row for row in page if row[10] is not None)
            if len(page) < PAGE:
                return
            after = page[-1][2]

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        """See `EventLog.batches`."""
        number, after = self.stream_id(f"run-{run_id}"), 0
        while number is not None:
            with self.lent() as db:
                page = blobs.load_batches(db, number, call, after, PAGE)
                # looked for second: a seal that came in between took the rows away
                sealed = None if page else blobs.load_sealed(db, number, call)
            if sealed is not None:
                yield from sealed[after:]
            if not page:
                return
            yield from (raw for _, raw in page)
            after = page[-1][0]

    def blob(self, name: str) -> bytes | None:
        """See `EventLog.blob`."""
        with self.lent() as db:
            return blobs.load_named(db, name)

    def links(self, after: int = 0) -> Iterator[Link]:
        """Yield the chain from position `after + 1`, a page at a time."""
        while True:
            with self.lent() as db:
                page = db.execute(f"{_LINKS} where e.position > ? order by e.position limit ?", (after, PAGE)).fetchall()
            for row in page:
                yield _link(row)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def envelopes(self, rows: Iterable[Row]) -> Iterator[Envelope]:
        """Yield the envelopes of rows that had their data; what was erased since they were read is left out.

        Raises:
            CorruptEvent: a row is not an event of this program.
        """
        for row in rows:
            try:
                yield self.envelope(row)
            except CorruptEvent:
                if not self.is_removed(row[0]):
                    raise

    def is_removed(self, position: int) -> bool:
        """Tell whether an event has lost its data."""
        return self.row("select data is null from events where position = ?", (position,)) == (1,)

    def envelope(self, row: Row) -> Envelope:
        """Return the envelope of a row that has its data, large values put back."""
        return envelope_of(row, self.content)

    def content(self, name: str) -> bytes:
        """Return the content of a large value.

        Raises:
            CorruptEvent: it is missing or damaged.
        """
        with self.lent() as db:
            return blobs.load_content(db, name)

    def close(self) -> None:
        """Close the connections, each when it is given back."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
        lent = [self._slots.get() for _ in range(CONNECTIONS)]
        for slot in lent:
            if slot is not None:
                slot.close()
            self._slots.put(None)


def envelope_of(row: Row, content: Callable[[str], bytes]) -> Envelope:
    """Return the envelope of a row that has its data; `content` gives the large values by id.

    Raises:
        CorruptEvent: the row is not an event of this program.
    """
    position, stream, version, seq, tag, schema, at, actor, causation, correlation, data = row
    try:
        whole = inflate(data or b"{}", content)
    except ValueError as exc:  # no JSON, or a large value that is no text
        raise CorruptEvent(f"position {position}: {exc}") from exc
    event = restored(tag, schema, whole)
    return Envelope(position, stream, version, seq, at, actor or stream, event, causation, correlation)


def _fitting(values: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return the values as SQLite takes them, or None if one is a text that no row can hold.

    Ids and cursors come from outside: a cursor may lie beyond every integer, an id may hold half a character.
    """
    if any(isinstance(value, str) and not value.isascii() and clean(value) != value for value in values):
        return None
    return tuple(max(-_MOST, min(_MOST, value)) if isinstance(value, int) else value for value in values)


def _link(row: tuple[object, ...]) -> Link:
    *head, data, salt, data_sha256, link = row
    head[7] = head[7] or head[1]
    return Link(Header(*head), data, salt, data_sha256, link)  # type: ignore[arg-type]
