"""One taken-over socket: bytes that wait to go out, and when they last moved.  Only the hub's thread touches it."""

import contextlib
import socket
from http import HTTPStatus

from gateways.http.errors import Answer
from gateways.http.streams import EventStream

READ_SIZE = 4096
SECURITY = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))


class Connection:
    """A client's socket, its stream, and at most what the hub lets into the buffer.

    `known`: the highest seq that is known to exist.  `probe`: a page must be read, whatever is known.  `fetching`: a page
    reader has the stream; nobody else may touch the stream until the page comes.  `asked`: `known` when it was sent off.
    """

    __slots__ = (
        "_buffer",
        "asked",
        "closed",
        "fetching",
        "head_sent",
        "known",
        "moved_at",
        "probe",
        "sock",
        "stream",
        "writing",
    )

    def __init__(self, sock: socket.socket, stream: EventStream, now: float) -> None:
        self.sock, self.stream, self.moved_at = sock, stream, now
        self._buffer = bytearray()
        self.known = self.asked = stream.cursor
        self.probe = True
        self.fetching = self.head_sent = self.writing = self.closed = False

    @property
    def waiting(self) -> int:
        """How many bytes wait to go out."""
        return len(self._buffer)

    def push(self, data: bytes, now: float) -> None:
        """Send what the socket takes, keep the rest; the response head goes before the first bytes.

        Raises:
            OSError: the client is gone.
        """
        if not self.head_sent and (data or self.stream.answer is not None):
            answer = self.stream.answer
            data = head(self.stream.headers) + data if answer is None else whole(answer, self.stream.headers)
            self.head_sent = True
        if data:
            self._buffer += data
            self.flush(now)

    def flush(self, now: float) -> None:
        """Send what the socket takes.

        Raises:
            OSError: the client is gone.
        """
        while self._buffer:
            try:
                sent = self.sock.send(self._buffer)
            except BlockingIOError:
                return
            del self._buffer[:sent]
            self.moved_at = now

    def hung_up(self) -> bool:
        """Read and forget what the client sends; True if it has closed its side."""
        try:
            return not self.sock.recv(READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket; reading first what came keeps the kernel from resetting the client's last bytes away."""
        self.closed = True
        self.hung_up()
        with contextlib.suppress(OSError):  # the client was faster
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def head(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return the response head of an event stream, which ends with the connection."""
    fixed = (("Content-Type", "text/event-stream; charset=utf-8"), ("X-Accel-Buffering", "no"), ("Connection", "close"))
    return _head(200, (*fixed, *SECURITY, *headers))


def whole(answer: Answer, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return a complete response."""
    fixed = (("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), ("Connection", "close"))
    return _head(answer.status, (*fixed, *SECURITY, *headers, *answer.headers)) + answer.body


def _head(status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
