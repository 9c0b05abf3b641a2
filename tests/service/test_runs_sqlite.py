"""A whole conversation on the real log: streamed, retried, steered, with tools, taken up by another system, replayed."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.replaying import replay_run
from eventstore import catalogue as log_of
from eventstore.redaction import Redactor
from eventstore.sqlite.log import SqliteLog
from eventstore.sqlite.queries import SqliteQueries, open_queries
from rss_policy.engine import MontyEngine
from tests.fakes.models import Plan, ScriptedModels
from tests.fakes.policies import STREAMED, WHOLE
from tests.fakes.system import CountingIds, System, running
from tests.fakes.tools import FakeTool, FakeToolbox

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"  # noqa: S105


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(workers=4)
    yield engine
    engine.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[SqliteLog, SqliteQueries]]:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    queries = open_queries(tmp_path / "deedbox.db")
    yield log, queries
    queries.close()
    log.close()


class Forgetful:
    """Queries that lost every session's first message."""

    def __init__(self, queries: SqliteQueries) -> None:
        self._queries = queries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queries, name)

    def messages(self, *given: Any, **more: Any) -> Any:
        return [row for row in self._queries.messages(*given, **more) if row.ordinal > 1]


def stream(*texts: str, gate: threading.Semaphore | None = None) -> Plan:
    return Plan(batches=[f"data: {text}\n\n".encode() for text in texts], gate=gate)


def replays_equal(system: System, run_id: str) -> bool:
    report = replay_run(system.log, system.queries, system.engine, system.profiles, run_id)
    assert report.equal, report
    return report.equal


def test_a_run_whose_context_the_log_does_not_give_any_more_fails_and_its_replay_says_so(
    stored: tuple[SqliteLog, SqliteQueries], engine: MontyEngine
) -> None:
    log, queries = stored
    gate, ids = threading.Semaphore(0), CountingIds()
    models = ScriptedModels([stream("one"), stream("two", gate=gate)])
    with running(log, engine, STREAMED, models=models, queries=queries, ids=ids) as system:
        first = system.say("first")
        system.wait(first.run_id)
        system.settled(first.session_id)
        second = system.say("second", session_id=first.session_id)
        system.until(second.run_id, lambda e: isinstance(e, log_of.ModelStarted))
    fewer = Forgetful(queries)
    with running(log, engine, STREAMED, models=models, queries=fewer, ids=ids) as system:
        end = system.wait(second.run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "context_changed"
        report = replay_run(log, fewer, engine, system.profiles, second.run_id)
        assert (report.equal, report.code) == (False, "context_changed")


def test_a_conversation_goes_on_after_a_stop_and_replays_equal(
    stored: tuple[SqliteLog, SqliteQueries], engine: MontyEngine
) -> None:
    log, queries = stored
    gate = threading.Semaphore(1)
    broken = Plan(batches=[b"data: Hal\n\n"], fault={"code": "network_error", "message": "cut"})
    models = ScriptedModels([broken, stream("Hel", "lo", gate=gate), stream("a", "b"), stream("more")])
    tools, ids = (FakeTool("once", effect="once"), FakeTool("look")), CountingIds()
    clean = Redactor().json
    with running(
        log, engine, WHOLE, models=models, toolbox=FakeToolbox(*tools), queries=queries, ids=ids, busy="steer", clean=clean
    ) as system:
        first = system.say(f"first, with {SECRET} and \ud835 and \x00")
        system.until(first.run_id, lambda e: isinstance(e, log_of.ModelDelta) and e.text == "Hel")
        system.say("second", session_id=first.session_id)
        system.until(first.run_id, lambda e: isinstance(e, log_of.MessageSteered))
    gate.release(9)
    with running(
        log, engine, WHOLE, models=models, toolbox=FakeToolbox(*tools), queries=queries, ids=ids, busy="steer", clean=clean
    ) as system:
        end = system.wait(first.run_id)
        assert isinstance(end, log_of.RunCompleted)
        heard = [
            e.data["count"] for e in system.events(first.run_id) if isinstance(e, log_of.NoteTaken) and e.kind == "heard"
        ]
        assert heard == [1]
        assert replays_equal(system, first.run_id)
        system.settled(first.session_id)
        again = system.say("third", session_id=first.session_id)
        assert isinstance(system.wait(again.run_id), log_of.RunCompleted)
        assert replays_equal(system, again.run_id)
        text = " ".join(str(row.message) for row in queries.messages(first.session_id, limit=99))
        assert SECRET not in text
    assert log.check() is None, "the chain holds"
