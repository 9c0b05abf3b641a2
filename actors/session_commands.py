"""What a session can be told, and the work that it owes."""

from dataclasses import dataclass
from typing import Literal

from actors.aggregate import NO_ATTACHMENTS, Attachments
from eventstore import catalogue as log
from eventstore.catalogue import Json, RunAdmitted, RunStarted

TEND_AGAIN = 30.0
STEER_AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class Basis:
    """The session's runs and settings as somebody read them; if they have changed, what was prepared is void."""

    count: int
    profile: str
    model: str | None = None
    provider: str | None = None


# --- commands --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateSession:
    """Open a conversation, with settings of its own where there are any."""

    created: log.SessionCreated
    changed: log.SessionChanged | None = None


@dataclass(frozen=True, slots=True)
class ChangeSession:
    """Change settings."""

    owner: str
    changed: log.SessionChanged


@dataclass(frozen=True, slots=True)
class ReceiveMessage:
    """Take a message in, as the run `admitted` that answers it, unless it steers the one at work.

    `create`: opens the session if there is none, with `history` before it.  `start`: the run may begin at once, if the
    session is idle and as it was read (`basis`).  `freeze`: for the first run.  `most_waiting`: the bound of the queue.
    """

    admitted: RunAdmitted
    basis: Basis
    most_waiting: int
    received_at: int
    create: log.SessionCreated | None = None
    history: tuple[Json, ...] = ()
    freeze: log.ContextFrozen | None = None
    start: RunStarted | None = None
    key: str | None = None
    fingerprint: str | None = None
    user_id: str | None = None
    attachments: Attachments = NO_ATTACHMENTS


@dataclass(frozen=True, slots=True)
class GrantSlot:
    """Give the next run its turn."""

    run_id: str


@dataclass(frozen=True, slots=True)
class SettleTurn:
    """A run has ended; `admitted` is the pattern for the run `next_run_id` of steering messages that were left over."""

    run_id: str
    status: Literal["completed", "cancelled", "failed"]
    consumed: tuple[str, ...]
    admitted: RunAdmitted
    next_run_id: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Do what is owed; changes nothing."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Sent by the shell after every replay; a session leaves nothing open."""


Command = CreateSession | ChangeSession | ReceiveMessage | GrantSlot | SettleTurn | Wake | Recover

# --- effects ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TendRun:
    """See to it that the run with the turn is at work, or has told of its end."""

    key: str
    run_id: str
    repeat_after: float = TEND_AGAIN


@dataclass(frozen=True, slots=True)
class SteerRun:
    """Hand a message to the run at work."""

    key: str
    run_id: str
    message_id: str
    input: tuple[Json, ...]
    repeat_after: float = STEER_AGAIN


@dataclass(frozen=True, slots=True)
class AwaitSlot:
    """Get a place among the active runs for the next in the queue."""

    key: str
    run_id: str


Effect = TendRun | SteerRun | AwaitSlot
