"""What a script can ask of the host, what the host gets to see, and in which order outcomes reach the script."""

from collections.abc import Iterator
from typing import Any

import pytest

from rss_policy.engine import MontyEngine
from rss_policy.errors import ScriptRaised
from rss_policy.live import LiveScript
from rss_policy.script import Answered, Call, Emit, Ended, Halt, Raised, Stop, Waiting
from tests.fakes.scripts import CONTEXT, answers, bundle_of

HEAD = (
    "import asyncio\n"
    "from host import any_of, call_tool, emit, join, new_messages, now, random_id, read, request, sleep, start, stop\n"
)


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    opened = MontyEngine(4)
    yield opened
    opened.close()


def begun(
    engine: MontyEngine, body: str, before: str = "", context: dict[str, Any] | None = None
) -> tuple[LiveScript, Halt]:
    text = f"{HEAD}{before}\nasync def run(context):\n" + "".join(f"    {line}\n" for line in body.strip().split("\n"))
    script, _ = engine.open(bundle_of({"agent.main": text}), context or CONTEXT)
    return script, script.begin(answers)


def result_of(engine: MontyEngine, body: str, before: str = "") -> Any:
    script, halt = begun(engine, body, before)
    while isinstance(halt, Waiting):
        number = min(halt.on)
        halt = script.settle(number, {"ok": True, "number": number}, answers)
    assert isinstance(halt, Ended), halt
    return halt.result


def test_a_script_gets_its_context_and_its_return_value_is_the_result(engine: MontyEngine) -> None:
    _, halt = begun(engine, "return context")
    assert halt == Ended((), CONTEXT, frozenset())


def test_acts_come_in_order_with_kind_payload_number_and_place(engine: MontyEngine) -> None:
    body = """
emit({"type": "note.a", "at": now()})
h = start({"kind": "request", "path": "/x", "body": {}, "stream": True})
r = start({"kind": "read", "of": h})
stop(h)
emit({"type": "note.b", "id": random_id(), "new": new_messages()})
return await join(r)"""
    _, halt = begun(engine, body)
    assert halt == Waiting(
        (
            Answered("now", 1_700_000_000_000_000, "agent.main:5"),
            Emit({"type": "note.a", "at": 1_700_000_000_000_000}, "agent.main:5"),
            Call(1, "request", {"path": "/x", "body": {}, "stream": True}, "agent.main:6"),
            Call(2, "read", {"of": 1}, "agent.main:7"),
            Stop(1, "agent.main:8"),
            Answered("random_id", "id_1", "agent.main:9"),
            Answered("new_messages", [], "agent.main:9"),
            Emit({"type": "note.b", "id": "id_1", "new": []}, "agent.main:9"),
        ),
        frozenset({2}),
    )


@pytest.mark.parametrize(
    ("call", "kind", "payload"),
    [
        ('request({"path": "/x"})', "request", {"path": "/x"}),
        ('call_tool({"name": "t"})', "call_tool", {"name": "t"}),
        ("sleep(5)", "sleep", {"ms": 5}),
        ('join(start({"kind": "spawn", "input": []}))', "spawn", {"input": []}),
    ],
)
def test_conveniences_start_a_call_and_wait_for_it(
    engine: MontyEngine, call: str, kind: str, payload: dict[str, Any]
) -> None:
    script, halt = begun(engine, f"return await {call}")
    assert halt == Waiting((Call(1, kind, payload, "agent.main:5"),), frozenset({1}))
    assert script.settle(1, {"ok": True}, answers) == Ended((), {"ok": True}, frozenset())


def test_a_stream_is_read_batch_by_batch(engine: MontyEngine) -> None:
    body = """
h = start({"kind": "request", "path": "/x"})
seen = [await join(h)]
while not seen[-1].get("done"):
    seen.append(await read(h))
return [batch.get("events") for batch in seen[1:]]"""
    script, halt = begun(engine, body)
    script.settle(1, {"ok": True, "stream": True}, answers)
    halt = script.settle(2, {"ok": True, "events": [{"data": "1"}], "done": False}, answers)
    assert halt == Waiting((Call(3, "read", {"of": 1}, "agent.main:8"),), frozenset({3}))
    assert script.settle(3, {"ok": True, "events": [], "done": True}, answers) == Ended(
        (), [[{"data": "1"}], []], frozenset()
    )


def test_an_outcome_that_nothing_waits_for_is_kept_for_its_join(engine: MontyEngine) -> None:
    body = """
first = start({"kind": "sleep", "ms": 1})
await sleep(2)
emit({"type": "note.late", "first": await join(first)})
return {}"""
    script, halt = begun(engine, body)
    assert halt.on == {2} if isinstance(halt, Waiting) else False
    assert script.settle(1, {"ok": 1}, answers) == Waiting((), frozenset({2}))
    assert script.settle(2, {"ok": 2}, answers) == Ended(
        (Emit({"type": "note.late", "first": {"ok": 1}}, "agent.main:7"),), {}, frozenset()
    )


