"""How a run turns commands into events: every step of its script, its recovery, and its one end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

import msgspec

from actors.ports import ToolResult
from actors.run_commands import (
    Advance,
    Begin,
    Cancel,
    Command,
    Fail,
    Finish,
    MeetDeadline,
    Recover,
    ReportTool,
    Steer,
    StopWaiting,
    TakeUp,
    ToolFact,
    Wake,
)
from actors.run_end import DEADLINE, close_streams, complete_tool, end_cancelled, end_failed, end_script, start_tool
from actors.run_state import Call, Record, Run
from actors.settings import RECOVERIES, limit
from actors.steps import InvalidEvent, TooLarge, event_of, step_of
from eventstore import catalogue as log
from eventstore.catalogue import Problem, RunEvent
from rss_policy import script as policy

UNWANTED = {"code": "stopped", "message": "The script did not want the call any more."}


def decide(run: Run, command: Command) -> Sequence[RunEvent]:
    """Turn a command into events; what comes too late, or once more, gives none."""
    if run.admitted is None or run.end is not None:
        return ()
    record = Record(run)
    match command:
        case Advance():
            return _advance(run, command)
        case Begin() | Finish() | Fail() | ReportTool():
            _from_performer(record, command)
        case Steer() | Cancel() | MeetDeadline() | StopWaiting():
            _from_outside(record, command)
        case Wake() | TakeUp() | Recover():
            _from_keeper(record, command)
        case _:
            assert_never(command)
    return record.events


def _from_performer(record: Record, command: Begin | Finish | Fail | ReportTool) -> None:
    run = record.run
    match command:
        case Begin() if run.started is None:
            record.add(msgspec.structs.replace(command.start, seq=record.seq))
        case Finish() if run.active and run.ending is None and (command.life, command.step) == (run.lives, run.steps):
            end_script(record, command.end)
        case Fail():
            end_failed(record, command.problem)
        case ReportTool():
            _report(record, command)


def _from_outside(record: Record, command: Steer | Cancel | MeetDeadline | StopWaiting) -> None:
    run = record.run
    match command:
        case Steer() if run.active and run.ending is None and command.message_id not in run.heard:
            record.add(log.MessageSteered(message_id=command.message_id, input=command.input))
        case Cancel():
            _request_end(record, log.CancelRequested(reason=command.reason, by=command.by))
        case MeetDeadline() if run.active:
            _request_end(record, log.CancelRequested(reason=DEADLINE))
        case StopWaiting() if run.ending is not None:
            end_cancelled(record)


def _from_keeper(record: Record, command: Wake | TakeUp | Recover) -> None:
    """Recover what was begun; a run that was only just started looks the same after a crash, and the start tells of it."""
    run = record.run
    begun = run.steps > 0 or run.recoveries > 0
    match command:
        case TakeUp() if run.active and not begun:
            _recover(record, command.mode)
        case Recover() if run.active and begun:
            _recover(record, command.mode)


# --- the script's steps ----------------------------------------------------------------------


def _advance(run: Run, command: Advance) -> Sequence[RunEvent]:
    """Record one step whole; a step that breaks a limit is left out, and the run fails with the limit's name."""
    if not run.active or run.ending is not None:
        return ()
    record = Record(run)
    try:
        for step in (*command.quiet, command):
            if not _follows(record.run, step):
                return ()
            _record_step(record, step)
    except InvalidEvent as error:
        code = "limit_event_bytes" if isinstance(error, TooLarge) else "invalid_event"
        return _without_step(run, Problem(code=code, message=str(error)))
    problem = _broken_limit(record.run)
    if problem is not None:
        return _without_step(run, problem)
    if command.end is not None:
        end_script(record, command.end)
    return record.events


def _follows(run: Run, step: Advance) -> bool:
    """Return whether a step is the next one, with an outcome of an open call, and of this life of the run."""
    known = step.call is None or step.call in run.calls
    return known and (step.life, step.step) == (run.lives, run.steps + 1)


def _without_step(run: Run, problem: Problem) -> Sequence[RunEvent]:
    record = Record(run)
    end_failed(record, problem)
    return record.events


