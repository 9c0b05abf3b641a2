"""Limits and confinement: what a hostile or broken script meets, each time with the limit's name and setting."""

import time
from collections.abc import Iterator
from textwrap import indent

import msgspec
import pytest

from rss_policy.calls import MOST_WAITED, Calls, Misused
from rss_policy.engine import MontyEngine
from rss_policy.errors import BundleRefused, LimitReached, ScriptRaised
from rss_policy.manifest import Limits
from rss_policy.script import Ended, Halt, Raised, Waiting
from tests.fakes.scripts import CONTEXT, answers, bundle_of

COUNTS = {"step_seconds": 0.3, "memory_mb": 20, "recursion": 100, "host_calls": 300, "step_acts": 100}
SIZES = {"event_bytes": 1_000, "call_bytes": 1_000, "result_bytes": 1_000, "context_bytes": 2_000, "outcome_bytes": 1_000}


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    opened = MontyEngine(2, limits=msgspec.convert({**COUNTS, **SIZES}, Limits))
    yield opened
    opened.close()


def end_of(engine: MontyEngine, body: str, head: str = "") -> Halt:
    text = head + "async def run(context):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    script, _ = engine.open(bundle_of({"agent.main": text}), CONTEXT)
    return script.begin(answers)


HELD = "[limits]\nheld_bytes = 20_000\n"
HOST = "import json\nfrom host import emit, now, sleep, start\n"
BOMBS = {
    "a loop": ("while True:\n    pass", "step_seconds"),
    "a loop that catches everything": (
        ("while True:\n    try:\n        while True:\n            pass\n    except Exception:\n        pass"),
        "step_seconds",
    ),
    "a slow pattern": ("slow_pattern()", "step_seconds"),
    "a big number": ("x = 7\nwhile True:\n    x = x * x", "step_seconds|memory_mb"),
    "a big power": ("return len(str(9 ** 9 ** 9))", "memory_mb|step_seconds"),
    "a huge string": ("return len('x' * 50_000_000)", "memory_mb"),
    "a growing list": ("x = [0]\nwhile True:\n    x = x + x", "memory_mb"),
    "a memory bomb that catches everything": (
        "try:\n    x = 'x' * 50_000_000\nexcept Exception:\n    return 1",
        "memory_mb",
    ),
    "a repeated list": ("return len([0] * 900_000_000)", "memory_mb"),
    "a long padding": ("return len(format('x', '>900000000'))", "memory_mb"),
    "a doubled text": ("x = 'ab'\nfor i in range(60):\n    x = x.replace('a', 'ab' * 9) + x\nreturn len(x)", "memory_mb"),
    "a recursion": ("return deeper(0)", "recursion"),
    "a million emissions": ("for i in range(1_000_000):\n    emit({'type': 'note.x'})", "step_acts"),
    "a million questions": ("for i in range(1_000_000):\n    now()", "step_acts"),
    "a big event": ("emit({'type': 'note.x', 'text': 'x' * 2_000})", "event_bytes"),
    "a big call": ("start({'kind': 'sleep', 'text': 'x' * 2_000})", "call_bytes"),
    "a big result": ("return 'x' * 2_000", "result_bytes"),
    "a graph that shares its parts": (
        "x = []\nfor i in range(60):\n    x = [x, x]\nemit({'type': 'note.x', 'x': x})",
        "memory_mb|step_seconds",
    ),
    "the text of a graph that shares its parts": (
        "x = []\nfor i in range(60):\n    x = [x, x]\nreturn len(str(x))",
        "memory_mb|step_seconds",
    ),
    "a result that shares its parts": ("x = []\nfor i in range(60):\n    x = [x, x]\nreturn x", "memory_mb|step_seconds"),
}
DEEPER = (
    "import re\n\ndef deeper(n):\n    return deeper(n + 1)\n\ndef slow_pattern():\n"
    "    re.match('(a*)*b' + '(x+x+)+y', 'a' * 5_000 + 'x' * 5_000)\n    while True:\n"
    "        pass\n"
)


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_ends_with_the_name_of_its_limit_and_setting(engine: MontyEngine, what: str) -> None:
    body, limits = BOMBS[what]
    began = time.monotonic()
    halt = end_of(engine, body, HOST + DEEPER)
    assert isinstance(halt, Raised), halt
    assert halt.code == LimitReached.code
    assert any(f"(setting limits.{name})" in halt.message for name in limits.split("|")), halt
    assert time.monotonic() - began < 5


