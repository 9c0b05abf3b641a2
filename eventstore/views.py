"""Rows as gateways see them, made from the projections' rows and the events that they point to."""

from eventstore.catalogue import Event, Json, RunCompleted, RunFailed
from eventstore.projections import Place, Run, Session
from eventstore.queries import MessageRow, RunRow, SessionRow
from eventstore.transcript import messages_in


def session_row(row: Session) -> SessionRow:
    """Return a session as lists show it."""
    return SessionRow(
        session_id=row.session_id,
        owner=row.owner,
        origin=row.origin,
        profile=row.profile,
        title=row.title,
        model=row.model,
        provider=row.provider,
        busy=row.busy,
        ephemeral=row.ephemeral,
        parent_session_id=row.parent_session_id,
        metadata=row.metadata,
        created_at=row.created_at,
        updated_at=row.updated_at,
        active_run_id=row.active_run_id,
        run_count=row.run_count,
        usage=row.usage,
    )


def run_row(row: Run, last_seq: int, end: Event | None) -> RunRow:
    """Return a run as lists show it; `end` is the event that ended it, None if it goes on or the event was removed."""
    return RunRow(
        run_id=row.run_id,
        session_id=row.session_id,
        owner=row.owner,
        parent_run_id=row.parent_run_id,
        status=row.status,
        model=row.model,
        provider=row.provider,
        profile=row.profile,
        platform=row.platform,
        metadata=row.metadata,
        last_seq=last_seq,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        usage=row.usage,
        finish_reason=row.finish_reason,
        output=end.output if isinstance(end, RunCompleted) else None,
        error=end.error if isinstance(end, RunFailed) else None,
        cancel_reason=row.cancel_reason,
    )


def message_row(place: Place, at: int, source: Event) -> MessageRow:
    """Return a message of a transcript; `source` is the event that holds it, `at` when it joined the session."""
    message: Json = messages_in(source)[place.item]
    role = str(message.get("role", ""))
    return MessageRow(place.session_id, place.ordinal, place.run_id, place.position, at, role, message)
