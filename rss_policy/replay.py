"""Runs a script again from its record and compares everything that it does; never goes live."""

from dataclasses import dataclass
from typing import Any

from rss_policy.errors import Diverged, OutcomeMissing
from rss_policy.live import LiveScript
from rss_policy.script import Act, Answered, Call, Emit, Halt, RecordedAct, RecordedStep, Stop
from rss_policy.wire import digest_of


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


def follow(script: LiveScript, steps: tuple[RecordedStep, ...]) -> Halt:
    """Run the script along its record; return where the record ends.

    Raises:
        Diverged: the first difference, with both sides and the place.
    """
    halt: Halt | None = None
    for index, step in enumerate(steps):
        halt = _step(script, index, step)
    if halt is None:
        raise ValueError("a record has at least one step")
    return halt


def _step(script: LiveScript, index: int, step: RecordedStep) -> Halt:
    trace = _Trace(index, step)
    if step.call is None:
        halt = script.begin(trace.answer, trace.observe)
    else:
        halt = script.settle(step.call, step.outcome, trace.answer, trace.observe)
    trace.finish()
    return halt


@dataclass(slots=True)
class _Trace:
    """Compares one step, act by act, while it happens."""

    index: int
    step: RecordedStep
    done: int = 0

    def answer(self, kind: str) -> Any:
        expected = self._expected()
        if expected is None:
            raise OutcomeMissing(self.index, None, kind)
        if expected.act != "answer" or expected.kind != kind:
            raise Diverged(self.index, expected, RecordedAct("answer", "", kind=kind), expected.at)
        return expected.value

    def observe(self, act: Act) -> None:
        expected, now = self._expected(), recorded(act)
        if expected != now:
            raise Diverged(self.index, expected, now, act.at or None)
        self.done += 1

    def finish(self) -> None:
        expected = self._expected()
        if expected is not None:
            raise Diverged(self.index, expected, None, expected.at or None)

    def _expected(self) -> RecordedAct | None:
        return self.step.acts[self.done] if self.done < len(self.step.acts) else None


__all__ = ["digest_of", "follow", "recorded"]