def test_the_engine_goes_on_after_bombs(engine: MontyEngine) -> None:
    assert end_of(engine, "return 1") == Ended((), 1, frozenset())
    assert engine.seats.taken == 0


def test_host_calls_are_counted_over_the_whole_run(engine: MontyEngine) -> None:
    text = HOST + (
        "async def run(context):\n    while True:\n        for i in range(50):\n            now()\n        await sleep(1)\n"
    )
    script, _ = engine.open(bundle_of({"agent.main": text}), CONTEXT)
    halt = script.begin(answers)
    steps = 1
    while isinstance(halt, Waiting):
        halt = script.settle(min(halt.on), {}, answers)
        steps += 1
    assert isinstance(halt, Raised)
    assert steps == 6
    assert "more than 300 host calls (setting limits.host_calls)" in halt.message


def test_computing_is_counted_between_waits_not_over_the_run(engine: MontyEngine) -> None:
    text = HOST + (
        "async def run(context):\n    for step in range(4):\n"
        "        for i in range(400_000):\n            pass\n        await sleep(1)\n"
        "    return 1\n"
    )
    script, _ = engine.open(bundle_of({"agent.main": text}), CONTEXT)
    halt = script.begin(answers)
    while isinstance(halt, Waiting):
        halt = script.settle(min(halt.on), {}, answers)
    assert isinstance(halt, Ended), halt


def test_a_manifest_narrows_a_limit(engine: MontyEngine) -> None:
    text = HOST + "async def run(context):\n    for i in range(10):\n        now()\n"
    script, _ = engine.open(bundle_of({"agent.main": text}, manifest="[limits]\nstep_acts = 5\n"), CONTEXT)
    halt = script.begin(answers)
    assert isinstance(halt, Raised)
    assert "more than 5 host calls without waiting (setting limits.step_acts)" in halt.message


TOOLED = (
    "from host import call_tool\n\nasync def run(context):\n"
    "    names = [tool['name'] for tool in context['tool_schemas']]\n"
    "    return [names, await call_tool({'name': 'write'})]\n"
)


def test_a_manifest_narrows_tools_and_providers(engine: MontyEngine) -> None:
    bundle = bundle_of({"agent.main": TOOLED}, manifest='tools = ["read"]\nproviders = ["a"]\n')
    tools = [{"name": "read"}, {"name": "write"}]
    script, _ = engine.open(bundle, {**CONTEXT, "tool_schemas": tools, "provider": {"name": "a"}})
    halt = script.begin(answers)
    assert isinstance(halt, Raised)
    assert halt.message == "ValueError: the manifest does not allow the tool 'write'"
    with pytest.raises(BundleRefused, match="may not talk to the provider b"):
        engine.open(bundle, {**CONTEXT, "provider": {"name": "b"}})
    caught = TOOLED.replace("await call_tool({'name': 'write'})", "[]")
    script, _ = engine.open(
        bundle_of({"agent.main": caught}, manifest='tools = ["read"]\n'), {**CONTEXT, "tool_schemas": tools}
    )
    assert script.begin(answers) == Ended((), [["read"], []], frozenset())


def test_a_recursion_error_can_be_caught_and_the_script_goes_on(engine: MontyEngine) -> None:
    halt = end_of(engine, "try:\n    deeper(0)\nexcept RecursionError:\n    return 'caught'", DEEPER)
    assert isinstance(halt, Ended)


