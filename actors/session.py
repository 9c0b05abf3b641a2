"""One conversation: its settings, its frozen context, who waits for the next turn, and which run has this one.

One run at a time.  A message that comes meanwhile waits for its own turn, or steers the run at work; what steered too late
to be taken in becomes the next run by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never, get_args

import msgspec

from actors.aggregate import Aggregate
from actors.errors import Refused
from actors.session_commands import (
    AwaitSlot,
    Basis,
    ChangeSession,
    Command,
    CreateSession,
    Effect,
    GrantSlot,
    ReceiveMessage,
    Recover,
    SettleTurn,
    SteerRun,
    TendRun,
    Wake,
)
from eventstore import catalogue as log
from eventstore.catalogue import Json, MessageReceived, RunAdmitted, SessionEvent
from eventstore.log import StreamPart

REMEMBERED = 64
"""Messages whose repeat is answered from the session itself; the log's keys know all."""

# --- state -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that was received lately."""

    message_id: str
    run_id: str
    key: str | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Session:
    """Everything a session decides by; `turn` is the run at work, `count` the runs so far, `steering` for this turn."""

    created: log.SessionCreated | None = None
    profile: str = "default"
    model: str | None = None
    provider: str | None = None
    busy: Literal["queue", "steer"] = "queue"
    frozen: log.ContextFrozen | None = None
    count: int = 0
    turn: str | None = None
    queue: tuple[str, ...] = ()
    steering: Mapping[str, MessageReceived] = field(default_factory=dict)
    seen: tuple[Seen, ...] = ()
    erased: bool = False

    @property
    def basis(self) -> Basis:
        """Return what a run's context is prepared from."""
        return Basis(self.count, self.profile, self.model, self.provider)


# --- the functions -----------------------------------------------------------------------


def decide(session: Session, command: Command) -> Sequence[SessionEvent]:
    """Turn a command into events."""
    match command:
        case Wake() | Recover():
            return ()
        case CreateSession() | ReceiveMessage() | ChangeSession() if session.erased:
            raise Refused("session_erased", "the session was erased")
        case CreateSession():
            return _create(session, command)
        case ReceiveMessage():
            return _receive(session, command)
        case ChangeSession():
            _known(session, command.owner)
            return () if _changes_nothing(session, command.changed) else (command.changed,)
        case GrantSlot():
            idle = session.turn is None and session.queue[:1] == (command.run_id,)
            return (log.TurnStarted(run_id=command.run_id),) if idle else ()
        case SettleTurn():
            return _settle(session, command)
        case _:
            assert_never(command)


def evolve(session: Session, event: SessionEvent) -> Session:
    """Apply an event."""
    match event:
        case log.SessionCreated():
            return replace(session, created=event, profile=event.profile, busy=event.busy)
        case log.SessionChanged():
            return replace(
                session,
                profile=event.profile or session.profile,
                model=event.model or session.model,
                provider=event.provider or session.provider,
                busy=event.busy or session.busy,
            )
        case log.HistoryGiven() | log.SessionErased():
            return Session(erased=True) if isinstance(event, log.SessionErased) else session
        case log.ContextFrozen():
            return replace(session, frozen=event)
        case log.MessageReceived():
            return _note(session, event)
        case log.TurnStarted():
            queue = tuple(run_id for run_id in session.queue if run_id != event.run_id)
            return replace(session, turn=event.run_id, queue=queue)
        case log.TurnSettled():
            if session.turn == event.run_id:
                return replace(session, turn=None, steering={})
            return replace(session, queue=tuple(run_id for run_id in session.queue if run_id != event.run_id))
        case _:
            assert_never(event)


def pending(session: Session) -> Iterator[Effect]:
    """Name the work that the session owes: its run is tended until its end is on record here."""
    if session.turn is not None:
        yield TendRun(f"tend-{session.turn}", session.turn)
        for message_id, message in session.steering.items():
            yield SteerRun(f"steer-{message_id}", session.turn, message_id, message.input)
    elif session.queue:
        yield AwaitSlot(f"slot-{session.queue[0]}", session.queue[0])


def opens(session: Session, command: Command, events: Sequence[SessionEvent]) -> Sequence[StreamPart]:
    """Open the stream of the run that a message asks for, in the same transaction."""
    asked = [event.run_id for event in events if isinstance(event, MessageReceived) and not event.steers]
    if not asked:
        return ()
    begun: tuple[log.RunEvent, ...] = ()
    if isinstance(command, ReceiveMessage):
        admitted = command.admitted
        if command.start is not None and any(isinstance(event, log.TurnStarted) for event in events):
            begun = (command.start,)
    elif isinstance(command, SettleTurn):
        admitted = _heir(command, _left_over(session, command))
    else:
        return ()
    return (StreamPart(f"run-{admitted.run_id}", 0, (admitted, *begun)),)


