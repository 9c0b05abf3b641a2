"""Messages become runs: from the front door through a real script engine to the end on record."""

import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from actors.errors import Refused
from actors.front import Settings
from actors.replaying import replay_run
from actors.service import Inbound, NewSession
from eventstore import catalogue as log_of
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.models import Plan, ScriptedModels
from tests.fakes.policies import LOOPING, PLAIN, SLEEPING, STREAMED, TOOLS
from tests.fakes.system import DONE, System, running, script
from tests.fakes.tools import FakeTool, FakeToolbox


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(workers=8)
    yield engine
    engine.close()


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    log = MemoryLog()
    yield log
    log.close()


def stream(*texts: str, **more: object) -> Plan:
    return Plan(batches=[f"data: {text}\n\n".encode() for text in texts], **more)  # type: ignore[arg-type]


def notes(system: System, run_id: str, kind: str) -> list[dict[str, object]]:
    return [e.data for e in system.events(run_id) if isinstance(e, log_of.NoteTaken) and e.kind == kind]


def is_equal(system: System, run_id: str) -> bool:
    report = replay_run(system.log, system.queries, system.engine, system.profiles, run_id)
    assert report.equal, report
    return report.steps > 0


def calls(*pairs: tuple[str, str]) -> dict[str, object]:
    return {"calls": [{"id": call_id, "name": name} for call_id, name in pairs]}


# --- the plain way ---------------------------------------------------------------------------


def test_a_message_becomes_a_completed_run(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        admitted = system.say()
        end = system.wait(admitted.run_id)
        assert admitted.status == "running"
        assert isinstance(end, log_of.RunCompleted)
        assert system.types(admitted.run_id) == ["run.started", "run.completed"]
        assert is_equal(system, admitted.run_id)


def test_a_streamed_answer_is_on_record_with_its_bytes_sealed_and_replays_equal(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, STREAMED, stream("Hel", "lo")) as system:
        run_id = system.say().run_id
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunCompleted)
        assert end.output["content"][0]["text"] == "Hello"
        assert end.usage.output_tokens == 5
        assert [e.seq for e in system.canonical(run_id) if isinstance(e, log_of.Canonical)] == [1, 2, 3, 4, 5, 6]
        sealed = [e for e in system.events(run_id) if isinstance(e, log_of.StreamSealed)]
        assert [(e.call, e.batches, e.size) for e in sealed] == [(1, 2, 21)]
        assert b"".join(log.batches(run_id, 1)) == b"data: Hel\n\ndata: lo\n\n"
        assert is_equal(system, run_id)


def test_an_attempt_that_breaks_is_discarded_and_its_usage_counts(log: MemoryLog, engine: MontyEngine) -> None:
    broken = stream("Hal", fault={"code": "network_error", "message": "cut"})
    refused = Plan(failure={"code": "dns_error", "message": "no such host"})
    with running(log, engine, STREAMED, broken, refused, stream("Hello")) as system:
        run_id = system.say().run_id
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunCompleted)
        assert system.types(run_id).count("model.discarded") == 2
        assert end.usage.input_tokens == 9
        assert is_equal(system, run_id)


def test_the_next_turn_sees_the_last_one_and_keeps_the_frozen_context(log: MemoryLog, engine: MontyEngine) -> None:
    models = ScriptedModels([stream("one"), stream("two")])
    with running(log, engine, STREAMED, models=models) as system:
        first = system.say("first")
        system.wait(first.run_id)
        system.settled(first.session_id)
        second = system.say("second", session_id=first.session_id)
        system.wait(second.run_id)
        assert models.calls[1].body["said"] == ["first", "one", "second"]
        frozen = [e for e in log.read(f"session-{first.session_id}") if isinstance(e.event, log_of.ContextFrozen)]
        assert len(frozen) == 1
        assert is_equal(system, second.run_id)


def test_a_history_that_a_client_brings_is_on_record_and_replays(log: MemoryLog, engine: MontyEngine) -> None:
    history = ({"role": "user", "content": [{"type": "text", "text": "before"}]},)
    models = ScriptedModels([stream("yes")])
    with running(log, engine, STREAMED, models=models) as system:
        admitted = system.say("now", history=history, ephemeral=True)
        system.wait(admitted.run_id)
        assert models.calls[0].body["said"] == ["before", "now"]
        assert is_equal(system, admitted.run_id)
        system.settled(admitted.session_id)
        with pytest.raises(Refused, match="no such session"):
            system.say("again", session_id=admitted.session_id)


