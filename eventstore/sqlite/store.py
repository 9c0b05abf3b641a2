"""A data directory opened for serving: the lock, the log and the queries, made together and closed in order."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eventstore.errors import StoreUnusable
from eventstore.lock import Lock
from eventstore.redaction import Redactor
from eventstore.sqlite.log import Commit, SqliteLog, commit
from eventstore.sqlite.queries import SqliteQueries

DATABASE = "deedbox.db"


@dataclass(frozen=True, slots=True)
class Store:
    """What a server holds of its data directory."""

    data_dir: Path
    log: SqliteLog
    queries: SqliteQueries
    lock: Lock

    def close(self) -> None:
        """Finish the appends that were taken, close the database, give the directory free; close this last."""
        self.log.close()
        self.lock.close()


def open_store(
    data_dir: Path,
    redactor: Redactor,
    *,
    holder: str,
    random: Callable[[int], bytes] = os.urandom,
    commit: Commit = commit,
) -> Store:
    """Open a data directory for serving; make it, for its owner's eyes only, where it does not exist.

    `holder` is what a second server is told, such as the address; `commit` ends each transaction (see `SqliteLog`).

    Raises:
        AlreadyServed: another server holds the directory.
        TooNew: a newer version of deedbox wrote the database.
        StoreUnusable: the directory or the database cannot be used; the message says why and what to do.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreUnusable(f"cannot make the data directory {data_dir}: {exc.strerror}; set server.data_dir") from exc
    lock = Lock(data_dir, holder)
    try:
        log = SqliteLog(data_dir / DATABASE, redactor=redactor, random=random, commit=commit)
    except BaseException:
        lock.close()
        raise
    return Store(data_dir, log, SqliteQueries(log.reader), lock)
