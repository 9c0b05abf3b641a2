"""The log in one SQLite file: group commit by the writer's thread, reads by pages from any thread."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from eventstore.catalogue import SessionErased
from eventstore.chain import Fault, check
from eventstore.errors import CorruptEvent, LogError, StoreBusy, StoreError, StoreFull, Unwritten
from eventstore.intake import Intake, Prepared
from eventstore.log import REMOVALS, Answer, Append, Committed, Envelope, Failed, StreamPart
from eventstore.redaction import Redactor
from eventstore.sqlite import blobs, erasing
from eventstore.sqlite.reading import Reader
from eventstore.sqlite.recording import Recorder
from eventstore.sqlite.schema import PROJECTIONS, open_for_writing
from eventstore.sqlite.traces import PATIENCE_MS, Traces, checkpoint
from eventstore.values import references
from eventstore.writer import CAPACITY, Listener, Writer

PASSIVE_BYTES, TRUNCATE_BYTES = 4 * 1024 * 1024, 16 * 1024 * 1024
"""Sizes of the write-ahead log: above the first it is copied back, above the second it is cut to nothing as well."""
ATTEMPTS = 3
"""How often a transaction is tried when another process holds the database's lock."""

_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY})
_UNFIT = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, TypeError, ValueError, CorruptEvent)
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

Commit = Callable[[sqlite3.Connection], None]


def commit(db: sqlite3.Connection) -> None:
    """Make the open transaction durable: the one place where the log writes to the disk and waits for it."""
    db.execute("commit")


