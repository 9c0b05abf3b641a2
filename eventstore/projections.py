"""What the log says about sessions, runs, usage and keys: pure folds, and the order in which an event feeds them.

Both logs drive `project` in the transaction of the append, and again over the whole log to rebuild; each keeps the rows in
its own way (`Rows`).  The folds are total: an event that does not fit changes nothing.
"""

from typing import Protocol

import msgspec
from msgspec.structs import replace

from eventstore.catalogue import (
    ApprovalRequired,
    ApprovalResolved,
    CancelRequested,
    Erased,
    Event,
    Json,
    MessageReceived,
    ModelCompleted,
    ModelDiscarded,
    ModelStarted,
    Origin,
    RunAdmitted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionChanged,
    SessionCreated,
    TurnSettled,
    TurnStarted,
    Usage,
)
from eventstore.log import Envelope
from eventstore.queries import KeyRow
from eventstore.transcript import messages_in

NOTHING = Usage()
MOST_COUNTED = 10**12
"""Tokens, or micro-units, that one attempt is counted with at most."""


class Session(msgspec.Struct, frozen=True):
    """A session's row; `messages` is the length of its transcript."""

    session_id: str
    owner: str
    origin: Origin
    profile: str
    title: str | None
    busy: str
    ephemeral: bool
    parent_session_id: str | None
    metadata: Json
    created_at: int
    updated_at: int
    model: str | None = None
    provider: str | None = None
    active_run_id: str | None = None
    run_count: int = 0
    usage: Usage = NOTHING
    messages: int = 0


class Run(msgspec.Struct, frozen=True):
    """A run's row; `admitted` and `ended` are the positions of the events that hold its `inputs` messages and its end."""

    run_id: str
    session_id: str
    owner: str
    parent_run_id: str | None
    model: str | None
    provider: str | None
    profile: str
    platform: str
    metadata: Json
    created_at: int
    admitted: int
    inputs: int
    status: str = "queued"
    approvals: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    usage: Usage = NOTHING
    finish_reason: str | None = None
    cancel_reason: str | None = None
    ended: int | None = None


class Place(msgspec.Struct, frozen=True):
    """Where a message of a transcript stands: message number `item` of the event at `source`.

    It belongs to the session from `position` on.
    """

    session_id: str
    ordinal: int
    position: int
    source: int
    item: int
    run_id: str | None


class Attempt(msgspec.Struct, frozen=True):
    """What one model request used; `run_id` None: its run was erased."""

    position: int
    run_id: str | None
    owner: str
    at: int
    attempt: int
    provider: str | None
    model: str | None
    usage: Usage


class Rows(Protocol):
    """Where the projections are kept while one append is projected."""

    def session(self, session_id: str) -> Session | None:
        """Return the session's row as it stands."""

    def run(self, run_id: str) -> Run | None:
        """Return the run's row as it stands."""

    def put_session(self, row: Session) -> None:
        """Keep the new state of a session."""

    def put_run(self, row: Run) -> None:
        """Keep the new state of a run."""

    def add_place(self, place: Place) -> None:
        """Keep the next message of a transcript."""

    def add_attempt(self, attempt: Attempt) -> None:
        """Keep what an attempt used."""

    def add_key(self, owner: str, row: KeyRow) -> None:
        """Keep an idempotency key.

        Raises:
            KeyTaken: the owner has it already.
        """


def project(rows: Rows, envelope: Envelope) -> None:
    """Feed one event to every projection, in the order of the log.

    Raises:
        KeyTaken: the event carries an idempotency key that its session's owner has used.
    """
    kind, _, name = envelope.stream.partition("-")
    match kind:
        case "session":
            _project_session(rows, name, envelope)
        case "run":
            _project_run(rows, name, envelope)
        case "log" if isinstance(envelope.event, Erased):
            _project_spent(rows, envelope.event)
        case _:
            pass


