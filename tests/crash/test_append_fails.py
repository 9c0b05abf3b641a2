"""The disk fails at one append, before or after it wrote: the next actor knows the truth."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from actors.directory import Directory
from actors.hosting import Hosting
from actors.pool import Pool
from actors.timer import Timer
from eventstore.catalogue import NoteTaken
from eventstore.errors import LogError, StoreError, StoreFull, Unwritten
from eventstore.memory import MemoryLog
from tests.fakes.clock import ManualClock
from tests.fakes.counter import COUNTER, Add, Occupy, Recover
from tests.fakes.logs import FailingLog
from tests.fakes.town import Launcher, eventually

APPENDS = 5


class Place:
    """One directory over a log that keeps its contract, and fails once."""

    def __init__(self, log: FailingLog) -> None:
        self.clock, self.log, self.launcher = ManualClock(), log, Launcher()
        self.timer, self.pool = Timer(self.clock), Pool(2, "place")
        self.clock.on_advance(self.timer.wake)
        self.directory = Directory(log, self.clock, self.timer, self.pool)
        self.directory.host(Hosting(COUNTER, self.launcher, Recover, lambda _now: Occupy(busy=False)))

    def insist(self, number: int) -> int:
        """Ask until there is an answer; return how often it failed."""
        failures = 0
        while True:
            try:
                self.directory.ask("counter", "a", Add(number), 5)
            except LogError as error:
                failures += 1
                if not isinstance(error, Unwritten):
                    eventually(lambda: self.directory.counts()["failed"] == 1)
                    self.clock.advance(0.2)
            else:
                return failures


@contextmanager
def place(fail_at: int, error: LogError, *, after_write: bool) -> Iterator[Place]:
    log = MemoryLog()
    built = Place(FailingLog(log, fail_at, after_write=after_write, error=error))
    yield built
    assert built.directory.close(2)
    assert built.timer.stop(2)
    assert built.pool.stop(2)
    log.close()


@pytest.mark.parametrize("after_write", [False, True])
@pytest.mark.parametrize("fail_at", range(1, APPENDS + 1))
def test_after_an_unknown_outcome_each_number_is_on_record_once(fail_at: int, after_write: bool) -> None:
    with place(fail_at, StoreError("the disk is gone"), after_write=after_write) as here:
        failures = sum(here.insist(number) for number in range(APPENDS))
        events = [envelope.event for envelope in here.log.read("counter-a")]
        assert failures == 1
        assert [event.data["number"] for event in events if isinstance(event, NoteTaken)] == list(range(APPENDS))


@pytest.mark.parametrize("fail_at", range(1, APPENDS + 1))
def test_after_a_full_disk_the_same_actor_goes_on(fail_at: int) -> None:
    with place(fail_at, StoreFull("no space"), after_write=False) as here:
        failures = sum(here.insist(number) for number in range(APPENDS))
        assert failures == 1
        assert [envelope.version for envelope in here.log.read("counter-a")] == [1, 2, 3, 4, 5]
        assert here.directory.counts() == {"live": 1, "failed": 0}