def test_deep_json_raises_inside_the_script(engine: MontyEngine) -> None:
    halt = end_of(
        engine,
        ("try:\n    json.loads('[' * 300 + ']' * 300)\nexcept ValueError as fault:\n    return str(fault)"),
        "import json\n",
    )
    assert isinstance(halt, Ended)
    assert "recursion limit" in halt.result


def test_a_deep_event_fails_the_script_not_the_host(engine: MontyEngine) -> None:
    halt = end_of(engine, "x = []\nfor i in range(400):\n    x = [x]\nemit({'type': 'note.x', 'x': x})", HOST)
    assert isinstance(halt, Raised)


def test_a_context_that_is_too_big_or_too_deep_is_refused_at_open(engine: MontyEngine) -> None:
    bundle = bundle_of({"agent.main": "async def run(context):\n    return 1\n"})
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    for more, message in ((["x" * 3_000], "limits.context_bytes"), (deep, "deeper than 200")):
        with pytest.raises(LimitReached, match=message) as reached:
            engine.open(bundle, {**CONTEXT, "messages": more})
        assert reached.value.limit == "context_bytes"


def test_an_outcome_that_is_too_big_becomes_an_error_value(engine: MontyEngine) -> None:
    text = "from host import sleep\n\nasync def run(context):\n    return (await sleep(1))['error']['code']\n"
    script, _ = engine.open(bundle_of({"agent.main": text}), CONTEXT)
    script.begin(answers)
    assert script.settle(1, {"text": "x" * 2_000}, answers) == Ended((), "outcome_too_large", frozenset())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X = 1 / 0\n", "agent.bad:1: ZeroDivisionError"),
        ("while True:\n    pass\n", "time limit exceeded"),
        ("X = 'x' * 50_000_000\n", "agent.bad:1: MemoryError"),
        ("from host import emit\n\ndef f():\n    emit({})\nf()\n", "agent.bad:4: .* not while a module loads"),
        ("from host import now\n\ndef f():\n    return now()\nX = f()\n", "agent.bad:4: .* not while a module loads"),
    ],
)
def test_a_module_that_does_not_load_is_refused_at_open(engine: MontyEngine, text: str, message: str) -> None:
    bundle = bundle_of({"agent.bad": text, "agent.main": "async def run(context):\n    return 1\n"})
    with pytest.raises(BundleRefused, match=message):
        engine.open(bundle, CONTEXT)


@pytest.mark.parametrize(
    "body",
    [
        "x = 'x' * 900\nfor i in range(50):\n    emit({'type': 'note.x', 'x': x})",
        "x = 'x' * 900\nfor i in range(50):\n    start({'kind': 'sleep', 'x': x})",
        "x = 'x' * 900\nfor i in range(50):\n    start({'kind': 'sleep', 'x': x})\n    await sleep(1)",
    ],
)
def test_what_the_host_keeps_at_once_is_bounded_although_each_value_is_small(engine: MontyEngine, body: str) -> None:
    bundle = bundle_of({"agent.main": f"{HOST}async def run(context):\n" + indent(body, "    ")}, manifest=HELD)
    script, _ = engine.open(bundle, CONTEXT)
    halt, acts = script.begin(answers), 0
    while isinstance(halt, Waiting):
        acts += len(halt.acts)
        halt = script.settle(max(halt.on), {}, answers)
    assert isinstance(halt, Raised)
    assert "made the host keep more than 20000 characters at once (setting limits.held_bytes)" in halt.message
    assert 20 <= acts + len(halt.acts) <= 50


UNJOINED = {
    "while it waits for another": "await join(last)",
    "before it emits": "await join(last)\nemit({'type': 'note.x'})",
}


