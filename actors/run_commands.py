"""What a run can be told, and the work that it owes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from actors.aggregate import NO_ATTACHMENTS, Attachments
from actors.ports import EffectClass, ToolResult
from eventstore.catalogue import Json, Outcome, Problem, RunAdmitted, RunStarted, ToolCompleted
from rss_policy.script import Act, Ended, Raised

SETTLE = "settle"
"""Key of the message to the session that the run has ended."""

# --- commands --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Leave the queue, with the prepared start (its `seq` is set here)."""

    start: RunStarted
    attachments: Attachments = NO_ATTACHMENTS


@dataclass(frozen=True, slots=True)
class ToolFact:
    """A call of a tool as the host knows it; `effect` None: there is no such tool."""

    call_id: str
    name: str
    effect: EffectClass | None


@dataclass(frozen=True, slots=True)
class Advance:
    """Record what the script did with one outcome; `tools` has a fact for each tool call among the acts.

    `quiet`: steps before it that only began to read on; they wait to be recorded with the next that did more.
    `handed`: for each answer to `new_messages` among the acts, how many steering messages it handed out.
    `end` comes along when the script ended with no tool at work.  `life`: the take-up to which it belongs; what an earlier
    one did is void.
    """

    life: int
    step: int
    call: int | None
    outcome: Outcome | None
    acts: tuple[Act, ...]
    tools: Mapping[int, ToolFact]
    handed: tuple[int, ...] = ()
    end: Ended | Raised | None = None
    quiet: tuple["Advance", ...] = ()
    attachments: Attachments = NO_ATTACHMENTS


@dataclass(frozen=True, slots=True)
class Finish:
    """Record the end of a script whose last step is on record, now that its tools were stopped."""

    life: int
    step: int
    end: Ended | Raised


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run, which cannot go on."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class ReportTool:
    """Say how an attempt of a tool call went."""

    call: int
    attempt: int
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Steer:
    """Hand a message to the run at work."""

    message_id: str
    input: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run from outside."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class MeetDeadline:
    """End the run, whose time is over."""


@dataclass(frozen=True, slots=True)
class StopWaiting:
    """Do not wait any longer for the tools of a run that is to end."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Do what is owed, and tell the session of the end, again if it was told; changes nothing."""

    reminds: frozenset[str] = frozenset({SETTLE})


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Sent when a server starts: count this start, if the run was begun before."""

    mode: Literal["resume", "fail"]


@dataclass(frozen=True, slots=True)
class Recover:
    """Sent by the shell after every replay: settle what a crash left open."""

    mode: Literal["resume", "fail"]


Command = (
    Begin | Advance | Finish | Fail | ReportTool | Steer | Cancel | MeetDeadline | StopWaiting | Wake | TakeUp | Recover
)

# --- effects ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Make sure that the session knows of its queued run."""

    key: str
    session_id: str


@dataclass(frozen=True, slots=True)
class DriveScript:
    """Bring the script to where the record ends, if it is not there, and let it take the next outcome.

    Launched twice for one step and life, it means that the actor is another one: what the script did since is void.
    """

    key: str
    run_id: str
    step: int
    life: int


@dataclass(frozen=True, slots=True)
class OfferMessage:
    """Keep a steering message ready for the script; messages are handed out by their `order`."""

    key: str
    run_id: str
    order: int
    input: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class PerformCall:
    """Do what the script asked for."""

    key: str
    run_id: str
    number: int
    kind: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DeliverResult:
    """Hand a recorded outcome to the script: a tool's result, or None for what a crash interrupted."""

    key: str
    run_id: str
    number: int
    kind: str
    result: ToolCompleted | None


@dataclass(frozen=True, slots=True)
class StopCall:
    """End a call that the script does not want any more."""

    key: str
    run_id: str
    number: int
    kind: str


@dataclass(frozen=True, slots=True)
class CutStream:
    """Cut the exchange of a request whose stream the script stopped."""

    key: str
    run_id: str
    number: int


@dataclass(frozen=True, slots=True)
class ArmDeadline:
    """Send `MeetDeadline` at a time, UTC in microseconds."""

    key: str
    run_id: str
    at: int


@dataclass(frozen=True, slots=True)
class StopWork:
    """Cut exchanges, kill the script, tell the tools, and send `StopWaiting` after a while."""

    key: str
    run_id: str


@dataclass(frozen=True, slots=True)
class CloseRun:
    """Forget script, exchanges, timers and tools of a run that has ended."""

    key: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SettleSession:
    """Tell the session that its run has ended; `admitted` is the pattern for a run that goes on with what is left."""

    key: str
    run_id: str
    session_id: str
    status: Literal["completed", "cancelled", "failed"]
    consumed: tuple[str, ...]
    admitted: RunAdmitted


Effect = (
    AwaitTurn
    | DriveScript
    | OfferMessage
    | PerformCall
    | DeliverResult
    | StopCall
    | CutStream
    | ArmDeadline
    | StopWork
    | CloseRun
    | SettleSession
)
