"""A worker that dies costs a replay, not the run; killing a script works at any time, from any thread, at once."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from rss_policy.engine import MontyEngine
from rss_policy.errors import WorkerLost
from rss_policy.live import LiveScript
from rss_policy.replay import recorded
from rss_policy.script import Ended, Halt, RecordedStep, Waiting
from rss_policy.seats import Parking
from tests.fakes.scripts import CONTEXT, answers, bundle_of

TEXT = """
import asyncio
from host import call_tool, emit


async def branch(word):
    one = await call_tool({"arguments": word})
    two = await call_tool({"arguments": one["content"]})
    emit({"type": "note.done", "word": word})
    return two["content"]


async def run(context):
    emit({"type": "model.started"})
    return await asyncio.gather(branch("a"), branch("b"))
"""
BUNDLE = bundle_of({"agent.main": TEXT})
FOREVER = bundle_of({"agent.main": "async def run(context):\n    while True:\n        pass\n"})
CATCHING = bundle_of(
    {
        "agent.main": (
            "async def run(context):\n    while True:\n        try:\n            while True:\n"
            "                pass\n        except Exception:\n            pass\n"
        )
    }
)


@pytest.fixture
def engine() -> Iterator[MontyEngine]:
    opened = MontyEngine(2, parking=Parking(idle_seconds=3_600))
    yield opened
    opened.close()


def step_of(call: int | None, halt: Halt) -> RecordedStep:
    return RecordedStep(call, {"content": f"<{call}>"}, tuple(map(recorded, halt.acts)))


def settle(script: LiveScript, halt: Waiting) -> tuple[int, Halt]:
    number = min(halt.on)
    return number, script.settle(number, {"content": f"<{number}>"}, answers)


def sigkill(script: LiveScript) -> None:
    pid = script.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("parked", [False, True])
def test_a_worker_killed_at_any_wait_costs_a_replay_and_the_run_goes_on_to_the_same_end(
    engine: MontyEngine, parked: bool
) -> None:
    script, _ = engine.open(BUNDLE, CONTEXT)
    halt = script.begin(answers)
    steps = [step_of(None, halt)]
    losses = 0
    while isinstance(halt, Waiting):
        if parked:
            script.park()
            script.drop("lost, for the test")
        else:
            sigkill(script)
        with pytest.raises(WorkerLost):
            settle(script, halt)
        losses += 1
        script, taken_up = engine.open(BUNDLE, CONTEXT, tuple(steps))
        assert taken_up == halt
        number, halt = settle(script, halt)
        steps.append(step_of(number, halt))
    assert isinstance(halt, Ended)
    assert (losses, halt.result) == (4, ["<3>", "<4>"])
    assert engine.seats.taken == 0


def test_a_worker_that_died_while_it_waited_is_noticed_when_it_is_parked(engine: MontyEngine) -> None:
    script, _ = engine.open(BUNDLE, CONTEXT)
    halt = script.begin(answers)
    sigkill(script)
    assert not script.park()
    assert engine.seats.taken == 0
    with pytest.raises(WorkerLost):
        settle(script, halt) if isinstance(halt, Waiting) else None


class Performer(threading.Thread):
    """Runs a script's first step, as a performer does, and notes how and when it ended."""

    def __init__(self, script: LiveScript) -> None:
        super().__init__()
        self.script = script
        self.fault: BaseException | None = None
        self.ended = 0.0

    def run(self) -> None:
        try:
            self.script.begin(answers)
        except BaseException as fault:  # noqa: BLE001 - the test looks at it
            self.fault = fault
        self.ended = time.monotonic()


def computing(engine: MontyEngine, bundle: object) -> Performer:
    script, _ = engine.open(bundle, CONTEXT)  # type: ignore[arg-type]
    performer = Performer(script)
    performer.start()
    while script.worker_pid is None:
        threading.Event().wait(0.005)
    threading.Event().wait(0.02)
    return performer


def test_a_worker_killed_from_outside_while_it_computes_is_lost(engine: MontyEngine) -> None:
    performer = computing(engine, FOREVER)
    sigkill(performer.script)
    performer.join(5)
    assert isinstance(performer.fault, WorkerLost)
    assert engine.seats.taken == 0


@pytest.mark.parametrize("bundle", [FOREVER, CATCHING])
def test_kill_ends_a_computing_script_within_a_tenth_of_a_second(engine: MontyEngine, bundle: object) -> None:
    took = []
    for _ in range(3):
        performer = computing(engine, bundle)
        began = time.monotonic()
        performer.script.kill()
        performer.join(5)
        assert isinstance(performer.fault, WorkerLost)
        took.append(performer.ended - began)
    assert min(took) < 0.1
    assert engine.seats.taken == 0


@pytest.mark.parametrize("parked", [False, True])
def test_kill_ends_a_waiting_script_and_frees_its_worker(engine: MontyEngine, parked: bool) -> None:
    script, _ = engine.open(BUNDLE, CONTEXT)
    halt = script.begin(answers)
    if parked:
        script.park()
    script.kill()
    assert engine.seats.taken == 0
    with pytest.raises(WorkerLost, match="killed"):
        settle(script, halt) if isinstance(halt, Waiting) else None
    script.close()


def test_kill_before_a_script_begins_keeps_it_from_beginning(engine: MontyEngine) -> None:
    script, _ = engine.open(FOREVER, CONTEXT)
    script.kill()
    with pytest.raises(WorkerLost, match="killed"):
        script.begin(answers)
    assert engine.seats.taken == 0


def test_kill_after_the_end_does_not_touch_the_worker_of_another(engine: MontyEngine) -> None:
    ended, _ = engine.open(bundle_of({"agent.main": "async def run(context):\n    return 1\n"}), CONTEXT)
    assert isinstance(ended.begin(answers), Ended)
    other, _ = engine.open(BUNDLE, CONTEXT)
    halt = other.begin(answers)
    for _ in range(5):
        ended.kill()
    assert isinstance(halt, Waiting)
    assert isinstance(settle(other, halt)[1], Waiting)


def test_kills_from_many_threads_while_scripts_come_and_go_hit_only_their_own(engine: MontyEngine) -> None:
    ended = 0
    for round_ in range(20):
        victim, _ = engine.open(BUNDLE, CONTEXT)
        halt = victim.begin(answers)
        killers = [threading.Thread(target=victim.kill) for _ in range(3)]
        for killer in killers:
            killer.start()
        other, _ = engine.open(BUNDLE, CONTEXT)
        halt = other.begin(answers)
        while isinstance(halt, Waiting):
            _, halt = settle(other, halt)
        ended += isinstance(halt, Ended)
        for killer in killers:
            killer.join()
        assert round_ + 1 == ended
    assert engine.seats.taken == 0
