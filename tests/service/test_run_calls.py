"""A script's calls, kind by kind, and what goes wrong with those who perform them."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from actors.delivery import Delivery
from actors.errors import Refused
from actors.front import Settings
from actors.model_performer import ModelPerformer
from actors.performers import Performers
from actors.ports import ToolCall
from actors.replaying import replay_run
from actors.run_commands import ReportTool
from actors.tool_performer import ToolPerformer
from eventstore import catalogue as log_of
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from rss_policy.errors import EngineBusy, EngineFailed
from rss_policy.manifest import Limits
from rss_policy.script import BundleRef, Halt, RecordedStep, Script
from tests.fakes.models import Plan, ScriptedModels
from tests.fakes.policies import PLAIN, SLEEPING
from tests.fakes.system import DONE, System, is_equal, running, script
from tests.fakes.tools import FakeTool, FakeToolbox


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


@pytest.fixture
def performers() -> Iterator[Performers]:
    performers = Performers("test", threads=1, waiting=8)
    yield performers
    performers.stop(2)


def noted(system: System, run_id: str) -> list[Any]:
    return [e.data["r"] for e in system.events(run_id) if isinstance(e, log_of.NoteTaken)]


def outcome_of(log: MemoryLog, engine: MontyEngine, body: str, *plans: Plan, **more: Any) -> Any:
    """Run a script that leaves an outcome in `r`, and return it as it was noted."""
    with running(log, engine, script(f'{body}\nemit({{"type": "note.r", "r": r}})\n{DONE}'), *plans, **more) as system:
        run_id = system.say().run_id
        assert isinstance(system.wait(run_id), log_of.RunCompleted), system.events(run_id)
        report = replay_run(log, log.queries, engine, system.profiles, run_id)
        assert report.equal, report
        return noted(system, run_id)[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("r = await sleep(-1)", "invalid_call"),
        ('r = await join(start({"kind": "request", "body": {}}))', "invalid_call"),
        ('r = await join(start({"kind": "request", "path": "/", "headers": 3}))', "invalid_call"),
        ('r = await join(start({"kind": "spawn", "input": []}))', "unsupported_call"),
        ('h = start({"kind": "sleep", "ms": 60000})\nstop(h)\nr = await join(h)', "stopped"),
        ('h = start({"kind": "sleep", "ms": 1})\nawait join(h)\nr = await read(h)', "interrupted"),
    ],
)
def test_a_call_that_cannot_be_done_is_a_value_with_a_code(
    log: MemoryLog, engine: MontyEngine, body: str, code: str
) -> None:
    assert outcome_of(log, engine, body)["error"]["code"] == code


def test_a_whole_answer_comes_with_status_and_body(log: MemoryLog, engine: MontyEngine) -> None:
    body = 'r = await request({"path": "/x", "body": {"a": 1}, "stream": False, "headers": {"x-a": "b"}})'
    models = ScriptedModels([Plan(status=429, body='{"no": 1}')])
    assert outcome_of(log, engine, body, models=models) == {
        "ok": True,
        "status": 429,
        "headers": {},
        "body": '{"no": 1}',
    }
    assert (models.calls[0].provider, models.calls[0].path, models.calls[0].headers) == ("fake", "/x", {"x-a": "b"})


def test_a_read_that_the_script_stops_cuts_the_stream(log: MemoryLog, engine: MontyEngine) -> None:
    body = (
        'h = start({"kind": "request", "path": "/", "body": {}, "stream": True})\nawait join(h)\n'
        'one = await read(h)\nr2 = start({"kind": "read", "of": h})\nstop(r2)\nr = await join(r2)'
    )
    models = ScriptedModels([Plan(batches=[b"data: a\n\n", b"data: b\n\n"], gate=threading.Semaphore(1))])
    stopped = outcome_of(log, engine, body, models=models)
    assert (stopped["error"]["code"], stopped["events"]) == ("stopped", [])
    assert models.exchanges[0].cut
    run_id = log.queries.runs(None, limit=1)[0].run_id
    assert [e.event.batches for e in log.read(f"run-{run_id}") if isinstance(e.event, log_of.StreamSealed)] == [1]


def test_a_transport_at_fault_is_an_outcome_like_any_other(log: MemoryLog, engine: MontyEngine) -> None:
    class Broken:
        def exchange(self, call: object, on_first_byte: object = None) -> Any:
            raise ZeroDivisionError

    body = 'r = await request({"path": "/", "body": {}, "stream": False})'
    assert outcome_of(log, engine, body, models=Broken())["error"]["code"] == "transport_failed"


def test_a_tool_that_the_script_stops_says_so(log: MemoryLog, engine: MontyEngine) -> None:
    body = (
        'h = start({"kind": "call_tool", "call_id": "a", "name": "slow", "arguments": {}})\n'
        "await sleep(20)\nstop(h)\nr = await join(h)"
    )
    stopped = outcome_of(log, engine, body, toolbox=FakeToolbox(FakeTool("slow", gate=threading.Event())))
    assert (stopped["outcome"], stopped["error"]["code"]) == ("cancelled", "stopped")


# --- performers on their own ------------------------------------------------------------------------


def blocked(performers: Performers) -> threading.Event:
    """Occupy the only thread until the event is set."""
    free = threading.Event()
    performers.submit("blocker", lambda _token: (free.wait(5), None)[1], lambda _error: None)
    return free


def until_idle(performers: Performers) -> None:
    deadline = time.monotonic() + 5
    while performers.active():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_request_that_is_stopped_before_it_began_is_never_sent(performers: Performers) -> None:
    models, told = ScriptedModels([Plan(body="x")]), list[Delivery]()
    performer = ModelPerformer(models, performers, lambda value: value, bytes)
    free = blocked(performers)
    performer.request("run_1", 1, "fake", {"path": "/"}, told.append)
    performer.stop_all("run_1")
    free.set()
    until_idle(performers)
    assert told == []
    assert [exchange.opened for exchange in models.exchanges] == [False]


def test_a_tool_that_is_stopped_before_it_began_is_not_run(performers: Performers) -> None:
    tool, told = FakeTool("t"), list[ReportTool]()
    performer = ToolPerformer(performers, lambda value: value)
    free = blocked(performers)
    performer.run(tool, ToolCall("k", "run_1", 1, "t", {}), 1, told.append)
    performer.stop_all()
    free.set()
    until_idle(performers)
    assert [report.result.outcome for report in told] == ["cancelled"]
    assert tool.calls == []


def test_what_still_waits_when_the_pool_stops_is_neither_sent_nor_run(performers: Performers) -> None:
    told: list[Any] = []
    free = blocked(performers)
    models = ModelPerformer(ScriptedModels([Plan()]), performers, lambda value: value, bytes)
    models.request("run_1", 1, "fake", {"path": "/"}, told.append)
    ToolPerformer(performers, lambda value: value).run(FakeTool("t"), ToolCall("k", "run_1", 2, "t", {}), 1, told.append)
    threading.Timer(0.05, free.set).start()
    performers.stop(2)
    assert [report.result.outcome for report in told] == ["cancelled"]


def test_what_a_pool_cannot_take_leaves_no_trace() -> None:
    performers = Performers("none", threads=1, waiting=8)
    performers.stop(1)
    models = ModelPerformer(ScriptedModels([Plan()]), performers, lambda value: value, bytes)
    tools = ToolPerformer(performers, lambda value: value)
    with pytest.raises(Refused):
        models.request("run_1", 1, "fake", {"path": "/"}, lambda _d: None)
    with pytest.raises(Refused):
        tools.run(FakeTool("t"), ToolCall("k", "run_1", 1, "t", {}), 1, lambda _r: None)
    assert (models.active(), tools.active()) == (0, 0)


# --- engines at fault ----------------------------------------------------------------------------------


class MoodyEngine:
    """Fails to open the first scripts."""

    def __init__(self, inner: MontyEngine, *moods: Exception) -> None:
        self._inner, self._moods = inner, list(moods)
        self.opened = 0

    @property
    def version(self) -> str:
        return self._inner.version

    def open(
        self, bundle: BundleRef, context: dict[str, Any], steps: tuple[RecordedStep, ...] = ()
    ) -> tuple[Script, Halt | None]:
        self.opened += 1
        if self._moods:
            raise self._moods.pop(0)
        return self._inner.open(bundle, context, steps)

    def close(self) -> None:
        return


def test_an_engine_that_fails_now_and_then_costs_time_only(log: MemoryLog, engine: MontyEngine) -> None:
    moody: Any = MoodyEngine(engine, EngineFailed("no"), EngineFailed("no"))
    with running(log, moody, PLAIN) as system:
        assert isinstance(system.wait(system.say().run_id), log_of.RunCompleted)
        assert moody.opened == 3


def test_an_engine_that_always_fails_ends_the_run(log: MemoryLog, engine: MontyEngine) -> None:
    moody: Any = MoodyEngine(engine, *[EngineFailed("broken")] * 9)
    with running(log, moody, PLAIN) as system:
        end = system.wait(system.say().run_id)
        assert isinstance(end, log_of.RunFailed)
        assert (end.error.code, moody.opened) == ("engine_failed", 5), "once ahead, then four times"


def test_a_run_waits_for_a_worker_and_can_be_cancelled_meanwhile(log: MemoryLog, engine: MontyEngine) -> None:
    moody: Any = MoodyEngine(engine, *[EngineBusy("full")] * 50)
    with running(log, moody, PLAIN) as system:
        run_id = system.say().run_id
        time.sleep(0.05)
        began = time.monotonic()
        system.front.cancel("ann", run_id, "enough")
        assert isinstance(system.wait(run_id), log_of.RunCancelled)
        assert time.monotonic() - began < 1


# --- runs that cannot begin ------------------------------------------------------------------------------


def test_a_queued_run_whose_profile_is_gone_fails_and_lets_others_on(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, SLEEPING) as system:
        first = system.say()
        second = system.say(session_id=first.session_id)
        third = system.say(session_id=first.session_id)
        found: Callable[[str], Any] = system.profiles.find
        gone = {"gone": True}

        def find(name: str) -> Any:
            return None if gone["gone"] else found(name)

        system.profiles.find = find  # type: ignore[method-assign]
        system.front.cancel("ann", first.run_id, "x")
        end = system.wait(second.run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "unknown_profile"
        gone["gone"] = False
        system.until(third.run_id, lambda e: isinstance(e, log_of.RunStarted | log_of.RunFailed))


def test_a_queued_run_whose_context_has_grown_too_large_fails_by_name(log: MemoryLog, engine: MontyEngine) -> None:
    long = script(
        'message = {"role": "assistant", "content": [{"type": "text", "text": "x" * 3000}]}\n'
        'emit({"type": "model.completed", "turn": 1, "attempt": 1, "message": message})\n'
        f"await sleep(30)\n{DONE}"
    )
    with running(log, engine, long, settings=Settings(max_context_bytes=3_000)) as system:
        first = system.say()
        second = system.say(session_id=first.session_id)
        end = system.wait(second.run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "context_too_large"


@pytest.mark.parametrize("messages", [(), ({"role": "assistant", "content": []},)])
def test_a_message_without_a_word_of_the_user_is_refused(
    log: MemoryLog, engine: MontyEngine, messages: tuple[Mapping[str, Any], ...]
) -> None:
    from actors.service import Inbound  # noqa: PLC0415

    with running(log, engine, PLAIN) as system, pytest.raises(Refused) as refused:
        system.front.admit(Inbound("ann", tuple(dict(each) for each in messages)))
    assert refused.value.code == "invalid_command"


def test_a_run_whose_script_lets_outcomes_pile_up_fails_by_the_limit_and_is_the_same_in_a_replay(log: MemoryLog) -> None:
    small = MontyEngine(workers=2, limits=Limits(held_bytes=5_000))
    body = 'for i in range(30):\n    start({"kind": "request", "path": "/x", "body": {}})\nawait sleep(60_000)\n' + DONE
    with running(log, small, script(body), Plan(body="x" * 900)) as system:
        run_id = system.say().run_id
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunFailed)
        assert (end.error.code, "limits.held_bytes" in end.error.message) == ("policy_limit", True)
        assert is_equal(system, run_id)
    small.close()
