"""What gateways may ask of the actors: the one front door, whatever the way in (HTTP, Telegram, CLI)."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from eventstore.catalogue import Json, Origin

HTTP = Origin()


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message on its way in.

    `owner`: the principal.  `session_id` None: a new session; one that is unknown is created where `create_if_missing`
    says so, else refused.  `input`: canonical messages, at least one (one of role user;
    or tool results of the client's own tools).  `history`: canonical messages before it, for a new session only.  `key`,
    `fingerprint`: durable idempotency.  `client_tools`: schemas of tools that the client runs itself; a call of one ends
    the run.  `on_disconnect` is recorded; the gateway acts on it.
    """

    owner: str
    input: tuple[Json, ...]
    session_id: str | None = None
    history: tuple[Json, ...] = ()
    ephemeral: bool = False
    origin: Origin = HTTP
    profile: str | None = None
    model: str | None = None
    provider: str | None = None
    provider_options: Json | None = None
    client_tools: tuple[Json, ...] = ()
    system_prompt: str | None = None
    limits: Json | None = None
    metadata: Json | None = None
    key: str | None = None
    fingerprint: str | None = None
    message_id: str | None = None
    user_id: str | None = None
    on_disconnect: Literal["continue", "cancel"] = "continue"
    title: str | None = None
    create_if_missing: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """The message is on record; `repeat` says that it was before; `status` is queued or running, or later in a repeat."""

    run_id: str
    session_id: str
    message_id: str
    status: str
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be created; None leaves the choice to the profile or the server."""

    owner: str
    session_id: str | None = None
    origin: Origin = HTTP
    profile: str | None = None
    title: str | None = None
    model: str | None = None
    provider: str | None = None
    busy: Literal["queue", "steer"] | None = None
    metadata: Json | None = None


class Service(Protocol):
    """Every method blocks for a few seconds at most and may be called from any gateway thread.

    All raise `actors.errors.Refused` where the command does not fit, `eventstore.errors.LogError` where the log failed.
    """

    def create_session(self, new: NewSession) -> str:
        """Create a session and return its id."""

    def change_session(self, owner: str, session_id: str, changes: dict[str, Any]) -> None:
        """Change title, model, provider, profile or busy; unknown fields are refused."""

    def erase_session(self, owner: str, session_id: str, reason: str) -> None:
        """Erase a session and its runs for good; refused while a run of it has not ended."""

    def admit(self, inbound: Inbound) -> Admitted:
        """Take a message in: session, run and message in one transaction."""

    def cancel(self, owner: str, run_id: str, reason: str) -> str:
        """Ask a run to end and return its status; a repeat changes nothing."""
