"""Takes what a session and its runs said out of the tables; the rows of its events stay, for the chain goes over them.

Runs on the writer's thread, in a transaction of its own that `log.py` opens, with nothing remembered of earlier ones.
"""

import sqlite3
from collections import Counter
from dataclasses import dataclass

from eventstore.catalogue import Erased, Spent, Usage
from eventstore.errors import SessionBusy, SessionMissing
from eventstore.redaction import clean
from eventstore.values import references

_STREAMS = "select :session union all select id from runs where session = :session"
_RUNS = "select id from runs where session = :session"
_DATA = f"from events where stream in ({_STREAMS}) and data is not null"
_SPENT = f"""select position, at, provider, model,
    input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, cost_micros
    from attempts where position in (select position {_DATA}) order by position"""
_BUSY = f"""select 1 where exists (select 1 from sessions where id = :session and active_run is not null)
    or exists (select 1 from runs where id in ({_RUNS}) and status in ('queued', 'running', 'waiting'))"""
_COUNTS = "select 'runs.' || status, count(*) from runs where session = :session group by status"
_REMOVALS = (
    f"delete from attempts where position in (select position {_DATA})",
    f"delete from batches where run in ({_RUNS})",
    f"delete from seals where run in ({_RUNS})",
    "delete from messages where session = :session",
    "delete from keys where owner = :owner and session = :session",
    f"update events set data = null, salt = null where stream in ({_STREAMS}) and data is not null",
    "delete from runs where session = :session",
    "delete from sessions where id = :session",
)


@dataclass(frozen=True, slots=True)
class Doomed:
    """A session that can be erased: its number, the version of its stream, and what the log will say of it."""

    number: int
    version: int
    owner: str
    explained: Erased


def find(db: sqlite3.Connection, session_id: str, reason: str) -> Doomed:
    """Return a session that can be erased.

    Raises:
        SessionMissing: there is no such session.
        SessionBusy: a run of it has not ended, or the session has not heard of its end.
    """
    row = db.execute(
        """select id, owner, (select max(version) from events where stream = id)
        from sessions where id = (select id from streams where name = ?)""",
        (f"session-{clean(session_id)}",),
    ).fetchone()
    if row is None:
        raise SessionMissing("there is no such session")
    session, owner, version = row
    scope = {"session": session}
    if db.execute(_BUSY, scope).fetchone() is not None:
        raise SessionBusy("a run of the session has not ended")
    positions = tuple(position for (position,) in db.execute(f"select position {_DATA} order by position", scope))
    spent = tuple(_spent(*row) for row in db.execute(_SPENT, scope))
    return Doomed(session, version, owner, Erased(positions=positions, reason=reason, owner=owner, spent=spent))


def remove(db: sqlite3.Connection, doomed: Doomed) -> None:
    """Remove the data of a session's events, and everything that was made from it."""
    scope = {"session": doomed.number, "owner": doomed.owner}
    blobs = _blobs(db, scope)
    for name, count in [("sessions", 1), *db.execute(_COUNTS, scope).fetchall()]:
        db.execute("update counters set value = value - ? where name = ?", (count, name))
    for statement in _REMOVALS:
        db.execute(statement, scope)
    for blob, count in blobs.items():
        db.execute("update blobs set refs = refs - ? where id = ?", (count, blob))
        db.execute("delete from blobs where id = ? and refs <= 0", (blob,))


def _blobs(db: sqlite3.Connection, scope: dict[str, object]) -> Counter[int]:
    """Return the blobs that the session refers to, and how often."""
    found = Counter(blob for (blob,) in db.execute(f"select blob from seals where run in ({_RUNS})", scope))
    for (data,) in db.execute(f"select cast(data as blob) {_DATA} and instr(data, '$blob')", scope).fetchall():
        for name in references(data):
            row = db.execute("select id from blobs where key = ?", (bytes.fromhex(name),)).fetchone()
            found.update(row or ())
    return found


def _spent(position: int, at: int, provider: str | None, model: str | None, *used: int | None) -> Spent:
    names = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost_micros")
    usage = Usage(**dict(zip(names, used, strict=True)))  # type: ignore[arg-type]
    return Spent(position=position, at=at, provider=provider, model=model, usage=usage)
