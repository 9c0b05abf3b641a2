"""Who asks and from where: bearer tokens, the principal of loopback, and the guard against foreign web pages."""

import ipaddress
from urllib.parse import urlsplit

import falcon

from gateways.http.errors import ApiError
from gateways.http.ports import Principal, Scope, Tokens

LOCAL = Principal("local", frozenset({"read", "run"}))

# What people type where a client insists on a key.  On loopback these count as no token; they carry no right of their own.
PLACEHOLDERS = frozenset(
    (
        *(
            "anything",
            "dummy",
            "dummy_key",
            "empty",
            "fake",
            "key",
            "lm-studio",
            "local",
            "no-key",
            "no-key-required",
            "none",
            "not-needed",
        ),
        *(
            "not-required",
            "ollama",
            "placeholder",
            "sk-dummy",
            "sk-local",
            "sk-no-key-required",
            "sk-test",
            "sk-xxx",
            "test",
        ),
        *("unused", "x", "xxx"),
    )
)


class Gatekeeper:
    """Decides whether a request may come in, and as whom; holds no state but the tokens, any thread may call it."""

    def __init__(self, tokens: Tokens, bound_host: str, allowed_hosts: tuple[str, ...]) -> None:
        """Take the host that the server is bound to, and further names for the `Host` header."""
        self._tokens = tokens
        self._on_loopback = is_loopback(bound_host)
        self._names = frozenset(name.lower() for name in (*allowed_hosts, bound_host))
        self._check_hosts = self._on_loopback or bool(allowed_hosts)

    def check_source(self, req: falcon.Request) -> None:
        """Refuse what a browser sends for a foreign page: a foreign `Origin`, or a rebound name in `Host`.

        Raises:
            ApiError: `foreign_host` or `foreign_origin`.
        """
        host = req.get_header("Host")
        if host is not None and self._check_hosts and not self._is_ours(host_name(host)):
            detail = (
                f"The Host header names {host[:100]!r}. Use the server's own address, or add the name to the allowed hosts."
            )
            raise ApiError("foreign_host", detail)
        origin = req.get_header("Origin")
        if origin is not None and (host is None or _authority(origin) != host.lower()):
            detail = f"A page of {origin[:100]!r} may not call this server; call it from a program, or from its own address."
            raise ApiError("foreign_origin", detail)

    def principal(self, req: falcon.Request) -> Principal:
        """Return who asks.

        Raises:
            ApiError: `unauthorized`: no token where one is needed, or a wrong one, on loopback too.
        """
        secret = bearer(req.get_header("Authorization"))
        local = self._is_local(req)
        if secret is None or (local and secret.lower() in PLACEHOLDERS):
            if local:
                return LOCAL
            raise ApiError(
                "unauthorized",
                "This server needs a token: send `Authorization: Bearer TOKEN`; `deedbox token create` makes one.",
            )
        found = self._tokens.authenticate(secret)
        if found is None:
            raise ApiError("unauthorized", "The token is wrong or was revoked; make one with `deedbox token create`.")
        return found

    def _is_ours(self, name: str) -> bool:
        return is_loopback(name) or name in self._names

    def _is_local(self, req: falcon.Request) -> bool:
        """Tell whether the caller is a program of this machine: a proxy's caller is not, whoever runs the proxy."""
        proxied = req.get_header("X-Forwarded-For") or req.get_header("Forwarded") or req.get_header("X-Real-Ip")
        host = req.get_header("Host")
        named = host is None or is_loopback(host_name(host))
        return self._on_loopback and not proxied and named and is_loopback(str(req.env.get("REMOTE_ADDR", "")))


def require(principal: Principal, scope: Scope) -> None:
    """Let the principal pass if it has the scope.

    Raises:
        ApiError: `missing_scope`.
    """
    if scope not in principal.scopes:
        how = "make one with" if principal.token_id is None else "this token lacks it; make another with"
        raise ApiError("missing_scope", f"This needs a token with the scope `{scope}`: {how} `deedbox token create`.")


def bearer(header: str | None) -> str | None:
    """Return the token of an `Authorization` header, None without one; the scheme's case does not matter (RFC 9110).

    Raises:
        ApiError: `unauthorized`: another scheme, or not exactly one token.
    """
    if header is None or not header.strip():
        return None
    scheme, _, rest = header.strip().partition(" ")
    words = rest.split()
    if scheme.lower() != "bearer" or len(words) > 1:
        raise ApiError("unauthorized", "The Authorization header must be `Bearer TOKEN`, with exactly one token.")
    return words[0] if words else None


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without port and brackets, in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _authority(origin: str) -> str:
    """Return host and port of an `Origin` header, in lower case; nothing where it is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Tell whether a host name or address is this machine's loopback."""
    if name.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
