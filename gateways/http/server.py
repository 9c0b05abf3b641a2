"""Runs the gateway on waitress: binds, serves on its own thread, and stops when it is told to, not by a signal."""

import logging
import resource
import socket
import threading
import time
from typing import Any

from waitress import wasyncore
from waitress.server import create_server

from gateways.errors import AddressInUse, cannot_listen
from gateways.http.gateway import Gateway
from gateways.http.ports import HttpPorts
from gateways.http.takeover import ProblemChannel

LOOP_SECONDS = 0.5
BACKLOG = 1024
SPARE_FILES = 512


class HttpServer:
    """One listening server; it prints nothing and handles no signal, that is the process's business."""

    def __init__(self, ports: HttpPorts) -> None:
        """Bind the address, so that a taken port is known before anything starts.

        Raises:
            AddressInUse: the address cannot be bound; the message says why and what to do.
        """
        self._socket = _bind(*ports.settings.address)
        self._gateway = Gateway(ports)
        self._map: dict[int, Any] = {}
        self._server: Any = None
        self._settings = ports.settings
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the server is bound to."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    @property
    def url(self) -> str:
        """The server's address as a URL."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def gateway(self) -> Gateway:
        """What is behind the socket."""
        return self._gateway

    @property
    def alive(self) -> bool:
        """Whether the server's thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Accept connections, on a thread of its own; returns at once."""
        settings = self._settings
        _quieten()
        _allow_files(settings.connections + settings.streams + SPARE_FILES)
        self._gateway.start()
        self._server = create_server(
            self._gateway.app,
            map=self._map,
            sockets=[self._socket],
            threads=settings.threads,
            connection_limit=settings.connections,
            asyncore_use_poll=True,
            channel_request_lookahead=1,
            max_request_body_size=settings.max_body_bytes + 1,
            outbuf_high_watermark=1024 * 1024,
            backlog=BACKLOG,
            channel_timeout=120,
            log_socket_errors=False,  # with a traceback, where a client hangs up or its socket was taken over
            clear_untrusted_proxy_headers=False,  # they take rights away here, so an untrusted one is welcome
            ident="deedbox",
        )
        self._server.channel_class = ProblemChannel
        self._thread.start()

    def stop(self, timeout: float = 4.0) -> None:
        """Take no new connection, end all streams with a good-bye, let short requests finish, then close.  Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        if self._server is None:
            self._gateway.close()
            self._socket.close()
            return
        until = time.monotonic() + timeout
        self._server.pull_trigger()
        self._gateway.close()
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=max(0.1, until - time.monotonic() - 0.5))
        self._thread.join(max(0.1, until - time.monotonic()))

    def _loop(self) -> None:
        while not self._stopping:
            wasyncore.loop(timeout=LOOP_SECONDS, use_poll=True, map=self._map, count=1)
        self._server.accepting = False
        self._drain()
        wasyncore.close_all(self._map)
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=0.1)

    def _drain(self) -> None:
        """Go on writing until no worker and no answer is under way; the workers end in `stop`."""
        until = time.monotonic() + 4.0
        while time.monotonic() < until and self._busy():
            wasyncore.loop(timeout=0.05, use_poll=True, map=self._map, count=1)

    def _busy(self) -> bool:
        channels = list(self._server.active_channels.values())
        return bool(self._server.task_dispatcher.threads) or any(each.total_outbufs_len for each in channels)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise AddressInUse(f"the address {host}:{port} is none of this machine's ({exc}): set server.address") from exc
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        raise AddressInUse(cannot_listen(host, port, exc)) from exc
    return sock


def _allow_files(wanted: int) -> None:
    """Raise this process's limit on open files as far as it may: the usual 1,024 is less than a thousand streams need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _quieten() -> None:
    """Waitress tells of every socket that is taken over, and of every short queue; neither is news."""
    for name in ("waitress", "waitress.queue"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING if name == "waitress" else logging.ERROR)
