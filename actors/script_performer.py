"""Drives the scripts of active runs: one outcome at a time, and the next only when the step before is on record.

Outcomes of what is volatile (requests, reads, sleeps) wait here, in the order in which they came, at most one for each open
call; those that are on record are handed in again after a crash.  All of this is lost with the process, and nothing of it
is missed: the record says where a script stands, and replay brings it there.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

from actors.delivery import Delivery
from actors.drives import Back, Drive, Hand
from actors.errors import Refused
from actors.open_calls import OpenCalls
from actors.performers import CancelToken
from actors.replaying import Recording, record_of
from actors.run_commands import Command, DeliverResult, DriveScript, Fail, Finish, OfferMessage, PerformCall, StopCall
from actors.script_steps import Needs, advance_of, delivery_of, fault_of, is_quiet, nobody, unless_stopped
from eventstore.catalogue import Json, Problem, RunAdmitted
from rss_policy.errors import EngineBusy, EngineFailed
from rss_policy.script import BundleRef, Ended, Halt, Raised, Script, Waiting

logger = logging.getLogger(__name__)

Work = Callable[[], None]

HOLD = 0.01
MOST_HELD = 8
"""How long, in seconds, and how many steps that only read on may wait for the next one before they are recorded."""

MOST_TRIES = 3
MOST_TRIES_BUSY = 30
RETRY = 0.1
RETRY_BUSY = 1.0


class ScriptPerformer:
    """Owns the live scripts; every method may be called from any thread and returns at once."""

    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self._lock = threading.Lock()
        self._drives: dict[str, Drive] = {}
        self._open_calls = OpenCalls(needs, self._pump)
        self._jobs = count()
        self._frozen = False

    # --- effects -----------------------------------------------------------------------------

    def drive(self, effect: DriveScript, back: Back) -> None:
        """Take note that a step is on record; what was done since by another actor of this run is void."""
        with self._lock:  # else a step that was done ahead could be disregarded in between, and its drive with it
            drive = self._drives.setdefault(effect.run_id, Drive(effect.run_id, back))
            void, script = drive.note(effect, back)
        if void:
            self._needs.calls.stop_all(effect.run_id)
        self._end(script)
        self._pump(drive)

    def foresee(self, admitted: RunAdmitted, context: Json, bundle: BundleRef) -> None:
        """Do a script's first step while its run's start is being recorded; what it did waits for that."""
        drive = self._drive(admitted.run_id, nobody)
        with drive.lock:
            drive.busy, drive.admitted, epoch = True, admitted, drive.epoch

        def work(_token: CancelToken) -> None:
            self._foresee(drive, epoch, context, bundle)

        try:
            self._needs.performers.submit(next(self._jobs), work, lambda error: self._not_foreseen(drive, epoch, error))
        except Refused as refusal:
            self._not_foreseen(drive, epoch, refusal)

    def disregard(self, run_id: str) -> None:
        """Forget a first step that was done ahead in vain; a run that has begun meanwhile keeps it."""
        with self._lock:
            drive = self._drives.get(run_id)
            if drive is None or drive.step >= 0:
                return
            del self._drives[run_id]
        self._end(drive.close())

    def offer(self, effect: OfferMessage, back: Back) -> None:
        """Keep a message for the script's next look."""
        drive = self._drive(effect.run_id, back)
        with drive.lock:
            drive.messages[effect.order] = effect.input

    def perform(self, effect: PerformCall, back: Back) -> None:
        """Begin a call, now or when the script has been brought to where it made it."""
        self._open_calls.perform(self._drive(effect.run_id, back), effect)

    def deliver(self, effect: DeliverResult, back: Back) -> None:
        """Hand in a recorded outcome, or tell the script that a crash interrupted the call."""
        drive = self._drive(effect.run_id, back)
        self._open_calls.arrive(drive, drive.epoch, delivery_of(effect))

    def stop(self, effect: StopCall, back: Back) -> None:
        """End a call that the script does not want any more."""
        drive = self._drive(effect.run_id, back)
        with drive.lock:
            call = drive.calls.get(effect.number)
        payload = call.payload if call is not None else {}
        self._needs.calls.stop(effect, payload, partial(self._open_calls.arrive, drive, drive.epoch))

    def halt(self, run_id: str) -> None:
        """End a run's script now, whatever it does; nothing more of it is recorded."""
        with self._lock:
            drive = self._drives.get(run_id)
        if drive is not None:
            self._end(drive.close())

    def forget(self, run_id: str) -> None:
        """End a run's script and forget the run."""
        self.halt(run_id)
        with self._lock:
            self._drives.pop(run_id, None)

    def freeze(self) -> None:
        """Begin no further step; the server stops, and what comes now is found again by recovery."""
        self._frozen = True

    def active(self) -> int:
        """Return how many runs have a script here."""
        return len(self._drives)

    # --- one step ------------------------------------------------------------------------------

    def _pump(self, drive: Drive) -> None:
        """Begin the next piece of work, if the script may go on and something is there for it."""
        with drive.lock:
            if self._frozen or drive.closed or drive.busy or not drive.ready:
                return
            if drive.ended is not None:
                work: Work = partial(self._finish, drive)
            elif drive.foreseen is not None:
                work, drive.foreseen = partial(self._report, drive, drive.epoch, None, *drive.foreseen), None
            elif drive.script is None:
                drive.busy, work = True, partial(self._submit, drive, None)
            elif drive.queue:
                drive.busy, work = True, partial(self._submit, drive, drive.queue.popleft())
            else:
                return
        work()

    def _submit(self, drive: Drive, delivery: Delivery | None) -> None:
        epoch = drive.epoch
        step = partial(self._open if drive.script is None else self._settle, drive, epoch, delivery)
        try:
            self._needs.performers.submit(
                next(self._jobs), lambda _token: step(), partial(self._failed, drive, epoch, delivery)
            )
        except Refused:
            self._retry(drive, epoch, delivery, RETRY_BUSY)

    def _open(self, drive: Drive, epoch: int, _delivery: Delivery | None) -> None:
        """Open the script, by replay where there is a record; on a performer's thread."""
        opened = self._needs.contexts.open(drive.run_id)
        recording = record_of(self._needs.log, drive.run_id) if drive.step > 0 else Recording()
        script, halt = self._needs.engine.open(opened.bundle, opened.context, recording.steps)
        with drive.lock:
            if not drive.is_at(epoch):
                self._end(script)
                return
            drive.script, drive.admitted = script, opened.admitted
            drive.batches, drive.issued, drive.stopped = recording.batches, recording.issued, recording.stopped
            drive.calls = {number: call for number, call in script.outstanding.items() if number not in drive.settled}
        if halt is None:
            hand = Hand(drive, self._needs.now, self._needs.new_id)
            self._report(drive, epoch, None, script.begin(hand.answer), hand)
            return
        with drive.lock:
            drive.busy = False
            drive.ended = halt if isinstance(halt, Ended | Raised) else None
            wanted = [drive.wanted.pop(number) for number in sorted(drive.wanted)]
        for effect in wanted:
            self._open_calls.perform(drive, effect)
        self._pump(drive)

    def _foresee(self, drive: Drive, epoch: int, context: Json, bundle: BundleRef) -> None:
        script, _ = self._needs.engine.open(bundle, context)
        with drive.lock:
            if not drive.is_at(epoch):
                self._end(script)
                return
            drive.script = script
        hand = Hand(drive, self._needs.now, self._needs.new_id)
        halt = script.begin(hand.answer)
        with drive.lock:
            if drive.is_at(epoch):
                drive.foreseen, drive.busy = (halt, hand), False
        self._pump(drive)

    def _not_foreseen(self, drive: Drive, epoch: int, error: BaseException) -> None:
        """Leave the first step to be done when the start is on record; then a fault counts."""
        logger.debug("%s: its first step was not done ahead: %s", drive.run_id, type(error).__name__)
        with drive.lock:
            if not drive.is_at(epoch):
                return
            script, drive.script, drive.busy = drive.script, None, False
        self._end(script)
        self._pump(drive)

    def _settle(self, drive: Drive, epoch: int, delivery: Delivery | None) -> None:
        """Hand an outcome in; on a performer's thread."""
        script = drive.script
        if script is None or delivery is None:
            return
        delivery = unless_stopped(drive, script, delivery)
        hand = Hand(drive, self._needs.now, self._needs.new_id)
        self._report(drive, epoch, delivery, script.settle(delivery.number, delivery.value, hand.answer), hand)

    def _report(self, drive: Drive, epoch: int, delivery: Delivery | None, halt: Halt, hand: Hand) -> None:
        """Have the step recorded; its effects begin when it is."""
        with drive.lock:
            if not drive.is_at(epoch):
                return
            drive.busy = False
            drive.reported += 1
            drive.tries = 0
            for order in hand.taken:
                drive.messages.pop(order, None)
            waits_for_tools = not isinstance(halt, Waiting) and bool(drive.open_tools())
            drive.did(halt)
            if waits_for_tools and isinstance(halt, Ended | Raised):
                drive.ended = halt
            step = advance_of(drive, delivery, halt, hand, self._needs.toolbox)
            drive.held.append(step)
            held = is_quiet(halt) and len(drive.held) < MOST_HELD
            drive.ready = held
        if held:
            self._needs.later(("held", drive.run_id), HOLD, partial(self._release, drive, epoch))
        else:
            self._release(drive, epoch)
        self._open_calls.read_on(drive, halt)
        self._pump(drive)

    def _release(self, drive: Drive, epoch: int) -> None:
        """Have the steps that are held recorded together, unless one is under way that will take them along."""
        with drive.lock:
            if not drive.is_at(epoch) or drive.busy or not drive.held:
                return
            *quiet, last = drive.held
            drive.held.clear()
            drive.ready = False
            step = replace(last, quiet=tuple(quiet))
        self._tell(drive, step)

    def _failed(self, drive: Drive, epoch: int, delivery: Delivery | None, error: BaseException) -> None:
        """Try again from the record, or fail the run; on a performer's thread."""
        problem = fault_of(error)
        if problem is not None:
            self._fail(drive, epoch, problem)
            return
        most, pause = (
            (MOST_TRIES_BUSY, RETRY_BUSY) if isinstance(error, EngineBusy) else (MOST_TRIES, RETRY * 2**drive.tries)
        )
        with drive.lock:
            if not drive.is_at(epoch):
                return
            drive.tries += 1
            script, drive.script = drive.script, None
        self._end(script)
        unforeseen = None if isinstance(error, EngineFailed) else error
        logger.warning("%s: its script is opened again after %s", drive.run_id, type(error).__name__, exc_info=unforeseen)
        if drive.tries > most:
            code = error.code if isinstance(error, EngineFailed) else "internal_error"
            self._fail(drive, epoch, Problem(code=code, message=f"{type(error).__name__}: {error}"))
        else:
            self._retry(drive, epoch, delivery, pause)

    def _fail(self, drive: Drive, epoch: int, problem: Problem) -> None:
        with drive.lock:
            if not drive.is_at(epoch):
                return
            drive.closed = True
        self._tell(drive, Fail(problem))

    def _retry(self, drive: Drive, epoch: int, delivery: Delivery | None, pause: float) -> None:
        """Put the outcome back to the front, and go on after a pause."""
        with drive.lock:
            if drive.is_at(epoch) and delivery is not None:
                drive.queue.appendleft(delivery)
            drive.busy = False
        self._release(drive, epoch)  # else what is opened again would not have it
        with drive.lock:
            drive.busy = True

        def again() -> None:
            with drive.lock:
                if not drive.is_at(epoch):
                    return
                drive.busy = False
            self._pump(drive)

        self._needs.later(("script", drive.run_id), pause, again)

    # --- the end -------------------------------------------------------------------------------

    def _finish(self, drive: Drive) -> None:
        """Stop what an ended script left open; record the end when its tools have ended, or after the grace."""
        with drive.lock:
            first, drive.finishing = not drive.finishing, True
            tools, end, epoch = drive.open_tools(), drive.ended, drive.epoch
        if end is None:
            return
        if first:
            self._needs.calls.stop_all(drive.run_id)
            self._needs.later(("finish", drive.run_id), self._needs.grace, lambda: self._finish_now(drive, epoch, end))
        if not tools:
            self._finish_now(drive, epoch, end)

    def _finish_now(self, drive: Drive, epoch: int, end: Ended | Raised) -> None:
        with drive.lock:
            if not drive.is_at(epoch):
                return
            life, step = drive.life, drive.step
        self._tell(drive, Finish(life, step, end))

    # --- the rest --------------------------------------------------------------------------------

    def _drive(self, run_id: str, back: Back) -> Drive:
        with self._lock:
            return self._drives.setdefault(run_id, Drive(run_id, back))

    def _tell(self, drive: Drive, command: Command) -> None:
        try:
            drive.back(command)
        except Refused as refusal:
            logger.debug("%s: %s was not taken: %s", drive.run_id, type(command).__name__, refusal.code)

    def _end(self, script: Script | None) -> None:
        """Kill a script, then give back what it holds off this thread."""
        if script is None:
            return
        script.kill()
        try:
            self._needs.performers.submit(next(self._jobs), lambda _token: script.close(), _not_closed)
        except Refused as refusal:
            logger.debug("a killed script is left to the engine: %s", refusal.code)


def _not_closed(error: BaseException) -> None:
    logger.debug("a killed script could not be closed: %s", error)
