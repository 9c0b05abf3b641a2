"""Launches what sessions and runs owe, by handing it to those who do it."""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from actors import run_commands as run
from actors import session_commands as session
from actors.aggregate import Attachments
from actors.calls import CallPerformer
from actors.context import ContextChanged, Contexts
from actors.directory import Directory
from actors.drives import Back
from actors.errors import Refused
from actors.performers import CancelToken, Performers
from actors.ports import Clock, Ids
from actors.script_performer import ScriptPerformer
from actors.slots import Slots
from actors.timer import Timer
from eventstore.catalogue import Problem
from eventstore.queries import Queries

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Implements `calls.Clocks` with the timer."""

    timer: Timer
    clock: Clock

    def later(self, key: Hashable, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after some seconds, on the timer's thread."""
        self.timer.at(key, self.clock.monotonic() + seconds, callback)

    def now(self) -> int:
        """Return UTC in microseconds."""
        return self.clock.now()

    def cancel(self, key: Hashable) -> None:
        """Forget a callback."""
        self.timer.cancel(key)


@dataclass(frozen=True, slots=True)
class RunLauncher:
    """Launches a run's effects; on the actor's thread, without waiting.  `grace`: seconds for tools to end."""

    directory: Directory
    scripts: ScriptPerformer
    calls: CallPerformer
    clocks: Clocks
    slots: Slots
    ids: Ids
    grace: float

    def launch(self, effect: run.Effect, back: Back) -> None:
        """Begin the work of an effect."""
        match effect:
            case run.DriveScript():
                self.scripts.drive(effect, back)
            case run.PerformCall():
                self.scripts.perform(effect, back)
            case run.DeliverResult():
                self.scripts.deliver(effect, back)
            case run.OfferMessage():
                self.scripts.offer(effect, back)
            case run.StopCall():
                self.scripts.stop(effect, back)
            case run.CutStream():
                self.calls.cut(effect.run_id, effect.number)
            case run.AwaitTurn() | run.SettleSession():
                self._tell_session(effect)
            case run.ArmDeadline() | run.StopWork() | run.CloseRun():
                self._end(effect, back)
            case _:
                assert_never(effect)

    def _tell_session(self, effect: run.AwaitTurn | run.SettleSession) -> None:
        if isinstance(effect, run.AwaitTurn):
            self.directory.tell("session", effect.session_id, session.Wake())
            return
        self.slots.end(effect.run_id)
        next_run = self.ids.new("run")
        settle = session.SettleTurn(effect.run_id, effect.status, effect.consumed, effect.admitted, next_run)
        self.directory.tell("session", effect.session_id, settle)

    def _end(self, effect: run.ArmDeadline | run.StopWork | run.CloseRun, back: Back) -> None:
        match effect:
            case run.ArmDeadline():
                left = max(0.0, (effect.at - self.clocks.now()) / 1_000_000)
                self.clocks.later(("deadline", effect.run_id), left, lambda: back(run.MeetDeadline()))
            case run.StopWork():
                self.scripts.halt(effect.run_id)
                self.calls.stop_all(effect.run_id)
                self.clocks.later(("grace", effect.run_id), self.grace, lambda: back(run.StopWaiting()))
            case run.CloseRun():
                self.scripts.forget(effect.run_id)
                self.calls.stop_all(effect.run_id)
                for key in ("deadline", "grace", "finish", "script", "held"):
                    self.clocks.cancel((key, effect.run_id))


@dataclass(frozen=True, slots=True)
class SessionLauncher:
    """Launches a session's effects; on the actor's thread, without waiting."""

    directory: Directory
    contexts: Contexts
    queries: Queries
    preparing: Performers
    slots: Slots

    def launch(self, effect: session.Effect, back: Callable[[session.Command], None]) -> None:
        """Begin the work of an effect."""
        match effect:
            case session.TendRun():
                self.slots.hold(effect.run_id)
                self.directory.tell("run", effect.run_id, run.Wake())
                self.preparing.submit(
                    effect.run_id, partial(self._begin, effect.run_id), partial(self._failed, effect.run_id)
                )
            case session.SteerRun():
                self.directory.tell("run", effect.run_id, run.Steer(effect.message_id, effect.input))
            case session.AwaitSlot():
                self.slots.wait(effect.run_id, lambda: back(session.GrantSlot(effect.run_id)))
            case _:
                assert_never(effect)

    def _begin(self, run_id: str, _token: CancelToken) -> None:
        """Prepare a queued run whose turn has come, and let it begin; on a performer's thread."""
        row = self.queries.run(None, run_id)
        if row is None or row.status != "queued":
            return
        prepared = self.contexts.prepare_queued(run_id)
        if prepared is not None:
            attachments = Attachments(blobs=prepared.blobs)
            self.directory.tell("run", run_id, run.Begin(prepared.start, attachments))

    def _failed(self, run_id: str, error: BaseException) -> None:
        """Fail a run that cannot begin; what the log or the room lacks is tried again when the session tends it again."""
        match error:
            case Refused(code="context_too_large" | "unknown_profile" as code):
                problem = Problem(code=code, message=error.message)
            case ContextChanged():
                problem = Problem(code=error.code, message=str(error))
            case _:
                logger.warning("%s could not be prepared: %s", run_id, type(error).__name__, exc_info=error)
                return
        self.directory.tell("run", run_id, run.Fail(problem))
