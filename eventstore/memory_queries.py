"""`Queries` over the projections in memory, with the same answers as over SQLite."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from threading import RLock
from typing import Any

from eventstore.catalogue import Event, Spent
from eventstore.errors import KeyTaken
from eventstore.log import Envelope
from eventstore.projections import Attempt, Place, Run, Session
from eventstore.queries import KeyRow, MessageRow, RunRow, SessionRow
from eventstore.views import message_row, run_row, session_row

PAGE = 256
OPEN = frozenset({"queued", "running", "waiting"})
"""The states of a run that has not ended."""
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")


class MemoryRows:
    """Keeps `projections.Rows` in dictionaries; sessions and runs are in the order in which they were made."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.runs: dict[str, Run] = {}
        self.places: dict[str, list[Place]] = defaultdict(list)
        self.attempts: list[Attempt] = []
        self.keys: dict[tuple[str, str], KeyRow] = {}

    def drop(self, session_id: str, runs: frozenset[str]) -> tuple[Spent, ...]:
        """Take a session and its runs out; return what they used, by position."""
        used = [one for one in self.attempts if one.run_id in runs]
        self.attempts[:] = [one for one in self.attempts if one.run_id not in runs]
        del self.sessions[session_id]
        self.places.pop(session_id, None)
        for run_id in runs:
            del self.runs[run_id]
        for place in [place for place, row in self.keys.items() if row.session_id == session_id]:
            del self.keys[place]
        used.sort(key=lambda one: one.position)
        return tuple(
            Spent(position=one.position, at=one.at, provider=one.provider, model=one.model, usage=one.usage) for one in used
        )

    def clear(self) -> None:
        """Forget everything."""
        for rows in (self.sessions, self.runs, self.places, self.attempts, self.keys):
            rows.clear()

    def session(self, session_id: str) -> Session | None:
        """See `Rows.session`."""
        return self.sessions.get(session_id)

    def run(self, run_id: str) -> Run | None:
        """See `Rows.run`."""
        return self.runs.get(run_id)

    def has_key(self, owner: str, key: str) -> bool:
        """Say whether the owner has used the key."""
        return (owner, key) in self.keys

    def put_session(self, row: Session) -> None:
        """See `Rows.put_session`."""
        self.sessions[row.session_id] = row

    def put_run(self, row: Run) -> None:
        """See `Rows.put_run`."""
        self.runs[row.run_id] = row

    def add_place(self, place: Place) -> None:
        """See `Rows.add_place`."""
        self.places[place.session_id].append(place)

    def add_attempt(self, attempt: Attempt) -> None:
        """See `Rows.add_attempt`."""
        self.attempts.append(attempt)

    def add_key(self, owner: str, row: KeyRow) -> None:
        """See `Rows.add_key`."""
        if self.has_key(owner, row.key):
            raise KeyTaken(row.key)
        self.keys[owner, row.key] = row


