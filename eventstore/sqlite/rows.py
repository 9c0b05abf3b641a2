"""The projections as tables: loads a row when an event needs it, writes what a transaction changed once, at its end."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import msgspec

from eventstore.catalogue import Json, Origin, Usage
from eventstore.errors import CorruptEvent, KeyTaken
from eventstore.layers import Layers
from eventstore.projections import NOTHING, Attempt, Place, Run, Session
from eventstore.queries import KeyRow

SESSION_COLUMNS = (
    "owner, platform, origin, ephemeral, parent, metadata, created_at,"
    " profile, title, busy, updated_at, model, provider, active_run, run_count, usage, messages"
)
RUN_COLUMNS = (
    "owner, parent, profile, platform, metadata, created_at, admitted, inputs,"
    " model, provider, status, approvals, started_at, finished_at, usage, finish_reason, cancel_reason, ended"
)
_SESSION_CHANGES = SESSION_COLUMNS.split(", ")[7:]
_RUN_CHANGES = RUN_COLUMNS.split(", ")[8:]
_origin = msgspec.json.Decoder(Origin)
_usage = msgspec.json.Decoder(Usage)
_object = msgspec.json.Decoder(Json)
T = TypeVar("T")


class SqlRows:
    """Keeps `projections.Rows` in the tables; one transaction at a time, on the writer's thread.

    `stream_id` gives the number of a stream's name, making one if there is none.
    """

    def __init__(self, db: sqlite3.Connection, stream_id: Callable[[str], int]) -> None:
        self._db, self._stream_id = db, stream_id
        self._sessions: Layers[Session] = Layers(self._load_session)
        self._runs: Layers[Run] = Layers(self._load_run)
        self.accept, self.refuse = self._all("accept"), self._all("refuse")
        self.committed, self.forget = self._all("committed"), self._all("forget")

    def session(self, session_id: str) -> Session | None:
        """See `Rows.session`."""
        return self._sessions.get(session_id)

    def run(self, run_id: str) -> Run | None:
        """See `Rows.run`."""
        return self._runs.get(run_id)

    def put_session(self, row: Session) -> None:
        """See `Rows.put_session`."""
        self._sessions.put(row.session_id, row)

    def put_run(self, row: Run) -> None:
        """See `Rows.put_run`."""
        self._runs.put(row.run_id, row)

    def add_place(self, place: Place) -> None:
        """See `Rows.add_place`."""
        session = self._stream_id(f"session-{place.session_id}")
        run = None if place.run_id is None else self._stream_id(f"run-{place.run_id}")
        row = (session, place.ordinal, place.position, place.source, place.item, run)
        self._db.execute("insert into messages values (?, ?, ?, ?, ?, ?)", row)

    def add_attempt(self, attempt: Attempt) -> None:
        """See `Rows.add_attempt`."""
        used = attempt.usage
        run = 0 if attempt.run_id is None else self._stream_id(f"run-{attempt.run_id}")
        where = (attempt.position, run, attempt.owner, attempt.at, attempt.attempt)
        tokens = (used.input_tokens, used.output_tokens, used.cached_tokens, used.cache_write_tokens, used.reasoning_tokens)
        row = (*where, attempt.provider, attempt.model, *tokens, used.cost_micros)
        self._db.execute(f"insert into attempts values ({_marks(len(row))})", row)

    def add_key(self, owner: str, row: KeyRow) -> None:
        """See `Rows.add_key`."""
        if self._db.execute("select 1 from keys where owner = ? and key = ?", (owner, row.key)).fetchone() is not None:
            raise KeyTaken(row.key)
        places = (self._stream_id(f"run-{row.run_id}"), self._stream_id(f"session-{row.session_id}"))
        self._db.execute("insert into keys values (?, ?, ?, ?, ?)", (owner, row.key, row.fingerprint, *places))

    def flush(self) -> None:
        """Write what the transaction changed; belongs to it."""
        for session in self._sessions.changed().values():
            self._save_session(session)
        for run in self._runs.changed().values():
            self._save_run(run)

    def _all(self, name: str) -> Callable[[], None]:
        steps = [getattr(layers, name) for layers in (self._sessions, self._runs)]

        def do() -> None:
            for step in steps:
                step()

        return do

    def _load_session(self, session_id: str) -> Session | None:
        sql = f"select {SESSION_COLUMNS} from sessions where id = (select id from streams where name = ?)"
        row = self._db.execute(sql, (f"session-{session_id}",)).fetchone()
        return None if row is None else session_of(session_id, row)

    def _load_run(self, run_id: str) -> Run | None:
        sql = f"""select {RUN_COLUMNS}, (select name from streams where id = session)
            from runs where id = (select id from streams where name = ?)"""
        row = self._db.execute(sql, (f"run-{run_id}",)).fetchone()
        return None if row is None else run_of(run_id, row[-1], row[:-1])

    def _save_session(self, row: Session) -> None:
        number = self._stream_id(f"session-{row.session_id}")
        origin = _text(row.origin) if row.origin != Origin(platform=row.origin.platform) else None
        fixed = (row.owner, row.origin.platform, origin, int(row.ephemeral), row.parent_session_id, _text(row.metadata))
        moving = (row.profile, row.title, row.busy, row.updated_at, row.model, row.provider, row.active_run_id)
        changes = (*moving, row.run_count, _text(row.usage), row.messages)
        sets = ", ".join(f"{name} = ?" for name in _SESSION_CHANGES)
        if not self._db.execute(f"update sessions set {sets} where id = ?", (*changes, number)).rowcount:
            values = (number, *fixed, row.created_at, *changes)
            self._db.execute(f"insert into sessions (id, {SESSION_COLUMNS}) values ({_marks(len(values))})", values)
            self._count("sessions", 1)

    def _save_run(self, row: Run) -> None:
        number = self._stream_id(f"run-{row.run_id}")
        before = self._db.execute("select status from runs where id = ?", (number,)).fetchone()
        moving = (row.model, row.provider, row.status, row.approvals, row.started_at, row.finished_at, _text(row.usage))
        changes = (*moving, row.finish_reason, row.cancel_reason, row.ended)
        if before is None:
            session = self._stream_id(f"session-{row.session_id}")
            fixed = (row.owner, row.parent_run_id, row.profile, row.platform, _text(row.metadata), row.created_at)
            values = (number, session, *fixed, row.admitted, row.inputs, *changes)
            self._db.execute(f"insert into runs (id, session, {RUN_COLUMNS}) values ({_marks(len(values))})", values)
        else:
            sets = ", ".join(f"{name} = ?" for name in _RUN_CHANGES)
            self._db.execute(f"update runs set {sets} where id = ?", (*changes, number))
            self._count(f"runs.{before[0]}", -1)
        self._count(f"runs.{row.status}", 1)

    def _count(self, name: str, step: int) -> None:
        sql = "insert into counters values (?, ?) on conflict (name) do update set value = value + excluded.value"
        self._db.execute(sql, (name, step))


def session_of(session_id: str, row: tuple[object, ...]) -> Session:
    """Return the session of a row of `SESSION_COLUMNS`."""
    owner, platform, origin, ephemeral, parent, metadata, created_at, *changes = row
    profile, title, busy, updated_at, model, provider, active_run, run_count, usage, messages = changes
    values = {
        "owner": owner,
        "origin": Origin(platform=str(platform)) if origin is None else _decoded(_origin, origin),
        "ephemeral": bool(ephemeral),
        "parent_session_id": parent,
        "metadata": _json(metadata),
        "created_at": created_at,
        "profile": profile,
        "title": title,
        "busy": busy,
        "updated_at": updated_at,
        "model": model,
        "provider": provider,
        "active_run_id": active_run,
        "run_count": run_count,
        "usage": usage_of(usage),
        "messages": messages,
    }
    return Session(session_id, **values)  # type: ignore[arg-type]


def run_of(run_id: str, session: str, row: tuple[object, ...]) -> Run:
    """Return the run of a row of `RUN_COLUMNS`; `session` is its session's stream."""
    owner, parent, profile, platform, metadata, *rest = row
    created_at, admitted, inputs, model, provider, status, approvals, started_at, finished_at, usage, *ends = rest
    finish_reason, cancel_reason, ended = ends
    values = {
        "owner": owner,
        "parent_run_id": parent,
        "profile": profile,
        "platform": platform,
        "metadata": _json(metadata),
        "created_at": created_at,
        "admitted": admitted,
        "inputs": inputs,
        "model": model,
        "provider": provider,
        "status": status,
        "approvals": approvals,
        "started_at": started_at,
        "finished_at": finished_at,
        "usage": usage_of(usage),
        "finish_reason": finish_reason,
        "cancel_reason": cancel_reason,
        "ended": ended,
    }
    return Run(run_id, session.removeprefix("session-"), **values)  # type: ignore[arg-type]


def usage_of(text: object) -> Usage:
    """Return the usage of a column."""
    return NOTHING if text is None else _decoded(_usage, text)


def _json(text: object) -> Json:
    return {} if text is None else _decoded(_object, text)


def _decoded(decoder: msgspec.json.Decoder[T], text: object) -> T:
    try:
        return decoder.decode(str(text))
    except msgspec.DecodeError as exc:
        raise CorruptEvent(f"a row of the projections is damaged: {exc}; have them made anew from the log") from exc


def _text(value: Json | Usage | Origin) -> str | None:
    text = msgspec.json.encode(value).decode()
    return None if text == "{}" else text


def _marks(count: int) -> str:
    return ", ".join("?" * count)
