"""What a run knows, folded from its stream: its calls, streams, messages, usage, and how it ended.

A call's payload is no part of it: the log holds its digest, the script holds the payload, replay gives it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

from actors.ports import EffectClass
from eventstore import catalogue as log
from eventstore.catalogue import Outcome, RunEvent, TerminalEvent, Usage

NO_CALL = 0
"""The `call` of a `tool.completed` for a tool call that never became a host call."""


Status = Literal["queued", "running", "completed", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Call:
    """A host call that the script has not been given the outcome of; `attempt` 0: a tool that was not started.

    `lost`: its performer died with a server.  `stopping`: the script does not want it any more.  `result`: a tool's
    recorded outcome.
    """

    number: int
    kind: str
    attempt: int = 0
    call_id: str = ""
    name: str = ""
    effect: EffectClass = "once"
    stopping: bool = False
    lost: bool = False
    result: log.ToolCompleted | None = None

    @property
    def at_work(self) -> bool:
        """Return whether a tool was started whose outcome is not on record."""
        return self.attempt > 0 and self.result is None


@dataclass(frozen=True, slots=True)
class Stream:
    """A provider stream whose raw batches are not sealed yet; `size` in bytes."""

    batches: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a run knows.

    `cut`: requests whose streams the last step stopped.  `steered`: messages that the script has not taken in, by id;
    `heard`: all that ever came.  `dangling`: tool calls of the model's messages without a result, id to name.  `partial`:
    text of the attempt under way.  `lives`: take-ups from a step on.
    """

    run_id: str = ""
    admitted: log.RunAdmitted | None = None
    started: log.RunStarted | None = None
    seq: int = 0
    steps: int = 0
    calls: Mapping[int, Call] = field(default_factory=dict)
    streams: Mapping[int, Stream] = field(default_factory=dict)
    cut: frozenset[int] = frozenset()
    steered: Mapping[str, log.MessageSteered] = field(default_factory=dict)
    heard: tuple[str, ...] = ()
    consumed: tuple[str, ...] = ()
    dangling: Mapping[str, str] = field(default_factory=dict)
    last_message: Mapping[str, Any] | None = None
    partial: str = ""
    usage: Usage | None = None
    ending: log.CancelRequested | None = None
    recoveries: int = 0
    lives: int = 0
    end: TerminalEvent | None = None

    @property
    def active(self) -> bool:
        """Return whether the run was started and has no end."""
        return self.started is not None and self.end is None

    @property
    def status(self) -> Status:
        """Return the run's status as clients see it."""
        match self.end:
            case None:
                return "queued" if self.started is None else "running"
            case log.RunCompleted():
                return "completed"
            case log.RunCancelled():
                return "cancelled"
            case log.RunFailed():
                return "failed"
            case _:
                assert_never(self.end)

    def tools_at_work(self) -> list[Call]:
        """Return the started tool calls without an outcome on record, in order."""
        return [call for _, call in sorted(self.calls.items()) if call.at_work]


