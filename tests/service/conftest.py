"""What most tests of runs need: one engine for a file, and a log in memory for each test."""

from collections.abc import Iterator

import pytest

from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine


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
