"""Replay: the same journal gives the same acts, whatever happened to the worker; the first difference is reported."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rss_policy.bundle import Bundle
from rss_policy.engine import MontyEngine
from rss_policy.errors import Diverged, LimitReached, OutcomeMissing
from rss_policy.manifest import Limits
from rss_policy.replay import Replayed, digest_of, recorded, replay
from rss_policy.script import Answered, Call, Emit, Ended, Raised, RecordedAct, RecordedStep, Stop, Waiting
from tests.fakes.scripts import CONTEXT, answers, bundle_of

SCRIPT = """
import asyncio
from host import any_of, call_tool, emit, join, new_messages, now, random_id, start, stop


async def branch(word):
    one = await call_tool({"name": "shout", "arguments": word})
    emit({"type": "note.half", "word": word, "at": now()})
    two = await call_tool({"name": "shout", "arguments": one["content"] * 2})
    return two["content"]


async def run(context):
    emit({"type": "model.started", "id": random_id(), "set": [x for x in {"b", "a", "zz"}]})
    timer = start({"kind": "sleep", "ms": 1_000})
    first = start({"kind": "spawn", "n": 1})
    done = await any_of([timer, first])
    emit({"type": "note.first", "done": done, "value": await join(done), "steered": new_messages()})
    stop(timer)
    words = await asyncio.gather(*[branch(word) for word in ["ab", "cd", "ef"]])
    return {"words": words, "text": str({"a": 1.5, "b": None})}
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    opened = MontyEngine(3)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return bundle_of({"agent.main": SCRIPT})


def outcome_of(number: int) -> dict[str, Any]:
    return {"ok": True, "content": f"<{number}>"}


def journal(engine: MontyEngine, bundle: Bundle, choose: Any, *, park: bool = False) -> tuple[tuple[RecordedStep, ...], Any]:
    script, _ = engine.open(bundle, CONTEXT)
    halt = script.begin(answers)
    steps = [RecordedStep(None, None, tuple(map(recorded, halt.acts)))]
    while isinstance(halt, Waiting):
        if park:
            assert script.park()
        number = choose(sorted(script.outstanding))
        halt = script.settle(number, outcome_of(number), answers)
        steps.append(RecordedStep(number, outcome_of(number), tuple(map(recorded, halt.acts))))
    return tuple(steps), halt


def test_what_the_log_holds_of_each_act() -> None:
    digest, size = digest_of({"b": "é", "a": 1})
    assert size == len('{"a":1,"b":"é"}'.encode())
    assert digest == digest_of({"a": 1, "b": "é"})[0]
    assert recorded(Emit({"type": "note.x"}, "m:1")) == RecordedAct("emit", "m:1", event={"type": "note.x"})
    assert recorded(Call(3, "sleep", {"b": "é", "a": 1}, "m:2")) == RecordedAct(
        "call", "m:2", number=3, kind="sleep", digest=digest, size=size
    )
    assert recorded(Stop(3, "m:3")) == RecordedAct("stop", "m:3", number=3)
    assert recorded(Answered("now", 7, "m:4")) == RecordedAct("answer", "m:4", kind="now", value=7)


