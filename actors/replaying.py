"""A recorded run as the engine replays it, and its replay: recovery and audit read the log with the same code."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from actors.context import ContextChanged, rebuilt, started_run
from actors.ports import Profiles
from actors.steps import read_outcome, recorded_act, tool_outcome
from eventstore.catalogue import Outcome, RunCompleted, RunFailed, ScriptAdvanced, ToolCompleted
from eventstore.log import EventLog
from eventstore.queries import Queries
from rss_policy.errors import Diverged, LimitReached, PolicyError
from rss_policy.replay import Opener, replay
from rss_policy.script import Ended, Halt, Raised, RecordedStep, Waiting


@dataclass(slots=True)
class Recording:
    """A run's journal: its steps, batches so far of each stream, when each call was recorded (UTC, µs), what was stopped."""

    steps: tuple[RecordedStep, ...] = ()
    batches: dict[int, int] = field(default_factory=dict)
    issued: dict[int, int] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    end: Any = None


@dataclass(frozen=True, slots=True)
class Report:
    """How a replay went: `equal`, or the first difference with both sides and its place (`module:line`)."""

    run_id: str
    steps: int
    acts: int
    equal: bool
    code: str | None = None
    message: str | None = None
    place: str | None = None


def record_of(log: EventLog, run_id: str) -> Recording:
    """Read a run's journal; blocks on the log.

    Raises:
        LogError: the log failed.
    """
    recording, steps = Recording(), list[RecordedStep]()
    results: dict[int, ToolCompleted] = {}
    streams: dict[int, Iterator[bytes]] = {}
    for envelope in log.read(f"run-{run_id}"):
        match envelope.event:
            case ScriptAdvanced() as step:
                outcome = _outcome(log, run_id, step.outcome, results, streams)
                steps.append(RecordedStep(step.call, outcome, tuple(recorded_act(act) for act in step.acts)))
                _note(recording, step, envelope.at)
            case ToolCompleted() as completed:
                results[completed.seq] = completed
            case RunCompleted() | RunFailed() as end:
                recording.end = end
    recording.steps = tuple(steps)
    return recording


def replay_run(log: EventLog, queries: Queries, engine: Opener, profiles: Profiles, run_id: str) -> Report:
    """Run a recorded run again, offline, and compare every call, every event and its result; never goes live.

    A limit of the engine that ended the run is a fact of the record: its step is followed up to there and no further.

    Raises:
        EngineFailed: the engine could not replay; LogError: the log failed.
    """
    recording = record_of(log, run_id)
    steps = recording.steps
    limited = isinstance(recording.end, RunFailed) and recording.end.error.code == LimitReached.code
    try:
        admitted, started, position = started_run(log, run_id)
        context = rebuilt(log, queries, admitted, started, position)
        bundle = profiles.bundle(started.policy_digest, log.blob)
        result = replay(engine, bundle, context, steps, limited=limited and bool(steps))
    except (ContextChanged, PolicyError) as error:
        return _unequal(run_id, steps, error.code, str(error), getattr(error, "place", None))
    if isinstance(result, Diverged):
        return _unequal(run_id, steps, result.code, str(result), result.place)
    difference = _other_end(result.halt, recording.end)
    if difference is not None:
        return _unequal(run_id, steps, Diverged.code, difference, None)
    return Report(run_id, result.steps, result.acts, equal=True)


def _unequal(run_id: str, steps: tuple[RecordedStep, ...], code: str, message: str, place: str | None) -> Report:
    acts = sum(len(step.acts) for step in steps)
    return Report(run_id, len(steps), acts, equal=False, code=code, message=message, place=place)


def _note(recording: Recording, step: ScriptAdvanced, at: int) -> None:
    for act in step.acts:
        if act.act == "call" and act.number is not None:
            recording.issued[act.number] = at
        elif act.act == "stop" and act.number is not None:
            recording.stopped.add(act.number)
    if step.outcome is not None and step.outcome.batch is not None:
        recording.batches[step.outcome.value["of"]] = step.outcome.batch


def _outcome(
    log: EventLog,
    run_id: str,
    outcome: Outcome | None,
    results: dict[int, ToolCompleted],
    streams: dict[int, Iterator[bytes]],
) -> Any:
    """Return what the script was given; batches of a stream are read in order, each once."""
    if outcome is None:
        return None
    if outcome.seq is not None:
        return tool_outcome(results[outcome.seq])
    value: Any = outcome.value
    if not isinstance(value, dict) or "of" not in value:
        return value
    raw = b""
    if outcome.batch is not None:
        if value["of"] not in streams:
            streams[value["of"]] = iter(log.batches(run_id, value["of"]))
        raw = next(streams[value["of"]], b"")
    return read_outcome(value, raw)


def _other_end(halt: Halt | None, end: Any) -> str | None:
    """Say how the script's end differs from the recorded one; a run that was ended from outside has none to compare."""
    match halt, end:
        case Ended(result={"output": output}), RunCompleted() if output is not None and output != end.output:
            return "the script returned another output"
        case Raised() | Waiting(), RunCompleted():
            return "the script does not end where the record says that it did"
        case Raised(code=code), RunFailed(error=problem) if problem.kind == "policy" and problem.code != code:
            return f"the script raised {code}, recorded is {problem.code}"
        case _:
            return None