def add(total: Usage, one: Usage) -> Usage:
    """Return the sum of two usages; where a price is unknown the sum's is too, and prices are left out."""
    if total == NOTHING:
        return without_price(one)
    costs = (total.cost_micros, one.cost_micros)
    return Usage(
        input_tokens=total.input_tokens + one.input_tokens,
        output_tokens=total.output_tokens + one.output_tokens,
        cached_tokens=total.cached_tokens + one.cached_tokens,
        cache_write_tokens=total.cache_write_tokens + one.cache_write_tokens,
        reasoning_tokens=total.reasoning_tokens + one.reasoning_tokens,
        cost_micros=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def without_price(usage: Usage) -> Usage:
    """Return the usage without the price that it was computed with."""
    return usage if usage.price is None else replace(usage, price=None)


def bounded(usage: Usage) -> Usage:
    """Return the usage with each number between 0 and `MOST_COUNTED`: providers say anything, and sums must fit 64 bits."""
    numbers = {name: getattr(usage, name) for name in usage.__struct_fields__ if isinstance(getattr(usage, name), int)}
    if all(0 <= number <= MOST_COUNTED for number in numbers.values()):
        return usage
    fitting = {name: max(0, min(number, MOST_COUNTED)) for name, number in numbers.items()}
    return msgspec.structs.replace(usage, **fitting)


def session_after(row: Session, event: Event, at: int) -> Session:
    """Return the session's row after one event of its stream."""
    match event:
        case SessionChanged():
            changes = {name: getattr(event, name) for name in ("title", "model", "provider", "profile", "busy")}
            return replace(row, updated_at=at, **{name: value for name, value in changes.items() if value is not None})
        case MessageReceived():
            return replace(row, updated_at=at)
        case TurnStarted(run_id=run_id):
            return replace(row, updated_at=at, active_run_id=run_id)
        case TurnSettled(run_id=run_id):
            return replace(row, updated_at=at, active_run_id=None if row.active_run_id == run_id else row.active_run_id)
        case _:
            return row


def run_after(row: Run, event: Event, at: int, position: int) -> Run:
    """Return the run's row after one event of its stream."""
    match event:
        case RunStarted():
            row = replace(row, status="running", started_at=at)
            return replace(row, model=event.model or row.model, provider=event.provider or row.provider)
        case ModelStarted():
            return replace(row, model=event.model or row.model, provider=event.provider or row.provider)
        case ApprovalRequired():
            return replace(row, status="waiting", approvals=row.approvals + 1)
        case ApprovalResolved():
            left = max(0, row.approvals - 1)
            return replace(row, status="waiting" if left else "running", approvals=left)
        case CancelRequested(reason=reason):
            return replace(row, cancel_reason=reason)
        case RunCompleted() | RunCancelled() | RunFailed():
            return _ended(replace(row, finished_at=at, ended=position), event)
        case _:
            return row


def _ended(row: Run, event: RunCompleted | RunCancelled | RunFailed) -> Run:
    match event:
        case RunCompleted(finish_reason=reason):
            return replace(row, status="completed", finish_reason=reason)
        case RunCancelled(reason=reason):
            return replace(row, status="cancelled", cancel_reason=reason)
        case RunFailed():
            return replace(row, status="failed")


def _project_spent(rows: Rows, event: Erased) -> None:
    """Keep what an erased session used, in the sums of its owner alone."""
    for one in event.spent:
        rows.add_attempt(Attempt(one.position, None, event.owner or "", one.at, 0, one.provider, one.model, one.usage))


def _project_session(rows: Rows, session_id: str, envelope: Envelope) -> None:
    event = envelope.event
    row = rows.session(session_id)
    if row is None:
        if isinstance(event, SessionCreated):
            rows.put_session(_session(session_id, event, envelope.at))
        return
    if isinstance(event, MessageReceived) and event.key is not None:
        rows.add_key(row.owner, KeyRow(event.key, event.fingerprint or "", event.run_id, session_id))
    after = session_after(row, event, envelope.at)
    if (count := len(messages_in(event))) > 0:
        after = _extended(rows, after, Place(session_id, 0, envelope.position, envelope.position, count, None))
    if after is not row:
        rows.put_session(after)


def _project_run(rows: Rows, run_id: str, envelope: Envelope) -> None:
    event = envelope.event
    row = rows.run(run_id)
    if row is None:
        if isinstance(event, RunAdmitted):
            rows.put_run(_run(run_id, event, envelope))
            if (session := rows.session(event.session_id)) is not None:
                rows.put_session(replace(session, run_count=session.run_count + 1))
        return
    after = run_after(row, event, envelope.at, envelope.position)
    if isinstance(event, ModelCompleted | ModelDiscarded):
        after = _with_attempt(rows, after, event, envelope)
    if after is not row:
        rows.put_run(after)
    _project_transcript(rows, after, envelope)


def _with_attempt(rows: Rows, run: Run, event: ModelCompleted | ModelDiscarded, envelope: Envelope) -> Run:
    usage = bounded(without_price(event.usage or NOTHING))
    model = (event.model if isinstance(event, ModelCompleted) else None) or run.model
    where = (envelope.position, run.run_id, run.owner, envelope.at, event.attempt)
    rows.add_attempt(Attempt(*where, run.provider, model, usage))
    if event.usage is None:
        return run if model == run.model else replace(run, model=model)
    if (session := rows.session(run.session_id)) is not None:
        rows.put_session(replace(session, usage=add(session.usage, usage)))
    return replace(run, model=model, usage=add(run.usage, usage))


def _project_transcript(rows: Rows, run: Run, envelope: Envelope) -> None:
    match envelope.event:
        case RunStarted():
            count, source = run.inputs, run.admitted
        case RunAdmitted():
            return
        case event:
            count, source = len(messages_in(event)), envelope.position
    session = rows.session(run.session_id) if count else None
    if session is not None:
        place = Place(session.session_id, 0, envelope.position, source, count, run.run_id)
        rows.put_session(_extended(rows, session, place))


def _extended(rows: Rows, session: Session, template: Place) -> Session:
    """Add places 0 to `template.item` - 1 of one event to the transcript."""
    for item in range(template.item):
        rows.add_place(replace(template, ordinal=session.messages + item + 1, item=item))
    return replace(session, messages=session.messages + template.item)


def _session(session_id: str, event: SessionCreated, at: int) -> Session:
    return Session(
        session_id=session_id,
        owner=event.owner,
        origin=event.origin,
        profile=event.profile,
        title=event.title,
        busy=event.busy,
        ephemeral=event.ephemeral,
        parent_session_id=event.parent_session_id,
        metadata=event.metadata,
        created_at=at,
        updated_at=at,
    )


def _run(run_id: str, event: RunAdmitted, envelope: Envelope) -> Run:
    return Run(
        run_id=run_id,
        session_id=event.session_id,
        owner=event.owner,
        parent_run_id=event.parent_run_id,
        model=event.model,
        provider=event.provider,
        profile=event.profile,
        platform=event.platform,
        metadata=event.metadata,
        created_at=envelope.at,
        admitted=envelope.position,
        inputs=len(event.input),
    )
