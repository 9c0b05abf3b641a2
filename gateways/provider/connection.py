"""Connections that can be cut from any thread in every phase: while connecting, in the TLS handshake, while reading.

`Response.close()` blocks behind a reader and does not wake it; a shutdown of the socket does.  So each connection keeps a
second descriptor of its socket (a `Wire`), and each exchange knows the wire it is on (a `Line`).
"""

import contextlib
import functools
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final

import certifi
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from gateways.provider.addresses import AddressRule, addresses_of, kind_of
from gateways.provider.errors import Broken, BrokenCode
from gateways.provider.settings import Endpoint

_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)
_REFUSED: Final = "nothing listens there (connection refused)"


class Wire:
    """The socket of one connection, whoever wraps it now (TLS takes the socket object over, so this holds a twin)."""

    def __init__(self, sock: socket.socket) -> None:
        self._lock = threading.Lock()
        self._twin: socket.socket | None = sock.dup()
        self._holder: object | None = None
        self._doomed = False

    def take(self, holder: object) -> None:
        """Make `holder` the one whose cut counts; a former holder can do nothing any more."""
        with self._lock:
            self._holder = holder

    def leave(self, holder: object) -> None:
        """Give the wire up, if it is still this holder's."""
        with self._lock:
            if self._holder is holder:
                self._holder = None
                self._close_if_free()

    def doom(self) -> None:
        """The connection is closed: close the twin, at once or when the holder has read the rest."""
        with self._lock:
            self._doomed = True
            self._close_if_free()

    def cut(self, holder: object) -> None:
        """Shut the socket both ways, if it is this holder's: whoever blocks on it wakes up."""
        with self._lock:
            if self._holder is holder and self._twin is not None:
                with contextlib.suppress(OSError):
                    # a provider that writes into a full window notices a reset only, not that we have gone
                    self._twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                    self._twin.shutdown(socket.SHUT_RDWR)

    def _close_if_free(self) -> None:
        if self._doomed and self._holder is None and self._twin is not None:
            self._twin.close()
            self._twin = None


class Line:
    """What one exchange holds of the network; the first reason to cut it stays the reason."""

    def __init__(self, rule: AddressRule, connect_seconds: float, on_connected: Callable[[], None]) -> None:
        self.rule = rule
        self.connect_seconds = connect_seconds
        self.on_connected = on_connected
        self._lock = threading.Lock()
        self._wire: Wire | None = None
        self._reason: Broken | None = None
        self._wakers: list[Callable[[], None]] = []

    def attach(self, wire: Wire) -> None:
        """Go on this wire."""
        with self._lock:
            self._wire = wire
            wire.take(self)
            if self._reason is not None:
                wire.cut(self)

    def detach(self) -> None:
        """Leave the wire; from now on a cut touches no connection."""
        wire = self._wire
        if wire is not None:
            self.release(wire)

    def release(self, wire: Wire) -> None:
        """Leave this wire, if the line is on it."""
        with self._lock:
            if self._wire is wire:
                self._wire = None
        wire.leave(self)

    def on_cut(self, waker: Callable[[], None]) -> None:
        """Call `waker` when the line is cut, at once if it is."""
        with self._lock:
            self._wakers.append(waker)
            cut = self._reason is not None
        if cut:
            waker()

    def cut(self, code: BrokenCode, message: str) -> None:
        """End the exchange for this reason; from any thread, never blocks."""
        with self._lock:
            if self._reason is None:
                self._reason = Broken(code, message)
            wakers = tuple(self._wakers)
            if self._wire is not None:
                self._wire.cut(self)
        for waker in wakers:
            waker()

    @property
    def reason(self) -> Broken | None:
        """Why the line was cut, or None."""
        return self._reason

    def check(self) -> None:
        """Raise the reason if the line was cut."""
        if self._reason is not None:
            raise self._reason


_current = threading.local()


