"""Keeps a few workers ready, each with a bundle loaded, so that a run's first step need not wait for the loading.

A worker that is ready takes a seat as a waiting script does, and is the first to give it up when others need it.
"""

import logging
import threading
from collections.abc import Callable

from pydantic_monty import MontyError

from rss_policy.bundle import Bundle
from rss_policy.errors import EngineFailed
from rss_policy.lease import Lease
from rss_policy.manifest import Limits
from rss_policy.seats import Seats

logger = logging.getLogger(__name__)


class _Spare:
    """A worker with a bundle loaded that no run holds; sits among the scripts that wait."""

    def __init__(self, lease: Lease, key: tuple[str, Limits], ready: "Ready") -> None:
        self.lease, self.key, self._ready = lease, key, ready

    def park(self) -> bool:
        """Give the worker back."""
        if not self._ready.remove(self):
            return False
        self.lease.give_back()
        return True

    def drop(self, reason: str) -> None:
        """Nothing of it is parked."""

    def kill(self) -> None:
        """End the worker."""
        self.lease.kill()
        self.park()


class Ready:
    """Workers for the bundle that was used last, at most `most`; all methods from any thread."""

    def __init__(self, most: int, seats: Seats, load: Callable[[Bundle, Limits], Lease]) -> None:
        """Take how to make a worker that has a bundle loaded, on a seat that was taken for it."""
        self._most, self._seats, self._load = most, seats, load
        self._changed = threading.Condition()
        self._spares: list[_Spare] = []
        self._wanted: tuple[Bundle, Limits] | None = None
        self._closed = False
        self._keeper = threading.Thread(target=self._keep, name="policy-ready", daemon=True)
        if most:
            self._keeper.start()

    def take(self, bundle: Bundle, limits: Limits) -> Lease | None:
        """Return a worker that has this bundle loaded, if one is ready."""
        with self._changed:
            spare = next((one for one in self._spares if one.key == (bundle.digest, limits)), None)
            if spare is None:
                return None
            self._spares.remove(spare)
        self._seats.leaves(spare)
        return spare.lease

    def want(self, bundle: Bundle, limits: Limits) -> None:
        """Have workers made ready for this bundle, now that one may be free; returns at once."""
        with self._changed:
            self._wanted = (bundle, limits)
            self._changed.notify()

    def remove(self, spare: _Spare) -> bool:
        """Take a worker out; return whether it was still here."""
        with self._changed:
            if spare not in self._spares:
                return False
            self._spares.remove(spare)
        self._seats.leaves(spare)
        return True

    def close(self) -> None:
        """Make nothing ready any more; what is ready ends with the seats."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._most:
            self._keeper.join()

    def _keep(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                self._add(self._load(*wanted), wanted)
            except (EngineFailed, MontyError) as fault:
                logger.debug("no worker could be made ready: %s", fault)
                self._forget(wanted)

    def _next(self) -> tuple[Bundle, Limits] | None:
        """Wait until a worker should be made ready and a seat is free, which is taken; None at the end."""
        with self._changed:
            while not self._closed:
                self._discard_others()
                if self._wanted is not None and len(self._spares) < self._most and self._seats.take_free():
                    return self._wanted
                self._changed.wait()
            return None

    def _forget(self, wanted: tuple[Bundle, Limits]) -> None:
        """Wait for the next wish, rather than try again at once."""
        with self._changed:
            if self._wanted == wanted:
                self._wanted = None

    def _discard_others(self) -> None:
        for spare in list(self._spares):
            if self._wanted is not None and spare.key != (self._wanted[0].digest, self._wanted[1]):
                spare.park()

    def _add(self, lease: Lease, wanted: tuple[Bundle, Limits]) -> None:
        spare = _Spare(lease, (wanted[0].digest, wanted[1]), self)
        with self._changed:
            kept = not self._closed and self._wanted == wanted
            if kept:
                self._seats.rests(spare, for_good=True)
                self._spares.append(spare)
        if not kept:
            lease.give_back()