def test_secrets_never_reach_the_script(log: MemoryLog, engine: MontyEngine) -> None:
    def clean(value: object) -> object:
        return msgspec.json.decode(msgspec.json.encode(value).replace(b"hunter22", b"[redacted]"))

    models = ScriptedModels([Plan(body='{"leak": "hunter22"}')])
    asks = 'head = await request({"path": "/", "body": context["input"], "stream": False})'
    policy = script(f'{asks}\nemit({{"type": "note.body", "body": head["body"]}})\n{DONE}')
    with running(log, engine, policy, models=models, clean=clean) as system:
        run_id = system.say("my password is hunter22").run_id
        system.wait(run_id)
        assert models.calls[0].body[0]["content"][0]["text"] == "my password is [redacted]"
        assert notes(system, run_id, "body") == [{"body": '{"leak": "[redacted]"}'}]
        assert is_equal(system, run_id)


# --- what a script does wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('emit({"type": "run.completed", "output": {}})\nreturn {}', "policy_raised"),
        ('emit({"type": "model.started", "turn": "one", "attempt": 1})\nreturn {}', "invalid_event"),
        ('emit({"type": "model.started", "turn": 1, "attempt": 1, "seq": 9})\nreturn {}', "invalid_event"),
        ('raise ValueError("no")', "policy_raised"),
        ("return {}", "invalid_result"),
        ('return {"output": None, "finish_reason": "", "error": {"code": "mine", "message": "m"}}', "mine"),
        ('for n in range(60):\n    start({"kind": "sleep", "ms": 60000})\nawait sleep(1)\nreturn {}', "limit_open_calls"),
        ('for n in range(40):\n    emit({"type": "model.delta", "attempt": 1})\nreturn {}', "limit_events"),
        ('emit({"type": "note.big", "text": "x" * 2000})\nreturn {}', "limit_event_bytes"),
    ],
)
def test_a_script_at_fault_fails_its_run_with_a_code(log: MemoryLog, engine: MontyEngine, body: str, code: str) -> None:
    limits = {"max_events": 30, "max_event_bytes": 1000, "max_open_calls": 50}
    with running(log, engine, script(body), limits=limits) as system:
        end = system.wait(system.say().run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == code, end.error


def test_a_script_at_fault_is_named_with_its_place(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, script('x = 1\nraise ValueError("no")')) as system:
        end = system.wait(system.say().run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.place is not None
        assert end.error.place.startswith("agent.main:")


# --- tools -----------------------------------------------------------------------------------------


def test_tools_run_together_and_their_results_come_in_recorded_order(log: MemoryLog, engine: MontyEngine) -> None:
    slow = FakeTool("slow", gate=threading.Event(), content="late")
    box = FakeToolbox(slow, FakeTool("fast", content="soon"))
    with running(log, engine, TOOLS, toolbox=box) as system:
        run_id = system.say(metadata=calls(("a", "slow"), ("b", "fast"), ("c", "none"))).run_id
        system.until(run_id, lambda e: isinstance(e, log_of.ToolCompleted) and e.name == "fast")
        assert slow.gate is not None
        slow.gate.set()
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        [note] = notes(system, run_id, "results")
        assert note["results"] == ["ok:late", "ok:soon", "failed:There is no tool named 'none'."]
        started = [e.name for e in system.canonical(run_id) if isinstance(e, log_of.ToolStarted)]
        assert started == ["slow", "fast"]
        assert is_equal(system, run_id)


def test_a_tool_that_raises_is_a_failed_result(log: MemoryLog, engine: MontyEngine) -> None:
    box = FakeToolbox(FakeTool("bad", error=ZeroDivisionError("secret detail")))
    with running(log, engine, TOOLS, toolbox=box) as system:
        run_id = system.say(metadata=calls(("a", "bad"))).run_id
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        [note] = notes(system, run_id, "results")
        assert note["results"] == ["failed:the tool failed: ZeroDivisionError"]


def test_a_script_that_leaves_a_tool_running_ends_after_its_result_is_on_record(log: MemoryLog, engine: MontyEngine) -> None:
    policy = script(
        'handle = start({"kind": "call_tool", "call_id": "a", "name": "slow", "arguments": {}})\n'
        f"await sleep(20)\n{DONE}"
    )
    slow = FakeTool("slow", gate=threading.Event())
    with running(log, engine, policy, toolbox=FakeToolbox(slow)) as system:
        run_id = system.say().run_id
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        assert system.types(run_id) == ["run.started", "tool.started", "tool.completed", "run.completed"]
        [done] = [e for e in system.canonical(run_id) if isinstance(e, log_of.ToolCompleted)]
        assert (done.outcome, done.content) == ("cancelled", "stopped half way")


def test_a_tool_that_is_deaf_does_not_hold_up_the_end(log: MemoryLog, engine: MontyEngine) -> None:
    deaf = FakeTool("deaf", effect="once", gate=threading.Event(), deaf=True)
    with running(log, engine, TOOLS, toolbox=FakeToolbox(deaf)) as system:
        run_id = system.say(metadata=calls(("a", "deaf"))).run_id
        system.until(run_id, lambda e: isinstance(e, log_of.ToolStarted))
        began = time.monotonic()
        system.front.cancel("ann", run_id, "enough")
        assert isinstance(system.wait(run_id), log_of.RunCancelled)
        assert time.monotonic() - began < 0.5
        [done] = [e for e in system.canonical(run_id) if isinstance(e, log_of.ToolCompleted)]
        assert done.outcome == "unknown"
        assert deaf.gate is not None
        deaf.gate.set()


def test_calls_of_the_clients_own_tools_stay_open_when_the_run_ends_for_them(log: MemoryLog, engine: MontyEngine) -> None:
    policy = script(
        """
part = {"type": "tool_call", "id": "x1", "name": "theirs", "arguments": {}}
other = {"type": "tool_call", "id": "x2", "name": "nobodys", "arguments": {}}
message = {"role": "assistant", "content": [part, other], "provider": "fake", "model": "m"}
emit({"type": "model.completed", "turn": 1, "attempt": 1, "message": message, "stop_reason": "tool_calls"})
return {"output": message, "finish_reason": "tool_calls", "error": None}
"""
    )
    tool = {"name": "theirs", "description": "", "parameters": {"type": "object"}}
    with running(log, engine, policy) as system:
        run_id = system.say(client_tools=(tool,)).run_id
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        done = [(e.call_id, e.outcome) for e in system.canonical(run_id) if isinstance(e, log_of.ToolCompleted)]
        assert done == [("x2", "cancelled")]


# --- queue, steer, repeat -----------------------------------------------------------------------------


def test_a_message_during_a_run_waits_for_its_own_turn(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    models = ScriptedModels([stream("one", gate=gate), stream("two")])
    with running(log, engine, STREAMED, models=models) as system:
        first = system.say("first")
        second = system.say("second", session_id=first.session_id)
        assert second.status == "queued"
        assert system.types(second.run_id) == []
        gate.release()
        assert isinstance(system.wait(second.run_id), log_of.RunCompleted)
        assert models.calls[1].body["said"] == ["first", "one", "second"]
        assert is_equal(system, second.run_id)


def test_a_message_steers_the_run_at_work(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    with running(log, engine, STREAMED, stream("one", gate=gate), busy="steer") as system:
        first = system.say("first")
        steered = system.say("look here", session_id=first.session_id)
        assert (steered.run_id, steered.status) == (first.run_id, "running")
        system.until(first.run_id, lambda e: isinstance(e, log_of.MessageSteered))
        gate.release()
        system.wait(first.run_id)
        assert notes(system, first.run_id, "steered") == [{"texts": ["look here"]}]
        system.settled(first.session_id)
        assert is_equal(system, first.run_id)
        said = [row.message["content"][0]["text"] for row in log.queries.messages(first.session_id, limit=9)]
        assert said == ["first", "look here", "one"]  # where it was taken in: its step is recorded before its events


def test_what_steered_too_late_becomes_the_next_run(log: MemoryLog, engine: MontyEngine) -> None:
    policy = script(f"await sleep(80)\n{DONE}")
    with running(log, engine, policy, busy="steer") as system:
        first = system.say("first")
        late = [system.say(text, session_id=first.session_id) for text in ("late", "later")]
        assert {each.run_id for each in late} == {first.run_id}
        system.wait(first.run_id)
        deadline = time.monotonic() + 5
        while len(runs := log.queries.runs("ann", limit=9)) < 2 or runs[0].status != "completed":
            assert time.monotonic() < deadline, runs
            time.sleep(0.005)
        admitted = next(e for e in system.events(runs[0].run_id) if isinstance(e, log_of.RunAdmitted))
        assert [m["content"][0]["text"] for m in admitted.input] == ["late", "later"]


def test_the_same_key_gives_the_same_run_and_another_body_is_a_conflict(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        first = system.say("a", key="k", fingerprint="f")
        again = system.say("a", key="k", fingerprint="f")
        assert (again.run_id, again.message_id, again.repeat) == (first.run_id, first.message_id, True)
        with pytest.raises(Refused) as conflict:
            system.say("b", key="k", fingerprint="g")
        assert conflict.value.code == "idempotency_conflict"
        other = system.say("a", key="k", fingerprint="f", owner="bob")
        assert other.run_id != first.run_id


def test_the_same_message_sent_many_times_at_once_is_one_run(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(system.say("a", key="k", fingerprint="f").run_id)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len(set(found)) == 1


def test_another_owners_session_and_run_are_not_there(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        mine = system.say()
        for name in (mine.session_id, "ses_none"):
            with pytest.raises(Refused) as refused:
                system.say(owner="bob", session_id=name)
            assert refused.value.code == "session_not_found"
        with pytest.raises(Refused) as refused:
            system.say(owner="bob", session_id=mine.session_id, create_if_missing=True)
        assert refused.value.code == "session_not_found"
        with pytest.raises(Refused) as no_run:
            system.front.cancel("bob", mine.run_id, "x")
        assert no_run.value.code == "run_not_found"
        with pytest.raises(Refused):
            system.front.change_session("bob", mine.session_id, {"title": "x"})


def test_a_session_that_is_missing_can_be_created_by_its_name(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        first = system.say(session_id="ses_mine", create_if_missing=True)
        system.wait(first.run_id)
        system.settled("ses_mine")
        second = system.say(session_id="ses_mine", create_if_missing=True)
        assert (first.session_id, second.session_id) == ("ses_mine", "ses_mine")


def test_a_sessions_model_may_change_between_turns(log: MemoryLog, engine: MontyEngine) -> None:
    models = ScriptedModels([stream("x")])
    with running(log, engine, STREAMED, models=models) as system:
        session_id = system.front.create_session(NewSession("ann", model="first-model"))
        first = system.say(session_id=session_id)
        system.wait(first.run_id)
        system.settled(session_id)
        system.front.change_session("ann", session_id, {"model": "second-model", "title": "t"})
        second = system.say(session_id=session_id)
        system.wait(second.run_id)
        assert [call.body["model"] for call in models.calls] == ["first-model", "second-model"]
        for changes in ({"colour": "red"}, {"busy": "never"}):
            with pytest.raises(Refused) as refused:
                system.front.change_session("ann", session_id, changes)
            assert refused.value.code == "invalid_command"


def test_too_much_is_refused_by_name(log: MemoryLog, engine: MontyEngine) -> None:
    settings = Settings(active_runs=1, queued_runs=2, session_queue=1, max_input_bytes=500, max_context_bytes=3_000)
    with running(log, engine, SLEEPING, settings=settings) as system:
        with pytest.raises(Refused, match="max_input_bytes") as big:
            system.say("x" * 600)
        history = tuple({"role": "user", "content": [{"type": "text", "text": "x" * 400}]} for _ in range(9))
        with pytest.raises(Refused) as long:
            system.say(history=history)
        with pytest.raises(Refused) as profile:
            system.say(profile="none")
        with pytest.raises(Refused) as provider:
            system.say(provider="none")
        first = system.say()
        waiting = system.say(session_id=first.session_id)
        with pytest.raises(Refused) as full:
            system.say(session_id=first.session_id)
        elsewhere = system.say()
        with pytest.raises(Refused) as over:
            system.say()
        codes = [each.value.code for each in (big, long, profile, provider, full, over)]
        expected = ["input_too_large", "context_too_large", "unknown_profile", "unknown_provider"]
        assert codes == [*expected, "session_queue_full", "overloaded"]
        assert (waiting.status, elsewhere.status) == ("queued", "queued")
        system.front.cancel("ann", waiting.run_id, "x")
        system.front.cancel("ann", first.run_id, "x")
        system.until(elsewhere.run_id, lambda e: isinstance(e, log_of.RunStarted))


def test_more_runs_than_places_take_turns(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN, settings=Settings(active_runs=2)) as system:
        admitted = [system.say() for _ in range(12)]
        for each in admitted:
            assert isinstance(system.wait(each.run_id), log_of.RunCompleted)


# --- cancel and deadline -------------------------------------------------------------------------------


def test_a_cancel_ends_a_streaming_run_within_100_ms_and_keeps_its_text(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(1)
    models = ScriptedModels([stream("Hel", "lo", gate=gate)])
    with running(log, engine, STREAMED, models=models) as system:
        run_id = system.say().run_id
        system.until(run_id, lambda e: isinstance(e, log_of.ModelDelta))
        began = time.monotonic()
        system.front.cancel("ann", run_id, "changed my mind")
        end = system.wait(run_id)
        took = time.monotonic() - began
        assert isinstance(end, log_of.RunCancelled)
        assert (end.partial, end.reason) == ("Hel", "changed my mind")
        assert took < 0.1
        assert models.exchanges[0].cut
        before = system.events(run_id)
        assert system.front.cancel("ann", run_id, "again") == "cancelled"
        assert system.events(run_id) == before
        assert sum(isinstance(e, log_of.StreamSealed) for e in before) == 1


def test_a_cancel_ends_a_script_that_computes_for_ever(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, LOOPING) as system:
        run_id = system.say().run_id
        time.sleep(0.1)
        system.front.cancel("ann", run_id, "stop")
        assert isinstance(system.wait(run_id, 1), log_of.RunCancelled)


def test_a_queued_run_is_cancelled_at_once(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, SLEEPING) as system:
        first = system.say()
        second = system.say(session_id=first.session_id)
        assert system.front.cancel("ann", second.run_id, "no") == "cancelled"
        assert system.types(second.run_id) == ["run.cancelled"]
        third = system.say(session_id=first.session_id)
        system.front.cancel("ann", first.run_id, "no")
        system.until(third.run_id, lambda e: isinstance(e, log_of.RunStarted))


def test_a_deadline_fails_the_run_and_names_the_setting(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, SLEEPING) as system:
        end = system.wait(system.say(limits={"deadline_ms": 50}).run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "deadline_exceeded"
        assert "limits.deadline_ms" in end.error.message


def test_a_message_may_only_narrow_a_limit(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN, limits={"max_turns": 5}) as system:
        run_id = system.say(limits={"max_turns": 99, "deadline_ms": 10}).run_id
        admitted = system.until(run_id, lambda e: isinstance(e, log_of.RunAdmitted))
        assert isinstance(admitted, log_of.RunAdmitted)
        assert (admitted.limits["max_turns"], admitted.limits["deadline_ms"]) == (5, 10)


def test_the_script_may_stop_its_own_calls(log: MemoryLog, engine: MontyEngine) -> None:
    policy = script(
        f"""
handle = start({{"kind": "request", "path": "/", "body": {{}}, "stream": True}})
timer = start({{"kind": "sleep", "ms": 5}})
first = await any_of([handle, timer])
stop(handle)
result = await join(handle)
emit({{"type": "note.result", "first": first == timer, "code": result["error"]["code"]}})
{DONE}
"""
    )
    models = ScriptedModels([Plan(stuck=True)])
    with running(log, engine, policy, models=models) as system:
        run_id = system.say().run_id
        assert isinstance(system.wait(run_id), log_of.RunCompleted)
        assert notes(system, run_id, "result") == [{"first": True, "code": "stopped"}]
        assert models.exchanges[0].cut
        assert is_equal(system, run_id)


def test_a_worker_that_dies_costs_a_replay_and_not_the_run(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    with running(log, engine, STREAMED, stream("Hel", "lo", gate=gate)) as system:
        run_id = system.say().run_id
        system.until(run_id, lambda e: isinstance(e, log_of.ScriptAdvanced) and e.step == 2)
        drive = system.front._machinery.scripts._drives[run_id]
        assert drive.script is not None
        drive.script.kill()
        gate.release(2)
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunCompleted), end
        assert end.output["content"][0]["text"] == "Hello"
        assert is_equal(system, run_id)


def test_nothing_is_taken_in_while_the_server_stops(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        system.stop()
        with pytest.raises(Refused) as refused:
            system.front.admit(Inbound("ann", ({"role": "user", "content": []},)))
        assert refused.value.code == "shutting_down"