class use_line:  # noqa: N801 - used like a function: with use_line(line)
    """Tell the connections that this thread opens which exchange they belong to."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def __enter__(self) -> None:
        _current.line = self._line

    def __exit__(self, *_: object) -> None:
        _current.line = None


def _line() -> Line:
    line = getattr(_current, "line", None)
    if not isinstance(line, Line):
        raise TypeError("a provider connection was used outside of an exchange")
    return line


class _Tracked(HTTPConnection):
    """A connection that puts itself on the current line."""

    wire: Wire | None = None

    def _new_conn(self) -> socket.socket:
        sock, self.wire = _dial(_line(), self.host.strip("[]"), self.port)
        return sock

    def connect(self) -> None:
        try:
            super().connect()
        except (ssl.SSLError, ssl.CertificateError, urllib3.exceptions.SSLError) as error:
            _line().check()
            raise Broken("tls_error", f"no secure connection to {self.host}: {_tls_reason(error)}") from error

    def putrequest(self, method: str, url: str, skip_host: bool = False, skip_accept_encoding: bool = False) -> None:
        line = _line()
        if self.sock is None:
            self.connect()
        if self.wire is not None:
            line.attach(self.wire)
        if self.sock is not None:
            self.sock.settimeout(None)  # from here on the watchdog keeps the time
        line.on_connected()
        super().putrequest(method, url, skip_host, skip_accept_encoding)

    def close(self) -> None:
        wire, self.wire = self.wire, None
        super().close()
        if wire is not None:
            wire.doom()


class _TrackedTls(_Tracked, HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Tracked


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TrackedTls


_POOLS: Final = {"http": _Pool, "https": _TlsPool}


class _Adapter(HTTPAdapter):
    """Tracked connections, and one TLS context for all of them where there is TLS."""

    def __init__(self, connections: int, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__(pool_connections=4, pool_maxsize=connections)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._context, **pool_kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        proxies = super().proxy_manager_for(proxy, ssl_context=self._context, **proxy_kwargs)
        proxies.pool_classes_by_scheme = _POOLS
        return proxies

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Leave the trust to the context, which always verifies."""
        conn.cert_reqs = "CERT_REQUIRED"


def session_for(endpoint: Endpoint) -> requests.Session:
    """Return a session without cookies, environment proxies and netrc; its use needs `use_line`."""
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    tls = endpoint.base_url.startswith("https:") or endpoint.proxy is not None
    adapter = _Adapter(endpoint.connections, _trust(endpoint.ca_file) if tls else None)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    if endpoint.proxy is not None:
        session.proxies = {"http": endpoint.proxy, "https": endpoint.proxy}
    return session


@functools.lru_cache(maxsize=16)
def _trust(ca_file: str | None) -> ssl.SSLContext:
    """Trust the system's authorities (SSL_CERT_FILE and SSL_CERT_DIR too), those that come with requests, and `ca_file`."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def _dial(line: Line, host: str, port: int) -> tuple[socket.socket, Wire]:
    """Connect to the first address that the rule allows and that answers.

    The check is on the very address that is connected to: a name that changes its mind in between changes nothing.
    """
    found = addresses_of(host, line.connect_seconds, line.on_cut)
    line.check()
    allowed = [address for address in found if line.rule.allows(address)]
    if not allowed:
        raise Broken("refused_url", _refusal(host, found[0]))
    problem: OSError = TimeoutError()
    for address in allowed:
        try:
            return _connect(line, address, port, line.connect_seconds / len(allowed))
        except OSError as error:
            line.check()
            problem = error
    why = _REFUSED if isinstance(problem, ConnectionRefusedError) else problem.strerror or "no answer in time"
    raise Broken("network_error", f"cannot connect to {host} port {port}: {why}") from problem


def _connect(line: Line, address: str, port: int, seconds: float) -> tuple[socket.socket, Wire]:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    wire = Wire(sock)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(seconds)
        line.attach(wire)
        sock.connect((address, port))
        line.check()
    except BaseException:
        sock.close()
        wire.doom()
        line.release(wire)
        raise
    return sock, wire


def _refusal(host: str, address: str) -> str:
    kind = kind_of(address)
    if kind == "private":
        return f"{host} is in a private network; set allow_private = true for this provider if that is meant"
    if kind == "public":
        return f"{host} is a public address, which needs https"
    return f"{host} leads to a {kind} address, which is refused"


def _tls_reason(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or getattr(error, "reason", "") or type(error).__name__
    return str(text).replace("_", " ").lower()[:200]
