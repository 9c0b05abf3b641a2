"""Between a script and the log: acts become steps and events, recorded steps become what a replay compares."""

from collections.abc import Mapping
from typing import Any, TypeVar, assert_never, cast

import msgspec

from actors.sse import events_of
from eventstore import catalogue as log
from eventstore.catalogue import Json, NoteTaken, Step
from rss_policy.script import Act, Answered, Call, Emit, RecordedAct, Stop
from rss_policy.wire import digest_of

EMITTABLE = frozenset(
    ["model.started", "model.delta", "model.completed", "model.discarded", "tool.requested", "compact.started"]
)
"""What a script may say happened; facts about what the host did are recorded by the host."""

NOTE = "note."

SHORT_DIGEST = 16
"""Hex digits kept of most digests: enough to see a difference, which is all that a replay asks; requests keep all."""


E = TypeVar("E", bound=log.Event)


class InvalidEvent(ValueError):
    """The script emitted what no event of the catalogue is."""


class TooLarge(InvalidEvent):
    """The script emitted an event that is larger than the limit."""


def step_of(act: Act) -> Step:
    """Return an act as the journal keeps it; of messages that were handed out, `number` says how many they stand for."""
    match act:
        case Emit():
            digest, size = digest_of(act.event)
            return Step(act="emit", at=act.at, digest=digest[:SHORT_DIGEST], size=size)
        case Call():
            digest, size = digest_of(act.payload)
            digest = digest if act.kind == "request" else digest[:SHORT_DIGEST]
            return Step(act="call", at=act.at, number=act.number, kind=act.kind, digest=digest, size=size)
        case Stop():
            return Step(act="stop", at=act.at, number=act.number)
        case Answered():
            return Step(act="answer", at=act.at, kind=act.kind, value=act.value)
        case _:
            assert_never(act)


def recorded_act(step: Step) -> RecordedAct:
    """Return a journal step as a replay compares it."""
    number = step.number if step.act != "answer" else None
    return RecordedAct(
        act=step.act,
        at=step.at,
        number=number,
        kind=step.kind,
        digest=step.digest,
        size=step.size,
        value=step.value,
    )


def event_of(emitted: Mapping[str, Any], seq: int, most_bytes: int) -> log.CanonicalEvent | NoteTaken:
    """Return the catalogue's event for what a script emitted; a note takes no `seq`.

    Raises:
        InvalidEvent: it is none, is of a type that a script may not emit, or is larger than `most_bytes`.
    """
    kind = str(emitted.get("type"))
    fields = {name: value for name, value in emitted.items() if name != "type"}
    if kind.startswith(NOTE):
        return _sized(NoteTaken(kind=kind.removeprefix(NOTE), data=fields), most_bytes)
    if kind not in EMITTABLE:
        raise InvalidEvent(f"a script may not emit {kind!r}")
    unknown = fields.keys() - set(log.TAGS[kind].__struct_fields__)
    if unknown or "seq" in fields:
        raise InvalidEvent(f"{kind} has no field {', '.join(sorted(unknown) or ['seq'])}")
    try:
        event = cast("log.CanonicalEvent", msgspec.convert({**fields, "seq": seq, "type": kind}, log.TAGS[kind]))
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"{kind}: {error}") from error
    return _sized(event, most_bytes)


def read_record(of: int, raw: bytes, *, done: bool, error: Json | None = None) -> Json:
    """Return what the journal keeps of a read; its events stand in the raw batch."""
    kept: Json = {"of": of, "done": done, "bytes": len(raw)}
    return kept if error is None else {**kept, "error": error}


def read_outcome(record: Mapping[str, Any], raw: bytes) -> Json:
    """Return the outcome of a read as the script gets it, live and in a replay, from its record and its raw bytes."""
    if "of" not in record:
        return dict(record)
    if (error := record.get("error")) is not None:
        return {"ok": False, "error": error, "events": events_of(raw)}
    return {"ok": True, "events": events_of(raw), "done": record["done"]}


def tool_outcome(completed: log.ToolCompleted) -> Json:
    """Return the outcome of a tool call as the script gets it, from the event that records it."""
    return {
        "ok": completed.outcome == "ok",
        "outcome": completed.outcome,
        "content": completed.content,
        "error": None if completed.error is None else msgspec.to_builtins(completed.error),
        "truncated": completed.truncated,
    }


def failure(code: str, message: str) -> Json:
    """Return the outcome of a host call that brought nothing."""
    return {"ok": False, "error": {"code": code, "message": message}}


def _sized(event: E, most_bytes: int) -> E:
    try:
        size = len(log.encode(event)[2])
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError, RecursionError) as error:
        raise InvalidEvent(f"{log.tag_of(event)} cannot be stored: {error}") from error
    if size > most_bytes:
        raise TooLarge(f"{log.tag_of(event)} has {size} bytes where {most_bytes} are allowed (limits.max_event_bytes)")
    return event
