"""Places among the active runs: bounded, handed on in order, and never lost, whatever comes at the same moment."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from actors.errors import Refused
from actors.front import Settings
from eventstore import catalogue as log_of
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.models import Plan, ScriptedModels
from tests.fakes.policies import PLAIN, SLEEPING, STREAMED
from tests.fakes.system import running

T = TypeVar("T")


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """Do the same from many threads that start together."""
    barrier = threading.Barrier(count)

    def wait_and_act(number: int) -> T:
        barrier.wait(10)
        return act(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(wait_and_act, range(count)))


def test_cancelling_a_run_and_those_behind_it_at_once_loses_no_place(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, SLEEPING, settings=Settings(active_runs=1)) as system:
        for _ in range(15):
            first = system.say()
            runs = [first.run_id, *(system.say(session_id=first.session_id).run_id for _ in range(3))]
            at_once(4, lambda number, runs=runs: system.front.cancel("ann", runs[number], "enough"))  # type: ignore[misc]
            for run_id in runs:
                assert isinstance(system.wait(run_id), log_of.RunCancelled)
            system.settled(first.session_id)
        last = system.say()
        system.until(last.run_id, lambda event: isinstance(event, log_of.RunStarted))
        assert (system.front.counts()["active_runs"], system.front.counts()["waiting_runs"]) == (1, 0)


def test_a_full_line_takes_no_more_however_many_come_at_once(log: MemoryLog, engine: MontyEngine) -> None:
    def say(_number: int) -> str:
        try:
            return system.say().status
        except Refused as refused:
            return refused.code

    with running(log, engine, SLEEPING, settings=Settings(active_runs=1, queued_runs=3)) as system:
        assert Counter(at_once(12, say)) == {"running": 1, "queued": 3, "overloaded": 8}


def test_messages_that_wait_in_their_session_count_as_waiting_also_after_a_restart(
    log: MemoryLog, engine: MontyEngine
) -> None:
    settings = Settings(active_runs=2, queued_runs=2)
    with running(log, engine, SLEEPING, settings=settings) as system:
        first = system.say()
        for _ in range(2):
            system.say(session_id=first.session_id)
        with pytest.raises(Refused, match="wait"):
            system.say(session_id=first.session_id)
    with running(log, engine, SLEEPING, settings=settings, ids=system.ids) as after:
        with pytest.raises(Refused, match="wait"):
            after.say(session_id=first.session_id)
        assert after.say().status == "running"


def test_messages_that_meet_in_an_idle_session_all_get_their_turn(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        for _ in range(5):
            session = system.say().session_id
            met = at_once(4, lambda _, session=session: system.say(session_id=session))  # type: ignore[misc]
            for each in met:
                assert isinstance(system.wait(each.run_id), log_of.RunCompleted)
            system.settled(session)
        assert system.front.counts()["active_runs"] == 0


def test_a_first_step_that_is_disregarded_when_its_run_has_begun_is_kept(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    models = ScriptedModels([Plan(batches=[b"data: Hello\n\n"], gate=gate)])
    with running(log, engine, STREAMED, models=models) as system:
        run_id = system.say().run_id
        system.until(run_id, lambda event: isinstance(event, log_of.ModelStarted))
        system.front._machinery.scripts.disregard(run_id)
        gate.release()
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
