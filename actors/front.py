"""The front door: takes messages in, answers repeats, ends runs; and starts and stops what they live on."""

import contextlib
import logging
import threading
from typing import Any

import msgspec

from actors.admission import Admissions, Plan
from actors.context import Prepared
from actors.directory import Settings as DirectorySettings
from actors.erasing import Erasures
from actors.errors import Refused
from actors.letters import Recorded
from actors.machinery import Machinery
from actors.run_commands import Cancel, TakeUp
from actors.service import Admitted, Inbound, NewSession
from actors.session import Session, repeated
from actors.session_commands import ChangeSession, CreateSession, Wake
from actors.settings import Settings
from actors.world import World
from eventstore.catalogue import MessageReceived, RunAdmitted, SessionChanged, SessionCreated, SessionEvent, TurnStarted
from eventstore.errors import KeyTaken, LogError
from rss_policy.errors import PolicyError

logger = logging.getLogger(__name__)

CHANGEABLE = ("title", "model", "provider", "profile", "busy")
ENDED = frozenset({"completed", "cancelled", "failed"})
PAGE = 256

__all__ = ["Front", "Settings", "World"]


class Front:
    """Implements `service.Service`."""

    def __init__(self, world: World, settings: Settings | None = None, directory: DirectorySettings | None = None) -> None:
        self._world, self._settings = world, settings or Settings()
        self._machinery = Machinery(world, self._settings, directory)
        self._directory = self._machinery.directory
        self._admissions = Admissions(world, self._settings, self._machinery.contexts, self._machinery.slots)
        self._erasures = Erasures(world, self._directory)
        self._open = True

    # --- the service ---------------------------------------------------------------------------

    def create_session(self, new: NewSession) -> str:
        """Create a session and return its id.

        Raises:
            Refused: `session_exists`, `unknown_profile`, `unknown_provider`, `model_not_found`; LogError: the log failed.
        """
        self._check_open()
        profile = self._admissions.profile(new.profile or "default")
        self._admissions.provider(new.provider)
        self._admissions.choice(profile.name, new.provider, new.model)
        session_id = new.session_id or self._world.ids.new("ses")
        if new.session_id is not None and self._world.queries.session(None, session_id) is not None:
            raise Refused("session_exists", "there is a session with this id")
        created = SessionCreated(
            owner=new.owner,
            origin=new.origin,
            profile=profile.name,
            title=self._world.clean(new.title),
            busy=new.busy or profile.busy,
            metadata=self._world.clean(new.metadata) or {},
        )
        chosen = new.model is not None or new.provider is not None
        changed = SessionChanged(model=new.model, provider=new.provider) if chosen else None
        self._ask("session", session_id, CreateSession(created, changed))
        return session_id

    def change_session(self, owner: str, session_id: str, changes: dict[str, Any]) -> None:
        """Change title, model, provider, profile or busy.

        Raises:
            Refused: `session_not_found`, `invalid_command`, `unknown_profile`, `unknown_provider`, `model_not_found`.
            LogError: the log failed.
        """
        self._check_open()
        unknown = [name for name in changes if name not in CHANGEABLE]
        if unknown:
            raise Refused("invalid_command", f"a session has no setting {unknown[0]!r}")
        try:
            changed = msgspec.convert({"type": "session.changed", **self._world.clean(changes)}, SessionChanged)
        except msgspec.ValidationError as error:
            raise Refused("invalid_command", str(error)) from error
        if changed.profile is not None:
            self._admissions.profile(changed.profile)
        self._admissions.provider(changed.provider)
        row = self._world.queries.session(owner, session_id)
        if row is None:
            raise Refused("session_not_found", "there is no such session")
        if changed.model is not None or changed.provider is not None:
            provider, model = changed.provider or row.provider, changed.model or row.model
            self._admissions.choice(changed.profile or row.profile, provider, model)
        self._ask("session", session_id, ChangeSession(owner, changed))

    def erase_session(self, owner: str, session_id: str, reason: str) -> None:
        """Erase a session and its runs for good.

        Raises:
            Refused: `session_not_found`, or `session_busy`: a run of it has not ended; LogError: the log failed.
        """
        self._check_open()
        self._erasures.erase(owner, session_id, reason)

    def admit(self, inbound: Inbound) -> Admitted:
        """Take a message in: session, run and message in one transaction.

        Raises:
            Refused: it does not fit; LogError: the log failed.
        """
        self._check_open()
        known = self._known(inbound)
        if known is not None:
            return known
        plan = self._admissions.plan(inbound)
        try:
            return self._admit(plan)
        except KeyTaken:
            known = self._known(inbound)
            if known is None:
                raise
            return known

    def cancel(self, owner: str, run_id: str, reason: str) -> str:
        """Ask a run to end and return its status; a repeat changes nothing.

        Raises:
            Refused: `run_not_found`; LogError: the log failed.
        """
        row = self._world.queries.run(owner, run_id)
        if row is None:
            raise Refused("run_not_found", "there is no such run")
        if row.status in ENDED:
            return row.status
        recorded = self._ask("run", run_id, Cancel(self._world.clean(reason), owner))
        status: str = recorded.state.status
        return status

    def _admit(self, plan: Plan) -> Admitted:
        contexts, slots = self._machinery.contexts, self._machinery.slots
        if plan.prepared is not None and plan.slot:
            self._foresee(plan.command.admitted, plan.prepared)
        begun = waits = False
        try:
            recorded: Recorded[Session, SessionEvent] = self._ask("session", plan.session_id, plan.command)
            contexts.note_stored(plan.command.attachments.blobs if recorded.events else ())
            begun = any(isinstance(event, TurnStarted) for event in recorded.events)
            waits = any(isinstance(event, MessageReceived) and not event.steers for event in recorded.events)
        finally:
            if not begun:
                slots.give_back(plan.run_id, waits=waits)
                self._machinery.scripts.disregard(plan.run_id)
        return self._answer(plan, recorded, begun=begun)

    def _foresee(self, admitted: RunAdmitted, prepared: Prepared) -> None:
        """Let the script do its first step while the start is being recorded; a fault shows when it counts."""
        with contextlib.suppress(PolicyError):
            bundle = self._world.profiles.bundle(prepared.start.policy_digest, self._world.log.blob)
            self._machinery.scripts.foresee(admitted, prepared.context, bundle)

    def _answer(self, plan: Plan, recorded: Recorded[Session, SessionEvent], *, begun: bool) -> Admitted:
        received = next((event for event in recorded.events if isinstance(event, MessageReceived)), None)
        if received is None:
            seen = repeated(recorded.state, plan.command)
            if seen is None:
                raise Refused("invalid_command", "the message was not taken")
            return Admitted(seen.run_id, plan.session_id, seen.message_id, self._status(seen.run_id), repeat=True)
        status = "running" if begun or received.steers else "queued"
        return Admitted(received.run_id, plan.session_id, received.message_id, status)

    def _known(self, inbound: Inbound) -> Admitted | None:
        """Return the answer to a message that was taken in before."""
        if inbound.key is None:
            return None
        row = self._world.queries.key(inbound.owner, inbound.key)
        if row is None:
            return None
        if row.fingerprint != (inbound.fingerprint or ""):
            raise Refused("idempotency_conflict", "this Idempotency-Key was used for another message")
        message_id = inbound.message_id or self._message_of(row.run_id)
        return Admitted(row.run_id, row.session_id, message_id, self._status(row.run_id), repeat=True)

    def _message_of(self, run_id: str) -> str:
        first = next(iter(self._world.log.read(f"run-{run_id}")), None)
        return first.event.message_id if first is not None and isinstance(first.event, RunAdmitted) else ""

    def _status(self, run_id: str) -> str:
        row = self._world.queries.run(None, run_id)
        return row.status if row is not None else "queued"

    def _ask(self, kind: str, instance: str, command: Any) -> Recorded[Any, Any]:
        return self._directory.ask(kind, instance, command, self._settings.answer_timeout)

    def _check_open(self) -> None:
        if not self._open:
            raise Refused("shutting_down", "the server is stopping", retry_after=5)

    # --- the process ---------------------------------------------------------------------------

    def start(self) -> int:
        """Take up every run without an end and every session that waits for one; return how many runs.

        Blocks on the log; call it once, before messages come in.
        """
        unfinished = list(self._world.queries.unfinished())
        begun = [row.run_id for row in unfinished if row.status != "queued"]
        for row in unfinished:
            (self._machinery.slots.expect if row.status == "queued" else self._machinery.slots.hold)(row.run_id)
        for row in unfinished:  # sessions first: they may owe their run a message that steers it
            self._directory.tell("session", row.session_id, Wake())
        for run_id in begun:
            self._directory.tell("run", run_id, TakeUp(self._settings.recovery))
        self._directory.begin()
        threading.Thread(target=self._settle_sessions, name="settle-sessions", daemon=True).start()
        return len(unfinished)

    def sweep(self) -> int:
        """Start an actor for every unfinished work that has none; return how many."""
        return self._directory.sweep()

    def shutdown(self, deadline: float) -> bool:
        """Stop within `deadline` seconds: tools end with their outcomes on record, runs are left to be taken up.

        Returns whether all ended in time.  The log and the engine are the composition root's to close, in that order last.
        """
        self._open = False
        return self._machinery.close(deadline)

    def counts(self) -> dict[str, int]:
        """Return what is at work, for metrics."""
        return self._machinery.counts()

    def _settle_sessions(self) -> None:
        """Wake sessions that have a run: it may have ended just before the crash, or be owed a message that steers it."""
        after: str | None = None
        with contextlib.suppress(Refused, LogError):
            while rows := self._world.queries.sessions(None, limit=PAGE, after=after, include_ephemeral=True):
                for row in rows:
                    if row.active_run_id is not None:
                        self._directory.tell("session", row.session_id, Wake())
                after = rows[-1].session_id
