"""What we rely on in the interpreter; a test that fails after an upgrade says what changed."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_monty import (
    ExternalModule,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontyTypingError,
    __version__,
)

from rss_policy.dialect import BUILTINS
from rss_policy.lease import CLOCKLESS, RAW

LIMITS: Any = {
    "max_suspensions": 10_000,
    "max_turn_duration_secs": 0.2,
    "max_memory": 20_000_000,
    "max_recursion_depth": 200,
}
JOIN = (
    "import asyncio\nimport raw\n"
    "async def j(n: int, tag: str) -> str:\n    text = await raw.join(n, '')\n    raw.note(tag + text, '')\n    return tag\n"
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Monty]:
    with Monty(max_processes=2) as workers:
        yield workers


@pytest.fixture
def session(pool: Monty) -> Iterator[MontySession]:
    with pool.checkout(limits=LIMITS, os_policy=CLOCKLESS, external_modules=RAW) as opened:
        yield opened


def advance(snapshot: Any, notes: list[str], joins: list[int]) -> Any:
    while True:
        match snapshot:
            case FunctionSnapshot(function_name="raw.join"):
                joins.append(snapshot.call_id)
                snapshot = snapshot.resume({"future": ...})
            case FunctionSnapshot(function_name="raw.note"):
                notes.append(snapshot.args[0])
                snapshot = snapshot.resume({"return_value": None})
            case FunctionSnapshot():
                snapshot = snapshot.resume_not_handled()
            case _:
                return snapshot


def raised(session: MontySession, code: str) -> MontyRuntimeError:
    with pytest.raises(MontyRuntimeError) as error:
        session.feed_run(code)
    return error.value


def test_the_version_is_the_pinned_one() -> None:
    assert __version__ == "1.4.0"


def test_outcomes_wake_their_waiters_in_the_order_of_the_mapping(session: MontySession) -> None:
    session.feed_run(JOIN)
    joins: list[int] = []
    waiting = advance(session.feed_start("await asyncio.gather(j(1,'a'), j(1,'b'), j(1,'c'))"), [], joins)
    notes: list[str] = []
    advance(waiting.resume({key: {"return_value": "!"} for key in (joins[2], joins[0], joins[1])}), notes, joins)
    assert notes == ["c!", "a!", "b!"]


def test_outcomes_can_come_one_by_one_in_any_order_after_a_dump_and_a_load_in_another_worker(pool: Monty) -> None:
    joins: list[int] = []
    with pool.checkout(os_policy=CLOCKLESS, external_modules=RAW) as first:
        first.feed_run(JOIN)
        dump = advance(first.feed_start("await asyncio.gather(j(1,'a'), j(2,'b'))"), [], joins).dump()
    notes: list[str] = []
    with pool.checkout(os_policy=CLOCKLESS, external_modules=RAW) as second:
        waiting = second.load_snapshot(dump)
        assert isinstance(waiting, FutureSnapshot)
        waiting = advance(waiting.resume({joins[1]: {"return_value": "2"}}), notes, joins)
        ended = advance(waiting.resume({joins[0]: {"return_value": "1"}}), notes, joins)
    assert isinstance(ended, MontyComplete)
    assert (notes, ended.output) == (["b2", "a1"], ["a", "b"])


def test_a_waiting_script_can_be_resumed_on_another_thread(session: MontySession) -> None:
    session.feed_run(JOIN)
    joins: list[int] = []
    waiting = advance(session.feed_start("await j(1,'a')"), [], joins)
    ended: list[Any] = []
    thread = threading.Thread(
        target=lambda: ended.append(advance(waiting.resume({joins[0]: {"return_value": ""}}), [], joins))
    )
    thread.start()
    thread.join()
    assert ended[0].output == "a"


def test_a_host_call_answered_with_a_plain_value_cannot_be_awaited(session: MontySession) -> None:
    session.feed_run(JOIN)
    asked = session.feed_start("await j(1,'a')")
    assert isinstance(asked, FunctionSnapshot)
    with pytest.raises(MontyRuntimeError, match="can't be awaited"):
        asked.resume({"return_value": "now"})


def test_an_error_can_be_raised_inside_the_script(session: MontySession) -> None:
    session.feed_run("import raw")
    asked = session.feed_start("try:\n    raw.note('x', '')\nexcept ValueError as fault:\n    said = str(fault)\nsaid")
    assert isinstance(asked, FunctionSnapshot)
    ended = asked.resume({"exc_type": "ValueError", "message": "mine"})
    assert isinstance(ended, MontyComplete)
    assert ended.output == "mine"


def test_frames_carry_the_number_of_the_feed_and_its_own_lines(session: MontySession) -> None:
    session.feed_run("import json")
    session.feed_run("\n\ndef bad(x):\n    return json.loads(x)\n")
    error = raised(session, "\nbad('x')")
    assert [(frame.filename, frame.line) for frame in error.traceback()] == [
        ("<python-input-2>", 2),
        ("<python-input-1>", 4),
    ]


def test_the_numbers_of_feeds_go_on_in_a_restored_session(pool: Monty) -> None:
    with pool.checkout(os_policy=CLOCKLESS, external_modules=RAW) as first:
        first.feed_run("def bad():\n    return 1 / 0\n")
        dump = first.dump()
    with pool.checkout(os_policy=CLOCKLESS, external_modules=RAW) as second:
        second.load_session(dump)
        error = raised(second, "bad()")
    assert [frame.filename for frame in error.traceback()] == ["<python-input-1>", "<python-input-0>"]


@pytest.mark.parametrize(
    ("code", "kind", "opening"),
    [
        ("while True: pass", TimeoutError, "turn time limit exceeded"),
        ("try:\n    while True: pass\nexcept Exception:\n    pass", TimeoutError, "turn time limit exceeded"),
        ("x = 'a' * 30_000_000", MemoryError, "memory limit exceeded"),
        ("try:\n    x = 'a' * 30_000_000\nexcept Exception:\n    pass", MemoryError, "memory limit exceeded"),
        (
            "x = []\nfor i in range(40):\n    x = [x, x]\nstr(x)",
            MemoryError,
            "the worker exceeded its memory limit and was terminated",
        ),
        ("def f(n): return f(n + 1)\nf(0)", RecursionError, "maximum recursion depth exceeded"),
    ],
)
def test_limits_have_these_types_and_words_and_time_and_memory_cannot_be_caught(
    session: MontySession, code: str, kind: type[Exception], opening: str
) -> None:
    error = raised(session, code).exception()
    assert type(error) is kind
    assert str(error).startswith(opening)


def test_a_limit_of_suspensions_comes_from_the_checkout_and_the_other_limits_from_the_dump(pool: Monty) -> None:
    quiet = {"raw": ExternalModule({"note": lambda *_: None})}
    with pool.checkout(limits=LIMITS, os_policy=CLOCKLESS, external_modules=quiet) as first:
        first.feed_run("import raw")
        dump = first.dump()
    with pool.checkout(limits={"max_suspensions": 3, "max_memory": 900_000_000}, external_modules=quiet) as second:
        second.load_session(dump)
        assert str(raised(second, "for i in range(9):\n    raw.note('', '')").exception()).startswith("suspension limit 3")
        assert str(raised(second, "'a' * 30_000_000").exception()).startswith("memory limit exceeded")


@pytest.mark.parametrize(
    "code",
    [
        "import datetime\ndatetime.datetime.now()",
        "import datetime\ndatetime.date.today()",
        "import time\ntime.time()",
        "import time\ntime.monotonic()",
        "import time\ntime.sleep(1)",
        "import asyncio\nawait asyncio.sleep(0)",
        "import os\nos.environ['HOME']",
        "import os\nos.getcwd()\nos.listdir('/')",
        "open('/etc/passwd')",
        "import pathlib\npathlib.Path('/etc/passwd').read_text()",
    ],
)
def test_without_a_handler_there_is_no_clock_no_sleep_no_environment_and_no_file(session: MontySession, code: str) -> None:
    assert isinstance(
        raised(session, code).exception(), RuntimeError | PermissionError | AttributeError | ModuleNotFoundError
    )


def test_the_random_source_that_is_left_repeats(pool: Monty) -> None:
    drawn = set()
    for _ in range(2):
        with pool.checkout(os_policy=CLOCKLESS) as session:
            drawn.add(session.feed_run("import random\n(random.random(), random.Random().random())"))
    assert len(drawn) == 1


def test_sets_keep_the_order_in_which_they_were_filled(session: MontySession) -> None:
    assert session.feed_run("[x for x in {'b', 'a', 'zz', 3}]") == ["b", "a", "zz", 3]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("json.loads('[' * 200 + ']' * 200) is not None", True),
        ("json.dumps('\\ud835')", '"\\ufffd"'),
        ("json.dumps('\\U0001f600')", '"\\ud83d\\ude00"'),
        ("json.dumps(float('nan'))", "NaN"),
        ("json.loads('1' * 40)", int("1" * 40)),
    ],
)
def test_json_reads_and_writes_so(session: MontySession, code: str, result: object) -> None:
    assert session.feed_run(f"import json\n{code}") == result


@pytest.mark.parametrize("text", ["'[' * 201 + ']' * 201", "'\"\\\\ud835\"'"])
def test_json_that_is_too_deep_or_has_a_lone_surrogate_is_refused(session: MontySession, text: str) -> None:
    assert "JSONDecodeError" in raised(session, f"import json\njson.loads({text})").display("type-msg")


def test_every_builtin_of_the_dialect_exists(session: MontySession) -> None:
    assert [name for name in sorted(BUILTINS) if session.feed_run(f"{name} is None")] == []


@pytest.mark.parametrize("name", ["dataclass", "field"])
def test_dataclasses_has(session: MontySession, name: str) -> None:
    session.feed_run(f"from dataclasses import {name}")


@pytest.mark.parametrize("name", ["Any", "Callable", "Final", "Literal", "Mapping", "Sequence", "TYPE_CHECKING"])
def test_typing_has(session: MontySession, name: str) -> None:
    session.feed_run(f"from typing import {name}")


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    yield 1",
        "class A(Exception):\n    pass",
        "x = 1\ndel x",
        "class A:\n    @property\n    def f(self):\n        return 1",
        "async def f(x):\n    async for y in x:\n        pass",
        "async def f(x):\n    async with x:\n        pass",
        "async def f(x):\n    return [y async for y in x]",
        "try:\n    pass\nexcept* ValueError:\n    pass",
    ],
)
def test_the_parser_still_lacks_what_the_dialect_refuses(session: MontySession, code: str) -> None:
    assert isinstance(raised(session, code).exception(), NotImplementedError)


def test_of_asyncio_there_are_gather_run_and_sleep_only(session: MontySession) -> None:
    session.feed_run("import asyncio\n(asyncio.gather, asyncio.run, asyncio.sleep)")
    for name in ("create_task", "wait", "wait_for", "TaskGroup", "Event", "Queue", "timeout"):
        raised(session, f"asyncio.{name}")


def test_type_reports_carry_the_feeds_own_lines_and_know_earlier_feeds(pool: Monty) -> None:
    with pool.checkout(type_check=True, type_check_format="concise", external_modules=RAW) as session:
        session.feed_run(JOIN)
        with pytest.raises(MontyTypingError) as error:
            session.feed_run("\n\nasync def g() -> int:\n    return await j('a', 'b')\n")
    first, second = error.value.display().strip().splitlines()
    assert first.startswith("main.py:4:12: error[invalid-return-type]")
    assert second.startswith("main.py:4:20: error[invalid-argument-type]")


def test_a_killed_worker_wakes_its_caller_with_a_crash_and_is_replaced(pool: Monty) -> None:
    with pool.checkout() as session:
        pid = session.worker_pid
        assert pid is not None
        timer = threading.Timer(0.1, lambda: os.kill(pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(MontyCrashedError) as error:
            session.feed_run("while True: pass")
        timer.join()
    assert not error.value.timed_out
    with pool.checkout() as session:
        assert session.feed_run("1 + 1") == 2
        assert session.worker_pid != pid


def test_a_session_that_is_left_in_the_middle_gives_a_clean_worker_back(pool: Monty) -> None:
    for _ in range(3):
        with pool.checkout(external_modules=RAW) as session:
            session.feed_run(JOIN + "leak = 1\n")
            advance(session.feed_start("await j(1,'a')"), [], [])
        with pool.checkout(external_modules=RAW) as session, pytest.raises(MontyError, match="leak"):
            session.feed_run("leak")


def test_without_a_free_worker_a_checkout_times_out() -> None:
    with (
        Monty(max_processes=1, checkout_timeout=0.05) as small,
        small.checkout(),
        pytest.raises(TimeoutError),
        small.checkout(),
    ):
        pass