def _record_step(record: Record, command: Advance) -> None:
    settled = record.run.calls.get(command.call or 0)
    record.add(
        log.ScriptAdvanced(
            step=command.step,
            call=command.call,
            outcome=command.outcome,
            acts=_steps(command),
        )
    )
    most = limit(record.limits, "max_event_bytes")
    stopped = {act.number for act in command.acts if isinstance(act, policy.Stop)}
    for act in command.acts:
        if isinstance(act, policy.Emit):
            record.add(event_of(act.event, record.seq, most))
        elif isinstance(act, policy.Call) and act.kind == "call_tool":
            wanted = act.number not in stopped and command.end is None
            _let_through(record, act.number, command.tools[act.number], wanted=wanted)
    for number in sorted(stopped):
        close_streams(record, only=number)
    if settled is not None and settled.kind == "read":
        _close_if_over(record, command.outcome)


def _steps(command: Advance) -> tuple[log.Step, ...]:
    steps, handed = [step_of(act) for act in command.acts], iter(command.handed)
    return tuple(
        msgspec.structs.replace(step, number=next(handed, 0)) if step.kind == "new_messages" else step for step in steps
    )


def _let_through(record: Record, number: int, fact: ToolFact, *, wanted: bool) -> None:
    """Record a tool's start before it starts, or why it does not."""
    call = Call(number, "call_tool", 1, fact.call_id, fact.name, fact.effect or "once")
    if fact.effect is None:
        message = f"There is no tool named {fact.name!r}."
        error = {"code": "unknown_tool", "message": message}
        complete_tool(record, call, ToolResult("failed", message, error))
    elif not wanted:
        complete_tool(record, call, ToolResult("cancelled", "", UNWANTED))
    else:
        start_tool(record, call)


def _close_if_over(record: Record, outcome: log.Outcome | None) -> None:
    value: Any = outcome.value if outcome is not None else None
    if isinstance(value, dict) and (value.get("done") or "error" in value):
        close_streams(record, only=value.get("of"))


def _broken_limit(run: Run) -> Problem | None:
    limits = run.admitted.limits if run.admitted is not None else {}
    if run.seq > (most := limit(limits, "max_events")):
        return Problem(code="limit_events", message=f"The run made more than {most} events (limits.max_events).")
    if len(run.calls) > (most := limit(limits, "max_open_calls")):
        message = f"The script had more than {most} calls open at once (limits.max_open_calls)."
        return Problem(code="limit_open_calls", message=message)
    return None


def _report(record: Record, command: ReportTool) -> None:
    call = record.run.calls.get(command.call)
    if call is None or not call.at_work or call.attempt != command.attempt:
        return
    complete_tool(record, call, _unwanted(call, command.result))
    if record.run.ending is not None and not record.run.tools_at_work():
        end_cancelled(record)


def _unwanted(call: Call, result: ToolResult) -> ToolResult:
    if not call.stopping or result.outcome != "cancelled":
        return result
    return ToolResult("cancelled", result.content, UNWANTED, result.truncated)


# --- cancel and recovery -----------------------------------------------------------------------


def _request_end(record: Record, request: log.CancelRequested) -> None:
    """Record the request; the end follows at once where no tool is at work."""
    if record.run.ending is None:
        record.add(request)
        if not record.run.tools_at_work():
            end_cancelled(record)


def _recover(record: Record, mode: str) -> None:
    """Settle each outstanding call by its kind; requests and reads are interrupted by what `evolve` makes of this."""
    attempt = record.run.recoveries + 1
    if record.run.ending is not None:
        end_cancelled(record)
    elif mode == "fail":
        message = "The server stopped while the run was at work (server.recovery is 'fail')."
        end_failed(record, Problem(code="interrupted", message=message))
    elif attempt > RECOVERIES:
        message = f"The run was taken up {RECOVERIES} times and came no further."
        end_failed(record, Problem(code="recovery_exhausted", message=message))
    else:
        record.add(log.RecoveryStarted(attempt=attempt))
        close_streams(record)
        for call in record.run.tools_at_work():
            _recover_tool(record, call)


def _recover_tool(record: Record, call: Call) -> None:
    if call.effect == "once":
        complete_tool(record, call, None)
    elif call.stopping:
        complete_tool(record, call, _unwanted(call, ToolResult("cancelled", "")))
    else:
        start_tool(record, replace(call, attempt=call.attempt + 1))
