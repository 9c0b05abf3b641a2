"""Runs a script again from its record and compares everything that it does; never goes live."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rss_policy.errors import Diverged, LimitReached, OutcomeMissing
from rss_policy.live import LiveScript
from rss_policy.script import Act, Answered, BundleRef, Call, Emit, Halt, Raised, RecordedAct, RecordedStep, Stop
from rss_policy.wire import digest_of

Redacted = Callable[[dict[str, Any]], dict[str, Any]]
"""What the log makes of an event before it is recorded."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The whole record was followed and nothing differed.

    `halt` is where the record ends; None where the record says that a limit fired in its last step.
    """

    steps: int
    acts: int
    halt: Halt | None


class Opener(Protocol):
    """What a replay needs of an engine."""

    @property
    def redacted(self) -> Redacted:
        """What the log makes of an event."""

    def reopen(self, bundle: BundleRef, context: dict[str, Any]) -> LiveScript:
        """Give a script whose limits are as wide as a replay's."""


class LimitMet(Exception):
    """A limit fired where the record does not say so; carries the halt."""

    def __init__(self, halt: Raised) -> None:
        super().__init__(halt.message)
        self.halt = halt


def replay(
    engine: Opener,
    bundle: BundleRef,
    context: dict[str, Any],
    steps: tuple[RecordedStep, ...],
    *,
    limited: bool = False,
) -> Replayed | Diverged:
    """Run a script along its record, offline, and return what came out; the script never gets what is not recorded.

    With `limited`, the record says that a limit ended the script in its last step: that step is followed up to its last
    recorded act and no further, because a limit that fired is a fact, never evaluated again.  Blocks while it runs.

    Raises:
        PolicyError: the bundle or the context is at fault, or a limit fired although it is ten times wider here.
        EngineFailed: no worker came free, or it died.
    """
    whole, last = (steps[:-1], steps[-1:]) if limited else (steps, ())
    script = engine.reopen(bundle, context)
    halt: Halt | None = None
    try:
        halt = follow(script, whole, engine.redacted) if whole else None
        for step in last:
            _follow_to_limit(script, len(whole), step, engine.redacted)
    except Diverged as difference:
        return difference
    except LimitMet as met:
        raise LimitReached(str(met), "replay", met.halt.at) from None
    finally:
        script.close()
    return Replayed(len(steps), sum(len(step.acts) for step in steps), None if limited else halt)


def recorded(act: Act) -> RecordedAct:
    """Return what the log holds of an act; pure."""
    match act:
        case Emit(event, at):
            return RecordedAct("emit", at, event=event)
        case Call(number, kind, payload, at):
            digest, size = digest_of(payload)
            return RecordedAct("call", at, number=number, kind=kind, digest=digest, size=size)
        case Stop(number, at):
            return RecordedAct("stop", at, number=number)
        case Answered(kind, value, at):
            return RecordedAct("answer", at, kind=kind, value=value)


def by_digest(act: Emit) -> RecordedAct:
    """Return what a log holds of an emission that keeps the event elsewhere, in a shape of its own; pure."""
    digest, size = digest_of(act.event)
    return RecordedAct("emit", act.at, digest=digest, size=size)


def follow(script: LiveScript, steps: tuple[RecordedStep, ...], redacted: Redacted) -> Halt:
    """Run a script along its record; return where the record ends.

    Raises:
        Diverged: the first difference, with both sides and the place.
        LimitMet: a limit ended the script.
        EngineFailed: no worker came free, or it died.
        ValueError: the record is empty.
    """
    halt: Halt | None = None
    for index, step in enumerate(steps):
        halt = _step(script, step, _Trace(index, step, redacted))
    if halt is None:
        raise ValueError("a record has at least one step")
    return halt


def _step(script: LiveScript, step: RecordedStep, trace: "_Trace") -> Halt:
    if step.call is None:
        halt = script.begin(trace.answer, trace.observe)
    elif step.call in script.outstanding:
        halt = script.settle(step.call, step.outcome, trace.answer, trace.observe)
    else:
        raise Diverged(trace.index, f"outcome of call {step.call}", f"outstanding {sorted(script.outstanding)}")
    if isinstance(halt, Raised) and halt.code == LimitReached.code:
        raise LimitMet(halt)
    trace.finish(halt)
    return halt


def _follow_to_limit(script: LiveScript, index: int, step: RecordedStep, redacted: Redacted) -> None:
    if not step.acts:
        return
    try:
        _step(script, step, _Trace(index, step, redacted, stop_at_last=True))
    except (_RecordOver, LimitMet):
        return


class _RecordOver(Exception):
    """The last recorded act was seen."""


@dataclass(slots=True)
class _Trace:
    """Compares one step with its record, act by act, while it happens."""

    index: int
    step: RecordedStep
    redacted: Redacted
    stop_at_last: bool = False
    done: int = 0

    def answer(self, kind: str) -> Any:
        """Give the recorded answer."""
        expected = self._expected()
        if expected is None:
            raise OutcomeMissing(self.index, None, f"a question for {kind}")
        if expected.act != "answer" or expected.kind != kind:
            raise Diverged(self.index, expected, f"a question for {kind}", expected.at or None)
        return expected.value

    def observe(self, act: Act) -> None:
        """Compare one act with its record."""
        seen = Emit(self.redacted(act.event), act.at) if isinstance(act, Emit) else act
        expected, now = self._expected(), recorded(seen)
        if isinstance(act, Emit) and expected is not None and expected.act == "emit" and expected.event is None:
            now = by_digest(act)
        if expected is not None and expected.digest and (now.digest or "").startswith(expected.digest):
            now = replace(now, digest=expected.digest)  # the record may keep the beginning only
        if expected != now:
            raise Diverged(self.index, expected, now, act.at or None)
        self.done += 1
        if self.stop_at_last and self.done == len(self.step.acts):
            raise _RecordOver

    def finish(self, halt: Halt) -> None:
        """Refuse a step that did less than its record."""
        expected = self._expected()
        if expected is not None:
            raise Diverged(self.index, expected, _without_acts(halt), expected.at or None)

    def _expected(self) -> RecordedAct | None:
        return self.step.acts[self.done] if self.done < len(self.step.acts) else None


def _without_acts(halt: Halt) -> str:
    return f"{type(halt).__name__.lower()}: {halt.message}" if isinstance(halt, Raised) else type(halt).__name__.lower()


__all__ = ["LimitMet", "Replayed", "digest_of", "follow", "recorded", "replay"]
