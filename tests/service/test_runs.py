"""Messages become runs: from the front door through a real script engine to the end on record."""

import threading
import time

import msgspec
import pytest

from actors.errors import Refused
from eventstore import catalogue as log_of
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.models import Plan, ScriptedModels, stream
from tests.fakes.policies import PLAIN, STREAMED, TOOLS
from tests.fakes.system import DONE, is_equal, notes, running, script
from tests.fakes.tools import FakeTool, FakeToolbox


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


# --- the script's own doing -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["x", None, True, 5.0, 1e300, -1, []])
def test_a_limit_that_is_no_number_is_refused_and_lifts_none(log: MemoryLog, engine: MontyEngine, value: object) -> None:
    with running(log, engine, PLAIN, limits={"deadline_ms": 50}) as system, pytest.raises(Refused, match="deadline_ms"):
        system.say(limits={"deadline_ms": value})


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
