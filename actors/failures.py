"""Which addresses failed lately, how long each pauses, and the letters that wait for its next actor."""

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from actors.errors import Refused
from actors.letters import Address, Letter
from eventstore.errors import CorruptEvent, StoreError, VersionConflict

MAX_ATTEMPTS = 3
"""Actors that may end over one command before it is given up."""

MAX_FAILURES = 10
"""Failures in a row before an address is left to the sweep."""

HEALED_AFTER = 60.0
"""Seconds without a failure after which the earlier ones do not count."""

SWEPT_AFTER = 30.0
"""Seconds after which it may be worth while to ask an address without hope again."""

MAX_GIVEN_UP = 100_000
"""Addresses remembered for the sweep; those that were given up first are forgotten first."""


def is_of_log(error: BaseException | None) -> bool:
    """Return whether the log failed, which is no command's fault and may heal; a stream that cannot be read does not."""
    return isinstance(error, StoreError) and not isinstance(error, CorruptEvent)


@dataclass(slots=True)
class _Failure:
    count: int = 0
    until: float = 0.0
    waiting: bool = False
    of_log: bool = False
    held: list[Letter] = field(default_factory=list)

    def refusal(self, seconds: float) -> Refused:
        """Return what to answer who cannot wait so long for the next actor."""
        if self.of_log:
            return Refused("storage_failed", "the log failed; this conversation starts again", math.ceil(seconds))
        return Refused("overloaded", "this conversation had a fault and starts again", math.ceil(seconds))


class Failures:
    """A table of failed addresses; the directory guards it with its lock.  Times are seconds of the monotonic clock."""

    def __init__(self, backoff: float, longest_backoff: float, held: int) -> None:
        self._backoff, self._longest, self._held = backoff, longest_backoff, held
        self._table: dict[Address, _Failure] = {}
        self._given_up: OrderedDict[Address, None] = OrderedDict()

    def note(self, address: Address, error: BaseException | None, now: float, letters: list[Letter]) -> float:
        """Count a failure, keep the letters, and return when the pause ends.

        Pauses double; after the first version conflicts there is none.
        """
        failure = self._table.setdefault(address, _Failure())
        failure.count = 1 if now > failure.until + HEALED_AFTER else failure.count + 1
        harmless = isinstance(error, VersionConflict) and failure.count < MAX_ATTEMPTS
        pause = 0.0 if harmless else min(self._backoff * 2 ** min(failure.count - 1, 16), self._longest)
        failure.until, failure.waiting, failure.of_log = now + pause, True, is_of_log(error)
        failure.held.extend(letters)
        return failure.until

    def waits(self, address: Address) -> bool:
        """Return whether the address pauses now."""
        failure = self._table.get(address)
        return failure is not None and failure.waiting

    def hold(self, address: Address, letter: Letter, now: float, *, pressing: bool) -> None:
        """Keep a letter for the next actor of a pausing address.

        Raises:
            Refused: an answer is wanted sooner than it can come (`storage_failed`, or `overloaded` where the log is not
                to blame), or too much waits (`overloaded`).
        """
        failure = self._table[address]
        left = failure.until - now
        if letter.reply is not None and left > 1:
            raise failure.refusal(left)
        if len(failure.held) >= self._held and not pressing:
            raise Refused("overloaded", "too much waits for this conversation", retry_after=1)
        failure.held.append(letter)

    def release(self, address: Address) -> tuple[list[Letter], Refused | None]:
        """End the pause; return the letters, and what to answer them where another try has no hope."""
        failure = self._table[address]
        held, failure.held, failure.waiting = failure.held, [], False
        if failure.count < MAX_FAILURES:
            return held, None
        del self._table[address]
        if failure.of_log:
            self._given_up[address] = None
            if len(self._given_up) > MAX_GIVEN_UP:
                self._given_up.popitem(last=False)
        return held, failure.refusal(SWEPT_AFTER)

    def given_up(self) -> list[Address]:
        """Return and forget the addresses without hope whose log may have healed; who they are owed to may not ask."""
        found, self._given_up = list(self._given_up), OrderedDict()
        return found

    def forget_healed(self, now: float) -> None:
        """Drop addresses whose last failure is long past."""
        self._table = {
            address: failure
            for address, failure in self._table.items()
            if failure.waiting or now <= failure.until + HEALED_AFTER
        }

    def count(self) -> int:
        """Return how many addresses pause now."""
        return sum(failure.waiting for failure in self._table.values())
