"""One run: a script's steps, its calls, its recovery, and how it ends.

The files beside this one hold its parts: `run_state` (state and `evolve`), `run_commands` (commands and effects),
`run_decide` and `run_end` (`decide`); here is what it owes, and the aggregate.
"""

from collections.abc import Iterator, Sequence
from typing import get_args

from actors.aggregate import Aggregate, Attachments
from actors.run_commands import (
    SETTLE,
    Advance,
    ArmDeadline,
    AwaitTurn,
    Begin,
    CloseRun,
    Command,
    CutStream,
    DeliverResult,
    DriveScript,
    Effect,
    OfferMessage,
    PerformCall,
    SettleSession,
    StopCall,
    StopWork,
)
from actors.run_decide import decide
from actors.run_state import Call, Run, evolve
from eventstore.catalogue import RunAdmitted, RunEvent, ScriptAdvanced, StreamSealed
from eventstore.log import Seal


def pending(run: Run) -> Iterator[Effect]:
    """Name the work that a run in this state owes."""
    if run.admitted is None:
        return
    if run.end is not None:
        yield CloseRun("close", run.run_id)
        yield from _settle(run, run.admitted)
    elif run.started is None:
        yield AwaitTurn("await-turn", run.admitted.session_id)
    elif run.ending is not None:
        yield StopWork("stop-work", run.run_id)
    else:
        yield from _work(run)


def _work(run: Run) -> Iterator[Effect]:
    if run.started is not None and run.started.deadline_at is not None:
        yield ArmDeadline("deadline", run.run_id, run.started.deadline_at)
    for message_id, message in run.steered.items():
        yield OfferMessage(f"offer-{message_id}", run.run_id, run.heard.index(message_id), message.input)
    yield DriveScript(f"step-{run.steps}.{run.lives}", run.run_id, run.steps, run.lives)
    for number in sorted(run.cut):
        yield CutStream(f"cut-{number}", run.run_id, number)
    for number in sorted(run.calls):
        yield from _call(run, run.calls[number])


def _call(run: Run, call: Call) -> Iterator[Effect]:
    if call.result is not None or call.lost:
        yield DeliverResult(f"deliver-{call.number}.{run.lives}", run.run_id, call.number, call.kind, call.result)
        return
    if call.kind != "call_tool" or call.at_work:
        attempt = max(call.attempt, 1)
        yield PerformCall(f"call-{call.number}#{attempt}.{run.lives}", run.run_id, call.number, call.kind, attempt)
    if call.stopping:
        yield StopCall(f"stop-{call.number}.{run.lives}", run.run_id, call.number, call.kind)


def _settle(run: Run, admitted: RunAdmitted) -> Iterator[Effect]:
    match run.status:
        case "completed" | "cancelled" | "failed" as status:
            yield SettleSession(SETTLE, run.run_id, admitted.session_id, status, run.consumed, admitted)


def attach(run: Run, command: Command, events: Sequence[RunEvent]) -> Attachments:
    """Attach the raw batch of a step that was recorded, and a seal for each stream that was closed."""
    stepped = any(isinstance(event, ScriptAdvanced) for event in events)
    steps = (*command.quiet, command) if isinstance(command, Advance) and stepped else ()
    batches = tuple(batch for step in steps for batch in step.attachments.batches)
    blobs = command.attachments.blobs if isinstance(command, Begin) else ()
    seals = tuple(Seal(run.run_id, event.call) for event in events if isinstance(event, StreamSealed))
    return Attachments(batches, seals, blobs)


def may_rest(run: Run) -> bool:
    """Keep the actor of a run at work: its script, exchanges and tools are in this process."""
    return not run.active


RUN: Aggregate[Run, Command, RunEvent, Effect] = Aggregate(
    "run", Run(), get_args(RunEvent), decide, evolve, pending, attaches=attach, lifespan=may_rest
)