class MemoryQueries:
    """Keeps `Queries`.

    `page(stream, after)` gives the events of the log after a position, or all of one stream; `last_seq(stream)` where the
    canonical events of a stream stand.
    """

    def __init__(
        self,
        rows: MemoryRows,
        gate: RLock,
        page: Callable[[str | None, int], Iterator[Envelope]],
        last_seq: Callable[[str], int],
    ) -> None:
        self._rows, self._gate, self._page, self._last_seq = rows, gate, page, last_seq

    def session(self, owner: str | None, session_id: str) -> SessionRow | None:
        """See `Queries.session`."""
        with self._gate:
            row = self._rows.session(session_id)
        return session_row(row) if row is not None and owner in {None, row.owner} else None

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
        with self._gate:
            found = _newest(list(self._rows.sessions.values()), after, "session_id")
        wanted = (
            session_row(row)
            for row in found
            if owner in {None, row.owner}
            and platform in {None, row.origin.platform}
            and (include_ephemeral or not row.ephemeral)
        )
        return list(islice(wanted, min(limit, PAGE)))

    def messages(self, session_id: str, *, limit: int, after: int = 0, until: int | None = None) -> list[MessageRow]:
        """See `Queries.messages`."""
        with self._gate:
            places = self._rows.places.get(session_id, [])[after:]
        page = [place for place in places if until is None or place.position <= until][: min(limit, PAGE)]
        return [message_row(place, self._at(place.position).at, self._at(place.source).event) for place in page]

    def run(self, owner: str | None, run_id: str) -> RunRow | None:
        """See `Queries.run`."""
        with self._gate:
            row = self._rows.run(run_id)
        return self._run(row) if row is not None and owner in {None, row.owner} else None

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
        with self._gate:
            found = _newest(list(self._rows.runs.values()), after, "run_id")
        wanted = (
            row
            for row in found
            if owner in {None, row.owner} and session_id in {None, row.session_id} and status in {None, row.status}
        )
        return [self._run(row) for row in islice(wanted, min(limit, PAGE))]

    def unfinished(self) -> Iterator[RunRow]:
        """See `Queries.unfinished`."""
        with self._gate:
            rows = [row for row in self._rows.runs.values() if row.status in OPEN]
        return map(self._run, rows)

    def events(
        self, run_id: str, *, after: int = 0, limit: int = PAGE, types: frozenset[str] = frozenset()
    ) -> list[Envelope]:
        """See `Queries.events`."""
        found = (
            one
            for one in self._page(f"run-{run_id}", 0)
            if one.seq is not None and one.seq > after and (not types or _tag(one.event) in types)
        )
        return list(islice(found, min(limit, PAGE)))

    def log(self, *, after: int = 0, limit: int = PAGE, stream: str | None = None) -> list[Envelope]:
        """See `Queries.log`."""
        return list(islice((one for one in self._page(stream, after) if one.position > after), min(limit, PAGE)))

    def key(self, owner: str, key: str) -> KeyRow | None:
        """See `Queries.key`."""
        with self._gate:
            return self._rows.keys.get((owner, key))

    def usage(self, owner: str | None, *, since: int = 0) -> list[dict[str, Any]]:
        """See `Queries.usage`."""
        with self._gate:
            attempts = [one for one in self._rows.attempts if one.at >= since and owner in {None, one.owner}]
        groups: dict[tuple[str, str | None, str | None], list[Attempt]] = defaultdict(list)
        for one in attempts:
            groups[_day(one.at), one.provider, one.model].append(one)
        ordered = sorted(groups.items(), key=lambda item: tuple((part is not None, part or "") for part in item[0]))
        return [_sums(*names, group) for names, group in ordered]

    def counts(self) -> dict[str, int]:
        """See `Queries.counts`."""
        with self._gate:
            counted: dict[str, int] = {"sessions": len(self._rows.sessions)}
            for row in self._rows.runs.values():
                counted[f"runs.{row.status}"] = counted.get(f"runs.{row.status}", 0) + 1
        return {**counted, "events": max((one.position for one in self._page(None, 0)), default=0), "database_bytes": 0}

    def close(self) -> None:
        """Nothing has to be closed."""

    def _run(self, row: Run) -> RunRow:
        return run_row(row, self._last_seq(f"run-{row.run_id}"), None if row.ended is None else self._at(row.ended).event)

    def _at(self, position: int) -> Envelope:
        return next(self._page(None, position - 1))


def _newest(rows: list[Any], after: str | None, name: str) -> list[Any]:
    """Return rows, newest first, from behind the one named `after`; none if there is no such row."""
    if after is None:
        return rows[::-1]
    index = next((index for index, row in enumerate(rows) if getattr(row, name) == after), 0)
    return rows[:index][::-1]


def _tag(event: Event) -> str:
    return str(type(event).__struct_config__.tag)


def _day(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%d")


def _sums(day: str, provider: str | None, model: str | None, group: list[Attempt]) -> dict[str, Any]:
    tokens = {name: sum(getattr(one.usage, name) for one in group) for name in _TOKENS}
    costs = [one.usage.cost_micros for one in group if one.usage.cost_micros is not None]
    counted = {"attempts": len(group), **tokens, "cost_micros": sum(costs) if costs else None}
    return {"day": day, "provider": provider, "model": model, **counted, "unpriced": len(group) - len(costs)}
