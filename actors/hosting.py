"""How a kind of aggregate lives in this process: its launcher, its recovery, and what a shell needs around it."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from actors.aggregate import Aggregate, C, E, S, X
from actors.letters import Address, Letter
from actors.performers import Performers
from actors.pool import MAILBOX, Pool, PooledActor
from actors.ports import Clock
from eventstore.log import Envelope, EventLog


@dataclass(frozen=True, slots=True)
class Hosting(Generic[S, C, E, X]):
    """How one kind of aggregate lives.

    launch     begins an effect's work and returns at once; on the actor's pool thread, after the commit that implies the
               effect.  Its second argument takes the outcome, as a command, back to the actor or to the one after it, from
               any thread.  Where it raises `Refused` (performers busy) or fails, it is called again after a second
    recover    makes the command that follows each replay; its argument is the time, UTC in microseconds
    shut_down  makes the command that each live actor gets in an ordered shutdown, if any
    """

    aggregate: Aggregate[S, C, E, X]
    launch: Callable[[X, Callable[[C], None]], None]
    recover: Callable[[int], C]
    shut_down: Callable[[int], C] | None = None


class Keeper(Protocol):
    """Who keeps the actors: the directory; all of this may be called from any thread and does not block."""

    def press(self, address: Address, command: Any) -> None:
        """Bring a performer's outcome to whoever is at the address now; a full mailbox takes it."""

    def grew(self, address: Address, envelopes: tuple[Envelope, ...]) -> None:
        """Tell a live actor at the address that its stream has grown."""

    def ended(self, address: Address, actor: PooledActor, error: BaseException | None, letters: list[Letter]) -> None:
        """Take note that the actor ended, over what, and what it leaves undone."""

    def later(self, key: Hashable, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after some seconds."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every shell needs of the process; `replays` performs the loading."""

    log: EventLog
    clock: Clock
    pool: Pool
    replays: Performers
    keeper: Keeper
    mailbox: int = MAILBOX
