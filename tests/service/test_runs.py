"""Messages become runs: from the front door through a real script engine to the end on record."""

from collections.abc import Iterator

import pytest

from eventstore.catalogue import RunCompleted
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.system import DONE, running, script


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


def test_a_message_becomes_a_completed_run(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, script(f'emit({{"type": "note.hello", "n": 1}})\n{DONE}')) as system:
        admitted = system.say()
        end = system.wait(admitted.run_id)
        assert admitted.status == "running"
        assert isinstance(end, RunCompleted)
        assert system.types(admitted.run_id) == ["run.started", "run.completed"]
