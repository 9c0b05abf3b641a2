"""One connection of a client to the fake provider: reads requests, writes bytes, and notices when the client goes away."""

import contextlib
import json
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
_TLS_HELLO = b"\x16\x03"
_LINGER_NONE = struct.pack("ii", 1, 0)


class Gone(Exception):
    """The client went away."""


class Stopped(Exception):
    """The fake is being closed, or the script wants this connection to end."""


class Connection:
    """Blocking; one thread each."""

    def __init__(self, sock: socket.socket, stopped: Callable[[], bool]) -> None:
        self._sock, self._stopped = sock, stopped
        self._rest = b""

    def receive(self) -> tuple[str, str, dict[str, str], bytes] | None:
        """Return the next request as method, path, headers and body; None when the client has closed."""
        head = self._until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        method, path, _ = first.split(" ", 2)
        return method, path, headers, self._exactly(int(headers.get("content-length", 0)))

    def head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Whatever')}", *(f"{n}: {v}" for n, v in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise Gone from error

    def pause(self, seconds: float) -> None:
        """Wait, and notice a client that goes away meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopped():
                raise Stopped
            if self._is_readable(min(left, 0.05)) and self._is_gone():
                raise Gone

    def check(self) -> None:
        """Raise Gone if the client has gone away."""
        if self._is_readable(0) and self._is_gone():
            raise Gone

    def end(self, reset: bool) -> None:
        """End the connection, cleanly or with RST."""
        if reset:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        raise Stopped

    def _is_readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _is_gone(self) -> bool:
        try:
            # the raw socket under TLS too: only a close (alert) may come while an answer is under way
            data = socket.socket.recv(self._sock, 1, socket.MSG_PEEK)
        except OSError:
            return True
        return not data or isinstance(self._sock, ssl.SSLSocket)

    def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._rest:
            if not self._fill():
                return None
            if self._rest.startswith(_TLS_HELLO):
                self.send(self.head(400, {"connection": "close"}))
                raise Stopped
        found, self._rest = self._rest.split(mark, 1)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            if not self._fill():
                raise Gone
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _fill(self) -> bool:
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            return False
        self._rest += data
        return bool(data)


def parsed(body: bytes) -> Any:
    """Return the JSON value of a body, None where it is none."""
    try:
        return json.loads(body)
    except ValueError:
        return None
