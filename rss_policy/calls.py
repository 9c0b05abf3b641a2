"""The host calls of one script: their numbers, what waits for them and what came back.  Pure, and the same in a replay."""

from dataclasses import dataclass, field
from typing import Any

MOST_WAITED = 100_000
"""Handles in all open waits together, each counted as often as it is waited for."""


class Misused(ValueError):
    """The script asked for a call that it cannot ask for; it is raised inside the script."""


@dataclass(frozen=True, slots=True)
class _Wait:
    numbers: tuple[int, ...]
    one: bool


@dataclass(slots=True)
class Calls:
    """Counts host calls 1, 2, 3 over a run and matches outcomes with waits.

    The interpreter has its own ids for waits (it also counts imports); they are only keys here.  An outcome is kept until
    it is joined; after that only the order in which calls were settled is.
    """

    _count: int = 0
    _open: set[int] = field(default_factory=set)
    _streams: set[int] = field(default_factory=set)
    _settled: dict[int, int] = field(default_factory=dict)
    _kept: dict[int, str] = field(default_factory=dict)
    _waits: dict[int, _Wait] = field(default_factory=dict)
    _waited: int = 0
    kept: int = 0
    """Characters of all outcomes that were not joined."""

    @property
    def outstanding(self) -> frozenset[int]:
        """Calls that were started and have no outcome yet."""
        return frozenset(self._open)

    @property
    def awaited(self) -> frozenset[int]:
        """Outstanding calls that the script waits for."""
        return frozenset(number for wait in self._waits.values() for number in wait.numbers if number in self._open)

    def start(self, *, streams: bool = False) -> int:
        """Give the next number; a call that `streams` can be stopped after it was settled, too."""
        self._count += 1
        self._open.add(self._count)
        if streams:
            self._streams.add(self._count)
        return self._count

    def stop(self, number: int) -> bool:
        """Say whether there is something to stop: the call is open, or it streams and was not stopped before."""
        stops = number in self._open or number in self._streams
        self._streams.discard(number)
        return stops

    def join(self, key: int, number: object) -> None:
        """Note that a wait with this key wants the outcome of this call."""
        known = self.known(number)
        if known not in self._open and known not in self._kept:
            raise Misused(f"call {known} was joined already")
        self._wait(key, _Wait((known,), one=True))

    def any_of(self, key: int, numbers: object) -> None:
        """Note that a wait with this key wants to know which of these calls is settled first."""
        if not isinstance(numbers, list) or not numbers:
            raise Misused("any_of needs a list of at least one handle")
        self._wait(key, _Wait(tuple(self.known(number) for number in numbers), one=False))

    def known(self, number: object) -> int:
        """Return the number of a call that was started, or raise Misused."""
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= self._count:
            raise Misused(f"{number!r} is not the handle of a started call")
        return number

    def settle(self, number: int, outcome: str) -> None:
        """Keep the outcome of a call.

        Raises:
            ValueError: no such call is outstanding.
        """
        if number not in self._open:
            raise ValueError(f"call {number} is not outstanding")
        self._open.remove(number)
        self._settled[number] = len(self._settled)
        self._kept[number] = outcome
        self.kept += len(outcome)

    @property
    def ready(self) -> bool:
        """Say whether some wait can be answered now."""
        return any(self._first_settled(wait.numbers) for wait in self._waits.values())

    def due(self) -> dict[int, Any]:
        """Return and forget the waits that can be answered now, in the order in which they were made."""
        answers: dict[int, Any] = {}
        joined: set[int] = set()
        for key, wait in self._waits.items():
            first = wait.numbers[0] if wait.one else self._first_settled(wait.numbers)
            if first in self._settled:
                answers[key] = self._kept[first] if wait.one else first
                joined |= {first} if wait.one else set()
        for key in answers:
            self._waited -= len(self._waits.pop(key).numbers)
        for number in joined:
            self.kept -= len(self._kept.pop(number))
        return answers

    def _wait(self, key: int, wait: _Wait) -> None:
        if self._waited + len(wait.numbers) > MOST_WAITED:
            raise Misused(f"the script waits for more than {MOST_WAITED} handles at once")
        self._waits[key] = wait
        self._waited += len(wait.numbers)

    def _first_settled(self, numbers: tuple[int, ...]) -> int:
        return min((number for number in numbers if number in self._settled), key=self._settled.__getitem__, default=0)
