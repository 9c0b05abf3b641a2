"""A model provider on loopback, over real HTTP: answers as scripted, checks requests as the vendors do, breaks on demand."""

import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType

from tests.fakes.provider.connection import Connection, Gone, Stopped, parsed
from tests.fakes.provider.reply import Reply
from tests.fakes.provider.request import Received, protocol_of
from tests.fakes.provider.script import Step, says

_KEPT = 10_000


class FakeProvider:
    """`with FakeProvider() as fake: fake.then(says("hi")); … fake.url …`; steps are used up in order, then `default`.

    `key`: requests without it get 401.  `checks`: requests that break the protocol get 400, without using up a step.
    `choose`: decides by the request, in place of the steps.  `tls`: a server's context.  `record`: keep the requests.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        checks: bool = True,
        choose: Callable[[Received], Step] | None = None,
        tls: ssl.SSLContext | None = None,
        record: bool = True,
        port: int = 0,
        models: tuple[str, ...] = ("fake-model", "fake-model-2"),
    ) -> None:
        self.key, self.checks, self.models = key, checks, models
        self.default: Step = says("Hello from the fake provider.")
        self._choose, self._tls, self._record = choose, tls, record
        self._changed = threading.Condition()
        self._steps: deque[Step] = deque()
        self._requests: deque[Received] = deque(maxlen=_KEPT)
        self._served = self._disconnects = self._connections = 0
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._accepting = threading.Thread(target=self._accept, name="fake-provider", daemon=True)
        self._accepting.start()

    @property
    def root(self) -> str:
        """The URL without `/v1`, as the Anthropic SDK wants it."""
        return (
            f"http{'s' if self._tls else ''}://{'localhost' if self._tls else '127.0.0.1'}:{self._listener.getsockname()[1]}"
        )

    @property
    def url(self) -> str:
        """The URL with `/v1`."""
        return f"{self.root}/v1"

    @property
    def requests(self) -> list[Received]:
        """All requests so far, refused ones too (the last 10,000)."""
        with self._changed:
            return list(self._requests)

    @property
    def connections(self) -> int:
        """How many connections were accepted."""
        with self._changed:
            return self._connections

    @property
    def disconnected(self) -> int:
        """How many clients have gone away in the middle of an answer."""
        with self._changed:
            return self._disconnects

    def then(self, *steps: Step) -> "FakeProvider":
        """Append steps; each good request uses up one."""
        with self._changed:
            self._steps.extend(steps)
        return self

    def clear(self) -> "FakeProvider":
        """Forget the steps that are left."""
        with self._changed:
            self._steps.clear()
        return self

    def always(self, step: Step) -> "FakeProvider":
        """Answer with this when no step is left."""
        self.default = step
        return self

    def wait_requests(self, count: int, timeout: float = 5) -> bool:
        """Wait until so many requests have come."""
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= count, timeout)

    def wait_disconnected(self, timeout: float = 5, count: int = 1) -> bool:
        """Wait until so many clients have gone away in the middle of an answer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._disconnects >= count, timeout)

    def drop_idle(self) -> None:
        """Close all connections, as a server does with idle ones."""
        with self._changed:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close everything; answers under way end."""
        with self._changed:
            self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_idle()
        for thread in (self._accepting, *self._snapshot()):
            thread.join(5)

    def __enter__(self) -> "FakeProvider":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _snapshot(self) -> list[threading.Thread]:
        with self._changed:
            return list(self._threads)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), name="fake-provider-client", daemon=True)
            with self._changed:
                self._threads.add(thread)
                self._connections += 1
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            with self._changed:
                self._open.add(sock)
            self._converse(Connection(sock, lambda: self._closed))
        except Gone:
            with self._changed:
                self._disconnects += 1
                self._changed.notify_all()
        except (Stopped, OSError, ValueError):
            pass
        finally:
            with self._changed:
                self._open.discard(sock)
                self._threads.discard(threading.current_thread())
            sock.close()

    def _converse(self, connection: Connection) -> None:
        while not self._closed and (got := connection.receive()) is not None:
            method, path, headers, raw = got
            received = self._take(method, path, headers, raw)
            reply = Reply(connection, received, self.key, self.models)
            if not reply.refused(self.checks):
                reply.give(self._step(received))

    def _take(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Received:
        body = parsed(raw) if raw else None
        with self._changed:
            self._served += 1
            received = Received(self._served, method, path, headers, raw, body, protocol_of(method, path))
            if self._record:
                self._requests.append(received)
            self._changed.notify_all()
        return received

    def _step(self, received: Received) -> Step:
        if self._choose is not None:
            return self._choose(received)
        with self._changed:
            return self._steps.popleft() if self._steps else self.default


def nobody_listens() -> str:
    """Return a URL on loopback whose port was free a moment ago: connections are refused."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}/v1"


@contextlib.contextmanager
def nobody_accepts() -> Iterator[str]:
    """Yield a URL on loopback where connecting hangs: the listener's backlog is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        for sock in (*fillers, listener):
            sock.close()
