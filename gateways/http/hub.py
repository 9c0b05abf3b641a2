"""The stream hub: one selector thread serves every open stream from a cursor in the log.

A stream catches up by pages that two reader threads fetch, goes on live with what the log published after its commit, and
falls back to pages when its reader is slow.  So a stream costs a socket and a cursor, never a thread, and what waits for
one client is bounded.  Live events are taken only in unbroken order: after any gap the next page tells the truth.
"""

import contextlib
import logging
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from eventstore.log import Envelope
from eventstore.queries import Queries
from gateways.http import views
from gateways.http.connection import Connection
from gateways.http.paging import next_page
from gateways.http.streams import Ending, EventStream

log = logging.getLogger(__name__)

LIVE_BYTES = 128 * 1024
"""A reader with more than this unsent is slow: it gets pages when it has read on."""
LOW_BYTES = 64 * 1024
MAX_PUBLISHED = 10_000
READERS = 2
TICK_SECONDS = 0.5


class StreamHub:
    """Serves taken-over sockets; every public method may be called from any thread."""

    def __init__(self, queries: Queries, *, heartbeat: float, first_event: float, stalled: float) -> None:
        """Take where pages come from, and three spans in seconds; `start` begins to serve."""
        self._queries = queries
        self._heartbeat, self._first_event, self._stalled = heartbeat, first_event, stalled
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._inbox: deque[Callable[[], None]] = deque()  # bounded: one adoption a request, one page a connection
        self._published: deque[Envelope] = deque()  # bounded by MAX_PUBLISHED
        self._missed: set[str] = set()
        self._runs: dict[str, set[Connection]] = {}
        self._pages: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()  # bounded: one entry a connection
        self._closers = ThreadPoolExecutor(1, "stream-closer")  # bounded: one call a connection
        self._threads = [
            threading.Thread(target=self._read_pages, name=f"stream-pages-{n}", daemon=True) for n in range(READERS)
        ]
        self._threads.append(threading.Thread(target=self._run, name="stream-hub", daemon=True))
        self._lock = threading.Lock()
        self._stopping = self._stopped = False

    def start(self) -> None:
        """Start the hub's threads."""
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        for thread in self._threads:
            thread.start()

    def adopt(self, stream: EventStream, sock: socket.socket) -> None:
        """Serve this stream on this socket, which now belongs to the hub."""
        with self._lock:
            if not self._stopping:
                self._post(partial(self._adopt, sock, stream))
                return
        sock.close()
        if stream.on_closed is not None:
            stream.on_closed("shutdown", 0)

    def publish(self, envelopes: tuple[Envelope, ...]) -> None:
        """Hand in what was committed, in order; returns at once.  Too much at a time makes the streams read pages."""
        news = [each for each in envelopes if each.seq is not None and views.run_id_of(each) in self._runs]
        if not news:
            return
        if len(self._published) + len(news) > MAX_PUBLISHED:
            self._missed.update(views.run_id_of(each) for each in news)
        else:
            self._published.extend(news)
        self._wake()

    def stop(self, timeout: float = 5.0) -> None:
        """Say good-bye to every client, close all sockets and end the threads."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        self._wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout)
        self._closers.shutdown(wait=True)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    @property
    def active(self) -> int:
        """How many streams are open."""
        return sum(len(each) for each in list(self._runs.values()))

    # --- the hub's thread -----------------------------------------------------------------

    def _post(self, action: Callable[[], None]) -> None:
        self._inbox.append(action)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is awake; closed: it is gone
            self._wake_out.send(b"x")

    def _run(self) -> None:
        next_tick = time.monotonic() + TICK_SECONDS
        while not self._stopping:
            for key, events in self._selector.select(max(0.0, next_tick - time.monotonic())):
                if key.data is None:
                    self._drain_wakes()
                else:
                    self._on_socket(key.data, events)
            self._work()
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + TICK_SECONDS
                self._each(self._tick)
        self._finish_pages()
        self._work()
        self._each(self._say_farewell)

    def _finish_pages(self) -> None:
        """Let the page readers give back the streams that they have, so that these clients hear the good-bye too."""
        for _ in range(READERS):
            self._pages.put(None)
        for reader in self._threads[:READERS]:
            reader.join(1.0)

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass

    def _each(self, action: Callable[[Connection], None]) -> None:
        for connections in list(self._runs.values()):
            for connection in list(connections):
                self._guard(action, connection)

    def _guard(self, action: Callable[[Connection], None], connection: Connection) -> None:
        try:
            action(connection)
        except Exception:
            log.warning("a stream failed", exc_info=True, extra={"stream": f"run-{connection.stream.run_id}"})
            if not connection.closed:
                self._close(connection, "disconnected")

    def _work(self) -> None:
        for _ in range(len(self._inbox)):
            self._inbox.popleft()()
        for _ in range(len(self._published)):
            self._on_event(self._published.popleft())
        while self._missed:
            for connection in list(self._runs.get(self._missed.pop(), ())):
                connection.probe = True
                self._guard(self._settle, connection)

    def _adopt(self, sock: socket.socket, stream: EventStream) -> None:
        connection = Connection(sock, stream, time.monotonic())
        self._runs.setdefault(stream.run_id, set()).add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self._push(connection, stream.begin())
        self._settle(connection)

    def _on_event(self, envelope: Envelope) -> None:
        for connection in list(self._runs.get(views.run_id_of(envelope), ())):
            self._guard(partial(self._live, envelope), connection)

    def _live(self, envelope: Envelope, connection: Connection) -> None:
        seq, stream = envelope.seq or 0, connection.stream
        connection.known = max(connection.known, seq)
        if connection.fetching or connection.probe:
            connection.probe |= views.is_end(envelope)  # a cursor beyond the end must learn of the end too
            return
        if seq <= stream.cursor + 1 and connection.waiting < LIVE_BYTES:
            self._push(connection, stream.feed(envelope))
        self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        """Decide what the connection waits for: its end, a page, or the next live event."""
        if connection.closed or connection.fetching:
            return
        stream = connection.stream
        if stream.over:
            if not connection.waiting:
                self._close(connection, "finished")
        elif self._lags(connection):
            connection.probe, connection.fetching, connection.asked = False, True, connection.known
            self._pages.put(connection)

    def _lags(self, connection: Connection) -> bool:
        """Tell whether the connection needs a page and can take one."""
        behind = connection.probe or connection.known > connection.stream.cursor
        return behind and connection.waiting <= LOW_BYTES and not self._stopping

    def _on_page(self, connection: Connection, data: bytes | None, rows: int) -> None:
        connection.fetching = False
        if connection.closed:
            return
        if data is None:
            self._close(connection, "disconnected")
            return
        if rows:
            connection.probe = True
        elif connection.known == connection.asked:
            connection.known = min(connection.known, connection.stream.cursor)  # what was erased does not come
        self._push(connection, data)
        self._settle(connection)

    def _on_socket(self, connection: Connection, events: int) -> None:
        if connection.closed:
            return
        if events & selectors.EVENT_READ and connection.hung_up():
            self._close(connection, "disconnected")
            return
        if events & selectors.EVENT_WRITE:
            self._push(connection, b"")
            self._settle(connection)

    def _push(self, connection: Connection, data: bytes) -> None:
        if connection.closed:
            return
        try:
            connection.push(data, time.monotonic())
            if not data:
                connection.flush(time.monotonic())
        except OSError:
            self._close(connection, "disconnected")
            return
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        if connection.writing != bool(connection.waiting):
            connection.writing = bool(connection.waiting)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.writing else 0)
            self._selector.modify(connection.sock, events, connection)

    def _tick(self, connection: Connection) -> None:
        still = time.monotonic() - connection.moved_at
        if connection.waiting:
            if still >= self._stalled:
                self._close(connection, "stalled")
        elif not connection.fetching and still >= (self._heartbeat if connection.head_sent else self._first_event):
            self._push(connection, connection.stream.idle())

    def _say_farewell(self, connection: Connection) -> None:
        if not connection.fetching:
            self._push(connection, connection.stream.farewell())
        if not connection.closed:
            self._close(connection, "shutdown")

    def _close(self, connection: Connection, ending: Ending) -> None:
        stream = connection.stream
        others = self._runs[stream.run_id]
        others.discard(connection)
        if not others:
            del self._runs[stream.run_id]
        self._selector.unregister(connection.sock)
        connection.close()
        if stream.on_closed is not None:
            self._closers.submit(_call, stream.on_closed, ending, len(others))

    # --- the page readers' threads ------------------------------------------------------------

    def _read_pages(self) -> None:
        while (connection := self._pages.get()) is not None:
            data, rows = self._page(connection.stream)
            self._post(partial(self._on_page, connection, data, rows))

    def _page(self, stream: EventStream) -> tuple[bytes | None, int]:
        """Return a page's bytes and how many rows it had; None where the log failed: the client comes back."""
        try:
            return next_page(self._queries, stream)
        except Exception:
            log.warning("a page of a stream failed", exc_info=True, extra={"stream": f"run-{stream.run_id}"})
            return None, 0


def _call(on_closed: Callable[[Ending, int], None], ending: Ending, others: int) -> None:
    try:
        on_closed(ending, others)
    except Exception:
        log.warning("the end of a stream could not be handled", exc_info=True)
