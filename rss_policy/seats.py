"""Shares a bounded number of workers among scripts: who waits longest, or too long, is parked.

A parked script's state is a cache in memory, bounded in bytes; what is dropped is taken up again by replay.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rss_policy.errors import EngineBusy

DROPPED = "the parked state was dropped to bound memory"


@dataclass(frozen=True, slots=True)
class Parking:
    """When scripts are parked: after so many seconds of waiting; and how many bytes of parked state are kept.

    `ready`: how many workers are kept with the bundle loaded that ran last; they give way where they are needed.
    """

    idle_seconds: float = 2.0
    most_bytes: int = 256_000_000
    ready: int = 0


class Sitter(Protocol):
    """A script, as far as workers are concerned."""

    def park(self) -> bool:
        """Give the worker back if the script waits; return whether it did."""

    def drop(self, reason: str) -> None:
        """Forget the parked state."""

    def kill(self) -> None:
        """End the script."""


class Seats:
    """Counts workers in use and knows who could give one back; all methods from any thread."""

    def __init__(self, workers: int, timeout: float, parking: Parking, monotonic: Callable[[], float]) -> None:
        self._workers, self._timeout, self._parking, self._monotonic = workers, timeout, parking, monotonic
        self._room = threading.Condition()
        self._taken = 0
        self._busy: set[Sitter] = set()
        self._resting: OrderedDict[Sitter, float] = OrderedDict()
        self._parked: OrderedDict[Sitter, int] = OrderedDict()
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="policy-parking", daemon=True)
        self._keeper.start()

    @property
    def taken(self) -> int:
        """How many workers are in use."""
        return self._taken

    def take(self) -> None:
        """Wait for a free worker and count it as taken; when all are, park the script that waits longest.

        Raises:
            EngineBusy: none came free in time.
        """
        deadline = time.monotonic() + self._timeout
        while (longest := self._taken_or_longest(deadline)) is not None:
            longest.park()

    def take_free(self) -> bool:
        """Count a worker as taken if one is free, without waiting; return whether it was."""
        with self._room:
            free = self._taken < self._workers
            self._taken += free
            return free

    def free(self) -> None:
        """Count a worker as free."""
        with self._room:
            self._taken -= 1
            self._room.notify()

    def works(self, script: Sitter) -> None:
        """Note that a script computes, so that it must not be parked."""
        with self._room:
            self._resting.pop(script, None)
            self._busy.add(script)

    def rests(self, script: Sitter, *, for_good: bool = False) -> None:
        """Note that a script waits and could be parked; `for_good`: only where its worker is needed, not for idleness."""
        with self._room:
            self._busy.discard(script)
            self._resting[script] = math.inf if for_good else self._monotonic()
            self._room.notify()

    def leaves(self, script: Sitter) -> None:
        """Note that a script holds neither worker nor parked state."""
        with self._room:
            self._busy.discard(script)
            self._resting.pop(script, None)
            self._parked.pop(script, None)

    def parks(self, script: Sitter, size: int) -> bool:
        """Note a parked state of so many bytes; above the bound the longest parked are dropped. False: so was this one."""
        dropped: list[Sitter] = []
        with self._room:
            self._parked[script] = size
            total = sum(self._parked.values())
            while total > self._parking.most_bytes:
                one, freed = self._parked.popitem(last=False)
                dropped.append(one)
                total -= freed
        for one in dropped:
            one.drop(DROPPED)
        return script not in dropped

    def park_idle(self) -> int:
        """Park every script that has waited too long; return how many were."""
        now = self._monotonic()
        with self._room:
            idle = [script for script, since in self._resting.items() if now - since >= self._parking.idle_seconds]
        return sum(script.park() for script in idle)

    def close(self) -> None:
        """Stop parking and kill every script that holds a worker or a parked state."""
        self._closed.set()
        self._keeper.join()
        with self._room:
            scripts = {*self._busy, *self._resting, *self._parked}
        for script in scripts:
            script.kill()

    def _taken_or_longest(self, deadline: float) -> Sitter | None:
        with self._room:
            while self._taken >= self._workers:
                if self._resting:
                    longest = next(iter(self._resting))
                    self._resting.move_to_end(longest)
                    return longest
                left = deadline - time.monotonic()
                if left <= 0 or not self._room.wait(left):
                    raise EngineBusy(f"no worker came free in {self._timeout} s; all {self._workers} compute")
            self._taken += 1
            return None

    def _keep(self) -> None:
        while not self._closed.wait(self._parking.idle_seconds / 4):
            self.park_idle()
