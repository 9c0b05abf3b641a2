"""What goes into an actor's mailbox, and what comes back: addresses, commands under way, answers."""

import queue
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import pykka

from actors.errors import Refused
from actors.pool import Urgent
from eventstore.log import Answer, Envelope

S = TypeVar("S")
E = TypeVar("E")


class Address(NamedTuple):
    """Names one instance of an aggregate; its stream is `kind-id`."""

    kind: str
    id: str

    @property
    def stream(self) -> str:
        """Return the stream's name."""
        return f"{self.kind}-{self.id}"


def address_of(stream: str) -> Address:
    """Return whose stream this is; a kind has no hyphen, an id may."""
    kind, _, instance = stream.partition("-")
    return Address(kind, instance)


@dataclass(frozen=True, slots=True)
class Recorded(Generic[S, E]):
    """A command's answer, given after the commit: what it gave, and the state after it.

    `events` is empty for a repeat, whose answer is in `state`; `version` is the stream's after this command.
    """

    state: S
    events: tuple[E, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A command under way; `attempts` counts the actors that ended over it."""

    command: Any
    reply: pykka.ThreadingFuture[Any] | None = None
    attempts: int = 0

    def tried(self) -> "Letter":
        """Return the letter after one more attempt."""
        return replace(self, attempts=self.attempts + 1)

    def answer(self, value: Recorded[Any, Any] | Refused) -> None:
        """Give the sender its answer, if it wants one; a second answer is dropped."""
        if self.reply is not None:
            try:
                self.reply.set(value)
            except queue.Full:  # pykka's way to say that the future has a result
                return

    def fail(self, error: BaseException) -> None:
        """Give the sender an error, if it wants an answer; a second answer is dropped."""
        if self.reply is not None:
            try:
                self.reply.set_exception((type(error), error, None))
            except queue.Full:
                return


@dataclass(frozen=True, slots=True)
class Pressing(Urgent):
    """A letter from a performer that this actor launched; a full mailbox takes it, the launched work bounds it."""

    letter: Letter


@dataclass(frozen=True, slots=True)
class Loaded(Urgent):
    """The stream is replayed."""

    state: Any
    version: int


@dataclass(frozen=True, slots=True)
class LoadFailed(Urgent):
    """The stream could not be replayed."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Answered(Urgent):
    """The writer's answer to the append in flight."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Grown(Urgent):
    """Another actor's append wrote to this actor's stream."""

    envelopes: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True)
class Again(Urgent):
    """It is time to launch this effect again, if it is still pending."""

    key: str


@dataclass(frozen=True, slots=True)
class Resume(Urgent):
    """It is time to try again what the log could not take."""
