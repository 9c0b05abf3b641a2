"""The questions that gateways and actors ask of the projections; every one about people's data is scoped by owner."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from eventstore.catalogue import Json, Origin, Problem, Usage
from eventstore.log import Envelope


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as lists show it; times are UTC in microseconds."""

    session_id: str
    owner: str
    origin: Origin
    profile: str
    title: str | None
    model: str | None
    provider: str | None
    busy: str
    ephemeral: bool
    parent_session_id: str | None
    metadata: Json
    created_at: int
    updated_at: int
    active_run_id: str | None
    run_count: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as lists show it; `status` is queued, running, waiting, completed, cancelled or failed."""

    run_id: str
    session_id: str
    owner: str
    parent_run_id: str | None
    status: str
    model: str | None
    provider: str | None
    profile: str
    platform: str
    metadata: Json
    last_seq: int
    created_at: int
    started_at: int | None
    finished_at: int | None
    usage: Usage
    finish_reason: str | None
    output: Json | None
    error: Problem | None
    cancel_reason: str | None


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of a session's transcript, in canonical form; `ordinal` counts from 1."""

    session_id: str
    ordinal: int
    run_id: str | None
    position: int
    at: int
    role: str
    message: Json


@dataclass(frozen=True, slots=True)
class KeyRow:
    """What an owner's idempotency key stands for."""

    key: str
    fingerprint: str
    run_id: str
    session_id: str


class Queries(Protocol):
    """Read models; safe from any thread; pages of at most 256 rows."""

    def session(self, owner: str | None, session_id: str) -> SessionRow | None:
        """Return the session, or None if it is unknown or another owner's; owner None (the server itself) sees all."""

    def sessions(
        self,
        owner: str | None,
        *,
        limit: int,
        after: str | None = None,
        platform: str | None = None,
        include_ephemeral: bool = False,
    ) -> list[SessionRow]:
        """Return sessions, newest first; `after` is the last session id of the page before."""

    def messages(self, session_id: str, *, limit: int, after: int = 0, until: int | None = None) -> list[MessageRow]:
        """Return messages by ordinal; `until` is a position: only what was recorded up to there."""

    def run(self, owner: str | None, run_id: str) -> RunRow | None:
        """Return the run, or None if it is unknown or another owner's."""

    def runs(
        self,
        owner: str | None,
        *,
        limit: int,
        after: str | None = None,
        session_id: str | None = None,
        status: str | None = None,
    ) -> list[RunRow]:
        """Return runs, newest first; `after` is the last run id of the page before."""

    def unfinished(self) -> Iterator[RunRow]:
        """Yield every run without an end, oldest first."""

    def events(
        self, run_id: str, *, after: int = 0, limit: int = 256, types: frozenset[str] = frozenset()
    ) -> list[Envelope]:
        """Return canonical events of a run with seq greater than `after`."""

    def log(self, *, after: int = 0, limit: int = 256, stream: str | None = None) -> list[Envelope]:
        """Return all events by position, journal included: for audit and the CLI."""

    def key(self, owner: str, key: str) -> KeyRow | None:
        """Return what the key stands for."""

    def usage(self, owner: str | None, *, since: int = 0) -> list[dict[str, Any]]:
        """Return sums per (day, provider, model): tokens, cost in micro-units, attempts."""

    def counts(self) -> dict[str, int]:
        """Return sessions, runs by status, events and database bytes, for metrics."""
