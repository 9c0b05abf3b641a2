"""A script stops a stream that it has open: the exchange is cut at once, reads say so, and a replay does the same."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from eventstore import catalogue as log_of
from eventstore.memory import MemoryLog
from gateways.clock import SystemClock
from gateways.provider.settings import Endpoint
from gateways.provider.transport import ProviderTransport
from rss_policy.bundle import Bundle
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_bundle
from tests.fakes.adapter import SCRIPTS
from tests.fakes.models import ScriptedModels, stream
from tests.fakes.provider import FakeProvider, says
from tests.fakes.system import DONE, CountingIds, System, is_equal, notes, running, script

AGENT = load_bundle(SCRIPTS)
OPENED = """
h = start({"kind": "request", "path": "/", "body": {}, "stream": True})
await join(h)
"""
TOLD = f"""
emit({{"type": "note.r", "codes": [r["error"]["code"] if not r["ok"] else "ok" for r in results]}})
{DONE}
"""


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
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture
def transport(fake: FakeProvider) -> Iterator[ProviderTransport]:
    transport = ProviderTransport({"fake": Endpoint("fake", fake.url, auth="none")}.get, SystemClock())
    yield transport
    transport.close()


def policy(body: str) -> Bundle:
    return script(f"{OPENED}{body}{TOLD}")


def sealed(system: System, run_id: str) -> list[tuple[int, int]]:
    return [(e.call, e.batches) for e in system.events(run_id) if isinstance(e, log_of.StreamSealed)]


def codes(system: System, run_id: str) -> Any:
    assert isinstance(system.wait(run_id), log_of.RunCompleted), system.events(run_id)
    assert is_equal(system, run_id)
    [note] = notes(system, run_id, "r")
    return note["codes"]


# --- what a script is told ---------------------------------------------------------------------


def test_the_read_that_waits_and_each_later_one_are_stopped(log: MemoryLog, engine: MontyEngine) -> None:
    bundle = policy(
        'one = await read(h)\nwaits = start({"kind": "read", "of": h})\nawait sleep(20)\nstop(h)\n'
        "results = [one, await join(waits), await read(h), await read(h)]"
    )
    models = ScriptedModels([stream("a", "b", gate=threading.Semaphore(1))])
    with running(log, engine, bundle, models=models) as system:
        run_id = system.say().run_id
        assert codes(system, run_id) == ["ok", "stopped", "stopped", "stopped"]
        assert models.exchanges[0].cut
        assert sealed(system, run_id) == [(1, 1)]
        assert system.front.counts()["open_exchanges"] == 0


def test_a_read_begun_in_the_step_of_the_stop_brings_nothing_although_there_is_something(
    log: MemoryLog, engine: MontyEngine
) -> None:
    bundle = policy(
        'one = await read(h)\nfirst = start({"kind": "read", "of": h})\nstop(h)\nlast = start({"kind": "read", "of": h})\n'
        "results = [one, await join(first), await join(last)]"
    )
    with running(log, engine, bundle, stream("a", "b", "c")) as system:
        run_id = system.say().run_id
        assert codes(system, run_id) == ["ok", "stopped", "stopped"]
        assert sealed(system, run_id) == [(1, 1)]
        assert b"".join(log.batches(run_id, 1)) == b"data: a\n\n"


def test_what_came_of_a_stream_before_its_stop_stands_and_what_waits_for_the_script_does_not(
    log: MemoryLog, engine: MontyEngine
) -> None:
    bundle = policy(
        'waits = [start({"kind": "read", "of": h}) for _ in range(3)]\nfirst = await any_of(waits)\nstop(h)\n'
        'results = [await join(one) for one in waits]\nemit({"type": "note.first", "at": waits.index(first)})\n'
    )
    with running(log, engine, bundle, stream("a", "b", "c", "d")) as system:
        run_id = system.say().run_id
        found = codes(system, run_id)
        first = notes(system, run_id, "first")[0]["at"]
        assert [code == "ok" for code in found] == [at == first for at in range(3)]
        assert sealed(system, run_id) == [(1, 1)]


def test_a_stream_that_is_over_can_be_stopped_and_nothing_comes_of_it(log: MemoryLog, engine: MontyEngine) -> None:
    bundle = policy("one = await read(h)\nstop(h)\nresults = [one, await read(h)]")
    with running(log, engine, bundle, stream("a")) as system:
        run_id = system.say().run_id
        assert codes(system, run_id) == ["ok", "stopped"]
        assert sealed(system, run_id) == [(1, 1)]


def test_a_stop_before_the_head_holds_for_the_stream(log: MemoryLog, engine: MontyEngine) -> None:
    bundle = script(
        'h = start({"kind": "request", "path": "/", "body": {}, "stream": True})\nstop(h)\n'
        f"results = [await join(h), await read(h)]{TOLD}"
    )
    with running(log, engine, bundle, stream("a")) as system:
        assert codes(system, system.say().run_id)[-1] == "stopped"


@pytest.mark.parametrize("lost", ["worker", "server"])
def test_a_stop_is_remembered_by_who_takes_the_run_up(log: MemoryLog, engine: MontyEngine, lost: str) -> None:
    bundle = policy(
        'one = await read(h)\nstop(h)\nemit({"type": "note.stopped"})\nawait sleep(300)\nresults = [await read(h)]'
    )
    models, ids = ScriptedModels([stream("a", "b")]), CountingIds()
    with running(log, engine, bundle, models=models, ids=ids) as system:
        run_id = system.say().run_id
        system.until(run_id, lambda e: isinstance(e, log_of.NoteTaken))
        if lost == "worker":
            open_script = system.front._machinery.scripts._drives[run_id].script
            assert open_script is not None
            open_script.kill()
            assert codes(system, run_id) == ["stopped"]
    if lost == "server":
        with running(log, engine, bundle, models=models, ids=ids) as system:
            assert codes(system, run_id) == ["stopped"]
    assert len(models.exchanges) == 1


# --- the bundled policy and a provider on a socket ---------------------------------------------


GARBAGE = b"data: {not json}\n\n"


ERROR = says("one two three", error_after=4, stall_after=99)


@pytest.mark.parametrize(
    ("protocol", "broken"),
    [
        ("openai_chat", says("one two three", endless=True, pace=0.005, garbage_after=4, garbage=GARBAGE)),
        ("openai_responses", says("one two three", stall_after=4, garbage_after=3, garbage=GARBAGE)),
        ("openai_chat", ERROR),
        ("openai_responses", ERROR),
        ("anthropic_messages", ERROR),
    ],
)
def test_an_attempt_that_broke_inside_its_stream_is_cut_within_a_second_and_made_again(
    log: MemoryLog, engine: MontyEngine, fake: FakeProvider, transport: ProviderTransport, protocol: str, broken: Any
) -> None:
    fake.then(broken, says("one two three"))
    with running(log, engine, AGENT, models=transport, adapter=protocol) as system:
        run_id = system.say().run_id
        assert fake.wait_requests(1)
        assert fake.wait_disconnected(1)
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunCompleted), end
        assert end.output["content"][0]["text"] == "one two three"
        assert system.types(run_id).count("model.discarded") == 1
        assert sum(isinstance(e, log_of.StreamSealed) for e in system.events(run_id)) == 2
        assert is_equal(system, run_id)


@pytest.mark.parametrize("protocol", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_an_answer_is_whole_with_its_end_marker_although_the_provider_keeps_the_connection_open(
    log: MemoryLog, engine: MontyEngine, fake: FakeProvider, transport: ProviderTransport, protocol: str
) -> None:
    fake.then(says("one two three", stall_after=99))
    with running(log, engine, AGENT, models=transport, adapter=protocol) as system:
        began = time.monotonic()
        run_id = system.say().run_id
        end = system.wait(run_id, 3)
        assert isinstance(end, log_of.RunCompleted), end
        assert end.usage.output_tokens == 7
        assert fake.wait_disconnected(1)
        assert time.monotonic() - began < 2
        assert is_equal(system, run_id)


def test_a_connection_is_kept_for_the_next_turn_where_the_provider_ends_its_answers(
    log: MemoryLog, engine: MontyEngine, fake: FakeProvider, transport: ProviderTransport
) -> None:
    with running(log, engine, AGENT, models=transport) as system:
        for _ in range(5):
            assert isinstance(system.wait(system.say().run_id), log_of.RunCompleted)
        assert (fake.connections, fake.disconnected) == (1, 0)
