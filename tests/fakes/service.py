"""The actors' front door without actors: admits into a real log, and lets a test play each run event by event."""

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from actors.errors import Refused
from actors.service import Admitted, Inbound, NewSession
from eventstore.catalogue import (
    CancelRequested,
    Canonical,
    Event,
    HistoryGiven,
    MessageReceived,
    ModelCompleted,
    ModelDelta,
    ModelStarted,
    RunAdmitted,
    RunCancelled,
    RunCompleted,
    RunStarted,
    SessionChanged,
    SessionCreated,
    TurnSettled,
    TurnStarted,
    Usage,
)
from eventstore.errors import SessionBusy
from eventstore.log import Append, EventLog, StreamPart
from eventstore.queries import Queries
from tests.fakes.clock import SequentialIds
from tests.fakes.logs import NOON, commit

if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = Usage(input_tokens=7, output_tokens=3)


def said(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    """A canonical assistant message."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return {"role": "assistant", "content": [*parts, *calls], "provider": "fake", "model": "fake-1"}


class FakeService:
    """Keeps `actors.service.Service` as far as gateways see it; `on_admit` plays a run as soon as it is admitted."""

    def __init__(self, log: EventLog, queries: Queries) -> None:
        self._log, self._queries, self._ids = log, queries, SequentialIds()
        self._lock = threading.RLock()
        self._versions: dict[str, int] = defaultdict(int)
        self._seqs: dict[str, int] = defaultdict(int)
        self.inbounds: dict[str, Inbound] = {}
        self.cancelled: list[tuple[str, str]] = []
        self.on_admit: Callable[[str, Inbound], None] | None = None
        self.refuse: Exception | None = None

    def create_session(self, new: NewSession) -> str:
        self._refuse()
        session_id = new.session_id or self._ids.new("ses")
        if self._queries.session(None, session_id) is not None:
            raise Refused("session_exists", f"the session {session_id} exists")
        created = SessionCreated(
            owner=new.owner,
            profile=new.profile or "default",
            title=new.title,
            busy=new.busy or "queue",
            metadata=new.metadata or {},
        )
        chosen = [SessionChanged(model=new.model, provider=new.provider)] if new.model or new.provider else []
        self._append((f"session-{session_id}", [created, *chosen]))
        return session_id

    def change_session(self, owner: str, session_id: str, changes: dict[str, Any]) -> None:
        self._refuse()
        self._owned(owner, session_id)
        self._append((f"session-{session_id}", [SessionChanged(**changes)]))

    def erase_session(self, owner: str, session_id: str, reason: str) -> None:
        self._refuse()
        self._owned(owner, session_id)
        try:
            self._log.erase(session_id, reason, NOON)
        except SessionBusy as exc:
            raise Refused("session_busy", str(exc)) from exc
        with self._lock:
            self._versions[f"session-{session_id}"] += 1

    def admit(self, inbound: Inbound) -> Admitted:
        self._refuse()
        with self._lock:
            known = None if inbound.key is None else self._queries.key(inbound.owner, inbound.key)
            if known is not None:
                return self._repeat(inbound, known.fingerprint, known.run_id)
            admitted = self._admit(inbound)
        if self.on_admit is not None:
            self.on_admit(admitted.run_id, inbound)
        return admitted

    def cancel(self, owner: str, run_id: str, reason: str) -> str:
        with self._lock:
            row = self._queries.run(owner, run_id)
            if row is None:
                raise Refused("run_not_found", "there is no such run")
            if row.status in ("completed", "failed", "cancelled"):
                return row.status
            self.cancelled.append((run_id, reason))
            self._append((f"run-{run_id}", [CancelRequested(reason=reason)]))
            self.emit(run_id, RunCancelled, reason=reason)
        return "cancelled"

    def emit(self, run_id: str, kind: type[Canonical], **fields: Any) -> int:
        """Record the run's next canonical event, and return its seq."""
        with self._lock:
            self._seqs[run_id] += 1
            event: Any = kind(seq=self._seqs[run_id], **fields)
            self._append((f"run-{run_id}", [event]))
            return self._seqs[run_id]

    def start(self, run_id: str) -> None:
        """Let the run leave the queue and ask its model."""
        session_id = self._session_of(run_id)
        self._append((f"session-{session_id}", [TurnStarted(run_id=run_id)]))
        self.emit(run_id, RunStarted, session_id=session_id)
        self.emit(run_id, ModelStarted, turn=1, attempt=1)

    def finish(self, run_id: str, message: dict[str, Any], reason: str = "stop") -> None:
        """End the run with this message."""
        self.emit(run_id, ModelCompleted, turn=1, attempt=1, message=message, usage=USAGE)
        self.emit(run_id, RunCompleted, output=message, finish_reason=reason, usage=USAGE)
        self._append((f"session-{self._session_of(run_id)}", [TurnSettled(run_id=run_id, status="completed")]))

    def answer(self, run_id: str, *pieces: str) -> None:
        """Play a whole run that says these pieces."""
        self.start(run_id)
        for piece in pieces:
            self.emit(run_id, ModelDelta, attempt=1, text=piece)
        self.finish(run_id, said("".join(pieces)))

    def _refuse(self) -> None:
        if self.refuse is not None:
            raise self.refuse

    def _repeat(self, inbound: Inbound, fingerprint: str, run_id: str) -> Admitted:
        if fingerprint != inbound.fingerprint:
            raise Refused("idempotency_conflict", "the key was used for another request")
        row = self._queries.run(inbound.owner, run_id)
        assert row is not None
        return Admitted(run_id, row.session_id, "msg_again", row.status, repeat=True)

    def _admit(self, inbound: Inbound) -> Admitted:
        run_id, message_id = self._ids.new("run"), inbound.message_id or self._ids.new("msg")
        opening: list[Event] = []
        if inbound.session_id is None:
            session_id = self._ids.new("ses")
            opening.append(SessionCreated(owner=inbound.owner, ephemeral=inbound.ephemeral, title=inbound.title))
            if inbound.history:
                opening.append(HistoryGiven(messages=inbound.history))
        else:
            session_id = inbound.session_id
            if inbound.create_if_missing and self._queries.session(None, session_id) is None:
                opening.append(SessionCreated(owner=inbound.owner))
            else:
                self._owned(inbound.owner, session_id)
        message = MessageReceived(
            message_id=message_id, run_id=run_id, input=inbound.input, key=inbound.key, fingerprint=inbound.fingerprint
        )
        run = RunAdmitted(
            session_id=session_id,
            owner=inbound.owner,
            message_id=message_id,
            input=inbound.input,
            model=inbound.model,
            provider=inbound.provider,
            metadata=inbound.metadata or {},
            on_disconnect=inbound.on_disconnect,
        )
        self.inbounds[run_id] = inbound
        self._append((f"session-{session_id}", [*opening, message]), (f"run-{run_id}", [run]))
        return Admitted(run_id, session_id, message_id, "queued")

    def _owned(self, owner: str, session_id: str) -> None:
        if self._queries.session(owner, session_id) is None:
            raise Refused("session_not_found", "there is no such session")

    def _session_of(self, run_id: str) -> str:
        row = self._queries.run(None, run_id)
        assert row is not None
        return row.session_id

    def _append(self, *parts: tuple[str, list[Event]]) -> None:
        with self._lock:
            made = tuple(StreamPart(stream, self._versions[stream], tuple(events)) for stream, events in parts)
            commit(self._log, Append(made, NOON, "test"))
            for stream, events in parts:
                self._versions[stream] += len(events)
