"""The calls that scripts have open: begun once each, and each with one outcome, whatever came first."""

import logging
from collections.abc import Callable
from functools import partial

from actors.delivery import Delivery, plain
from actors.drives import Drive
from actors.errors import Refused
from actors.run_commands import PerformCall
from actors.script_steps import Doing, Needs
from actors.steps import failure
from rss_policy.script import Call, Halt, Waiting

logger = logging.getLogger(__name__)

AGAIN = 1.0
"""Seconds until a call that there was no room for is tried again."""


class OpenCalls:
    """Begins calls and takes their outcomes; every method may be called from any thread and returns at once."""

    def __init__(self, needs: Needs, pump: Callable[[Drive], None]) -> None:
        """Args: `pump` lets a script go on if it can."""
        self._needs, self._pump = needs, pump

    def perform(self, drive: Drive, effect: PerformCall) -> None:
        """Begin a call, now or when the script has been brought to where it made it."""
        with drive.lock:
            call = drive.calls.get(effect.number)
            if drive.closed or effect.number in drive.performed:
                return
            if call is None or drive.admitted is None:
                drive.wanted[effect.number] = effect
                return
            drive.performed.add(effect.number)
        self._begin(drive, call, effect)

    def read_on(self, drive: Drive, halt: Halt) -> None:
        """Begin to read at once: it changes nothing in the world, and its outcome waits until the step is on record."""
        for act in halt.acts if isinstance(halt, Waiting) else ():
            if isinstance(act, Call) and act.kind == "read":
                self.perform(drive, PerformCall(f"ahead-{act.number}", drive.run_id, act.number, act.kind, 1))

    def arrive(self, drive: Drive, epoch: int, delivery: Delivery) -> None:
        """Take an outcome; the first one of a call counts."""
        with drive.lock:
            if not drive.is_at(epoch) or delivery.number in drive.settled:
                return
            drive.settled.add(delivery.number)
            drive.calls.pop(delivery.number, None)
            drive.queue.append(delivery)
        self._pump(drive)

    def _begin(self, drive: Drive, call: Call, effect: PerformCall) -> None:
        with drive.lock:
            epoch, admitted = drive.epoch, drive.admitted
            issued = drive.issued.setdefault(call.number, self._needs.now())
            unwanted = drive.ended is not None
        if admitted is None or (unwanted and call.kind != "call_tool"):
            return
        try:
            doing = Doing(admitted, call, effect, issued)
            self._needs.calls.perform(doing, partial(self.arrive, drive, epoch), drive.back)
        except Refused:
            again = partial(self._begin_again, drive, epoch, call, effect)
            self._needs.later(("call", drive.run_id, call.number), AGAIN, again)
        except Exception:
            # A script must not wait for ever for a call that nobody performs.
            logger.exception("%s: call %s could not be performed", drive.run_id, call.number)
            self.arrive(drive, epoch, plain(call.number, failure("internal_error", "the call could not be performed")))
        if unwanted:
            self._needs.calls.stop_tool(drive.run_id, call.number)

    def _begin_again(self, drive: Drive, epoch: int, call: Call, effect: PerformCall) -> None:
        if drive.is_at(epoch) and call.number not in drive.settled:
            self._begin(drive, call, effect)
