"""The one place that knows the insides of waitress 3.0: how a request gives its socket away, and how refusals look.

A responder returns `TakeOver` as its body.  Its first step duplicates the channel's socket, hands it to the hub, and raises
what waitress raises when a client has gone: waitress writes nothing, frees the worker and closes only its own descriptor.
It rests on two facts: `environ["waitress.client_disconnected"]` is a bound method of the channel, and
`ClientDisconnected` out of the body ends the task quietly.  `supported` looks at both; a contract test holds them.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.task import ErrorTask

from gateways.http.answers import answer
from gateways.http.errors import ApiError

FLUSH_SECONDS = 5.0
LINGER_SECONDS = 1.0
UNREAD_BYTES = 512 * 1024
_UNREAD = (413, 431)
_CODES = {400: "bad_request", 413: "body_too_large", 431: "headers_too_large", 501: "not_implemented"}


def supported(environ: dict[str, Any]) -> bool:
    """Tell whether this request's socket can be taken over: it comes from a waitress whose insides we know."""
    channel = _channel(environ)
    return isinstance(channel, HTTPChannel) and isinstance(getattr(channel, "socket", None), socket.socket)


def disconnected(environ: dict[str, Any]) -> bool:
    """Tell whether the client of a request that is being answered has gone; False where that cannot be known."""
    ask = environ.get("waitress.client_disconnected")
    return bool(ask()) if callable(ask) else False


def _channel(environ: dict[str, Any]) -> Any:
    return getattr(environ.get("waitress.client_disconnected"), "__self__", None)


class TakeOver(Iterator[bytes]):
    """A response body that never is one: it gives the client's socket to `adopt` and the worker back to waitress."""

    def __init__(self, environ: dict[str, Any], adopt: Callable[[socket.socket], None], lost: Callable[[], None]) -> None:
        """Take the request's WSGI environment, of which `supported` was true; `lost` is called where the client has gone."""
        self._channel = _channel(environ)
        self._adopt, self._lost = adopt, lost
        self._done = False

    def __next__(self) -> bytes:
        """Hand the socket over.

        Raises:
            ClientDisconnected: always; it is how waitress is told to let go.
        """
        self._await_flush()
        try:
            sock = socket.socket(fileno=os.dup(self._channel.socket.fileno()))
        except (OSError, AttributeError):  # waitress closed it meanwhile, for the client hung up
            self.close()
            raise ClientDisconnected from None
        self._done = True
        sock.setblocking(False)
        self._adopt(sock)
        raise ClientDisconnected

    def close(self) -> None:
        """Tell that the socket was never handed over, if so; waitress calls this however the response ends."""
        if not self._done:
            self._done = True
            self._lost()

    def _await_flush(self) -> None:
        """Let the answers to earlier, pipelined requests of this connection go out before ours."""
        until = time.monotonic() + FLUSH_SECONDS
        while self._channel.total_outbufs_len and time.monotonic() < until:
            time.sleep(0.005)


class ProblemTask(ErrorTask):  # type: ignore[misc,unused-ignore]
    """What waitress answers to a request that it cannot read: in our error shape, not its own."""

    def execute(self) -> None:
        """Write the answer and end the connection."""
        error = self.request.error
        # Waitress logs the path where the client has gone meanwhile, and a request that cannot be read may have none.
        self.request.path = getattr(self.request, "path", "") or ""
        code = _CODES.get(error.code, "bad_request")
        reply = answer(ApiError(code, _detail(code, str(error.body))), self.request.path)
        self.status = f"{reply.status} {error.reason}"
        self.response_headers.extend([("Content-Type", reply.content_type), *reply.headers])
        self.set_close_on_finish()
        self.content_length = len(reply.body)
        self.write(reply.body)
        if reply.status in _UNREAD:
            _linger(self.channel)


class ProblemChannel(HTTPChannel):  # type: ignore[misc,unused-ignore]
    """A channel that answers unreadable requests with problems, and waits for nobody who sends ahead and does not read."""

    error_task_class = ProblemTask
    _writes = False

    def write_soon(self, data: Any) -> int:
        """Take a piece of an answer; a stream's worker waits here for its reader."""
        self._writes = True
        try:
            count: int = super().write_soon(data)
        finally:
            self._writes = False
        return count

    def _flush_outbufs_below_high_watermark(self) -> None:
        """Between two pipelined requests, drop the later ones where the client does not read: HTTP lets it ask again.

        Waitress would hold a worker until the client has read, and as many such clients as workers stop the server.
        """
        if self._writes:
            super()._flush_outbufs_below_high_watermark()
        elif self.total_outbufs_len > UNREAD_BYTES:
            with self.requests_lock:
                for request in self.requests[1:]:
                    request.close()
                del self.requests[1:]
                self.close_when_flushed = True


def _linger(channel: Any) -> None:
    """Read away what the client still sends, for a moment: closing on unread bytes would reset our answer away.

    It reads from a duplicate of the socket; waitress is told to let go of its own, or it would read along.
    """
    until = time.monotonic() + LINGER_SECONDS
    with contextlib.suppress(OSError, AttributeError), socket.socket(fileno=os.dup(channel.socket.fileno())) as sock:
        channel.close_when_flushed = True
        channel.server.pull_trigger()
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        sock.shutdown(socket.SHUT_WR)
        while time.monotonic() < until:
            if poll.poll(50) and not sock.recv(1 << 20):
                return


def _detail(code: str, said: str) -> str:
    match code:
        case "body_too_large":
            return "The body has more bytes than the server takes; send less, or raise `server.max_body_bytes`."
        case "headers_too_large":
            return "The headers are too large; send fewer or shorter ones."
    return f"The request cannot be read: {said}."
