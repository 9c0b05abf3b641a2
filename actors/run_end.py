"""How a run ends: what is open is settled first, then comes the one terminal event."""

from typing import Any, Literal

import msgspec

from actors.ports import ToolResult
from actors.run_state import NO_CALL, Call, Record
from actors.settings import limit
from eventstore import catalogue as log
from eventstore.catalogue import Problem, Usage
from rss_policy.script import Ended, Raised

UNKNOWN = "The outcome of this call is unknown: the server stopped while it was at work.  It was not repeated."
CANCELLED = "This call was cancelled."
NEVER_RUN = "This call was not run."

DEADLINE = "deadline_exceeded"
"""The reason of a `run.cancel_requested` that nobody made."""

ToolEnd = Literal["ok", "failed", "denied", "cancelled", "unknown"]


def end_script(record: Record, end: Ended | Raised) -> None:
    """End the run as its script says."""
    match end:
        case Raised():
            end_failed(record, Problem(code=end.code, message=end.message, kind="policy", place=end.at))
        case Ended(result={"error": {"code": str(code), **error}}):
            message, kind = str(error.get("message", code)), str(error.get("kind", "other"))
            end_failed(record, Problem(code=code, message=message, kind=kind))
        case Ended(result={"output": dict() | None as output, **rest}):
            _complete(record, output, str(rest.get("finish_reason") or "stop"))
        case Ended():
            message = 'The script did not return {"output", "finish_reason", "error"}.'
            end_failed(record, Problem(code="invalid_result", message=message, kind="policy"))


def end_failed(record: Record, problem: Problem) -> None:
    """End the run as failed."""
    settle_open(record)
    usage = record.run.usage or Usage()
    record.add(log.RunFailed(seq=record.seq, error=problem, partial=record.run.partial, usage=usage))


def end_cancelled(record: Record) -> None:
    """End the run as was requested: by somebody (cancelled), or by a limit (failed, with the limit's code)."""
    request = record.run.ending
    if request is None or request.by is None:
        end_failed(record, _met_limit(record, request.reason if request is not None else "cancelled"))
        return
    settle_open(record)
    usage = record.run.usage or Usage()
    record.add(log.RunCancelled(seq=record.seq, reason=request.reason, partial=record.run.partial, usage=usage))


def settle_open(record: Record, client_tools: frozenset[str] = frozenset()) -> None:
    """Give every open tool call a result but those of the client's own tools, and close every stream."""
    for call in record.run.tools_at_work():
        complete_tool(record, call, None if call.effect == "once" else ToolResult("cancelled", CANCELLED))
    for call_id, name in record.run.dangling.items():
        if name not in client_tools:
            never = Call(NO_CALL, "call_tool", call_id=call_id, name=name)
            complete_tool(record, never, ToolResult("cancelled", NEVER_RUN))
    close_streams(record)


def close_streams(record: Record, only: int | None = None) -> None:
    """Seal streams: one, or all that have batches."""
    for number, stream in sorted(record.run.streams.items()):
        if only in (None, number):
            record.add(log.StreamSealed(call=number, batches=stream.batches, size=stream.size))


def start_tool(record: Record, call: Call) -> None:
    """Record that an attempt of a tool call may have an effect from here on."""
    record.add(
        log.ToolStarted(
            seq=record.seq,
            call=call.number,
            call_id=call.call_id,
            name=call.name,
            attempt=call.attempt,
            effect=call.effect,
        )
    )


def complete_tool(record: Record, call: Call, result: ToolResult | None) -> None:
    """Record how a tool call went; None: nobody knows."""
    outcome: ToolEnd = "unknown" if result is None else result.outcome
    record.add(
        log.ToolCompleted(
            seq=record.seq,
            call=call.number,
            call_id=call.call_id,
            name=call.name,
            outcome=outcome,
            content=UNKNOWN if result is None else result.content,
            error=_problem(result),
            truncated=result is not None and result.truncated,
        )
    )


def _problem(result: ToolResult | None) -> Problem | None:
    if result is None:
        return Problem(code="outcome_unknown", message=UNKNOWN)
    if result.error is None:
        return None
    try:
        return msgspec.convert(result.error, Problem)
    except msgspec.ValidationError:
        return Problem(code="tool_failed", message=str(result.error))


def _complete(record: Record, output: dict[str, Any] | None, finish_reason: str) -> None:
    schemas = record.run.admitted.tool_schemas if record.run.admitted is not None else ()
    names = frozenset(str(schema.get("name")) for schema in schemas) if finish_reason == "tool_calls" else frozenset[str]()
    settle_open(record, names)
    last = output or dict(record.run.last_message or {"role": "assistant", "content": []})
    usage = record.run.usage or Usage()
    record.add(log.RunCompleted(seq=record.seq, output=last, finish_reason=finish_reason, usage=usage))


def _met_limit(record: Record, code: str) -> Problem:
    if code == DEADLINE:
        most = limit(record.limits, "deadline_ms")
        return Problem(code="deadline_exceeded", message=f"The run took longer than {most} ms (limits.deadline_ms).")
    return Problem(code=code, message="The run was ended by the server.")
