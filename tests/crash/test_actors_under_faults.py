"""Many actors while the log fails at random: all that was told is on record, once."""

import random
import threading

from actors.directory import Settings
from eventstore.errors import StoreBusy, StoreError, StoreFull, VersionConflict
from eventstore.log import Answer, Append, Failed
from tests.fakes.counter import Add
from tests.fakes.list_log import ListLog
from tests.fakes.town import eventually, town


class FaultyLog(ListLog):
    """Each stream fails a few times, before or after it wrote; never so often that a command is given up."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)  # noqa: S311 - it chooses faults
        self._left: dict[str, int] = {}
        self.faults = 0
        self.calm = False

    def _decide(self, request: Append) -> Answer:
        stream = request.parts[0].stream
        left = self._left.setdefault(stream, 2)
        if self.calm or not left or self._random.random() > 0.5:
            return super()._decide(request)
        self._left[stream] -= 1
        self.faults += 1
        errors = (StoreError("?"), StoreFull("full"), StoreBusy("busy"), VersionConflict(stream, 0, 1))
        error = self._random.choice(errors)
        if isinstance(error, StoreError) and self._random.random() < 0.5:
            super()._decide(request)  # it is on disk, and nobody knows
        return Failed(error)


def test_what_was_told_is_recorded_once_whatever_the_log_does() -> None:
    streams, numbers = 150, 8
    log = FaultyLog(seed=7)
    with town(log, Settings(live=60)) as here:
        done = threading.Event()

        def let_time_pass() -> None:
            while not done.wait(0.002):
                here.clock.advance(1)
                here.directory.tidy()

        clock = threading.Thread(target=let_time_pass)
        clock.start()
        for number in range(numbers):
            for stream in range(streams):
                here.tell(str(stream), Add(number))
        complete = list(range(numbers))
        eventually(lambda: all(sorted(here.numbers(str(n))) == complete for n in range(streams)), within=15)
        log.calm = True
        done.set()
        clock.join(5)
        assert log.faults > streams // 3
