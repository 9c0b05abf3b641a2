"""Erasing through the front door: nothing of a session comes back, not from memory, not at a start, not by late mail."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from actors.errors import Refused
from actors.run_commands import Cancel, Wake
from actors.service import NewSession
from actors.session_commands import Wake as WakeSession
from eventstore.catalogue import SessionErased
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.models import Plan
from tests.fakes.policies import PLAIN, STREAMED
from tests.fakes.system import System, running
from tests.fakes.town import eventually


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(workers=4)
    yield engine
    engine.close()


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    log = MemoryLog()
    yield log
    log.close()


def refusal(system: System, session_id: str, owner: str = "ann") -> str:
    with pytest.raises(Refused) as refused:
        system.front.erase_session(owner, session_id, "asked for")
    return refused.value.code


def conversed(system: System) -> tuple[str, str]:
    """Hold a conversation of one turn; return session and run."""
    admitted = system.say("something private", key="k", fingerprint="f")
    system.wait(admitted.run_id)
    return admitted.session_id, admitted.run_id


def erased(system: System) -> tuple[str, str]:
    session_id, run_id = conversed(system)
    system.front.erase_session("ann", session_id, "asked for")
    return session_id, run_id


def test_a_session_can_be_erased_as_soon_as_its_run_has_ended(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        for _ in range(10):
            admitted = system.say()
            system.wait(admitted.run_id)
            system.front.erase_session("ann", admitted.session_id, "asked for")
            assert system.queries.session(None, admitted.session_id) is None
            assert system.events(admitted.run_id) == []


def test_an_erased_session_refuses_what_would_bring_it_back(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        session_id, run_id = erased(system)
        asked: list[Callable[[], object]] = [
            lambda: system.say(session_id=session_id, create_if_missing=True),
            lambda: system.say("something private", key="k", fingerprint="f"),
            lambda: system.front.create_session(NewSession(owner="ann", session_id=session_id)),
            lambda: system.say(session_id=session_id),
            lambda: system.front.change_session("ann", session_id, {"title": "t"}),
            lambda: system.front.cancel("ann", run_id, "late"),
        ]
        codes = []
        for ask in asked:
            with pytest.raises(Refused) as refused:
                ask()
            codes.append(refused.value.code)
        assert codes == ["session_erased"] * 3 + ["session_not_found"] * 2 + ["run_not_found"]
        assert refusal(system, session_id) == "session_not_found"
        assert [type(each.event) for each in log.read(f"session-{session_id}")] == [SessionErased]


def test_a_refused_message_gives_its_place_back(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        session_id, _ = erased(system)
        with pytest.raises(Refused):
            system.say(session_id=session_id, create_if_missing=True)
        counts = system.front.counts()
        assert (counts["active_runs"], counts["waiting_runs"]) == (0, 0)


def test_late_mail_for_an_erased_run_does_nothing(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        session_id, run_id = erased(system)
        directory = system.front._directory
        for command in (Wake(), Cancel("late", "ann")):
            assert directory.ask("run", run_id, command, 5).events == ()
        assert directory.ask("session", session_id, WakeSession(), 5).state.erased
        assert system.events(run_id) == []


def test_an_actor_that_is_alive_hears_of_the_erasure(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        session_id, _ = conversed(system)
        system.settled(session_id)
        directory = system.front._directory
        directory.put_away = lambda addresses: 0  # type: ignore[method-assign]  # as if they were at work just now
        system.front.erase_session("ann", session_id, "asked for")
        state = directory.ask("session", session_id, WakeSession(), 5).state
        assert (state.erased, state.created, state.seen) == (True, None, ())


def test_nobody_keeps_the_state_of_an_erased_session_in_memory(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        erased(system)
        assert system.front.counts()["live"] == 0


def test_a_session_whose_run_is_at_work_is_busy(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    with running(log, engine, STREAMED, Plan(batches=[b"data: Hi\n\n"], gate=gate)) as system:
        admitted = system.say()
        waiting = system.say(session_id=admitted.session_id)
        assert refusal(system, admitted.session_id) == "session_busy"
        system.front.cancel("ann", admitted.run_id, "to erase it")
        assert refusal(system, admitted.session_id) == "session_busy"
        system.front.cancel("ann", waiting.run_id, "to erase it")
        gate.release(10)
        for run_id in (admitted.run_id, waiting.run_id):
            system.wait(run_id)
        system.front.erase_session("ann", admitted.session_id, "asked for")
        assert system.queries.runs(None, limit=9) == []


def test_what_belongs_to_somebody_else_is_not_found(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        session_id, _ = conversed(system)
        assert refusal(system, session_id, owner="bob") == "session_not_found"
        assert refusal(system, "nobody's") == "session_not_found"
        assert system.queries.session("ann", session_id) is not None


def test_a_start_after_an_erasure_takes_nothing_up(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        session_id, run_id = erased(system)
    before = log.queries.log(limit=256)
    with running(log, engine, PLAIN) as system:
        assert system.front.sweep() == 0
        other = system.say()
        system.wait(other.run_id)
        system.settled(other.session_id)
        assert refusal(system, session_id) == "session_not_found"
        assert system.events(run_id) == []
    assert log.queries.log(limit=256)[: len(before)] == before


def test_erasing_at_the_same_time_as_speaking_leaves_no_half_session(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        for _ in range(8):
            session_id = system.say().session_id
            codes: list[str] = []

            def speak(session_id: str = session_id, codes: list[str] = codes) -> None:
                try:
                    system.say(session_id=session_id)
                except Refused as refused:
                    codes.append(refused.code)

            speaker = threading.Thread(target=speak)
            speaker.start()
            with contextlib.suppress(Refused):  # it is busy
                system.front.erase_session("ann", session_id, "asked for")
            speaker.join(10)
            assert codes in ([], ["session_erased"], ["session_not_found"])
            eventually(lambda: next(system.queries.unfinished(), None) is None)
            if system.queries.session(None, session_id) is not None:
                system.front.erase_session("ann", session_id, "asked for")
            assert system.queries.runs(None, limit=9) == []
