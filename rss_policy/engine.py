"""Owns the worker processes: takes scripts up, keeps prepared sessions, and runs them along a record."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic_monty import Monty, MontyCrashedError, __version__

from rss_policy.authority import context_text
from rss_policy.bundle import Bundle
from rss_policy.drive import Drive
from rss_policy.errors import BundleRefused, EngineBusy, EngineFailed, LimitReached, WorkerLost
from rss_policy.feeds import feed_bundle, place_of
from rss_policy.lease import Lease
from rss_policy.live import LiveScript
from rss_policy.loader import load_archive
from rss_policy.manifest import Limits
from rss_policy.ready import Ready
from rss_policy.replay import LimitMet, Redacted, follow
from rss_policy.script import BundleRef, Halt, RecordedStep
from rss_policy.seats import Parking, Seats

REPLAY_FACTOR = 10
KEPT_BUNDLES = 16
DEFAULT_PARKING = Parking()

_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")


class MontyEngine:
    """Implements `script.Engine` with pydantic-monty; all methods from any thread.

    Args:
        workers: most worker processes at a time.
        limits: backstops; a bundle's manifest can only narrow them.
        checkout_timeout: seconds to wait for a worker before EngineBusy.
        parking: when a script that waits gives its worker back, how much parked state is kept, how many workers are ready.
        redacted: what the log makes of an event before it is recorded; a replay compares what came of it.
        monotonic: the clock for idleness and the step limit.
    """

    def __init__(
        self,
        workers: int = 64,
        *,
        limits: Limits | None = None,
        checkout_timeout: float = 10.0,
        parking: Parking = DEFAULT_PARKING,
        redacted: Redacted = lambda event: event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self.redacted, self._monotonic = limits or Limits(), redacted, monotonic
        self._lock = threading.Lock()
        self._prepared: OrderedDict[tuple[str, Limits], bytes] = OrderedDict()
        self._unpacked: OrderedDict[str, Bundle] = OrderedDict()
        self._closed = False
        self._pool = Monty(min_processes=1, max_processes=workers, checkout_timeout=checkout_timeout)
        self._pool.__enter__()
        self.seats = Seats(workers, checkout_timeout, parking, monotonic)
        self._ready = Ready(parking.ready, self.seats, self._load)

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
        loaded = self._loaded(bundle)
        if not steps:
            return self._script(loaded, context, 1), None
        try:
            return self._taken_up(self._script(loaded, context, 1), steps)
        except LimitMet:  # by chance, because the machine is slower now: the record says that none fired
            wide = self._script(loaded, context, REPLAY_FACTOR)
        try:
            return self._taken_up(wide, steps)
        except LimitMet as met:
            raise LimitReached(f"while the run was taken up: {met}", "replay", met.halt.at) from None

    def reopen(self, bundle: BundleRef, context: dict[str, Any]) -> LiveScript:
        """Give a script whose limits are ten times wider, for `rss_policy.replay`.

        Raises:
            PolicyError: the bundle or the context is at fault.
        """
        return self._script(self._loaded(bundle), context, REPLAY_FACTOR)

    def close(self) -> None:
        """End all workers; scripts that are open raise WorkerLost."""
        if not self._closed:
            self._closed = True
            self._ready.close()
            self.seats.close()
            self._pool.__exit__(None, None, None)

    def lease(self, limits: Limits, *, typed: bool = False) -> Lease:
        """Take a worker; when all are taken, park the script that waits longest.

        Raises:
            EngineBusy: no worker came free in time.
            EngineFailed: the engine is closed, or cannot start a worker.
        """
        if self._closed:
            raise EngineFailed("the engine is closed")
        self.seats.take()
        return self._seated(limits, typed=typed)

    def ready(self, bundle: Bundle, limits: Limits) -> Lease | None:
        """Return a worker that has the bundle loaded, if one is ready."""
        return self._ready.take(bundle, limits)

    def released(self, bundle: Bundle, limits: Limits) -> None:
        """Make a worker ready for the next run of this bundle, now that one is free."""
        if limits == self._limits.narrowed(bundle.manifest.limits):  # not for a replay's wider ones
            self._ready.want(bundle, limits)

    def _seated(self, limits: Limits, *, typed: bool = False) -> Lease:
        try:
            return Lease(self._pool, limits, self.seats.free, typed=typed)
        except TimeoutError as fault:
            self.seats.free()
            raise EngineBusy(f"no worker came free: {fault}") from fault
        except (MontyCrashedError, OSError, RuntimeError) as fault:
            self.seats.free()
            raise EngineFailed(f"no worker could be started: {fault}") from fault

    def prepared(self, bundle: Bundle, limits: Limits) -> bytes:
        """Return the dump of a session with the bundle loaded; made once, kept for the bundles used last."""
        key = (bundle.digest, limits)
        with self._lock:
            if key in self._prepared:
                self._prepared.move_to_end(key)
                return self._prepared[key]
        dump = self._prepare(bundle, limits)
        with self._lock:
            _keep_last(self._prepared, key, dump)
        return dump

    def check_types(self, bundle: Bundle) -> None:
        """Type-check a bundle against the host's prelude.

        Raises:
            TypesRefused: with `module:line` and all findings of the first faulty module.
            BundleRefused: a module does not load.
        """
        lease = self.lease(self._limits, typed=True)
        try:
            feed_bundle(lease.session, bundle)
        except MontyCrashedError as fault:
            raise WorkerLost(str(fault)) from fault
        finally:
            lease.give_back()

    def _loaded(self, bundle: BundleRef) -> Bundle:
        if isinstance(bundle, Bundle):
            return bundle
        with self._lock:
            known = self._unpacked.get(bundle.digest)
        if known is not None:
            return known
        loaded = load_archive(bundle.archive)
        if loaded.digest != bundle.digest:
            raise BundleRefused(f"the archive holds {loaded.digest}, not {bundle.digest}")
        with self._lock:
            _keep_last(self._unpacked, bundle.digest, loaded)
        return loaded

    def _script(self, bundle: Bundle, context: dict[str, Any], factor: int) -> LiveScript:
        limits = self._limits.narrowed(bundle.manifest.limits).wider(factor)
        text = context_text(context, bundle.manifest, limits)
        self.prepared(bundle, limits)  # now, so that a bundle that does not load is refused here
        drive = Drive(text, limits, lambda fault: place_of(bundle, fault), self._monotonic, bundle.manifest.tools)
        return LiveScript(self, bundle, drive)

    def _taken_up(self, script: LiveScript, steps: tuple[RecordedStep, ...]) -> tuple[LiveScript, Halt]:
        try:
            return script, follow(script, steps, self.redacted)
        except BaseException:
            script.close()
            raise

    def _load(self, bundle: Bundle, limits: Limits) -> Lease:
        """Return a worker with the bundle loaded, on a seat that was taken for it and is given back where this fails."""
        with self._lock:
            dump = self._prepared.get((bundle.digest, limits))
        if dump is None:
            self.seats.free()
            raise EngineFailed("the bundle is not kept any more")
        lease = self._seated(limits)
        try:
            lease.session.load_session(dump)
        except BaseException:
            lease.give_back()
            raise
        return lease

    def _prepare(self, bundle: Bundle, limits: Limits) -> bytes:
        lease = self.lease(limits)
        try:
            feed_bundle(lease.session, bundle)
            return lease.session.dump()
        except MontyCrashedError as fault:
            raise WorkerLost(str(fault)) from fault
        finally:
            lease.give_back()


def _keep_last(kept: OrderedDict[_Key, _Kept], key: _Key, value: _Kept) -> None:
    kept[key] = value
    while len(kept) > KEPT_BUNDLES:
        kept.popitem(last=False)