@pytest.mark.parametrize("then", UNJOINED.values(), ids=UNJOINED)
def test_outcomes_that_are_never_joined_are_kept_and_counted(engine: MontyEngine, then: str) -> None:
    body = f"for i in range(50):\n    start({{'kind': 'sleep'}})\nlast = start({{'kind': 'sleep'}})\n{then}"
    bundle = bundle_of(
        {"agent.main": f"from host import join\n{HOST}async def run(context):\n" + indent(body, "    ")}, manifest=HELD
    )
    script, _ = engine.open(bundle, CONTEXT)
    halt = script.begin(answers)
    settled = 0
    while isinstance(halt, Waiting) and settled < 50:
        settled += 1
        halt = script.settle(settled, {"x": "x" * 900}, answers)
    assert isinstance(halt, Raised), halt
    assert "made the host keep more than 20000 characters at once (setting limits.held_bytes)" in halt.message
    assert (20 <= settled <= 23, halt.acts, script.worker_pid) == (True, (), None)
    with pytest.raises(ValueError, match="ended"):
        script.settle(51, {}, answers)


def test_an_outcome_that_is_joined_later_is_counted_until_then(engine: MontyEngine) -> None:
    body = (
        "handles = [start({'kind': 'sleep'}) for i in range(15)]\nawait sleep(1)\n"
        "for handle in handles:\n    await join(handle)\n"
        "x = 'x' * 900\nfor i in range(15):\n    emit({'type': 'note.x', 'x': x})\nreturn 1"
    )
    bundle = bundle_of(
        {"agent.main": f"from host import join\n{HOST}async def run(context):\n" + indent(body, "    ")}, manifest=HELD
    )
    script, _ = engine.open(bundle, CONTEXT)
    halt, acts = script.begin(answers), 0
    for number in range(1, 17):
        assert isinstance(halt, Waiting), halt
        halt = script.settle(number, {"x": "x" * 900}, answers)
        acts += len(halt.acts)
    assert isinstance(halt, Ended), halt
    assert acts == 15


def test_what_was_handed_over_or_settled_is_no_longer_counted(engine: MontyEngine) -> None:
    body = (
        "x = 'x' * 900\nfor i in range(50):\n    emit({'type': 'note.x', 'x': x})\n"
        "    await join(start({'kind': 'sleep', 'x': x}))\nreturn 1"
    )
    bundle = bundle_of(
        {"agent.main": f"from host import join\n{HOST}async def run(context):\n" + indent(body, "    ")}, manifest=HELD
    )
    script, _ = engine.open(bundle, CONTEXT)
    halt = script.begin(answers)
    while isinstance(halt, Waiting):
        halt = script.settle(max(halt.on), {}, answers)
    assert isinstance(halt, Ended), halt


def test_waits_for_many_handles_at_once_are_bounded() -> None:
    calls = Calls()
    handles = [calls.start() for _ in range(1_000)]
    for key in range(MOST_WAITED // 1_000):
        calls.any_of(key, handles)
    with pytest.raises(Misused, match="more than 100000 handles"):
        calls.any_of(-1, [1])
    with pytest.raises(Misused, match="more than 100000 handles"):
        calls.join(-1, 1)
    calls.settle(1, "{}")
    assert len(calls.due()) == MOST_WAITED // 1_000
    calls.join(-1, 2)


TRICKS = [
    "return getattr((), '__class__')",
    "return getattr(getattr(run, '__globals__'), 'keys')",
    "return getattr(run, '__code__')",
    "return getattr(run, '__builtins__')",
    "return '{0.__class__}'.format(1)",
    "return '{0.__class__.__mro__}'.format(run)",
    "return type(1).mro()",
    "return getattr(object, '__subclasses__')()",
    "return getattr(type, '__base__')",
    "return setattr(int, 'x', 1)",
    "return setattr(json, 'loads', 1)",
    "return getattr(json, 'codecs')",
    "return getattr(json, '__loader__')",
    "return type('X', (object,), {})",
    "return getattr(ValueError('x'), '__traceback__').tb_frame",
    "return next(iter([run])).gi_frame",
    "return str.__dict__",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_known_ways_out_of_a_sandbox_end_as_errors(engine: MontyEngine, trick: str) -> None:
    try:
        halt = end_of(engine, trick, "import json\n")
    except BundleRefused:
        return
    assert isinstance(halt, Raised), halt
    assert halt.code == ScriptRaised.code
