"""One run's script, live: holds a worker while it is active, is parked while it waits long, can be killed any time."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from pydantic_monty import FutureSnapshot, MontyError, SyncSnapshot

from rss_policy.bundle import Bundle
from rss_policy.drive import ENTRY_FEED, Drive, Observe, Turn
from rss_policy.errors import WorkerLost
from rss_policy.lease import Lease, discard_output
from rss_policy.manifest import Limits
from rss_policy.script import Act, AnswerAtOnce, Call, Halt, Waiting
from rss_policy.seats import DROPPED, Seats
from rss_policy.wire import Unfit, to_script


class Host(Protocol):
    """What a script needs of its engine."""

    @property
    def seats(self) -> Seats:
        """Who holds a worker, and who could give one back."""

    def lease(self, limits: Limits) -> Lease:
        """Take a worker, parking another script if need be; raise EngineBusy if none comes free."""

    def prepared(self, bundle: Bundle, limits: Limits) -> bytes:
        """Return the dump of a session with the bundle loaded."""

    def ready(self, bundle: Bundle, limits: Limits) -> Lease | None:
        """Return a worker that has the bundle loaded, if there is one."""

    def released(self, bundle: Bundle, limits: Limits) -> None:
        """Hear that a worker that ran this bundle is free again."""


def _unobserved(_act: Act) -> None:
    """Watch nothing: only a replay compares acts."""


class LiveScript:
    """Implements `script.Script`; `begin` and `settle` on one thread at a time, `kill` and `park` on any."""

    def __init__(self, host: Host, bundle: Bundle, drive: Drive) -> None:
        self._host, self._bundle, self._drive = host, bundle, drive
        self._turn = threading.Lock()
        self._lease: Lease | None = None
        self._waiting: FutureSnapshot | None = None
        self._dump: bytes | None = None
        self._lost: str | None = None
        self._begun = self._over = False

    @property
    def outstanding(self) -> dict[int, Call]:
        """Calls that the script started and that have no outcome yet, by number."""
        return self._drive.outstanding

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker while the script holds one; for tests and diagnostics."""
        lease = self._lease
        return lease.pid if lease is not None else None

    def begin(self, answer: AnswerAtOnce, observe: Observe = _unobserved) -> Halt:
        """Run `run(context)` to its first wait or its end.

        Raises:
            EngineFailed: no worker came free, or it died; open the script again.
        """
        with self._turn:
            if self._begun:
                raise ValueError("the script has begun already")
            self._begun = True
            self._refuse_gone()
            return self._go(self._first, Turn(answer, observe))

    def settle(self, number: int, outcome: Any, answer: AnswerAtOnce, observe: Observe = _unobserved) -> Halt:
        """Hand in the outcome of a call; see `script.Script.settle`.

        Raises:
            ValueError: this call is not outstanding.
            EngineFailed: the worker is gone; open the script again with the recorded steps.
        """
        with self._turn:
            self._refuse_gone()
            self._drive.settle(number, self._fit(outcome))
            if not self._drive.calls.ready:
                return self._wait_on()
            return self._go(self._resumed, Turn(answer, observe))

    def kill(self) -> None:
        """End the script from any thread, at once, also while it computes; a later call raises WorkerLost."""
        self._lost = "the script was killed"
        lease = self._lease
        if lease is not None:
            lease.kill()
        self.discard()

    def close(self) -> None:
        """Give the worker back; waits for a step under way."""
        with self._turn:
            self._over = True
            self._release()

    def discard(self) -> None:
        """Give up worker and parked state, unless a step is under way (which then does so itself at its end)."""
        if self._turn.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._turn.release()

    def park(self) -> bool:
        """Dump the waiting script and give its worker back; return whether that was done. On any thread."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return self._park()
        finally:
            self._turn.release()

    def drop(self, reason: str) -> None:
        """Forget a parked state, unless it is in use just now; the run is then taken up by replay."""
        if self._turn.acquire(blocking=False):
            try:
                if self._dump is not None:
                    self._lost, self._dump = reason, None
            finally:
                self._turn.release()

    def _park(self) -> bool:
        if self._lease is None or self._waiting is None:
            return False
        try:
            dump = self._waiting.dump()
        except MontyError as fault:
            self._lost = f"the worker died while it waited: {fault}"
            self._release()
            return False
        self._release()
        if self._lost is None and not self._host.seats.parks(self, len(dump)):
            self._lost = DROPPED
        self._dump = dump if self._lost is None else None
        return True

    def _go(self, resume: Callable[[], SyncSnapshot], turn: Turn) -> Halt:
        self._host.seats.works(self)
        try:
            halt, self._waiting = self._drive.run(resume, turn)
        except BaseException:
            self._lost = self._lost or "the last step did not come to its end"
            self._release()
            raise
        if self._waiting is None:
            self._over = True
            self._release()
        else:
            self._host.seats.rests(self)
        if self._lost is not None:
            self._release()
            raise WorkerLost(self._lost)
        return halt

    def _wait_on(self) -> Halt:
        halt = self._drive.wait_on()
        if not isinstance(halt, Waiting):
            self._over = True
            self._release()
        return halt

    def _first(self) -> SyncSnapshot:
        lease = self._host.ready(self._bundle, self._drive.limits)
        if lease is None:
            dump = self._host.prepared(self._bundle, self._drive.limits)
            lease = self._take()
            lease.session.load_session(dump)
        else:
            self._hold(lease)
        return lease.session.feed_start(ENTRY_FEED, print_callback=discard_output)

    def _resumed(self) -> SyncSnapshot:
        if self._waiting is None:
            if self._dump is None:
                raise WorkerLost("the script has no state to go on from")
            self._waiting = self._loaded(self._dump)
        due = self._drive.calls.due()
        return self._waiting.resume({key: {"return_value": value} for key, value in due.items()})

    def _loaded(self, dump: bytes) -> FutureSnapshot:
        snapshot = self._take().session.load_snapshot(dump, print_callback=discard_output)
        self._dump = None
        if not isinstance(snapshot, FutureSnapshot):
            raise WorkerLost("the parked state is not that of a waiting script")
        return snapshot

    def _take(self) -> Lease:
        return self._hold(self._host.lease(self._drive.limits))

    def _hold(self, lease: Lease) -> Lease:
        self._lease = lease
        if self._lost is not None:
            raise WorkerLost(self._lost)
        return lease

    def _release(self) -> None:
        self._host.seats.leaves(self)
        lease, self._lease, self._waiting, self._dump = self._lease, None, None, None
        if lease is not None:
            lease.give_back()
            self._host.released(self._bundle, self._drive.limits)

    def _refuse_gone(self) -> None:
        if self._lost is not None:
            raise WorkerLost(self._lost)
        if not self._begun or self._over:
            raise ValueError("the script does not wait: it has not begun, or it has ended")

    def _fit(self, outcome: Any) -> str:
        try:
            text = to_script(outcome)
        except Unfit as fault:
            return to_script({"ok": False, "error": {"code": "unfit_outcome", "message": str(fault)}})
        size = len(text.encode())
        if size <= self._drive.limits.outcome_bytes:
            return text
        message = f"the outcome has {size} bytes, {self._drive.limits.outcome_bytes} are allowed"
        return to_script({"ok": False, "error": {"code": "outcome_too_large", "message": message}})