@pytest.mark.parametrize("choose", [min, max, lambda numbers: numbers[len(numbers) // 2]])
def test_a_journal_replays_offline_in_its_own_order(engine: MontyEngine, bundle: Bundle, choose: Any) -> None:
    steps, halt = journal(engine, bundle, choose)
    result = replay(engine, bundle, CONTEXT, steps)
    assert result == Replayed(len(steps), sum(len(step.acts) for step in steps), halt)
    assert isinstance(halt, Ended)


def test_every_order_of_outcomes_replays_to_its_own_end(engine: MontyEngine) -> None:
    text = (
        "import asyncio\nfrom host import call_tool, emit\n\nasync def b(w):\n"
        "    r = await call_tool({'w': w})\n    emit({'type': 'note.' + w})\n"
        "    return r['content']\n\nasync def run(context):\n"
        "    return await asyncio.gather(b('a'), b('b'), b('c'))\n"
    )
    small = bundle_of({"agent.main": text})
    seen = set()
    for order in itertools.permutations((1, 2, 3)):
        left = list(order)
        steps, halt = journal(engine, small, lambda _, left=left: left.pop(0))
        assert isinstance(replay(engine, small, CONTEXT, steps), Replayed)
        assert halt.result == ["<1>", "<2>", "<3>"]
        seen.add(tuple(act.event["type"] for step in steps for act in step.acts if act.event))
    assert len(seen) == 6


def test_parking_at_every_wait_changes_nothing(engine: MontyEngine, bundle: Bundle) -> None:
    assert journal(engine, bundle, max, park=True) == journal(engine, bundle, max)


PRINTED = """
import asyncio
import re
from dataclasses import dataclass
from host import emit, sleep

@dataclass(frozen=True)
class Point:
    x: int

    def far(self):
        return Point

class Named:
    def __repr__(self):
        return "named"

async def branch(n):
    kept = [Point(i) for i in range(50)]
    await sleep(n)
    return kept[n:]

async def run(context):
    for turn in range(3):
        parts = await asyncio.gather(branch(1), branch(2))
        def inner():
            return parts
        fault = ValueError("x")
        things = [Point(turn), Named(), Point, Named, inner, lambda: parts, run, Point(1).far, fault, re.compile("a"),
                  re.match("a", "a"), map(str, parts), zip(parts), reversed(parts), enumerate(parts), {1: 2}.items(),
                  range(3), slice(1), branch(3), {str(i) for i in range(40)}, frozenset(["b", "a"]), type(turn), len]
        emit({"type": "note.printed", "repr": repr(things), "str": [str(one) for one in things]})
    return 1
"""


def test_whatever_a_script_prints_has_the_same_text_after_parking(engine: MontyEngine) -> None:
    bundle = bundle_of({"agent.main": PRINTED})
    held, parked = journal(engine, bundle, max), journal(engine, bundle, max, park=True)
    assert isinstance(held[1], Ended), held[1]
    assert held == parked


def test_a_run_is_taken_up_at_every_step_and_goes_on_to_the_same_end(engine: MontyEngine, bundle: Bundle) -> None:
    steps, whole = journal(engine, bundle, max)
    for cut in range(1, len(steps) + 1):
        script, halt = engine.open(bundle, CONTEXT, steps[:cut])
        assert halt is not None
        assert tuple(map(recorded, halt.acts)) == steps[cut - 1].acts
        for step in steps[cut:]:
            assert step.call is not None
            halt = script.settle(step.call, step.outcome, answers)
            assert tuple(map(recorded, halt.acts)) == step.acts
        assert halt == whole
    assert engine.seats.taken == 0


ELSEWHERE = """
import json, sys
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_archive
from rss_policy.replay import Replayed, recorded, replay
from tests.contract.test_engine_replay import journal
from tests.fakes.scripts import CONTEXT
bundle = load_archive(sys.stdin.buffer.read())
engine = MontyEngine(1)
steps, halt = journal(engine, bundle, max)
engine.close()
print(json.dumps([[s.call, [[a.act, a.at, a.event, a.digest, a.value] for a in s.acts]] for s in steps]))
"""


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_another_process_with_another_hash_seed_makes_the_same_journal(
    engine: MontyEngine, bundle: Bundle, seed: str
) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=bundle.archive,
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    steps, _ = journal(engine, bundle, max)
    here = [[s.call, [[a.act, a.at, a.event, a.digest, a.value] for a in s.acts]] for s in steps]
    assert json.loads(done.stdout) == json.loads(json.dumps(here))


def test_a_record_may_hold_emissions_by_digest_only(engine: MontyEngine, bundle: Bundle) -> None:
    steps, halt = journal(engine, bundle, max)
    digest, size = digest_of(steps[0].acts[1].event)
    by_digest = changed(steps, 0, 1, event=None, digest=digest, size=size)
    assert replay(engine, bundle, CONTEXT, by_digest) == Replayed(len(steps), sum(len(step.acts) for step in steps), halt)
    assert isinstance(replay(engine, bundle, CONTEXT, changed(by_digest, 0, 1, digest="0" * 64)), Diverged)


def changed(steps: tuple[RecordedStep, ...], index: int, which: int, **fields: Any) -> tuple[RecordedStep, ...]:
    acts = list(steps[index].acts)
    acts[which] = replace(acts[which], **fields)
    return (*steps[:index], replace(steps[index], acts=tuple(acts)), *steps[index + 1 :])


@pytest.mark.parametrize(
    "fields",
    [
        {"event": {"type": "model.started", "id": "other", "set": []}},
        {"at": "agent.main:1"},
        {"act": "stop"},
    ],
)
def test_a_changed_event_is_the_first_difference_with_both_sides_and_the_place(
    engine: MontyEngine, bundle: Bundle, fields: Any
) -> None:
    steps, _ = journal(engine, bundle, max)
    result = replay(engine, bundle, CONTEXT, changed(steps, 0, 1, **fields))
    assert isinstance(result, Diverged)
    assert not isinstance(result, OutcomeMissing)
    assert (result.step, result.place) == (0, "agent.main:14")
    assert isinstance(result.recorded, RecordedAct)
    assert result.now == steps[0].acts[1]


@pytest.mark.parametrize("fields", [{"digest": "0" * 64}, {"size": 1}, {"kind": "read"}, {"number": 9}])
def test_a_changed_call_is_a_difference(engine: MontyEngine, bundle: Bundle, fields: Any) -> None:
    steps, _ = journal(engine, bundle, max)
    result = replay(engine, bundle, CONTEXT, changed(steps, 0, 2, **fields))
    assert isinstance(result, Diverged)
    assert (result.step, result.place, result.now) == (0, "agent.main:15", steps[0].acts[2])


def test_a_stop_of_a_stream_is_compared_and_taken_up(engine: MontyEngine) -> None:
    text = (
        "from host import join, read, sleep, start, stop\n\nasync def run(context):\n"
        "    h = start({'kind': 'request', 'stream': True})\n    await join(h)\n    await read(h)\n    stop(h)\n"
        "    await sleep(1)\n    stop(h)\n    return await read(h)\n"
    )
    small = bundle_of({"agent.main": text})
    steps, halt = journal(engine, small, min, park=True)
    assert steps[2].acts[0] == RecordedAct("stop", "agent.main:7", number=1)
    assert replay(engine, small, CONTEXT, steps) == Replayed(len(steps), 5, halt)
    for fields in ({"number": 2}, {"at": "agent.main:8"}):
        assert isinstance(replay(engine, small, CONTEXT, changed(steps, 2, 0, **fields)), Diverged)
    without = (*steps[:2], replace(steps[2], acts=steps[2].acts[1:]), *steps[3:])
    assert isinstance(replay(engine, small, CONTEXT, without), Diverged)
    script, taken_up = engine.open(small, CONTEXT, steps[:3])
    assert taken_up is not None
    assert taken_up.acts[0] == Stop(1, "agent.main:7")
    script.settle(3, outcome_of(3), answers)
    assert script.settle(4, outcome_of(4), answers) == halt  # and a second stop is none in this life either


def test_another_outcome_shows_as_the_first_act_that_follows_from_it(engine: MontyEngine, bundle: Bundle) -> None:
    steps, _ = journal(engine, bundle, min)
    other = (steps[0], replace(steps[1], outcome={"ok": False}), *steps[2:])
    result = replay(engine, bundle, CONTEXT, other)
    assert isinstance(result, Diverged)
    assert (result.step, result.place) == (1, "agent.main:18")


def test_a_record_with_more_or_less_than_the_script_does_is_a_difference(engine: MontyEngine, bundle: Bundle) -> None:
    steps, _ = journal(engine, bundle, max)
    more = (replace(steps[0], acts=(*steps[0].acts, RecordedAct("stop", "agent.main:3", number=1))), *steps[1:])
    less = (replace(steps[0], acts=steps[0].acts[:-1]), *steps[1:])
    first, second = replay(engine, bundle, CONTEXT, more), replay(engine, bundle, CONTEXT, less)
    assert isinstance(first, Diverged)
    assert (first.recorded, first.now, first.place) == (more[0].acts[-1], "waiting", "agent.main:3")
    assert isinstance(second, Diverged)
    assert (second.recorded, second.now) == (None, steps[0].acts[-1])


def test_an_answer_that_is_not_recorded_is_never_made_up(engine: MontyEngine, bundle: Bundle) -> None:
    steps, _ = journal(engine, bundle, max)
    result = replay(engine, bundle, CONTEXT, (replace(steps[0], acts=()),))
    assert isinstance(result, OutcomeMissing)
    wrong = replay(engine, bundle, CONTEXT, changed(steps, 0, 0, kind="now"))
    assert isinstance(wrong, Diverged)
    assert not isinstance(wrong, OutcomeMissing)


def test_an_outcome_for_a_call_that_the_script_never_made_is_a_difference(engine: MontyEngine, bundle: Bundle) -> None:
    steps, _ = journal(engine, bundle, max)
    result = replay(engine, bundle, CONTEXT, (steps[0], replace(steps[1], call=77)))
    assert isinstance(result, Diverged)
    assert result.step == 1


def test_another_script_diverges_and_taking_up_raises(engine: MontyEngine, bundle: Bundle) -> None:
    steps, _ = journal(engine, bundle, max)
    other = bundle_of({"agent.main": SCRIPT.replace('"arguments": word', '"arguments": word + "!"')})
    with pytest.raises(Diverged) as difference:
        engine.open(other, CONTEXT, steps)
    assert difference.value.place == "agent.main:7"
    assert engine.seats.taken == 0


def test_another_context_diverges(engine: MontyEngine) -> None:
    small = bundle_of(
        {
            "agent.main": (
                "from host import emit\n\nasync def run(context):\n"
                "    emit({'type': 'note.x', 'm': context['model']})\n    return 1\n"
            )
        }
    )
    steps, _ = journal(engine, small, max)
    assert isinstance(replay(engine, small, {**CONTEXT, "model": "other"}, steps), Diverged)


def test_events_are_compared_as_the_log_redacts_them() -> None:
    def redacted(event: dict[str, Any]) -> dict[str, Any]:
        return json.loads(json.dumps(event).replace("s3cret", "[redacted]"))  # type: ignore[no-any-return]

    small = bundle_of(
        {
            "agent.main": (
                "from host import emit\n\nasync def run(context):\n"
                "    emit({'type': 'note.x', 'm': 's3' + 'cret'})\n    return 1\n"
            )
        }
    )
    engine = MontyEngine(1, redacted=redacted)
    steps, _ = journal(engine, small, max)
    assert isinstance(replay(engine, small, CONTEXT, steps), Diverged)
    assert isinstance(
        replay(engine, small, CONTEXT, changed(steps, 0, 0, event={"type": "note.x", "m": "[redacted]"})), Replayed
    )
    engine.close()


LOOP = (
    "from host import emit, sleep\n\nasync def run(context):\n    await sleep(1)\n"
    "    emit({'type': 'note.x'})\n    while True:\n        pass\n"
)


def test_a_limit_that_fired_is_a_fact_and_is_not_evaluated_again() -> None:
    engine = MontyEngine(1, limits=Limits(step_seconds=0.1))
    small = bundle_of({"agent.main": LOOP})
    steps, halt = journal(engine, small, max)
    assert isinstance(halt, Raised)
    assert replay(engine, small, CONTEXT, steps, limited=True) == Replayed(2, 2, None)
    emptied = (steps[0], replace(steps[1], acts=()))
    assert replay(engine, small, CONTEXT, emptied, limited=True) == Replayed(2, 1, None)
    assert isinstance(replay(engine, small, CONTEXT, changed(steps, 1, 0, at="x:1"), limited=True), Diverged)
    with pytest.raises(LimitReached, match=r"limits\.step_seconds"):
        replay(engine, small, CONTEXT, steps)
    engine.close()


GOES_ON = """
from host import emit, sleep

def deep(n):
    return deep(n - 1) if n else "deep"

async def run(context):
    outcome = await sleep(1)
    emit({"type": "note.outcome", "size": len(str(outcome))})
    try:
        emit({"type": "note.depth", "met": deep(150)})
    except RecursionError:
        emit({"type": "note.depth", "met": "its end"})
    return 1
"""


def test_a_limit_that_a_script_met_and_went_on_from_is_met_in_a_replay_too() -> None:
    engine, bundle = MontyEngine(1, limits=Limits(outcome_bytes=1_000, recursion=100)), bundle_of({"agent.main": GOES_ON})
    script, _ = engine.open(bundle, CONTEXT)
    outcome = {"ok": True, "text": "x" * 2_000}
    halts = [script.begin(answers), script.settle(1, outcome, answers)]
    given = ((None, None), (1, outcome))
    steps = tuple(
        RecordedStep(call, value, tuple(map(recorded, halt.acts))) for (call, value), halt in zip(given, halts, strict=True)
    )
    assert "its end" in str(steps)
    assert replay(engine, bundle, CONTEXT, steps) == Replayed(2, 3, halts[-1])
    engine.close()


def test_limits_are_wider_in_a_replay_than_they_were_live() -> None:
    text = "from host import now\n\nasync def run(context):\n    return [now() for _ in range(40)]\n"
    small = bundle_of({"agent.main": text})
    wide, narrow = MontyEngine(1), MontyEngine(1, limits=Limits(step_acts=5))
    steps, halt = journal(wide, small, max)
    assert replay(narrow, small, CONTEXT, steps) == Replayed(1, 40, halt)
    _, taken_up = narrow.open(small, CONTEXT, steps)
    assert taken_up == halt
    wide.close()
    narrow.close()
