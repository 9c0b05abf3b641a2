"""Removes what an erasure leaves behind in the files: in the write-ahead log, and in the unused parts of pages.

Erased rows and pages are overwritten (`secure_delete`), but a row that was moved while its page was split or joined leaves
a copy in the unused part of the page where it was.  Only making the file anew removes those.  That takes about ten
milliseconds a megabyte, so it is done for files up to `MOST_BYTES`, once a minute at most; later is kept in mind in the
database itself.  Used by the writer's thread, between transactions.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress

from eventstore.sqlite.schema import BUSY_MS

MOST_BYTES = 64 * 1024 * 1024
AGAIN_AFTER = 60.0
"""Seconds between two times that the file is made anew."""
PATIENCE_MS = 1000
"""How long an erasure waits for readers before it leaves the write-ahead log to be cut later."""


def checkpoint(db: sqlite3.Connection, mode: str, patience_ms: int) -> bool:
    """Copy the write-ahead log back, waiting so long for readers; return whether nobody was in the way."""
    db.execute(f"pragma busy_timeout = {patience_ms}")
    try:
        return not db.execute(f"pragma wal_checkpoint({mode})").fetchall()[0][0]
    finally:
        db.execute(f"pragma busy_timeout = {BUSY_MS}")


class Traces:
    """Knows what is still to be removed; nothing here raises, what fails is tried again."""

    def __init__(self, db: sqlite3.Connection, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db, self._monotonic = db, monotonic
        self._log = True  # the write-ahead log may hold what was erased just before a crash
        self._pages = db.execute("select 1 from meta where name = 'traces'").fetchone() is not None
        self._not_before = float("-inf")

    def note(self) -> None:
        """Write down, in the transaction of an erasure, that there will be some."""
        self._db.execute("insert or replace into meta values ('traces', x'01')")
        self._log = self._pages = True

    def remove(self, patience_ms: int = 0, *, last: bool = False) -> None:
        """Remove what can be removed now; `last`: there will be no other time."""
        if self._pages and (last or self._monotonic() >= self._not_before):
            self._not_before = self._monotonic() + AGAIN_AFTER
            with suppress(sqlite3.Error):
                self._compact()
        if self._log:
            with suppress(sqlite3.Error):
                self._log = not checkpoint(self._db, "truncate", patience_ms)

    def _compact(self) -> None:
        ((size,),) = self._db.execute("select page_count * page_size from pragma_page_count, pragma_page_size").fetchall()
        if size <= MOST_BYTES:
            self._db.execute("vacuum")
            self._db.execute("delete from meta where name = 'traces'")
            self._pages, self._log = False, True