class SqliteLog:
    """Keeps `EventLog` in one file.

    `random(n)` gives n random bytes (salts, the key of the blob ids).  `commit` ends each transaction of appends, on the
    writer's thread; tests and benchmarks put their own around it.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        random: Callable[[int], bytes] = os.urandom,
        commit: Commit = commit,
        capacity: int = CAPACITY,
    ) -> None:
        """Open or make the database.

        Raises:
            StoreUnusable: it cannot be opened; the message says why and what to do.
        """
        self._path, self._commit = path, commit
        self._db, key = open_for_writing(path, random)
        name_of = blobs.keyed_by(key)
        try:
            self.reader = Reader(path)
        except BaseException:
            self._db.close()
            raise
        self._intake = Intake(redactor, name_of)
        self._recorder = Recorder(self._db, blobs.BlobStore(self._db, name_of), random)
        self._name_of = name_of
        self._data_version = 0
        self._checkpoint_above = PASSIVE_BYTES
        self._traces = Traces(self._db)
        self._traces.remove()
        self._writer = Writer(self._record, self._settle, capacity)

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        """See `EventLog.append`."""
        prepared: Prepared | Unwritten
        try:
            prepared = self._intake.prepare(request)
        except Unwritten as exc:
            prepared = exc
        self._writer.append(prepared, answer)

    def erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        """See `EventLog.erase`.  What was erased is overwritten in the files too, as `traces` says."""
        return self._writer.do(lambda: self._erase(session_id, reason, at))

    def read(self, stream: str, after: int = 0) -> Iterator[Envelope]:
        """See `EventLog.read`.  Events whose data was removed are left out."""
        return self.reader.stream(stream, after)

    def batches(self, run_id: str, call: int) -> Iterator[bytes]:
        """See `EventLog.batches`."""
        return self.reader.batches(run_id, call)

    def blob(self, name: str) -> bytes | None:
        """See `EventLog.blob`."""
        return self.reader.blob(name)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `EventLog.subscribe`."""
        return self._writer.subscribe(listener)

    def check(self) -> Fault | None:
        """Return the first fault of the hash chain or of a large value, or None; reads all of it, on the calling thread."""
        fault = check(self.reader.links(), keeps=self._keeps)
        if fault is not None and self.reader.is_removed(fault.position):  # perhaps it was erased while it was read
            fault = check(self.reader.links(), keeps=self._keeps)
        return fault

    def rebuild(self) -> None:
        """Make the projections anew from the log, in one transaction on the writer's thread; appends wait meanwhile."""
        self._writer.do(self._rebuild)

    def close(self) -> None:
        """See `EventLog.close`; the write-ahead log is copied back and removed."""
        self._writer.close()
        self.reader.close()
        self._traces.remove(last=True)
        with suppress(sqlite3.Error):  # on a full disk it stays, and the next start takes it up
            checkpoint(self._db, "truncate", 200)
        self._db.close()

    def _keeps(self, data: bytes) -> bool:
        try:
            return all(self._name_of(self.reader.content(name)) == name for name in references(data))
        except CorruptEvent:
            return False

    # --- on the writer's thread ---------------------------------------------------------

    def _record(self, requests: Sequence[Prepared]) -> Sequence[Answer]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._transaction(requests)
            except Exception as exc:  # noqa: BLE001 - see below
                # Whatever it was, the transaction is undone and every actor in it is told; the writer goes on.
                self._undo()
                error = translated(exc)
                if not isinstance(error, StoreBusy) or attempt == ATTEMPTS:
                    return [Failed(error)] * len(requests)
        raise AssertionError("unreachable")

    def _transaction(self, requests: Sequence[Prepared]) -> list[Answer]:
        self._db.execute("begin immediate")
        self._notice_others()
        answers = [self._one(prepared) for prepared in requests]
        self._recorder.flush()
        self._commit(self._db)
        self._recorder.committed()
        return answers

    def _notice_others(self) -> None:
        """Trust nothing that is remembered if another connection has written since; nobody should, but somebody may."""
        version = self._db.execute("pragma data_version").fetchone()[0]
        if version != self._data_version:
            self._recorder.forget()
        self._data_version = version

    def _one(self, prepared: Prepared) -> Answer:
        self._db.execute("savepoint one")
        try:
            envelopes = self._recorder.record(prepared)
        except Unwritten as exc:
            return self._refused(exc)
        except _UNFIT as exc:  # this append's values are at fault, so the others in the transaction must not suffer
            return self._refused(Unwritten(f"the append cannot be stored: {exc}"))
        self._db.execute("release one")
        self._recorder.accept()
        return Committed(envelopes)

    def _refused(self, why: Unwritten) -> Answer:
        self._db.execute("rollback to one")
        self._db.execute("release one")
        self._recorder.refuse()
        return Failed(why)

    def _undo(self) -> None:
        self._recorder.forget()
        if self._db.in_transaction:
            with suppress(sqlite3.Error):  # SQLite has rolled back by itself where it could not go on
                self._db.execute("rollback")

    def _erase(self, session_id: str, reason: str, at: int) -> tuple[Envelope, ...]:
        try:
            self._db.execute("begin immediate")
            self._recorder.forget()
            doomed = erasing.find(self._db, session_id, reason)
            erasing.remove(self._db, doomed)
            envelopes = self._recorder.record(self._told(f"session-{session_id}", doomed, at))
            self._recorder.accept()
            self._recorder.flush()
            self._traces.note()
            self._commit(self._db)
        except BaseException as exc:
            self._undo()
            raise translated(exc) if isinstance(exc, sqlite3.Error) else exc from exc
        self._recorder.committed()
        self._traces.remove(PATIENCE_MS)
        self._writer.publish(envelopes)
        return envelopes

    def _told(self, stream: str, doomed: erasing.Doomed, at: int) -> Prepared:
        """Return the append that tells of an erasure."""
        erased = SessionErased(reason=doomed.explained.reason)
        removals = self._db.execute(
            "select coalesce(max(version), 0) from events where stream = (select id from streams where name = ?)",
            (REMOVALS,),
        ).fetchone()[0]
        parts = (StreamPart(stream, doomed.version, (erased,)), StreamPart(REMOVALS, removals, (doomed.explained,)))
        return self._intake.prepare(Append(parts, at, stream))

    def _settle(self) -> None:
        """Copy the write-ahead log back when it has grown, after everybody has been answered."""
        self._traces.remove()
        with suppress(OSError, sqlite3.Error):  # a later transaction tries again; what is committed is safe where it is
            if (size := self._wal_bytes()) > self._checkpoint_above:
                # A reader that takes long must not hold up the appends.
                checkpoint(self._db, "truncate" if size > TRUNCATE_BYTES else "passive", 200)
                # Where a reader was in the way, the file is as long as before: not to be tried again at once.
                self._checkpoint_above = self._wal_bytes() + PASSIVE_BYTES

    def _wal_bytes(self) -> int:
        return os.stat(f"{self._path}-wal").st_size  # noqa: PTH116 - looked at, never opened

    def _rebuild(self) -> None:
        try:
            self._db.execute("begin immediate")
            self._recorder.forget()
            for table in PROJECTIONS:
                self._db.execute(f"delete from {table}")
            for page in self._all_events():
                for envelope in page:
                    self._recorder.project(envelope)
                    self._recorder.accept()
                self._recorder.flush()
                self._recorder.committed()  # keeps the memory of a page alone; a failure forgets it all
            self._commit(self._db)
        except BaseException as exc:
            self._undo()
            raise translated(exc) if isinstance(exc, sqlite3.Error) else exc from exc

    def _all_events(self) -> Iterator[list[Envelope]]:
        after = 0
        while page := self.reader.page("e.position > ? order by e.position", (after,)):
            yield [self.reader.envelope(row) for row in page if row[10] is not None]
            after = page[-1][0]


def translated(exc: Exception) -> LogError:
    """Return what a failure of SQLite, or of the commit, means to whoever appended."""
    if isinstance(exc, LogError):
        return exc
    code = exc.sqlite_errorcode & 0xFF if isinstance(exc, sqlite3.Error) and hasattr(exc, "sqlite_errorcode") else None
    if code in _FULL:
        return StoreFull(f"nothing was written: {exc}")
    if code in _BUSY:
        return StoreBusy(f"nothing was written: {exc}; another process holds the database")
    return StoreError(f"the append failed: {exc}")
