"""What the HTTP gateway needs of the rest of the server, handed in by the composition root."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from actors.ports import Clock
from actors.service import Service
from eventstore.log import Envelope
from eventstore.queries import Queries

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")

Listener = Callable[[tuple[Envelope, ...]], None]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: the owner of what is made, and what it may do; `token_id` is None for a request without a token."""

    name: str
    scopes: frozenset[Scope]
    token_id: str | None = None


class Tokens(Protocol):
    """Knows bearer tokens; safe from any thread."""

    def authenticate(self, secret: str) -> Principal | None:
        """Return whose token this is, or None if there is no such token."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests are served, and the state of each part in one word or sentence."""

    ok: bool
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A name that clients may ask for, and what it stands for; None leaves the choice to the profile.

    `id`: what a client sends as `model`.  `owned_by`: the provider's name, or `deedbox` for a profile.
    """

    id: str
    owned_by: str = "deedbox"
    profile: str | None = None
    provider: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How the gateway listens and what it takes in; sizes in bytes, times in seconds, rates per minute (0: no limit).

    `address`: host and port; port 0 takes a free one.  `allowed_hosts`: names that a `Host` header may carry beside those
    of loopback and the address itself.  `takeover` false serves streams with a thread each, as does a waitress whose
    internals changed.  `first_event_seconds`: how long a streamed completion may hold back its head, so that an early
    failure is an HTTP error.  `completion_seconds`: how long a plain completion may take.
    """

    address: tuple[str, int] = ("127.0.0.1", 8787)
    allowed_hosts: tuple[str, ...] = ()
    threads: int = 16
    connections: int = 2000
    streams: int = 1500
    streams_per_principal: int = 1500
    max_body_bytes: int = 10 * 1024 * 1024
    max_chat_messages: int = 2000
    requests_per_minute_per_peer: int = 0
    requests_per_minute_per_principal: int = 0
    heartbeat_seconds: float = 10.0
    stalled_seconds: float = 120.0
    first_event_seconds: float = 10.0
    completion_seconds: float = 600.0
    takeover: bool = True


@dataclass(frozen=True, slots=True)
class HttpPorts:
    """Everything that the gateway calls.

    `subscribe`: `EventLog.subscribe`.  `models`: what clients may ask for, the default first.  `gauges`: numbers for
    `/metrics` by name (`deedbox_` is put before), each read on a request's thread.
    """

    service: Service
    queries: Queries
    subscribe: Callable[[Listener], Callable[[], None]]
    tokens: Tokens
    clock: Clock
    ready: Callable[[], Readiness]
    models: Callable[[], Sequence[ModelOffer]]
    settings: HttpSettings = HttpSettings()
    gauges: Mapping[str, Callable[[], float]] = field(default_factory=dict)
