"""Directory, timer and pool around counters, with a manual clock: what the service tests of the actors stand on."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from actors.directory import Directory, Settings
from actors.errors import Refused
from actors.hosting import Hosting
from actors.letters import Address, Recorded
from actors.pool import Pool
from actors.shell import Shell
from actors.timer import Timer
from eventstore.catalogue import NoteTaken
from tests.fakes.clock import ManualClock
from tests.fakes.counter import COUNTER, Command, Counter, Occupy, Recover, Work
from tests.fakes.list_log import ListLog


class Launcher:
    """Remembers what was launched, and refuses or fails when told to."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.backs: list[Callable[[Command], None]] = []
        self.troubles: list[BaseException] = []

    def __call__(self, effect: Work, back: Callable[[Command], None]) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        self.launched.append(effect.key)
        self.backs.append(back)


class Town:
    """One directory of counters."""

    def __init__(self, log: ListLog, settings: Settings, unfinished: Callable[[], Iterable[Address]]) -> None:
        self.log, self.clock, self.launcher = log, ManualClock(), Launcher()
        self.timer, self.pool = Timer(self.clock), Pool(3, "town")
        self.clock.on_advance(self.timer.wake)
        self.directory = Directory(log, self.clock, self.timer, self.pool, unfinished=unfinished, settings=settings)
        self.directory.host(Hosting(COUNTER, self.launcher, Recover, lambda _now: Occupy(busy=False)))

    def ask(self, name: str, command: Command, timeout: float = 5) -> Recorded[Counter, NoteTaken]:
        return self.directory.ask("counter", name, command, timeout)

    def shell(self, name: str) -> Shell[Counter, Command, NoteTaken, Work]:
        found = self.directory._live.get(Address("counter", name))
        assert found is not None
        return found

    def tell(self, name: str, command: Command) -> None:
        self.directory.tell("counter", name, command)

    def refusal(self, name: str, command: Command) -> Refused:
        try:
            self.ask(name, command)
        except Refused as refusal:
            return refusal
        raise AssertionError("not refused")

    def pass_the_pause(self, seconds: float = 0.2) -> None:
        """Wait for the failure that the sender has heard of already, and let its pause go by."""
        eventually(lambda: self.directory.counts()["failed"] == 1)
        self.clock.advance(seconds)
        eventually(lambda: self.directory.counts()["failed"] == 0)

    def numbers(self, name: str) -> list[int]:
        found = [envelope.event for envelope in self.log.read(f"counter-{name}")]
        return [event.data["number"] for event in found if isinstance(event, NoteTaken) and event.kind == "added"]


@contextmanager
def town(
    log: ListLog | None = None,
    settings: Settings | None = None,
    unfinished: Callable[[], Iterable[Address]] = tuple,
) -> Iterator[Town]:
    built = Town(log or ListLog(), settings or Settings(), unfinished)
    try:
        yield built
    finally:
        built.log.release()
        built.directory.close(2)
        assert built.timer.stop(2)
        assert built.pool.stop(2)


def eventually(holds: Callable[[], bool], within: float = 5.0) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.002)
