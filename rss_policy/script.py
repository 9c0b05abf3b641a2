"""A policy script as the host sees it: what it does between two waits, and how one is driven.

A script runs until everything in it waits, and then stops.  The host hands it one outcome at a time, by the number of
the host call, and gets back what the script did with it.  Only JSON crosses: values here are what `json.loads` gives.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Emit:
    """The script emitted an event."""

    event: dict[str, Any]
    at: str


@dataclass(frozen=True, slots=True)
class Call:
    """The script started a host call; numbers count 1, 2, 3 over the run and are deedbox's own.

    Kinds: `request read call_tool ask_approval spawn commit_compaction sleep`.
    """

    number: int
    kind: str
    payload: dict[str, Any]
    at: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The script wants the call with this number to end; its outcome is then `stopped`, or what came first.

    Of a streaming request whose head came, it is the stream: no read of it gets anything but `stopped` from here on.
    """

    number: int
    at: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The script asked for something that is answered at once: `now`, `random_id`, `new_messages`."""

    kind: str
    value: Any
    at: str


Act = Emit | Call | Stop | Answered


@dataclass(frozen=True, slots=True)
class Waiting:
    """The script waits for one of these calls."""

    acts: tuple[Act, ...]
    on: frozenset[int]


@dataclass(frozen=True, slots=True)
class Ended:
    """The script returned; `open` are the calls that it left outstanding."""

    acts: tuple[Act, ...]
    result: Any
    open: frozenset[int]


@dataclass(frozen=True, slots=True)
class Raised:
    """The script raised or met a limit; `code` is one of `rss_policy.errors`."""

    acts: tuple[Act, ...]
    code: str
    message: str
    at: str | None
    open: frozenset[int]


Halt = Waiting | Ended | Raised

AnswerAtOnce = Callable[[str], Any]
"""Gives the value for `now` (microseconds UTC), `random_id` (text) or `new_messages` (list of canonical messages)."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step as the log holds it: the outcome that went in (None for the first) and what the script did.

    `acts` hold what is compared: for an emission the digest and size of the event as the script gave it (`digest_of`;
    `event` is None then, or the whole event), for a call its kind, digest and size, and for an answer the value that is
    handed out again.
    """

    call: int | None
    outcome: Any
    acts: tuple["RecordedAct", ...]


@dataclass(frozen=True, slots=True)
class RecordedAct:
    """What the log holds of one act."""

    act: str
    at: str
    event: dict[str, Any] | None = None
    number: int | None = None
    kind: str | None = None
    digest: str | None = None
    size: int | None = None
    value: Any = None


class Script(Protocol):
    """One run's script, live.  One thread at a time; blocks while the script computes."""

    def begin(self, answer: AnswerAtOnce) -> Halt:
        """Run `run(context)` to its first wait or its end."""

    def settle(self, number: int, outcome: Any, answer: AnswerAtOnce) -> Halt:
        """Hand in the outcome of a call and run on to the next wait or the end.

        If nothing waits for this call yet, the script does nothing: the outcome is kept for its later `join`.

        Raises:
            EngineFailed: the worker is gone; open the script again with the recorded steps.
        """

    @property
    def outstanding(self) -> Mapping[int, Call]:
        """The calls without a handed-in outcome, by number, with their payloads; after a take-up those of all steps."""

    def kill(self) -> None:
        """End the script from any thread, at once, also while it computes; a later call raises WorkerLost."""

    def close(self) -> None:
        """Give the worker back."""


class Engine(Protocol):
    """Owns the workers."""

    @property
    def version(self) -> str:
        """Name and version of the interpreter, as `run.started` records it."""

    def open(
        self, bundle: "BundleRef", context: dict[str, Any], steps: tuple[RecordedStep, ...] = ()
    ) -> tuple[Script, Halt | None]:
        """Give a script for a run; with recorded steps, take it up by replay to where the record ends.

        The Halt is where the record ended (None without steps: call `begin`); its acts are those of the last step.

        Raises:
            PolicyError, EngineFailed, Diverged.
        """

    def close(self) -> None:
        """End all workers."""


class BundleRef(Protocol):
    """A loaded, checked bundle."""

    @property
    def digest(self) -> str:
        """SHA-256 over manifest, sources and prelude, in hex."""

    @property
    def archive(self) -> bytes:
        """The whole bundle as bytes, to be kept as the blob `policy:<digest>` and loaded again from it."""
