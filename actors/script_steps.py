"""What the script performer needs of the process, and how it puts one step into words for the record."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from actors.aggregate import NO_ATTACHMENTS, Attachments
from actors.context import ContextChanged, Contexts
from actors.delivery import Deliver, Delivery, plain
from actors.drives import Back, Drive, Hand
from actors.model_performer import interrupted_read, stopped_read
from actors.performers import Performers
from actors.ports import Toolbox
from actors.run_commands import Advance, Command, DeliverResult, PerformCall, StopCall, ToolFact
from actors.steps import failure, tool_outcome
from eventstore.catalogue import Outcome, Problem, RunAdmitted
from eventstore.log import Batch, EventLog
from rss_policy.errors import Diverged, PolicyError
from rss_policy.script import Call, Ended, Engine, Halt, Raised, Script, Waiting


class Calls(Protocol):
    """Who performs a script's calls; from any thread, without waiting."""

    def perform(self, doing: "Doing", deliver: Deliver, back: Back) -> None:
        """Begin a call; raise Refused where there is no room for it now."""

    def stop(self, effect: StopCall, payload: dict[str, Any], deliver: Deliver) -> None:
        """End a call that the script stopped."""

    def stop_tool(self, run_id: str, number: int) -> None:
        """Tell a tool call that it is not wanted."""

    def stop_all(self, run_id: str) -> None:
        """End every call of a run."""


@dataclass(frozen=True, slots=True)
class Doing:
    """A call that is to be performed; `issued`: when it was recorded first, UTC in microseconds."""

    admitted: RunAdmitted
    call: Call
    effect: PerformCall
    issued: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What driving scripts takes: `later` calls back after seconds, `now` is UTC in microseconds, `grace` is seconds."""

    engine: Engine
    contexts: Contexts
    log: EventLog
    calls: Calls
    performers: Performers
    later: Callable[[Hashable, float, Callable[[], None]], None]
    now: Callable[[], int]
    new_id: Callable[[], str]
    toolbox: Callable[[RunAdmitted], Toolbox | None]
    grace: float


def advance_of(
    drive: Drive, delivery: Delivery | None, halt: Halt, hand: Hand, toolbox: Callable[[RunAdmitted], Toolbox | None]
) -> Advance:
    """Return the command that records a step; under the drive's lock.

    The end comes along unless tools are at work, which `drive.ended` tells: they are stopped first.
    """
    outcome, attachments = _recorded(drive, delivery)
    tools = toolbox(drive.admitted) if drive.admitted is not None else None
    return Advance(
        life=drive.life,
        step=drive.reported,
        call=delivery.number if delivery is not None else None,
        outcome=outcome,
        acts=halt.acts,
        tools={act.number: _fact(act, tools) for act in halt.acts if isinstance(act, Call) and act.kind == "call_tool"},
        handed=tuple(hand.counts),
        end=halt if isinstance(halt, Ended | Raised) and drive.ended is None else None,
        attachments=attachments,
    )


def is_quiet(halt: Halt) -> bool:
    """Return whether a step did nothing that anybody waits for: it only began to read on."""
    return isinstance(halt, Waiting) and all(isinstance(act, Call) and act.kind == "read" for act in halt.acts)


def nobody(_command: Command) -> None:
    """Take a command to nobody: the run's actor has not asked for anything yet."""


def delivery_of(effect: DeliverResult) -> Delivery:
    """Return a recorded outcome as the script gets it, or that a crash interrupted the call."""
    if effect.result is not None:
        return Delivery(effect.number, tool_outcome(effect.result), Outcome(seq=effect.result.seq))
    if effect.kind == "read":
        return interrupted_read(effect.number)
    return plain(effect.number, failure("interrupted", "the server stopped while this call was under way"))


def unless_stopped(drive: Drive, script: Script, delivery: Delivery) -> Delivery:
    """Return an outcome as the script gets it: a read of a stream that it stopped brings nothing, whatever came."""
    call = script.outstanding.get(delivery.number)
    of = call.payload.get("of") if call is not None and call.kind == "read" else None
    return stopped_read(delivery.number, of) if of is not None and of in drive.stopped else delivery


def fault_of(error: BaseException) -> Problem | None:
    """Return why a run fails over an error, or None where another try may help."""
    match error:
        case Diverged() | PolicyError():
            return Problem(code=error.code, message=str(error), kind="policy", place=error.place)
        case ContextChanged():
            return Problem(code=error.code, message=str(error))
        case _:
            return None


def _fact(call: Call, toolbox: Toolbox | None) -> ToolFact:
    name = str(call.payload.get("name"))
    tool = toolbox.find(name) if toolbox is not None else None
    return ToolFact(str(call.payload.get("call_id") or call.number), name, tool.effect if tool is not None else None)


def _recorded(drive: Drive, delivery: Delivery | None) -> tuple[Outcome | None, Attachments]:
    """Return the outcome as the journal keeps it, and its raw bytes as the next batch of their stream."""
    if delivery is None:
        return None, NO_ATTACHMENTS
    if not delivery.raw:
        return delivery.outcome, NO_ATTACHMENTS
    number = drive.batches[delivery.of] = drive.batches.get(delivery.of, 0) + 1
    outcome = Outcome(value=delivery.outcome.value, batch=number)
    return outcome, Attachments(batches=(Batch(drive.run_id, delivery.of, number, delivery.raw),))
