"""Which actors are in memory, which was used longest ago, and which rest although they still owe something."""

import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from actors.letters import Address
from actors.shell import Shell

AnyShell = Shell[Any, Any, Any, Any]

MAX_RESTING = 100_000
"""Addresses remembered as resting; a forgotten one is started by the sweep, which costs a replay."""

SEARCHED = 64
"""Actors that are looked at to make room for one."""


@dataclass(slots=True)
class _Resident:
    shell: AnyShell
    used: float


class Residents:
    """A table of live actors; the directory guards it with its lock.  Times are seconds of the monotonic clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._table: OrderedDict[Address, _Resident] = OrderedDict()
        self._resting: OrderedDict[Address, None] = OrderedDict()

    def get(self, address: Address) -> AnyShell | None:
        """Return the actor, if it is live."""
        resident = self._table.get(address)
        return resident.shell if resident is not None else None

    def use(self, address: Address, now: float) -> AnyShell | None:
        """Return the actor, if it is live, and note that it was used."""
        resident = self._table.get(address)
        if resident is None:
            return None
        resident.used = now
        self._table.move_to_end(address)
        return resident.shell

    def add(self, address: Address, shell: AnyShell, now: float) -> None:
        """Note a new actor."""
        self._table[address] = _Resident(shell, now)
        self._resting.pop(address, None)

    def remove(self, address: Address, shell: object) -> None:
        """Forget this actor; another one that lives there by now stays."""
        resident = self._table.get(address)
        if resident is not None and resident.shell is shell:
            del self._table[address]

    def all(self) -> list[tuple[Address, AnyShell]]:
        """Return all live actors."""
        return [(address, resident.shell) for address, resident in self._table.items()]

    def idle(self, before: float) -> list[Address]:
        """Return the addresses that were not used since `before`."""
        return [address for address, resident in self._table.items() if resident.used <= before]

    def put_away(self, address: Address, before: float) -> bool:
        """End the actor if it was not used since `before` and is at rest; return whether it has ended."""
        resident = self._table.get(address)
        if resident is None or resident.used > before:
            return False
        shell = resident.shell
        if not shell.actor_inbox.close_if(lambda: shell.at_rest):
            return False
        shell.actor_stopped.set()
        del self._table[address]
        if shell.owes:
            self._resting[address] = None
            if len(self._resting) > MAX_RESTING:
                self._resting.popitem(last=False)
        return True

    def make_room(self) -> bool:
        """See to it that one more fits in, if need be by putting away who was idle longest; return whether it does."""
        if len(self._table) < self._most:
            return True
        for address in list(itertools.islice(self._table, SEARCHED)):
            if self.put_away(address, float("inf")):
                return True
            self._table.move_to_end(address)  # so that the next search looks at others
        return False

    def rests(self, address: Address) -> bool:
        """Return whether the actor was put away at rest while it owed work: whoever has that work will wake it."""
        return address in self._resting

    def __contains__(self, address: Address) -> bool:
        """Return whether the actor is live."""
        return address in self._table

    def __len__(self) -> int:
        """Return how many are live."""
        return len(self._table)
