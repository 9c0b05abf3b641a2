"""Who is alive: starts actors on demand, puts idle ones away, starts failed ones again, and stops all in order.

A message that was taken reaches an actor: one that is put away or ends closes its mailbox atomically, and what is left, or
comes too late, goes to the next actor at that address.  So a command may arrive twice, and aggregates answer repeats.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pykka

from actors.errors import Refused
from actors.failures import MAX_ATTEMPTS, Failures, is_of_log
from actors.hosting import Hosting, Surroundings
from actors.letters import Address, Grown, Letter, Pressing, Recorded
from actors.performers import Performers
from actors.pool import MAILBOX, MailboxFull, Pool, PooledActor
from actors.ports import Clock
from actors.residents import AnyShell, Residents
from actors.shell import Shell
from actors.timer import Timer
from eventstore.errors import StoreError
from eventstore.log import Envelope, EventLog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds and pace; times are seconds.

    `live` bounds the actors in memory: beyond it idle ones are put away, and new conversations refused if none is idle.
    """

    live: int = 4_096
    idle_after: float = 60.0
    tidy_every: float = 5.0
    sweep_every: float = 60.0
    backoff: float = 0.1
    longest_backoff: float = 30.0
    mailbox: int = MAILBOX


class Directory:
    """Routes commands to addresses; every method may be called from any thread."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        timer: Timer,
        pool: Pool,
        *,
        unfinished: Callable[[], Iterable[Address]] = tuple,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._clock, self._timer, self._unfinished = clock, timer, unfinished
        # Each live actor replays once, so this queue is never longer than there are live actors.
        self._replays = Performers("replay", threads=2, waiting=1_000_000)
        self._around = Surroundings(log, clock, pool, self._replays, self, self._settings.mailbox)
        self._hostings: dict[str, Hosting[Any, Any, Any, Any]] = {}
        self._lock = threading.Lock()
        self._live = Residents(self._settings.live)
        self._failures = Failures(self._settings.backoff, self._settings.longest_backoff, self._settings.mailbox)
        self._open = True
        self._starts = True

    def host(self, hosting: Hosting[Any, Any, Any, Any]) -> None:
        """Make a kind of aggregate known; before anything is sent to it."""
        self._hostings[hosting.aggregate.kind] = hosting

    def begin(self) -> None:
        """Begin to put idle actors away and to sweep for work without an actor."""
        self.later("directory/tidy", self._settings.tidy_every, self._tidy_and_again)
        self.later("directory/sweep", self._settings.sweep_every, self._sweep_and_again)

    # --- sending -----------------------------------------------------------------------------

    def tell(self, kind: str, instance: str, command: Any) -> None:
        """Send a command without waiting; at least once, for actors.

        Raises:
            Refused: `overloaded` or `shutting_down`; the command was not taken.
        """
        self._deliver(Address(kind, instance), Letter(command))

    def ask(self, kind: str, instance: str, command: Any, timeout: float) -> Recorded[Any, Any]:
        """Send a command and wait for its answer, after the commit; for gateways only, never from an actor.

        Raises:
            Refused: the command does not fit; or `overloaded`, `shutting_down`.
            StoreError: it is not known whether the command was recorded; also when no answer came within `timeout` seconds.
            Unwritten: the log did not take it.
        """
        if not self._open:
            raise _shutting_down()
        reply: pykka.ThreadingFuture[Any] = pykka.ThreadingFuture()
        self._deliver(Address(kind, instance), Letter(command, reply))
        try:
            answer: Recorded[Any, Any] | Refused = reply.get(timeout=timeout)
        except pykka.Timeout:
            raise StoreError(f"no answer within {timeout} s; the command may be recorded yet") from None
        if isinstance(answer, Refused):
            raise answer
        return answer

    def start_all(self, addresses: Iterable[Address]) -> int:
        """Start an actor for each address that has none; return how many were started."""
        started = 0
        for address in addresses:
            with self._lock:
                known = address in self._live or self._failures.waits(address)
                if not known and self._starts:
                    self._start(address)
                    started += 1
        return started

    def _deliver(self, address: Address, letter: Letter) -> None:
        message = letter
        while (shell := self._find(address, letter)) is not None:
            try:
                shell.send(message)
            except pykka.ActorDeadError:
                self._forget(address, shell)
            except MailboxFull:
                raise Refused("overloaded", f"too much waits for this {address.kind}", retry_after=1) from None
            else:
                return

    def _find(self, address: Address, letter: Letter, *, pressing: bool = False) -> AnyShell | None:
        """Return the live actor, a new one if there is none; None if the letter is held for the next one."""
        with self._lock:
            live = self._live.use(address, self._clock.monotonic())
            if live is not None:
                return live
            if self._failures.waits(address):
                self._failures.hold(address, letter, self._clock.monotonic(), pressing=pressing)
                return None
            if not self._starts:
                raise _shutting_down()
            if not self._live.make_room() and letter.reply is not None:
                raise Refused("overloaded", "too many conversations are active", retry_after=1)
            return self._start(address)

    def _start(self, address: Address) -> AnyShell:
        """Start an actor; under the lock."""
        hosting = self._hostings[address.kind]
        shell: AnyShell = Shell(hosting, address, self._around)
        self._live.add(address, shell, self._clock.monotonic())
        shell.begin()
        return shell

    def _forget(self, address: Address, shell: AnyShell) -> None:
        with self._lock:
            self._live.remove(address, shell)

    # --- what shells need (`actors.hosting.Keeper`) ----------------------------------------------

    def press(self, address: Address, command: Any) -> None:
        """Bring a performer's outcome to whoever is at the address now; a full mailbox takes it.

        Raises:
            Refused: `shutting_down`, and no actor lives there; the effect is found in `pending` after the next start.
        """
        letter = Letter(command)
        while (shell := self._find(address, letter, pressing=True)) is not None:
            try:
                shell.send(Pressing(letter))
            except pykka.ActorDeadError:
                self._forget(address, shell)
            else:
                return

    def grew(self, address: Address, envelopes: tuple[Envelope, ...]) -> None:
        """Tell a live actor that another one's append wrote to its stream."""
        with self._lock:
            live = self._live.get(address)
        if live is not None:
            try:
                live.send(Grown(envelopes))
            except pykka.ActorDeadError:
                return  # the next one replays

    def later(self, key: Hashable, seconds: float, callback: Callable[[], None]) -> None:
        """Call back on the timer's thread after some seconds."""
        self._timer.at(key, self._clock.monotonic() + seconds, callback)

    def ended(self, address: Address, actor: PooledActor, error: BaseException | None, letters: list[Letter]) -> None:
        """Start the next actor after a pause, and give it what the ended one leaves undone."""
        # A disk that fails is no command's fault: what was told waits for a better one, as long as there is hope at all.
        most = math.inf if is_of_log(error) else MAX_ATTEMPTS
        for letter in letters:
            if letter.attempts >= most:
                self._give_up(address, letter, error)
        alive = [letter for letter in letters if letter.attempts < most]
        with self._lock:
            self._live.remove(address, actor)
            now = self._clock.monotonic()
            until = self._failures.note(address, error, now, alive)
        logger.warning("%s ended: %s; the next one starts in %.1f s", address.stream, _name(error), until - now)
        try:
            if self._starts:
                self._timer.at(("restart", address), until, partial(self._restart, address))
                return
        except Refused:
            logger.warning("%s starts again without a pause: there are too many timers", address.stream)
        self._restart(address)

    def _restart(self, address: Address) -> None:
        """Start the next actor; on the timer's thread."""
        with self._lock:
            held, hopeless = self._failures.release(address)
            if self._starts and hopeless is None:
                shell = self._live.get(address) or self._start(address)
                held = [letter for letter in held if not _put(shell, letter)]
        for letter in held:
            self._give_up(address, letter, hopeless if self._starts else _shutting_down())

    def _give_up(self, address: Address, letter: Letter, error: BaseException | None) -> None:
        level = logging.INFO if isinstance(error, Refused) and error.code == "shutting_down" else logging.ERROR
        logger.log(level, "%s: %s is given up over %s", address.stream, type(letter.command).__name__, _name(error))
        letter.fail(error or Refused("overloaded", "this conversation had a fault", retry_after=30))

    # --- putting away, sweeping, stopping ----------------------------------------------------------

    def tidy(self) -> int:
        """Put away actors that were idle for long; return how many."""
        before = self._clock.monotonic() - self._settings.idle_after
        with self._lock:
            self._failures.forget_healed(self._clock.monotonic())
            idle = self._live.idle(before)
        put_away = 0
        for address in idle:
            with self._lock:  # one by one: senders must not wait for all of them
                put_away += self._live.put_away(address, before)
        return put_away

    def put_away(self, addresses: Iterable[Address]) -> int:
        """Put away those actors that are at rest, however lately they were used; return how many stay."""
        stay = 0
        for address in addresses:
            with self._lock:
                stay += not self._live.put_away(address, math.inf) and address in self._live
        return stay

    def sweep(self) -> int:
        """Start an actor for what was given up, and for unfinished work that has none and does not rest; return how many."""
        unfinished = list(self._unfinished())
        with self._lock:
            lost = [address for address in unfinished if not self._live.rests(address)] + self._failures.given_up()
        return self.start_all(lost)

    def _tidy_and_again(self) -> None:
        self.tidy()
        self.later("directory/tidy", self._settings.tidy_every, self._tidy_and_again)

    def _sweep_and_again(self) -> None:
        # It asks the database, so it is not for the timer's thread.
        self._replays.submit("sweep", lambda _token: self._log_sweep(), _sweep_failed)
        self.later("directory/sweep", self._settings.sweep_every, self._sweep_and_again)

    def _log_sweep(self) -> None:
        found = self.sweep()
        if found:
            logger.warning("the sweep found %s unfinished without an actor", found)

    def counts(self) -> dict[str, int]:
        """Return how many actors are alive and how many addresses wait after a failure, for metrics."""
        with self._lock:
            return {"live": len(self._live), "failed": self._failures.count()}

    def stop_intake(self) -> None:
        """Refuse what gateways ask from now on; actors go on."""
        self._open = False

    def close(self, timeout: float) -> bool:
        """Tell every actor to stop, wait until they have recorded what they had, end them; True if all were in time."""
        self.stop_intake()
        with self._lock:
            self._starts = False
            lives = self._live.all()
        for address, shell in lives:
            shut_down = self._hostings[address.kind].shut_down
            if shut_down is not None:
                _put(shell, Letter(shut_down(self._clock.now())))
        deadline = time.monotonic() + timeout
        while lives and time.monotonic() < deadline:
            lives = [(address, shell) for address, shell in lives if not _close_settled(shell)]
            threading.Event().wait(0.005 if lives else 0)
        for _, shell in lives:
            shell.actor_stopped.set()
        self._replays.stop(max(0.0, deadline - time.monotonic()))
        return not lives


def _close_settled(shell: AnyShell) -> bool:
    closed = shell.actor_inbox.close_if(lambda: shell.settled)
    if closed:
        shell.actor_stopped.set()
    return closed


def _put(shell: AnyShell, letter: Letter) -> bool:
    try:
        shell.send(Pressing(letter))
    except pykka.ActorDeadError:
        return False
    return True


def _sweep_failed(error: BaseException) -> None:
    logger.error("the sweep failed: %s", error)


def _shutting_down() -> Refused:
    return Refused("shutting_down", "the server is stopping", retry_after=5)


def _name(error: BaseException | None) -> str:
    return type(error).__name__ if error is not None else "nothing"
