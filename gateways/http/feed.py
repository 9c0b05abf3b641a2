"""Hands what the log committed to the hub and to the threads that wait for one run."""

import threading
from collections.abc import Callable

from eventstore.log import Envelope
from gateways.http import views
from gateways.http.ports import Listener


class Watch:
    """Waits for news of one run, on one thread; `closed` once the server shuts down."""

    def __init__(self, feed: "RunFeed", run_id: str, *, end_only: bool) -> None:
        self._feed, self.run_id, self._end_only = feed, run_id, end_only
        self._news = threading.Event()
        self.closed = False

    def tell(self, envelope: Envelope) -> None:
        """Wake the waiting thread if the event matters to it; called on the log's thread."""
        if not self._end_only or views.is_end(envelope):
            self._news.set()

    def wait(self, seconds: float) -> bool:
        """Wait for news, at most so long; True if there is some."""
        came = self._news.wait(seconds)
        if came:  # news that comes just after a wait was over is kept for the next one
            self._news.clear()
        return came

    def leave(self) -> None:
        """Wait no more; a second call does nothing."""
        self._feed.forget(self)

    def end(self) -> None:
        """Wake the thread for the last time."""
        self.closed = True
        self._news.set()

    @property
    def others(self) -> int:
        """How many watch the same run; asked after `leave`, these are the others."""
        return self._feed.watching(self.run_id)


class RunFeed:
    """The one listener of the HTTP gateway; any thread may watch."""

    def __init__(self, subscribe: Callable[[Listener], Callable[[], None]], publish: Listener) -> None:
        """Take the log's `subscribe`, and who gets every commit."""
        self._publish = publish
        self._lock = threading.Lock()
        self._watches: dict[str, list[Watch]] = {}
        self._closed = False
        self._unsubscribe = subscribe(self._on_commit)

    def watch(self, run_id: str, *, end_only: bool = False) -> Watch:
        """Begin to watch a run: what is committed from now on wakes the watch."""
        watch = Watch(self, run_id, end_only=end_only)
        with self._lock:
            if self._closed:
                watch.end()
            else:
                self._watches.setdefault(run_id, []).append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        """Let a watch go."""
        with self._lock:
            watches = self._watches.get(watch.run_id, [])
            if watch in watches:
                watches.remove(watch)
            if not watches:
                self._watches.pop(watch.run_id, None)

    def watching(self, run_id: str) -> int:
        """How many watch this run."""
        with self._lock:
            return len(self._watches.get(run_id, ()))

    def close(self) -> None:
        """Listen no more and wake every watch."""
        self._unsubscribe()
        with self._lock:
            self._closed = True
            watches = [watch for each in self._watches.values() for watch in each]
        for watch in watches:
            watch.end()

    def _on_commit(self, envelopes: tuple[Envelope, ...]) -> None:
        self._publish(envelopes)
        if not self._watches:
            return
        for envelope in envelopes:
            if envelope.seq is not None:
                self._tell(envelope)

    def _tell(self, envelope: Envelope) -> None:
        with self._lock:
            watches = tuple(self._watches.get(views.run_id_of(envelope), ()))
        for watch in watches:
            watch.tell(envelope)
