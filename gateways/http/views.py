"""From rows and events of the log to the JSON that clients see; times become RFC 3339."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from eventstore.catalogue import Json, RunCancelled, RunCompleted, RunFailed, Usage, tag_of
from eventstore.log import Envelope
from eventstore.queries import MessageRow, RunRow, SessionRow

TERMINAL_EVENTS = (RunCompleted, RunCancelled, RunFailed)
TERMINAL_STATUSES = frozenset({"completed", "cancelled", "failed"})


PREVIEW = 60
"""Characters; long enough to tell sessions apart, short enough for a column."""


def moment(at: int) -> str:
    """Return microseconds since the epoch as RFC 3339 text in UTC."""
    seconds, micros = divmod(at, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(at: int | None) -> str | None:
    return None if at is None else moment(at)


def run_id_of(envelope: Envelope) -> str:
    """Return the run that an event of a run's stream belongs to."""
    return envelope.stream.removeprefix("run-")


def is_end(envelope: Envelope) -> bool:
    """Tell whether the event ends its run."""
    return isinstance(envelope.event, TERMINAL_EVENTS)


def event(envelope: Envelope, parent_run_id: str | None) -> Json:
    """Return a canonical event as clients see it; its fields at their default are left out."""
    head: Json = {
        "type": tag_of(envelope.event),
        "run_id": run_id_of(envelope),
        "seq": envelope.seq,
        "at": moment(envelope.at),
    }
    parent = {} if parent_run_id is None else {"parent_run_id": parent_run_id}
    return head | parent | {name: value for name, value in plain(envelope.event).items() if name not in head}


def plain(value: Any) -> Any:
    """Return a struct as a JSON value."""
    return msgspec.to_builtins(value)


def usage(total: Usage) -> Json:
    """Return sums of tokens and cost; `cost_micros` is null where no price is known."""
    return {
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cached_tokens": total.cached_tokens,
        "cache_write_tokens": total.cache_write_tokens,
        "reasoning_tokens": total.reasoning_tokens,
        "cost_micros": total.cost_micros,
    }


def preview(messages: Iterable[Json]) -> str | None:
    """Return the first words of the first message of the user as one printable line of at most `PREVIEW` characters."""
    for each in messages:
        if each.get("role") == "user":
            start = " ".join(part["text"][: 4 * PREVIEW] for part in each["content"] if part["type"] == "text")
            line = " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
            return (line if len(line) <= PREVIEW else line[: PREVIEW - 1].rstrip() + "…") or None
    return None


def session(row: SessionRow, first_words: str | None) -> Json:
    """Return a session as clients see it; `first_words` as `preview` gives them."""
    return {
        "session_id": row.session_id,
        "title": row.title,
        "preview": first_words,
        "profile": row.profile,
        "model": row.model,
        "provider": row.provider,
        "busy": row.busy,
        "ephemeral": row.ephemeral,
        "origin": {"platform": row.origin.platform, **plain(row.origin)},
        "parent_session_id": row.parent_session_id,
        "active_run_id": row.active_run_id,
        "run_count": row.run_count,
        "usage": usage(row.usage),
        "metadata": row.metadata,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def run(row: RunRow) -> Json:
    """Return a run as clients see it."""
    return {
        "run_id": row.run_id,
        "session_id": row.session_id,
        "parent_run_id": row.parent_run_id,
        "status": row.status,
        "profile": row.profile,
        "model": row.model,
        "provider": row.provider,
        "platform": row.platform,
        "metadata": row.metadata,
        "last_seq": row.last_seq,
        "created_at": moment(row.created_at),
        "started_at": _moment(row.started_at),
        "finished_at": _moment(row.finished_at),
        "finish_reason": row.finish_reason,
        "output": row.output,
        "error": None if row.error is None else {"kind": row.error.kind, **plain(row.error)},
        "cancel_reason": row.cancel_reason,
        "usage": usage(row.usage),
    }


def message(row: MessageRow) -> Json:
    """Return one message of a transcript as clients see it."""
    return {
        "ordinal": row.ordinal,
        "run_id": row.run_id,
        "role": row.role,
        "at": moment(row.at),
        "message": row.message,
    }


def page(rows: list[Json], limit: int, cursor: str) -> Json:
    """Make a page of at most `limit` rows from up to one more; `cursor` names the field that goes on."""
    shown, more = rows[:limit], len(rows) > limit
    return {"data": shown, "has_more": more, "next": shown[-1][cursor] if more else None}
