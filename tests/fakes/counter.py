"""The smallest aggregate with every feature of the shell: it notes numbers, each once, and owes work for some."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from actors.aggregate import NO_ATTACHMENTS, NO_TRACE, Aggregate, Attachments, Trace
from actors.errors import Refused
from eventstore.catalogue import NoteTaken
from eventstore.log import StreamPart


@dataclass(frozen=True, slots=True)
class Counter:
    numbers: tuple[int, ...] = ()
    owed: tuple[str, ...] = ()
    recoveries: int = 0
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Add:
    number: int
    trace: Trace = NO_TRACE
    attachments: Attachments = NO_ATTACHMENTS


@dataclass(frozen=True, slots=True)
class Owe:
    name: str


@dataclass(frozen=True, slots=True)
class Pay:
    name: str


@dataclass(frozen=True, slots=True)
class Look:
    pass


@dataclass(frozen=True, slots=True)
class Remind:
    reminds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Refuse:
    pass


@dataclass(frozen=True, slots=True)
class Explode:
    error: type[BaseException] = ValueError


@dataclass(frozen=True, slots=True)
class AddTo:
    other: str
    number: int


@dataclass(frozen=True, slots=True)
class Occupy:
    busy: bool


@dataclass(frozen=True, slots=True)
class Recover:
    at: int


Command = Add | Owe | Pay | Look | Remind | Refuse | Explode | AddTo | Occupy | Recover


@dataclass(frozen=True, slots=True)
class Work:
    key: str
    repeat_after: float | None = None


def decide(state: Counter, command: Command) -> Sequence[NoteTaken]:
    match command:
        case Add() if command.number not in state.numbers:
            return [_note("added", number=command.number)]
        case Owe() if command.name not in state.owed:
            return [_note("owed", name=command.name)]
        case Pay() if command.name in state.owed:
            return [_note("paid", name=command.name)]
        case Refuse():
            raise Refused("invalid_command", "never")
        case Explode():
            raise command.error("a fault")
        case AddTo():
            return [_note("sent", number=command.number)]
        case Occupy():
            return [_note("occupied", busy=command.busy)]
        case Recover() if state.owed:
            return [_note("recovered", at=command.at)]
        case _:
            return []


def evolve(state: Counter, event: NoteTaken) -> Counter:
    match event.kind:
        case "added":
            return replace(state, numbers=(*state.numbers, event.data["number"]))
        case "owed":
            return replace(state, owed=(*state.owed, event.data["name"]))
        case "paid":
            return replace(state, owed=tuple(name for name in state.owed if name != event.data["name"]))
        case "recovered":
            return replace(state, recoveries=state.recoveries + 1)
        case "occupied":
            return replace(state, busy=event.data["busy"])
        case _:
            return state


def pending(state: Counter) -> Iterator[Work]:
    for name in state.owed:
        yield Work(name, 5.0 if name.startswith("message") else None)


def opens(_state: Counter, command: Command, events: Sequence[NoteTaken]) -> Sequence[StreamPart]:
    if isinstance(command, AddTo) and events:
        return [StreamPart(f"counter-{command.other}", 0, (_note("added", number=command.number),))]
    return ()


def _note(kind: str, **data: object) -> NoteTaken:
    return NoteTaken(kind=kind, data=dict(data))


COUNTER: Aggregate[Counter, Command, NoteTaken, Work] = Aggregate(
    "counter", Counter(), (NoteTaken,), decide, evolve, pending, opens=opens, lifespan=lambda state: not state.busy
)
