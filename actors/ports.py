"""What actors need of the world; gateways implement each, tests have fakes that keep the same contract suites."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rss_policy.script import BundleRef


class Clock(Protocol):
    """Time and waiting, injected everywhere."""

    def now(self) -> int:
        """Return UTC in microseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""


class Ids(Protocol):
    """Randomness, injected everywhere."""

    def new(self, prefix: str) -> str:
        """Return an id such as `run_01J…`: prefix, underscore, 26 characters that sort by time."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request to a provider, as the script asked for it; the transport adds address and secret by the profile's name.

    `provider`: the profile's name.  `path`: below the profile's base URL.  `body`: JSON value.  `stream`: read as
    server-sent events by `read`; else the whole body comes with the answer.  `headers`: only those that the profile allows.
    """

    provider: str
    path: str
    body: Any
    stream: bool
    method: Literal["GET", "POST"] = "POST"
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """One read of a stream: the raw bytes up to the end of its last whole event; `done` when no more will come.

    `error` is set where the stream broke (`{"code", "message"}`; codes `network_error timeout_idle timeout_total
    line_too_long response_too_large cancelled`): the script sees it in the outcome of that read.
    """

    raw: bytes
    done: bool
    error: dict[str, Any] | None = None


class Exchange(Protocol):
    """One request to a provider that is under way; calls come from performer threads, `cancel` from any."""

    def open(self) -> dict[str, Any]:
        """Send and wait for the answer's head (and body, unless it streams); return the outcome as a JSON value.

        `{"ok": true, "status", "headers", "body": text}` or, streaming with a 2xx and an event stream,
        `{"ok": true, "status", "headers", "stream": true}`.  Where no answer came, `{"ok": false, "error": {"code",
        "message"}}` with code `network_error dns_error tls_error timeout_first_byte timeout_idle timeout_total refused_url
        missing_secret unknown_provider invalid_request request_too_large response_too_large cancelled`.  Never raises for
        what the world did; an HTTP error status is `ok: true` with its status, body and headers (lower-case names, only
        those that matter: content-type, retry-after, retry-after-ms, x-request-id, request-id and rate-limit ones).
        """

    def read(self) -> StreamBatch:
        """Wait for the next batch: the first two at once, then one per 40 ms at most, sooner at 2 KB or at the end."""

    def cancel(self) -> None:
        """Cut the connection now; a blocked `open` or `read` returns with the error code `cancelled`."""


class ModelTransport(Protocol):
    """Opens exchanges; owns connections, secrets and deadlines."""

    def exchange(self, call: ModelCall, on_first_byte: Callable[[], None] | None = None) -> Exchange:
        """Prepare an exchange; nothing is sent before `open`."""


EffectClass = Literal["read", "idempotent", "once"]
RiskClass = Literal["read", "write", "execute", "network"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that was let through; `key` is stable across attempts."""

    key: str
    run_id: str
    call: int
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model reads, and how it went."""

    outcome: Literal["ok", "failed", "cancelled"]
    content: str
    error: dict[str, Any] | None = None
    truncated: bool = False


class Tool(Protocol):
    """A native capability under a name."""

    @property
    def effect(self) -> EffectClass:
        """What a crash leaves."""

    @property
    def risk(self) -> RiskClass:
        """What it may do."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The tool as the model sees it: `{"name", "description", "parameters"}`."""

    def run(self, call: ToolCall, cancelled: Callable[[], bool]) -> ToolResult:
        """Do it, on a performer thread; look at `cancelled` often."""


class Toolbox(Protocol):
    """The tools of a profile; empty until workspace tools are configured."""

    def find(self, name: str) -> Tool | None:
        """Return the tool, or None if there is no such tool."""

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Return all tools as the model sees them, sorted by name."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A named set of policy, model, tools and settings, as the configuration gives it.

    `bundle` is what the engine opens; `limits` go into the script's context; None for provider or model means the default.
    """

    name: str
    bundle: BundleRef
    provider: str | None
    model: str | None
    system_prompt: str | None
    toolbox: Toolbox
    limits: Mapping[str, Any]
    busy: Literal["queue", "steer"] = "queue"


class Profiles(Protocol):
    """The configured profiles and providers; a faulty new policy never replaces a working one."""

    def find(self, name: str) -> Profile | None:
        """Return the profile, or None; `default` always exists."""

    def names(self) -> Sequence[str]:
        """Return the names of all profiles, for whoever asked for another."""

    def provider_names(self) -> Sequence[str]:
        """Return the names of all providers, for whoever asked for another."""

    def closed_models(self, provider: str) -> Sequence[str] | None:
        """Return the models of a provider that has these alone, or None where any name may be asked for."""

    def provider(self, name: str) -> Mapping[str, Any] | None:
        """Return what the script may know of a provider: name, adapter, capabilities, models, reasoning replay, prices."""

    def bundle(self, digest: str, stored: Callable[[str], bytes | None]) -> BundleRef:
        """Return the bundle with this digest: a loaded one, else loaded from the stored blob `policy:<digest>`."""
