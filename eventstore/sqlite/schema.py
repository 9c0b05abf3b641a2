"""The tables, how they came to be, and how a connection to them is opened.

The log is the table `events`; everything else is either what its rows point to (streams, blobs, batches) or can be rebuilt
from it (sessions, runs, messages, attempts, keys, counters).  Every step of the schema has a checksum: a step that was
edited after it was applied, or one that this program does not know, is refused instead of guessed at.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import sqlite_utils
from sqlite_utils.migrations import Migrations

from eventstore.errors import StoreUnusable, TooNew

KEY_BYTES = 32
BUSY_MS = 5000
"""How long SQLite waits for another process's lock before it gives up."""

_FIRST = """
create table meta (name text primary key, value blob not null) strict, without rowid;
create table streams (id integer primary key, name text not null unique) strict;
create table events (
    position    integer primary key,
    stream      integer not null references streams (id),
    version     integer not null,
    seq         integer,
    type        text    not null,
    schema      integer not null,
    at          integer not null,
    actor       text,
    causation   text,
    correlation text,
    data        text,
    salt        blob,
    data_sha256 blob    not null,
    hash        blob    not null
) strict;
create unique index events_by_stream on events (stream, version, seq);
create table blobs (
    id   integer primary key,
    key  blob    not null unique,
    size integer not null,
    refs integer not null,
    data blob    not null
) strict;
create table named_blobs (name text primary key, blob integer not null references blobs (id)) strict, without rowid;
create table batches (
    run integer not null, call integer not null, number integer not null, raw blob not null,
    primary key (run, call, number)
) strict, without rowid;
create table seals (
    run integer not null, call integer not null, blob integer not null references blobs (id), sizes text not null,
    primary key (run, call)
) strict, without rowid;
create table sessions (
    id integer primary key references streams (id),
    owner text not null, platform text not null, origin text, profile text not null, title text, busy text not null,
    ephemeral integer not null, parent text, metadata text, created_at integer not null, updated_at integer not null,
    model text, provider text, active_run text, run_count integer not null, usage text, messages integer not null
) strict;
create index sessions_by_owner on sessions (owner);
create table runs (
    id integer primary key references streams (id),
    session integer not null references streams (id),
    owner text not null, parent text, model text, provider text, profile text not null, platform text not null,
    metadata text, created_at integer not null, admitted integer not null, inputs integer not null,
    status text not null, approvals integer not null, started_at integer, finished_at integer, usage text,
    finish_reason text, cancel_reason text, ended integer
) strict;
create index runs_by_owner on runs (owner);
create index runs_by_session on runs (session);
create index runs_unfinished on runs (status) where status in ('queued', 'running', 'waiting');
create table messages (
    session integer not null, ordinal integer not null, position integer not null, source integer not null,
    item integer not null, run integer,
    primary key (session, ordinal)
) strict, without rowid;
create table attempts (
    position integer primary key, run integer not null, owner text not null, at integer not null,
    attempt integer not null, provider text, model text, input_tokens integer not null, output_tokens integer not null,
    cached_tokens integer not null, cache_write_tokens integer not null, reasoning_tokens integer not null,
    cost_micros integer
) strict;
create table keys (
    owner text not null, key text not null, fingerprint text not null, run integer not null, session integer not null,
    primary key (owner, key)
) strict, without rowid;
create table counters (name text primary key, value integer not null) strict, without rowid;
create view log as
    select e.position, s.name as stream, e.version, e.seq, e.type, e.schema,
           strftime('%Y-%m-%dT%H:%M:%S', e.at / 1000000, 'unixepoch') || printf('.%06dZ', e.at % 1000000) as at,
           coalesce(e.actor, s.name) as actor, e.causation, e.correlation, e.data
    from events e join streams s on s.id = e.stream;
"""

STEPS: tuple[tuple[str, str], ...] = (("0001_first", _FIRST),)
"""Name and statements of each step, in order; a step that was released never changes."""

PROJECTIONS = ("sessions", "runs", "messages", "attempts", "keys", "counters")
"""The tables that can be rebuilt from the log."""