# --- one function per command or event that needs more than a line ---------------------------


def _create(session: Session, command: CreateSession) -> Sequence[SessionEvent]:
    if session.created is not None:
        if session.created.owner != command.created.owner:
            raise Refused("session_exists", "there is a session with this id")
        return ()
    changed = command.changed
    return (command.created,) if changed is None else (command.created, changed)


def _changes_nothing(session: Session, changed: log.SessionChanged) -> bool:
    return changed.title is None and evolve(session, changed) == session


def _known(session: Session, owner: str) -> None:
    if session.created is None or session.created.owner != owner:
        raise Refused("session_not_found", "there is no such session")


def _receive(session: Session, command: ReceiveMessage) -> Sequence[SessionEvent]:
    opening: list[SessionEvent] = []
    if session.created is None and command.create is not None:
        opening.append(command.create)
        if command.history:
            opening.append(log.HistoryGiven(messages=command.history))
        session = evolve(session, command.create)
    _known(session, command.admitted.owner)
    if repeated(session, command) is not None:
        return ()
    if command.history and not opening:
        raise Refused("invalid_command", "only a new session takes a history")
    if len(session.queue) + len(session.steering) >= command.most_waiting:
        raise Refused("session_queue_full", "too many messages wait in this session", retry_after=5)
    return (*opening, *_enqueue(session, command))


def repeated(session: Session, command: ReceiveMessage) -> Seen | None:
    """Return the message of which this is a repeat, if it was received lately.

    Raises:
        Refused: `idempotency_conflict`, the key stands for another message.
    """
    for seen in session.seen:
        if command.key is not None and seen.key == command.key:
            if seen.fingerprint != command.fingerprint:
                raise Refused("idempotency_conflict", "this Idempotency-Key was used for another message")
            return seen
        if seen.message_id == command.admitted.message_id:
            return seen
    return None


def _enqueue(session: Session, command: ReceiveMessage) -> Sequence[SessionEvent]:
    admitted = command.admitted
    steers = session.turn is not None and session.busy == "steer" and _may_steer(admitted.input)
    received = MessageReceived(
        message_id=admitted.message_id,
        run_id=session.turn if steers and session.turn is not None else admitted.run_id,
        input=admitted.input if steers else (),
        steers=steers,
        key=command.key,
        fingerprint=command.fingerprint,
        user_id=command.user_id,
        received_at=command.received_at,
        metadata=admitted.metadata if steers else {},
    )
    if steers:
        return (received,)
    events: list[SessionEvent] = [command.freeze] if session.frozen is None and command.freeze is not None else []
    idle = session.turn is None and not session.queue
    starts = idle and command.start is not None and session.basis == command.basis
    return (*events, received, *([log.TurnStarted(run_id=admitted.run_id)] if starts else []))


def _may_steer(messages: tuple[Json, ...]) -> bool:
    return all(message.get("role") == "user" for message in messages)


def _note(session: Session, event: MessageReceived) -> Session:
    seen = Seen(event.message_id, event.run_id, event.key, event.fingerprint)
    session = replace(session, seen=(*session.seen, seen)[-REMEMBERED:])
    if event.steers:
        return replace(session, steering={**session.steering, event.message_id: event})
    return replace(session, count=session.count + 1, queue=(*session.queue, event.run_id))


def _settle(session: Session, command: SettleTurn) -> Sequence[SessionEvent]:
    if session.turn != command.run_id and command.run_id not in session.queue:
        return ()
    settled = log.TurnSettled(run_id=command.run_id, status=command.status, consumed=command.consumed)
    left = _left_over(session, command)
    if session.turn != command.run_id or not left:
        return (settled,)
    again = msgspec.structs.replace(
        left[0], run_id=command.next_run_id, input=(), steers=False, key=None, fingerprint=None, metadata={}
    )
    return (settled, again)


def _left_over(session: Session, command: SettleTurn) -> list[MessageReceived]:
    return [message for key, message in session.steering.items() if key not in command.consumed]


def _heir(command: SettleTurn, left: list[MessageReceived]) -> RunAdmitted:
    said = tuple(message for each in left for message in each.input)
    return msgspec.structs.replace(command.admitted, run_id=command.next_run_id, message_id=left[0].message_id, input=said)


SESSION: Aggregate[Session, Command, SessionEvent, Effect] = Aggregate(
    "session", Session(), get_args(SessionEvent), decide, evolve, pending, opens
)
