"""Owns the worker processes: takes scripts up, keeps prepared sessions, and parks who waits long when workers are scarce."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pydantic_monty import Monty, MontyCrashedError, __version__

from rss_policy.bundle import Bundle
from rss_policy.drive import Drive
from rss_policy.errors import EngineBusy, EngineFailed, LimitReached, WorkerLost
from rss_policy.feeds import feed_bundle, place_of
from rss_policy.lease import Lease
from rss_policy.live import LiveScript
from rss_policy.loader import load_archive
from rss_policy.manifest import Limits
from rss_policy.replay import follow
from rss_policy.script import BundleRef, Halt, RecordedStep
from rss_policy.wire import Unfit, to_script

REPLAY_FACTOR = 10
IDLE_SECONDS = 2.0
PARKED_BYTES = 256_000_000
PREPARED_SESSIONS = 16


class MontyEngine:
    """Implements `script.Engine` with pydantic-monty; all methods from any thread.

    Args:
        workers: most worker processes at a time.
        limits: backstops; a bundle's manifest can only narrow them.
        checkout_timeout: seconds to wait for a worker before EngineBusy.
        idle_seconds: a script that waits longer gives its worker back.
        parked_bytes: most bytes of parked scripts in memory; the longest parked are then left to replay.
        monotonic: the clock for idleness and the step limit.
        binary: the interpreter's worker program; None for the one that came with it.
    """

    def __init__(
        self,
        workers: int = 64,
        *,
        limits: Limits | None = None,
        checkout_timeout: float = 10.0,
        idle_seconds: float = IDLE_SECONDS,
        parked_bytes: int = PARKED_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or Limits()
        self._workers, self._timeout, self._idle, self._monotonic = workers, checkout_timeout, idle_seconds, monotonic
        self._most_parked = parked_bytes
        self._room = threading.Condition()
        self._taken = 0
        self._resting: OrderedDict[LiveScript, float] = OrderedDict()
        self._parked: OrderedDict[LiveScript, int] = OrderedDict()
        self._prepared: OrderedDict[tuple[str, Limits], bytes] = OrderedDict()
        self._closed = threading.Event()
        self._pool = Monty(min_processes=1, max_processes=workers, checkout_timeout=checkout_timeout)
        self._pool.__enter__()
        self._keeper = threading.Thread(target=self._keep, name="policy-housekeeping", daemon=True)
        self._keeper.start()

    @property
    def version(self) -> str:
        """Name and version of the interpreter, as `run.started` records it."""
        return f"pydantic-monty {__version__}"

    def open(
        self, bundle: BundleRef, context: dict[str, Any], steps: tuple[RecordedStep, ...] = ()
    ) -> tuple[LiveScript, Halt | None]:
        """Give a script for a run; with recorded steps, take it up by replay to where the record ends.

        Blocks while it replays.

        Raises:
            PolicyError: the bundle or the context is at fault.
            EngineFailed: no worker came free, or it died.
            Diverged: the script did something else than the record says.
        """
        loaded = bundle if isinstance(bundle, Bundle) else load_archive(bundle.archive)
        limits = self._limits.narrowed(loaded.manifest.limits)
        allowed = limits.wider(REPLAY_FACTOR) if steps else limits
        drive = Drive(_context_text(context, allowed), allowed, lambda fault: place_of(loaded, fault), self._monotonic)
        script = LiveScript(self, loaded, drive, allowed)
        if not steps:
            return script, None
        try:
            halt = follow(script, steps)
        except BaseException:
            script.close()
            raise
        drive.limits = limits
        return script, halt

    def close(self) -> None:
        """End all workers; scripts that are open raise WorkerLost."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._keeper.join()
        for script in (*self._resting, *self._parked):
            script.kill()
        self._pool.__exit__(None, None, None)

    def lease(self, limits: Limits) -> Lease:
        """Take a worker; when all are taken, park the script that waits longest.

        Raises:
            EngineBusy: no worker came free in time.
            EngineFailed: the engine is closed, or cannot start a worker.
        """
        if self._closed.is_set():
            raise EngineFailed("the engine is closed")
        self._take_slot()
        try:
            return Lease(self._pool, limits, self._free_slot)
        except TimeoutError as fault:
            self._free_slot()
            raise EngineBusy(f"no worker came free in {self._timeout} s") from fault
        except (MontyCrashedError, OSError, RuntimeError) as fault:
            self._free_slot()
            raise EngineFailed(f"no worker could be started: {fault}") from fault

    def prepared(self, bundle: Bundle, limits: Limits) -> bytes:
        """Return the dump of a session with the bundle loaded; made once, kept for the bundles used last."""
        key = (bundle.digest, limits)
        with self._room:
            if key in self._prepared:
                self._prepared.move_to_end(key)
                return self._prepared[key]
        dump = self._prepare(bundle, limits)
        with self._room:
            self._prepared[key] = dump
            while len(self._prepared) > PREPARED_SESSIONS:
                self._prepared.popitem(last=False)
        return dump

    def check_types(self, bundle: Bundle) -> None:
        """Type-check a bundle against the host's prelude.

        Raises:
            TypesRefused: with `module:line` and all findings of the first faulty module.
            BundleRefused: a module does not load.
        """
        lease = self.lease(self._limits)
        lease.give_back()

    def rests(self, script: LiveScript) -> None:
        """Note that a script waits and could be parked."""
        with self._room:
            self._resting[script] = self._monotonic()
            self._room.notify()

    def works(self, script: LiveScript) -> None:
        """Note that a script is busy, or gone."""
        with self._room:
            self._resting.pop(script, None)

    def parked(self, script: LiveScript, size: int) -> None:
        """Note the size of a parked state; above the bound the longest parked are left to replay."""
        dropped: list[LiveScript] = []
        with self._room:
            self._parked.pop(script, None)
            if size:
                self._parked[script] = size
            while sum(self._parked.values()) > self._most_parked:
                dropped.append(self._parked.popitem(last=False)[0])
        for one in dropped:
            one.drop("the parked state was dropped to bound memory")

    def park_idle(self) -> int:
        """Park every script that has waited for `idle_seconds`; return how many were."""
        now = self._monotonic()
        with self._room:
            idle = [script for script, since in self._resting.items() if now - since >= self._idle]
        return sum(script.park() for script in idle)

    def _keep(self) -> None:
        while not self._closed.wait(self._idle / 4):
            self.park_idle()

    def _take_slot(self) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            with self._room:
                if self._taken < self._workers:
                    self._taken += 1
                    return
                longest = next(iter(self._resting), None)
                if longest is None:
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._room.wait(left):
                        raise EngineBusy(f"no worker came free in {self._timeout} s")
                    continue
                self._resting.move_to_end(longest)
            longest.park()

    def _free_slot(self) -> None:
        with self._room:
            self._taken -= 1
            self._room.notify()

    def _prepare(self, bundle: Bundle, limits: Limits) -> bytes:
        lease = self.lease(limits)
        try:
            feed_bundle(lease.session, bundle)
            return lease.session.dump()
        except MontyCrashedError as fault:
            raise WorkerLost(str(fault)) from fault
        finally:
            lease.give_back()


def _context_text(context: dict[str, Any], limits: Limits) -> str:
    try:
        text = to_script(context)
    except Unfit as fault:
        raise LimitReached(f"the context cannot cross: {fault}", "context_bytes") from None
    if len(text) > limits.context_bytes:
        message = (
            f"the context has {len(text)} characters, {limits.context_bytes} are allowed (setting limits.context_bytes)"
        )
        raise LimitReached(message, "context_bytes")
    return text