def open_for_writing(path: Path, random: Callable[[int], bytes]) -> tuple[sqlite3.Connection, bytes]:
    """Open the one write connection, making or upgrading the database; any thread may use it, one at a time.

    Returns the connection and the key of the blobs' ids, which is made from `random` bytes with the database.

    Raises:
        TooNew: a newer version of deedbox wrote it.
        StoreUnusable: it cannot be opened, is damaged, or its schema was tampered with.
    """
    with _as_unusable(path):
        db = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
        try:
            db.execute("select 1 from sqlite_master").fetchone()  # makes the file, before its companions copy its mode
            os.chmod(path, 0o600)  # noqa: PTH101 - as in the module's other calls, the file is never opened here
            _refuse_newer(db, path)
            # Pages that are given free must not keep what was on them: it may have to be erased later.
            settings = ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 0", "secure_delete = on")
            for setting in (*settings, "cache_size = -16000"):
                db.execute(f"pragma {setting}")
            migrate(db)
            return db, _blob_key(db, random)
        except BaseException:
            db.close()
            raise


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a read-only connection; any thread may use it, one at a time.

    Raises:
        StoreUnusable: there is no such database, or it cannot be opened.
    """
    with _as_unusable(path):
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _refuse_newer(db, path)
            db.execute("pragma cache_size = -4000")
        except BaseException:
            db.close()
            raise
    return db


def migrate(db: sqlite3.Connection, steps: tuple[tuple[str, str], ...] = STEPS) -> None:
    """Apply the steps that are missing, each in a transaction with its record and checksum.

    Raises:
        TooNew: a step was applied that this program does not know.
        StoreUnusable: an applied step has been edited since.
    """
    database = sqlite_utils.Database(db)
    migrations = Migrations("deedbox")
    for name, script in steps:
        migrations(name=name)(_Step(name, script))
    checksums = database.table("migration_checksums")
    if not checksums.exists():
        checksums.create({"name": str, "sha256": str}, pk="name")
    known = {name: _checksum(script) for name, script in steps}
    for name, checksum in db.execute("select name, sha256 from migration_checksums").fetchall():
        if name not in known:
            raise TooNew(f"the database has the schema step {name}, which this version does not know; upgrade deedbox")
        if checksum != known[name]:
            raise StoreUnusable(f"the schema step {name} was changed after it was applied; reinstall deedbox")
    migrations.apply(database)
    if _version(db) != len(steps):  # only then, for a server must start, and serve what is there, on a full disk too
        db.execute(f"pragma user_version = {len(steps)}")


def _blob_key(db: sqlite3.Connection, random: Callable[[int], bytes]) -> bytes:
    row = db.execute("select value from meta where name = 'blob_key'").fetchone()
    if row is None:
        row = (random(KEY_BYTES),)
        db.execute("insert into meta values ('blob_key', ?)", row)
    return bytes(row[0])


class _Step:
    def __init__(self, name: str, script: str) -> None:
        self.__name__ = name
        self._script = script

    def __call__(self, db: sqlite_utils.Database, /) -> None:
        for statement in filter(str.strip, self._script.split(";\n")):
            db.execute(statement)
        db.execute("insert into migration_checksums values (?, ?)", [self.__name__, _checksum(self._script)])


def _checksum(script: str) -> str:
    return sha256(script.encode()).hexdigest()


def _refuse_newer(db: sqlite3.Connection, path: Path) -> None:
    if (version := _version(db)) > len(STEPS):
        raise TooNew(f"{path} has schema {version}, this version knows {len(STEPS)}; upgrade deedbox")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("pragma user_version").fetchone()[0])


@contextlib.contextmanager
def _as_unusable(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as exc:
        raise StoreUnusable(
            f"cannot open {path}: {exc}; check that the directory exists, can be written and has space left"
        ) from exc
    except sqlite3.DatabaseError as exc:
        raise StoreUnusable(f"{path} is damaged or no database ({exc}); restore a backup or move it away") from exc
    except OSError as exc:
        raise StoreUnusable(f"cannot open {path}: {exc.strerror}") from exc
