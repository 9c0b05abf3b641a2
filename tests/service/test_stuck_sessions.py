"""A session that the log failed again and again heals by the sweep: no restart, and nobody has to say anything more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from actors.directory import Settings
from actors.letters import Address
from actors.run_commands import Wake
from eventstore import catalogue as log_of
from eventstore.errors import Unwritten
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.logs import SickLog
from tests.fakes.models import stream
from tests.fakes.policies import STREAMED
from tests.fakes.system import System, running
from tests.fakes.town import eventually

HASTY = Settings(sweep_every=600, backoff=0.001, longest_backoff=0.002)


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(workers=4)
    yield engine
    engine.close()


@contextmanager
def stuck(engine: MontyEngine, *more: str) -> Iterator[tuple[System, str, list[str]]]:
    """Give a system, a session whose run has ended without its knowing, and the ids of all its runs."""
    gate = threading.Semaphore(0)
    log = MemoryLog()
    sick = SickLog(log)
    with running(sick, engine, STREAMED, stream("one", gate=gate), stream("two"), queries=log.queries, pace=HASTY) as system:
        first = system.say("first")
        waiting = [system.say(text, session_id=first.session_id) for text in more]
        sick.refuses = "session-"
        gate.release()
        system.wait(first.run_id)
        address = Address("session", first.session_id)
        eventually(lambda: sick.appends >= 10 and address not in system.front._directory._live)
        eventually(lambda: system.front.counts()["failed"] == 0)
        sick.refuses = None
        yield system, first.session_id, [first.run_id, *(one.run_id for one in waiting)]
    log.close()


def test_the_next_run_begins_after_the_sweep(engine: MontyEngine) -> None:
    with stuck(engine, "second") as (system, session_id, runs):
        assert system.front.sweep() == 1
        assert isinstance(system.wait(runs[1]), log_of.RunCompleted)
        system.settled(session_id)


def test_a_session_that_nobody_waits_for_is_settled_by_the_sweep(engine: MontyEngine) -> None:
    with stuck(engine) as (system, session_id, runs):
        row = system.queries.session(None, session_id)
        assert row is not None
        assert row.active_run_id == runs[0]
        assert system.front.sweep() == 1
        system.settled(session_id)


def test_the_end_is_told_again_to_a_session_that_lives_and_asks(engine: MontyEngine) -> None:
    gate, log = threading.Semaphore(0), MemoryLog()
    sick = SickLog(log, error=Unwritten("no"))
    with running(sick, engine, STREAMED, stream("one", gate=gate), stream("two"), queries=log.queries) as system:
        first = system.say("first")
        sick.refuses = "session-"
        gate.release()
        eventually(lambda: sick.appends == 1)
        sick.refuses = None
        system.front._directory.tell("run", first.run_id, Wake())
        system.settled(first.session_id)
        system.front._directory.tell("run", first.run_id, Wake())
        second = system.say("second", session_id=first.session_id)
        system.settled(first.session_id)
        events = [envelope.event for envelope in log.read(f"session-{first.session_id}")]
        settled = [event.run_id for event in events if isinstance(event, log_of.TurnSettled)]
        assert settled == [first.run_id, second.run_id]
    log.close()


def test_a_new_message_heals_the_session_too(engine: MontyEngine) -> None:
    with stuck(engine) as (system, session_id, runs):
        admitted = system.say("second", session_id=session_id)
        assert admitted.run_id not in runs
        assert isinstance(system.wait(admitted.run_id), log_of.RunCompleted)