class Record:
    """Events that are being decided, over the state that they give."""

    __slots__ = ("events", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events: list[RunEvent] = []

    def add(self, event: RunEvent) -> None:
        """Record an event."""
        self.events.append(event)
        self.run = evolve(self.run, event)

    @property
    def seq(self) -> int:
        """The next canonical event's place in the run."""
        return self.run.seq + 1

    @property
    def limits(self) -> Mapping[str, Any]:
        """The run's limits."""
        return self.run.admitted.limits if self.run.admitted is not None else {}


def evolve(run: Run, event: RunEvent) -> Run:
    """Apply an event."""
    if isinstance(event, log.Canonical):
        run = replace(run, seq=event.seq)
    match event:
        case log.ScriptAdvanced():
            return _advance(run, event)
        case log.ModelStarted() | log.ModelDelta() | log.ModelCompleted() | log.ModelDiscarded():
            return _model(run, event)
        case log.ToolStarted() | log.ToolCompleted():
            return _tool(run, event)
        case log.RunAdmitted() | log.RunStarted() | log.RunCompleted() | log.RunCancelled() | log.RunFailed():
            return _live(run, event)
        case _:
            return _journal(run, event)


def total(sum_so_far: Usage | None, more: Usage | None) -> Usage | None:
    """Add usage; a cost is known only where every part's is, so that an unknown price never passes as zero."""
    if more is None:
        return sum_so_far
    sum_so_far = sum_so_far or Usage(cost_micros=0)
    known = sum_so_far.cost_micros is not None and more.cost_micros is not None
    return Usage(
        input_tokens=sum_so_far.input_tokens + more.input_tokens,
        output_tokens=sum_so_far.output_tokens + more.output_tokens,
        cached_tokens=sum_so_far.cached_tokens + more.cached_tokens,
        cache_write_tokens=sum_so_far.cache_write_tokens + more.cache_write_tokens,
        reasoning_tokens=sum_so_far.reasoning_tokens + more.reasoning_tokens,
        cost_micros=(sum_so_far.cost_micros or 0) + (more.cost_micros or 0) if known else None,
    )


def tool_calls_of(message: Mapping[str, Any]) -> dict[str, str]:
    """Return id and name of each tool call in a canonical assistant message."""
    parts = message.get("content")
    return {
        str(part.get("id")): str(part.get("name"))
        for part in (parts if isinstance(parts, list | tuple) else ())
        if isinstance(part, Mapping) and part.get("type") == "tool_call"
    }


# --- one function per event that needs more than a line ------------------------------------


def _live(run: Run, event: log.RunAdmitted | log.RunStarted | log.RunCompleted | log.RunCancelled | log.RunFailed) -> Run:
    match event:
        case log.RunAdmitted():
            return replace(run, admitted=event, run_id=event.run_id)
        case log.RunStarted():
            return replace(run, started=event)
        case _:
            return replace(run, end=event)


def _journal(run: Run, event: RunEvent) -> Run:
    match event:
        case log.StreamSealed():
            return replace(run, streams={number: each for number, each in run.streams.items() if number != event.call})
        case log.MessageSteered():
            return replace(run, steered={**run.steered, event.message_id: event}, heard=(*run.heard, event.message_id))
        case log.CancelRequested():
            return replace(run, ending=run.ending or event)
        case log.RecoveryStarted():
            return _lose(run, event)
        case _:
            return run  # notes, and what later kinds of calls record: nothing that a run decides by


def _advance(run: Run, event: log.ScriptAdvanced) -> Run:
    """Apply a step; messages are handed out in the order in which they came, so that their number says which."""
    calls = {number: call for number, call in run.calls.items() if number != event.call}
    # To learn that a call was lost is no progress: a run that takes the server down each time would never be given up.
    settled = any(call.lost for number, call in run.calls.items() if number == event.call)
    consumed: list[str] = []
    for act in event.acts:
        if act.act == "call" and act.number is not None:
            calls[act.number] = Call(act.number, act.kind or "")
        elif act.act == "stop" and act.number in calls:
            calls[act.number] = replace(calls[act.number], stopping=True)
        elif act.act == "answer" and act.kind == "new_messages":
            consumed.extend(list(run.steered)[len(consumed) :][: act.number])
    return replace(
        run,
        steps=event.step,
        calls=calls,
        streams=_with_batch(run.streams, event.outcome),
        cut=frozenset(act.number for act in event.acts if act.act == "stop" and act.number and act.number not in calls),
        steered={key: message for key, message in run.steered.items() if key not in consumed},
        consumed=(*run.consumed, *consumed),
        recoveries=run.recoveries if settled else 0,
    )


def _with_batch(streams: Mapping[int, Stream], outcome: Outcome | None) -> Mapping[int, Stream]:
    if outcome is None or outcome.batch is None:
        return streams
    number = outcome.value["of"]
    known = streams.get(number, Stream())
    return {**streams, number: Stream(outcome.batch, known.size + outcome.value["bytes"])}


def _model(run: Run, event: log.ModelStarted | log.ModelDelta | log.ModelCompleted | log.ModelDiscarded) -> Run:
    match event:
        case log.ModelStarted():
            return replace(run, partial="")
        case log.ModelDelta():
            return replace(run, partial=run.partial + event.text) if event.text else run
        case log.ModelCompleted():
            dangling = {**run.dangling, **tool_calls_of(event.message)}
            usage = total(run.usage, event.usage)
            return replace(run, partial="", usage=usage, last_message=event.message, dangling=dangling)
        case log.ModelDiscarded():
            return replace(run, partial="", usage=total(run.usage, event.usage))
        case _:
            assert_never(event)


def _tool(run: Run, event: log.ToolStarted | log.ToolCompleted) -> Run:
    call = run.calls.get(event.call)
    calls = run.calls
    match event:
        case log.ToolStarted() if call is not None:
            call = replace(call, attempt=event.attempt, call_id=event.call_id, name=event.name, effect=event.effect)
            calls = {**calls, event.call: call}
        case log.ToolCompleted() if call is not None:
            calls = {**calls, event.call: replace(call, result=event)}
    if isinstance(event, log.ToolStarted):
        return replace(run, calls=calls)
    dangling = {key: name for key, name in run.dangling.items() if key != event.call_id}
    return replace(run, calls=calls, dangling=dangling)


def _lose(run: Run, event: log.RecoveryStarted) -> Run:
    """Requests and reads died with their connection; a sleep is armed again, a tool is settled by its class."""
    calls = {
        number: replace(call, lost=True) if call.kind in ("request", "read") else call for number, call in run.calls.items()
    }
    return replace(run, calls=calls, recoveries=event.attempt, lives=run.lives + (run.steps > 0))
