"""The pure half of every durable actor: an aggregate as a handful of functions, and what commands may bring along.

Nothing here does I/O, reads a clock or draws a random number; ids and times come in with the commands.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from eventstore.catalogue import Event
from eventstore.errors import CorruptEvent
from eventstore.log import Batch, NamedBlob, Seal, StreamPart


class Effect(Protocol):
    """Work for the world; two effects with one key are the same work, also across restarts.

    An effect may also have `repeat_after: float | None`: seconds after which it is launched again while it is still
    pending.  Use it for messages to other actors, which bear a repeat; never for work that must happen once.
    A message that stays pending for good, since its answer is recorded elsewhere, is repeated when the other side asks
    for it: by a command whose `reminds` names its key.
    """

    @property
    def key(self) -> str:
        """A name that stays the same across restarts, unique among what one actor owes."""


S = TypeVar("S")
C = TypeVar("C")
E = TypeVar("E", bound=Event)
X = TypeVar("X", bound=Effect)


@dataclass(frozen=True, slots=True)
class Attachments:
    """What goes into the same transaction as a command's events: raw stream batches, seals, named blobs."""

    batches: tuple[Batch, ...] = ()
    seals: tuple[Seal, ...] = ()
    blobs: tuple[NamedBlob, ...] = ()

    def __add__(self, other: "Attachments") -> "Attachments":
        """Return both, in order."""
        return Attachments(self.batches + other.batches, self.seals + other.seals, self.blobs + other.blobs)


NO_ATTACHMENTS = Attachments()


def attachments_of(command: object) -> Attachments:
    """Return the command's field `attachments`, or nothing where it has none."""
    found = getattr(command, "attachments", None)
    return found if isinstance(found, Attachments) else NO_ATTACHMENTS


@dataclass(frozen=True, slots=True)
class Trace:
    """What caused a command (`causation`: an event's or a request's id) and to what it belongs (`correlation`)."""

    causation: str | None = None
    correlation: str | None = None


NO_TRACE = Trace()


def trace_of(command: object) -> Trace:
    """Return the command's field `trace`, or nothing where it has none."""
    found = getattr(command, "trace", None)
    return found if isinstance(found, Trace) else NO_TRACE


def reminds_of(command: object) -> frozenset[str]:
    """Return the command's field `reminds`, or nothing where it has none."""
    found = getattr(command, "reminds", None)
    return found if isinstance(found, frozenset) else frozenset()


def opens_nothing(_state: object, _command: object, _events: object) -> Sequence[StreamPart]:
    """Open no other stream."""
    return ()


def attaches_what_came(_state: object, command: object, _events: object) -> Attachments:
    """Attach what the command brings."""
    return attachments_of(command)


def may_always_rest(_state: object) -> bool:
    """Allow an idle actor to be put away in every state."""
    return True


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[S, C, E, X]):
    """A consistency boundary as functions.

    decide    turns a command into events, or raises `actors.errors.Refused`; a repeated command gives no events.  A
              command may carry `attachments: Attachments` and `trace: Trace`; attachments of a command without events
              are dropped, since a repeat's are on record.  `reminds: frozenset[str]` are keys of messages that the
              sender waits for: they are launched again, if they are pending
    evolve    applies an event; it may not fail, since the event has happened
    pending   names the work the state still owes the world, under stable keys
    opens     names events of other streams that stand or fall with what was decided: from the state before, the command
              and its events, which are not empty; they go into the same transaction
    attaches  says, from the same, which batches, seals and blobs go along; what the command brings, unless given
    lifespan  says whether an idle actor in this state may be put away.  An actor that comes back gets a `Recover`
              command, as after a crash: so say no while work is under way that recovery would settle or repeat, and
              yes only if whoever has the pending work will wake the actor: the sweep leaves it alone
    """

    kind: str
    initial: S
    accepts: tuple[type[E], ...]
    decide: Callable[[S, C], Sequence[E]]
    evolve: Callable[[S, E], S]
    pending: Callable[[S], Iterable[X]]
    opens: Callable[[S, C, Sequence[E]], Sequence[StreamPart]] = opens_nothing
    attaches: Callable[[S, C, Sequence[E]], Attachments] = attaches_what_came
    lifespan: Callable[[S], bool] = may_always_rest

    def fold(self, events: Iterable[Event], state: S | None = None) -> S:
        """Apply `events` in order to `state`, or to the initial state.

        Raises:
            CorruptEvent: an event is not one of this aggregate's.
        """
        state = self.initial if state is None else state
        for event in events:
            if not isinstance(event, self.accepts):
                raise CorruptEvent(f"{type(event).__name__} in a {self.kind!r} stream")
            state = self.evolve(state, event)
        return state
