"""The settings of one provider endpoint, and which URLs and headers they allow."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from gateways.provider.addresses import AddressRule
from gateways.provider.errors import Broken, InvalidEndpoint

Auth = Literal["bearer", "x-api-key", "none"]

# They carry authority or framing: only the endpoint and the transport set them.
RESERVED_HEADERS: Final = frozenset({
    "authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "host", "connection",
    "content-length", "content-type", "transfer-encoding", "accept-encoding", "te", "trailer", "upgrade", "expect",
})  # fmt: skip

_HEADER_LIMIT: Final = 8192


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds.

    `connect`: name, TCP and TLS together.  `first_byte`: from the request to the answer's head.  `idle`: between two
    events of a stream (comments do not count), or two reads of a body.  `total`: the whole exchange.
    """

    connect: float = 10.0
    first_byte: float = 120.0
    idle: float = 120.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider is and how to get in; checked when made.

    `secret` is the value itself, `secret_env` only the variable's name for messages.  `allowed_headers`: lower-case names
    that a script may set, None for all but the reserved ones.  `allow_private`: addresses of local networks are allowed.
    `proxy`: URL, else none is used, whatever the environment says.  `ca_file`: PEM bundle besides the system's.
    `connections`: kept open at most.

    Raises:
        InvalidEndpoint: a setting cannot be used.
    """

    name: str
    base_url: str
    auth: Auth = "bearer"
    secret: str | None = field(default=None, repr=False)
    secret_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_headers: frozenset[str] | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_request_bytes: int = 32 << 20
    max_response_bytes: int = 64 << 20
    allow_private: bool = False
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    connections: int = 32

    def __post_init__(self) -> None:
        """Check the settings."""
        problem = _problem_of_url(self.base_url, self.allow_private) or _problem_of_secret(self.secret)
        if problem:
            raise InvalidEndpoint(f"provider {self.name}: {problem}")

    @property
    def is_loopback(self) -> bool:
        """Whether the base URL names this machine."""
        return names_loopback(urlsplit(self.base_url).hostname or "")

    @property
    def address_rule(self) -> AddressRule:
        """Which addresses a connection may go to, wherever the name leads."""
        if self.proxy is not None:
            return AddressRule(loopback=True, private=True, public=True)
        loopback, tls = self.is_loopback, self.base_url.startswith("https:")
        return AddressRule(loopback=loopback or self.allow_private, private=self.allow_private, public=tls and not loopback)

    def url_for(self, path: str) -> str:
        """Return the URL of a path below the base URL; a query is allowed.

        Raises:
            Broken: `refused_url`, the path would leave the base URL.
        """
        if not _stays_below(path):
            raise Broken("refused_url", "the path of a model request must stay below the provider's base URL")
        return f"{self.base_url.rstrip('/')}/{path.removeprefix('/')}"

    def headers_for(self, wanted: Mapping[str, str] | None) -> dict[str, str]:
        """Return the headers to send: the script's allowed ones, then the fixed ones, then the secret.

        Raises:
            Broken: `missing_secret`; `invalid_request` where a header is not allowed.
        """
        headers = {name.lower(): str(value) for name, value in (wanted or {}).items()}
        for name, value in headers.items():
            if not self._may_set(name) or not _is_header(name, value):
                raise Broken("invalid_request", f"the policy may not set the header {name[:60]!r}")
        headers |= {name.lower(): value for name, value in self.headers.items()}
        return headers | self._authorization()

    def _may_set(self, name: str) -> bool:
        return name not in RESERVED_HEADERS and (self.allowed_headers is None or name in self.allowed_headers)

    def _authorization(self) -> dict[str, str]:
        if self.auth == "none" or (self.secret is None and self.is_loopback):
            return {}
        if self.secret is None:
            variable = self.secret_env or "the variable of api_key_env"
            raise Broken("missing_secret", f"provider {self.name} needs a secret: set {variable} and start again")
        return {"authorization": f"Bearer {self.secret}"} if self.auth == "bearer" else {"x-api-key": self.secret}


def names_loopback(host: str) -> bool:
    """Tell whether a host names this machine by itself, without asking anyone (RFC 6761, section 6.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _problem_of_url(base_url: str, allow_private: bool) -> str | None:
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "base_url is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return "base_url must start with https:// (or http:// for this machine) and name a host"
    if parts.username is not None or parts.password is not None:
        return "base_url must not hold a user or password; use api_key_env"
    if "?" in base_url or "#" in base_url or not base_url.isascii() or not base_url.isprintable() or " " in base_url:
        return "base_url must be plain: no query, no fragment, no blanks"
    return _problem_of_host(parts, host, allow_private)


def _problem_of_host(parts: SplitResult, host: str, allow_private: bool) -> str | None:
    if not _stays_below(parts.path):
        return "base_url must not hold '..' or '//'"
    if parts.scheme == "http" and not names_loopback(host) and not allow_private:
        return "plain http is for this machine only; use https, or allow_private = true for a host of the local network"
    return None


def _problem_of_secret(secret: str | None) -> str | None:
    if secret is None or (secret and secret.isascii() and secret.isprintable() and secret == secret.strip()):
        return None
    return "the secret is empty or holds characters that no header may carry (a line end, perhaps?)"


def _stays_below(path: str) -> bool:
    head = unquote(path.partition("?")[0])
    if path.startswith("//") or not path.isprintable() or not path.isascii() or any(c in path for c in "#\\ "):
        return False
    return "//" not in head and "%" not in head and "\\" not in head and ".." not in head.split("/")


def _is_header(name: str, value: str) -> bool:
    token = name.replace("-", "").replace("_", "")
    return token.isalnum() and name.isascii() and len(value) < _HEADER_LIMIT and value.isascii() and value.isprintable()
