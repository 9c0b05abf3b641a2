from collections.abc import Iterator
from pathlib import Path

import pytest

from eventstore import Redactor
from eventstore.memory import MemoryLog
from eventstore.sqlite import SqliteLog, SqliteQueries
from tests.fakes.logs import SECRET, Both


@pytest.fixture(params=["memory", "sqlite"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    """Every kind of log, with its queries: a test that takes this fixture is part of the contract."""
    if request.param == "memory":
        memory = MemoryLog(redactor=Redactor([SECRET]), capacity=8)
        yield Both(memory, memory.queries)
        memory.close()
    else:
        log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor([SECRET]), capacity=8)
        yield Both(log, SqliteQueries(log.reader))
        log.close()
