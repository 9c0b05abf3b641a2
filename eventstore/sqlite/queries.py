"""`Queries` over the tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eventstore.catalogue import Event
from eventstore.chain import Link
from eventstore.log import Envelope
from eventstore.projections import Place
from eventstore.queries import KeyRow, MessageRow, RunRow, SessionRow
from eventstore.sqlite.reading import PAGE, Reader, Row
from eventstore.sqlite.rows import RUN_COLUMNS, SESSION_COLUMNS, run_of, session_of
from eventstore.views import message_row, run_row, session_row

_SESSIONS = f"select (select name from streams where id = sessions.id), id, {SESSION_COLUMNS} from sessions"
_RUNS = f"""select (select name from streams where id = runs.id), (select name from streams where id = session), id,
    (select seq from events where stream = runs.id and seq is not null order by version desc limit 1), {RUN_COLUMNS}
    from runs"""
_MESSAGES = """select m.ordinal, m.position, m.source, m.item, (select name from streams where id = m.run), e.at
    from messages m join events e on e.position = m.position where m.session = ? and m.ordinal > ? and m.position <= ?
    order by m.ordinal limit ?"""
_KEYS = """select key, fingerprint, (select name from streams where id = run), (select name from streams where id = session)
    from keys where owner = ? and key = ?"""
_USAGE = """select strftime('%Y-%m-%d', at / 1000000, 'unixepoch') as day, provider, model, count(*) as attempts,
    sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens, sum(cached_tokens) as cached_tokens,
    sum(cache_write_tokens) as cache_write_tokens, sum(reasoning_tokens) as reasoning_tokens,
    sum(cost_micros) as cost_micros, sum(cost_micros is null) as unpriced
    from attempts where at >= ? and (? is null or owner = ?)
    group by day, provider, model order by day, provider, model"""
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
_USAGE_NAMES = ("day", "provider", "model", "attempts", *_TOKENS, "cost_micros", "unpriced")
_UNFINISHED = "status in ('queued', 'running', 'waiting')"
_FOREVER = 2**62


class SqliteQueries:
    """Keeps `Queries`; safe from any thread.  `links` is for those who check the chain."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def session(self, owner: str | None, session_id: str) -> SessionRow | None:
        """See `Queries.session`."""
        sql = f"{_SESSIONS} where id = (select id from streams where name = ?) and (? is null or owner = ?)"
        row = self._reader.row(sql, (f"session-{session_id}", owner, owner))
        return None if row is None else _session(row)

    def sessions(
        self,
        owner: str | None,
        *,
        limit: int,
        after: str | None = None,
        platform: str | None = None,
        include_ephemeral: bool = False,
    ) -> list[SessionRow]:
        """See `Queries.sessions`."""
        conditions, values = _scope(owner, self._number("session", after))
        if platform is not None:
            conditions, values = [*conditions, "platform = ?"], [*values, platform]
        if not include_ephemeral:
            conditions = [*conditions, "not ephemeral"]
        rows = self._reader.rows(
            f"{_SESSIONS} where {' and '.join(conditions)} order by id desc limit ?", (*values, _page(limit))
        )
        return [_session(row) for row in rows]

    def messages(self, session_id: str, *, limit: int, after: int = 0, until: int | None = None) -> list[MessageRow]:
        """See `Queries.messages`.  Messages whose event was removed are left out."""
        number = self._reader.stream_id(f"session-{session_id}")
        values = (number, after, _FOREVER if until is None else until, _page(limit))
        places = [(_place(session_id, row), int(str(row[5]))) for row in self._reader.rows(_MESSAGES, values)]
        sources = self._events_at(frozenset(place.source for place, _ in places))
        return [message_row(place, at, sources[place.source]) for place, at in places if place.source in sources]

    def run(self, owner: str | None, run_id: str) -> RunRow | None:
        """See `Queries.run`."""
        sql = f"{_RUNS} where id = (select id from streams where name = ?) and (? is null or owner = ?)"
        row = self._reader.row(sql, (f"run-{run_id}", owner, owner))
        return None if row is None else self._runs([row])[0]

    def runs(
        self,
        owner: str | None,
        *,
        limit: int,
        after: str | None = None,
        session_id: str | None = None,
        status: str | None = None,
    ) -> list[RunRow]:
        """See `Queries.runs`."""
        conditions, values = _scope(owner, self._number("run", after))
        if session_id is not None:
            conditions = [*conditions, "session = (select id from streams where name = ?)"]
            values = [*values, f"session-{session_id}"]
        if status is not None:
            conditions, values = [*conditions, "status = ?"], [*values, status]
        rows = self._reader.rows(
            f"{_RUNS} where {' and '.join(conditions)} order by id desc limit ?", (*values, _page(limit))
        )
        return self._runs(rows)

    def unfinished(self) -> Iterator[RunRow]:
        """See `Queries.unfinished`."""
        after: Any = 0
        while rows := self._reader.rows(f"{_RUNS} where {_UNFINISHED} and id > ? order by id limit ?", (after, PAGE)):
            yield from self._runs(rows)
            after = rows[-1][2]

    def events(
        self, run_id: str, *, after: int = 0, limit: int = PAGE, types: frozenset[str] = frozenset()
    ) -> list[Envelope]:
        """See `Queries.events`."""
        number = self._reader.stream_id(f"run-{run_id}")
        if number is None:
            return []
        wanted = f"and e.type in ({', '.join('?' * len(types))})" if types else ""
        # A version is never smaller than the seq beside it, so the one index serves both, and half the pages are written.
        where = f"e.stream = ? and e.version > ? and e.seq > ? and e.data is not null {wanted} order by e.version"
        return self._envelopes(self._reader.page(where, (number, after, after, *sorted(types)), limit))

    def log(self, *, after: int = 0, limit: int = PAGE, stream: str | None = None) -> list[Envelope]:
        """See `Queries.log`.  Events whose data was removed are left out."""
        where, values = "e.position > ? and e.data is not null order by e.position", (after,)
        if stream is None:
            return self._envelopes(self._reader.page(where, values, limit))
        number = self._reader.stream_id(stream)
        where = "e.stream = ? and " + where.replace("order by e.position", "order by e.version")
        return [] if number is None else self._envelopes(self._reader.page(where, (number, *values), limit))

    def key(self, owner: str, key: str) -> KeyRow | None:
        """See `Queries.key`."""
        row = self._reader.row(_KEYS, (owner, key))
        if row is None:
            return None
        name, fingerprint, run, session = map(str, row)
        return KeyRow(name, fingerprint, run.removeprefix("run-"), session.removeprefix("session-"))

    def usage(self, owner: str | None, *, since: int = 0) -> list[dict[str, Any]]:
        """See `Queries.usage`; `unpriced` counts the attempts whose cost is not known."""
        return [dict(zip(_USAGE_NAMES, row, strict=True)) for row in self._reader.rows(_USAGE, (since, owner, owner))]

    def counts(self) -> dict[str, int]:
        """See `Queries.counts`: `sessions`, `runs.<status>`, `events`, `database_bytes`."""
        with self._reader.lent() as db:
            counted = dict(db.execute("select name, value from counters").fetchall())
            events = db.execute("select coalesce(max(position), 0) from events").fetchone()[0]
            pages = db.execute("select page_count * page_size from pragma_page_count, pragma_page_size").fetchone()[0]
        return {"sessions": 0, **counted, "events": events, "database_bytes": pages}

    def links(self, after: int = 0) -> Iterator[Link]:
        """Yield the hash chain from position `after + 1`, for `chain.check`."""
        return self._reader.links(after)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def _number(self, kind: str, name: str | None) -> int | None:
        return None if name is None else self._reader.stream_id(f"{kind}-{name}") or 0

    def _runs(self, rows: list[tuple[Any, ...]]) -> list[RunRow]:
        runs = [(run_of(_bare(row[0]), str(row[1]), row[4:]), int(row[3] or 0)) for row in rows]
        ends = self._events_at(frozenset(run.ended for run, _ in runs if run.ended is not None))
        return [run_row(run, last_seq, ends.get(run.ended or 0)) for run, last_seq in runs]

    def _events_at(self, positions: frozenset[int]) -> dict[int, Event]:
        where = f"e.position in ({', '.join('?' * len(positions))}) and e.data is not null"
        rows = self._reader.page(where, tuple(positions)) if positions else []
        return {envelope.position: envelope.event for envelope in self._envelopes(rows)}

    def _envelopes(self, rows: list[Row]) -> list[Envelope]:
        return list(self._reader.envelopes(rows))


def open_queries(path: Path) -> SqliteQueries:
    """Open a database for reading alone, also while a server writes to it; `close` it in the end.

    Raises:
        StoreUnusable: there is no such database, or it cannot be opened.
    """
    return SqliteQueries(Reader(path))


def _scope(owner: str | None, before: int | None) -> tuple[list[str], list[object]]:
    conditions, values = ["id < ?"], [_FOREVER if before is None else before]
    return (conditions, values) if owner is None else ([*conditions, "owner = ?"], [*values, owner])  # type: ignore[return-value]


def _page(limit: int) -> int:
    return max(0, min(limit, PAGE))


def _bare(stream: object) -> str:
    return str(stream).partition("-")[2]


def _session(row: tuple[Any, ...]) -> SessionRow:
    return session_row(session_of(_bare(row[0]), row[2:]))


def _place(session_id: str, row: tuple[Any, ...]) -> Place:
    return Place(session_id, row[0], row[1], row[2], row[3], None if row[4] is None else _bare(row[4]))