def test_any_of_gives_the_call_that_was_settled_first_and_keeps_its_outcome(engine: MontyEngine) -> None:
    body = """
handles = [start({"kind": "sleep", "ms": n}) for n in range(3)]
first = await any_of(handles)
return [first, await join(first), await any_of(handles)]"""
    script, halt = begun(engine, body)
    assert halt.on == {1, 2, 3} if isinstance(halt, Waiting) else False
    assert script.settle(3, {"ok": "three"}, answers) == Ended((), [3, {"ok": "three"}, 3], frozenset({1, 2}))


def test_any_of_goes_by_the_recorded_order_when_several_are_settled(engine: MontyEngine) -> None:
    body = """
handles = [start({"kind": "sleep", "ms": n}) for n in range(3)]
await sleep(9)
return await any_of(handles)"""
    script, _ = begun(engine, body)
    for number in (2, 1):
        assert script.settle(number, {}, answers) == Waiting((), frozenset({4}))
    assert script.settle(4, {}, answers) == Ended((), 2, frozenset({3}))


def test_several_waits_for_one_call_are_answered_together_in_the_order_of_asking(engine: MontyEngine) -> None:
    before = (
        "async def one(tag, handle):\n    got = await join(handle)\n    emit({'type': 'note.' + tag})\n    return got['n']\n"
    )
    body = """
h = start({"kind": "sleep", "ms": 1})
return await asyncio.gather(one("b", h), one("a", h), one("c", h))"""
    script, _ = begun(engine, body, before)
    halt = script.settle(1, {"n": 7}, answers)
    assert isinstance(halt, Ended)
    assert [act.event["type"] for act in halt.acts if isinstance(act, Emit)] == ["note.b", "note.a", "note.c"]
    assert halt.result == [7, 7, 7]


def test_branches_take_their_outcomes_one_by_one_in_any_order(engine: MontyEngine) -> None:
    before = (
        "async def branch(w):\n    a = await call_tool({'w': w})\n"
        "    b = await call_tool({'w': a['c'] + w})\n    return b['c']\n"
    )
    script, halt = begun(engine, "return await asyncio.gather(branch('x'), branch('y'))", before)
    order = []
    while isinstance(halt, Waiting):
        number = max(halt.on)
        order.append(number)
        halt = script.settle(number, {"c": f"<{number}>"}, answers)
    assert order == [2, 3, 1, 4]
    assert isinstance(halt, Ended)
    assert halt.result == ["<4>", "<3>"]


def test_stopping_a_settled_call_does_nothing_and_stopping_an_open_one_is_an_act(engine: MontyEngine) -> None:
    body = """
a = start({"kind": "sleep", "ms": 1})
b = start({"kind": "sleep", "ms": 2})
await join(a)
stop(a)
stop(b)
return await join(b)"""
    script, _ = begun(engine, body)
    assert script.settle(1, {"ok": True}, answers) == Waiting((Stop(2, "agent.main:9"),), frozenset({2}))
    stopped = {"ok": False, "error": {"code": "stopped", "message": "by the script"}}
    assert script.settle(2, stopped, answers) == Ended((), stopped, frozenset())


def test_a_stream_can_be_stopped_once_after_its_request_was_joined(engine: MontyEngine) -> None:
    body = """
h = start({"kind": "request", "path": "/", "stream": True})
w = start({"kind": "request", "path": "/", "stream": False})
await join(h)
await join(w)
stop(w)
stop(h)
stop(h)
return await read(h)"""
    script, _ = begun(engine, body)
    script.settle(1, {"ok": True, "stream": True}, answers)
    halt = script.settle(2, {"ok": True}, answers)
    assert halt.acts == (Stop(1, "agent.main:10"), Call(3, "read", {"of": 1}, "agent.main:12"))
    stopped = {"ok": False, "error": {"code": "stopped", "message": "by the script"}, "events": []}
    assert script.settle(3, stopped, answers) == Ended((), stopped, frozenset())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('emit({"type": "run.completed"})', "a script may not emit 'run.completed'"),
        ('emit({"type": "tool.completed"})', "a script may not emit 'tool.completed'"),
        ('emit({"type": 3})', "a script may not emit 3"),
        ("emit([])", "a mapping is needed"),
        ('emit({"type": "note.x", "n": float("nan")})', "NaN is no JSON"),
        ('emit({"type": "note.x", "n": float("inf")})', "Infinity is no JSON"),
        ('start({"kind": "exec"})', "'exec' is no kind of host call"),
        ('start({"path": "/"})', "None is no kind of host call"),
        ('start({"kind": "read", "of": 9})', "9 is not the handle of a started call"),
        ("stop(1)", "1 is not the handle"),
        ("await join(1)", "1 is not the handle"),
        ("await join(True)", "True is not the handle"),
        ("await any_of([])", "at least one handle"),
        ("await any_of([4])", "4 is not the handle"),
    ],
)
def test_a_misused_host_call_raises_inside_the_script(engine: MontyEngine, line: str, message: str) -> None:
    assert message in result_of(engine, f"try:\n    {line}\nexcept ValueError as fault:\n    return str(fault)")
    _, halt = begun(engine, f"\n{line}\nreturn {{}}")
    assert isinstance(halt, Raised)
    assert (halt.code, halt.at) == (ScriptRaised.code, "agent.main:5")


