"""A system is lost at each commit of a run in turn, before and after; another one takes the log up and ends the run."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from actors.errors import Refused
from actors.front import Settings
from actors.replaying import replay_run
from eventstore import catalogue as log_of
from eventstore.errors import LogError, StoreError, StoreFull
from eventstore.log import EventLog
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.models import Plan, ScriptedModels
from tests.fakes.mortal_log import FailingLog, MortalLog
from tests.fakes.policies import SLEEPING, TOOLS, WHOLE
from tests.fakes.system import DONE, TERMINAL, CountingIds, System, running, script
from tests.fakes.tools import FakeTool, FakeToolbox


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(workers=8)
    yield engine
    engine.close()


def stream(*texts: str, **more: Any) -> Plan:
    return Plan(batches=[f"data: {text}\n\n".encode() for text in texts], **more)


def plans() -> list[Plan]:
    return [stream("Hal", fault={"code": "network_error", "message": "cut"}), stream("Hel", "lo"), stream("Bye")]


class Town:
    """What outlives a system: log, models, tools, ids."""

    def __init__(self) -> None:
        self.disk = MemoryLog()
        self.models = ScriptedModels(plans())
        self.once, self.look = FakeTool("once", effect="once"), FakeTool("look")
        self.ids = CountingIds()

    def system(self, log: EventLog, engine: MontyEngine, **more: Any) -> Any:
        box = FakeToolbox(self.once, self.look)
        shared: dict[str, Any] = {"toolbox": box, "models": self.models, "ids": self.ids, "queries": self.disk.queries}
        return running(log, engine, more.pop("bundle", WHOLE), busy="steer", **shared, **more)


def talk(system: System) -> None:
    """Say two things with keys, as a client does that repeats what it got no answer to."""
    try:
        first = system.say("first", key="k1", fingerprint="f")
        system.say("second", session_id=first.session_id, key="k2", fingerprint="f")
    except (LogError, Refused):
        return


def runs_of(system: System) -> list[str]:
    return [row.run_id for row in system.queries.runs(None, limit=99)]


def wait_for_all(system: System) -> None:
    deadline = time.monotonic() + 10
    while True:
        rows = system.queries.runs(None, limit=99)
        sessions = system.queries.sessions(None, limit=99)
        if rows and all(row.status == "completed" for row in rows) and all(s.active_run_id is None for s in sessions):
            return
        assert time.monotonic() < deadline, (rows, [system.events(row.run_id) for row in rows])
        time.sleep(0.005)


def assert_whole(system: System) -> None:
    for run_id in runs_of(system):
        events = system.canonical(run_id)
        assert [e.seq for e in events if isinstance(e, log_of.Canonical)] == list(range(1, len(events) + 1))
        assert [isinstance(e, TERMINAL) for e in events] == [False] * (len(events) - 1) + [True]
        started = [e.call_id for e in events if isinstance(e, log_of.ToolStarted) and e.effect == "once"]
        ended = [e.call_id for e in events if isinstance(e, log_of.ToolCompleted)]
        assert len(set(ended)) == len(ended)
        assert set(started) <= set(ended)
        assert len(started) <= 1
        report = replay_run(system.log, system.queries, system.engine, system.profiles, run_id)
        assert report.equal, report
    said = [
        message["content"][0]["text"]
        for run_id in runs_of(system)
        for e in system.events(run_id)
        for message in (e.input if isinstance(e, log_of.RunAdmitted) else ())
    ]
    heard = [
        message["content"][0]["text"]
        for run_id in runs_of(system)
        for e in system.events(run_id)
        if isinstance(e, log_of.ScriptAdvanced)
        for act in e.acts
        if act.kind == "new_messages"
        for message in act.value
    ]
    assert sorted([*said, *heard]) == ["first", "second"], "each message is taken in once"


@pytest.mark.parametrize("after_write", [False, True])
def test_a_run_ends_once_wherever_its_system_is_lost(engine: MontyEngine, *, after_write: bool) -> None:
    hit = 0
    for die_at in count(1):
        town = Town()
        mortal = MortalLog(town.disk, die_at, after_write=after_write)
        settings = Settings(answer_timeout=0.1)
        with town.system(mortal, engine, settings=settings, patience=0.1) as lost:
            threading.Thread(target=talk, args=(lost,), daemon=True).start()
            deadline = time.monotonic() + 3
            while not mortal.died.wait(0.01) and time.monotonic() < deadline:
                rows = lost.queries.runs(None, limit=9)
                if len(rows) and all(row.status == "completed" for row in rows) and mortal.count < die_at:
                    mortal.died.wait(0.1)
                    break
        with town.system(town.disk, engine) as system:
            talk(system)
            wait_for_all(system)
            assert_whole(system)
            assert len(town.once.calls) <= len(runs_of(system))
        town.disk.close()
        if not mortal.died.is_set():
            break
        hit += 1
    assert hit >= 12, "the test found the commits by itself"


@pytest.mark.parametrize(
    ("error", "after_write", "points"),
    [
        (StoreError("input/output error"), False, range(1, 16)),
        (StoreError("input/output error"), True, range(1, 16)),
        (StoreFull("no space left on device"), False, (2, 7)),
    ],
)
def test_a_run_ends_wherever_the_log_fails(
    engine: MontyEngine, error: LogError, points: Iterable[int], *, after_write: bool
) -> None:
    for fail_at in points:
        town = Town()
        log = FailingLog(town.disk, fail_at, error, after_write=after_write)
        with town.system(log, engine) as system:
            talk(system)
            talk(system)
            wait_for_all(system)
            assert_whole(system)
        town.disk.close()


def test_what_was_begun_for_a_message_that_was_not_taken_in_is_forgotten(engine: MontyEngine) -> None:
    town = Town()
    log = FailingLog(town.disk, 1, StoreFull("no space left on device"), after_write=False)
    with town.system(log, engine, bundle=SLEEPING) as system:
        with pytest.raises(StoreFull):
            system.say()
        counts = system.front.counts()
        assert (counts["scripts"], counts["active_runs"]) == (0, 0)
        assert runs_of(system) == []
        time.sleep(1.1)  # until the session trusts the disk again
        system.until(system.say().run_id, lambda e: isinstance(e, log_of.ScriptAdvanced))
    town.disk.close()


# --- what a crash leaves, kind by kind --------------------------------------------------------------


def await_calls(*tools: FakeTool) -> None:
    deadline = time.monotonic() + 5
    while not all(tool.calls for tool in tools):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lose(town: Town, engine: MontyEngine, die_when: Any, **more: Any) -> str:
    """Start a run, lose its system as soon as `die_when` holds of an event, return the run."""
    mortal = MortalLog(town.disk, 10_000, after_write=True)
    with town.system(mortal, engine, patience=0.1, **more) as lost:
        run_id: str = lost.say(metadata=more.get("metadata", CALLS)).run_id
        lost.until(run_id, die_when)
        await_calls(*(tool for tool in (town.once, town.look) if tool.gate is not None))
        with mortal._lock:
            mortal._dying = True
        for tool in (town.once, town.look):
            if tool.gate is not None:
                tool.gate.set()
    return run_id


CALLS = {"calls": [{"id": "a", "name": "once"}, {"id": "b", "name": "look"}]}


def both_started(event: Any) -> bool:
    return isinstance(event, log_of.ToolStarted) and event.name == "look"


def test_a_tool_that_may_run_once_is_never_run_again_and_one_that_looks_is(engine: MontyEngine) -> None:
    town = Town()
    town.once.gate, town.look.gate = threading.Event(), threading.Event()
    run_id = lose(town, engine, both_started, bundle=TOOLS)
    with town.system(town.disk, engine, bundle=TOOLS) as system:
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        outcomes = {e.name: e.outcome for e in system.canonical(run_id) if isinstance(e, log_of.ToolCompleted)}
        assert outcomes == {"once": "unknown", "look": "ok"}
        assert (len(town.once.calls), len(town.look.calls)) == (1, 2)
        attempts = [(e.name, e.attempt) for e in system.canonical(run_id) if isinstance(e, log_of.ToolStarted)]
        assert attempts == [("once", 1), ("look", 1), ("look", 2)]
        assert replay_run(system.log, system.queries, engine, system.profiles, run_id).equal
    town.disk.close()


def test_a_run_that_comes_no_further_is_given_up_after_three_take_ups(engine: MontyEngine) -> None:
    town = Town()
    run_id = lose(town, engine, lambda e: isinstance(e, log_of.ScriptAdvanced), bundle=SLEEPING)
    for life in range(1, 4):
        with town.system(town.disk, engine, bundle=SLEEPING) as system:
            recoveries = [e.attempt for e in system.events(run_id) if isinstance(e, log_of.RecoveryStarted)]
            system.until(run_id, lambda e, life=life: isinstance(e, log_of.RecoveryStarted) and e.attempt == life)
            assert len(recoveries) >= life - 1
    with town.system(town.disk, engine, bundle=SLEEPING) as system:
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "recovery_exhausted"
    town.disk.close()


def test_a_server_that_does_not_resume_fails_what_was_at_work(engine: MontyEngine) -> None:
    town = Town()
    run_id = lose(town, engine, lambda e: isinstance(e, log_of.ScriptAdvanced), bundle=SLEEPING)
    with town.system(town.disk, engine, bundle=SLEEPING, settings=Settings(recovery="fail")) as system:
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "interrupted"
    town.disk.close()


def test_a_sleep_goes_on_for_what_is_left_of_it(engine: MontyEngine) -> None:
    bundle = script(f"await sleep(1500)\n{DONE}")
    town = Town()
    run_id = lose(town, engine, lambda e: isinstance(e, log_of.ScriptAdvanced), bundle=bundle)
    time.sleep(1.3)
    began = time.monotonic()
    with town.system(town.disk, engine, bundle=bundle) as system:
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        assert time.monotonic() - began < 1.4
    town.disk.close()


def test_a_script_that_was_changed_under_its_digest_fails_with_the_place_of_the_difference(
    engine: MontyEngine,
) -> None:
    bundle, other = script(f"await sleep(60000)\n{DONE}"), script(f"await sleep(70000)\n{DONE}")
    town = Town()
    run_id = lose(town, engine, lambda e: isinstance(e, log_of.ScriptAdvanced), bundle=bundle)
    forged = replace(other, digest=bundle.digest)
    other_engine = MontyEngine(workers=1)
    with town.system(town.disk, other_engine, bundle=forged) as system:
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "replay_diverged"
        assert end.error.place is not None
        assert end.error.place.startswith("agent.main:")
    other_engine.close()
    town.disk.close()


class NewerEngine(MontyEngine):
    @property
    def version(self) -> str:
        return "pydantic-monty 99.0.0"


def test_another_version_of_the_engine_takes_a_run_up_by_replay(engine: MontyEngine) -> None:
    bundle = script(f'emit({{"type": "note.first"}})\nawait sleep(50)\nemit({{"type": "note.second"}})\n{DONE}')
    town = Town()
    run_id = lose(town, engine, lambda e: isinstance(e, log_of.ScriptAdvanced), bundle=bundle)
    newer = NewerEngine(workers=1)
    with town.system(town.disk, newer, bundle=bundle) as system:
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
    events = [one.event for one in town.disk.read(f"run-{run_id}")]
    assert [event.kind for event in events if isinstance(event, log_of.NoteTaken)] == ["first", "second"]
    assert [event.engine for event in events if isinstance(event, log_of.RunStarted)] == [engine.version]
    newer.close()
    town.disk.close()


def test_an_orderly_stop_records_what_tools_did_and_leaves_the_run_to_be_taken_up(engine: MontyEngine) -> None:
    town = Town()
    town.look.gate = threading.Event()
    metadata = {"calls": [{"id": "b", "name": "look"}]}
    with town.system(town.disk, engine, bundle=TOOLS) as system:
        run_id = system.say(metadata=metadata).run_id
        await_calls(town.look)
        began = time.monotonic()
        assert system.front.shutdown(3)
        assert time.monotonic() - began < 1
        assert system.types(run_id)[-1] == "tool.completed"
    with town.system(town.disk, engine, bundle=TOOLS) as system:
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        assert len(town.look.calls) == 1
    town.disk.close()