def test_a_call_can_be_joined_only_once(engine: MontyEngine) -> None:
    body = """
h = start({"kind": "sleep", "ms": 1})
await join(h)
try:
    await join(h)
except ValueError as fault:
    return str(fault)"""
    assert result_of(engine, body) == "call 1 was joined already"


def test_what_a_script_raises_is_reported_with_its_innermost_place_in_the_bundle(engine: MontyEngine) -> None:
    text = "from agent.deep import deep\n\n\nasync def run(context):\n    return deep({})\n"
    modules = {"agent.main": text, "agent.deep": "def deep(found):\n    return found['missing']\n"}
    script, _ = engine.open(bundle_of(modules), CONTEXT)
    halt = script.begin(answers)
    assert isinstance(halt, Raised)
    assert (halt.code, halt.at) == (ScriptRaised.code, "agent.deep:2")
    assert halt.message == "KeyError: missing"


def test_calls_left_open_at_the_end_are_reported(engine: MontyEngine) -> None:
    _, returned = begun(engine, 'start({"kind": "sleep", "ms": 1})\nreturn {}')
    _, raised = begun(engine, 'start({"kind": "sleep", "ms": 1})\nraise ValueError("x")')
    assert returned.open == {1} if isinstance(returned, Ended) else False
    assert raised.open == {1} if isinstance(raised, Raised) else False


@pytest.mark.parametrize("value", ["{1, 2}", "object", "float('nan')", "json"])
def test_a_result_that_is_no_json_fails_the_script(engine: MontyEngine, value: str) -> None:
    _, halt = begun(engine, f"return {value}", before="import json\n")
    assert isinstance(halt, Raised)
    assert halt.code == ScriptRaised.code


def test_what_the_world_sent_cannot_fail_a_script(engine: MontyEngine) -> None:
    script, _ = begun(engine, "a = await sleep(1)\nb = await sleep(2)\nreturn [a, b]")
    script.settle(
        1,
        {"lone": "\ud835x", "pair": "\ud83d\ude00", "nul": "\0", "nan": [float("nan"), float("inf")], "big": 10**40},
        answers,
    )
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    halt = script.settle(2, {"deep": deep}, answers)
    assert isinstance(halt, Ended)
    assert halt.result[0] == {"lone": "\ufffdx", "pair": "\U0001f600", "nul": "\0", "nan": [None, None], "big": 10**40}
    assert halt.result[1]["error"]["code"] == "unfit_outcome"


def test_an_outcome_for_a_call_that_is_not_outstanding_is_the_hosts_mistake(engine: MontyEngine) -> None:
    script, _ = begun(engine, "await sleep(1)\nawait sleep(2)\nreturn {}")
    with pytest.raises(ValueError, match="call 2 is not outstanding"):
        script.settle(2, {}, answers)
    script.settle(1, {}, answers)
    with pytest.raises(ValueError, match="call 1 is not outstanding"):
        script.settle(1, {}, answers)
    script.close()
    with pytest.raises(ValueError, match="has ended"):
        script.settle(2, {}, answers)


def test_a_script_cannot_begin_twice(engine: MontyEngine) -> None:
    script, _ = begun(engine, "return {}")
    with pytest.raises(ValueError, match="begun already"):
        script.begin(answers)


def test_outstanding_calls_come_with_their_payloads_until_they_are_settled(engine: MontyEngine) -> None:
    script, _ = begun(engine, 'h = start({"kind": "spawn", "n": 1})\nawait sleep(1)\nreturn await join(h)')
    assert script.outstanding == {
        1: Call(1, "spawn", {"n": 1}, "agent.main:5"),
        2: Call(2, "sleep", {"ms": 1}, "agent.main:6"),
    }
    script.settle(1, {}, answers)
    assert list(script.outstanding) == [2]
