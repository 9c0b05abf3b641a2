"""One run's canonical events, from a cursor to the end: first what is on record, then what is being recorded.

The live events wait in a bounded queue.  When a follower is slow and it overflows, the queue is thrown away and the
follower reads pages from the log again; so it costs the writer nothing to be followed slowly, and no event is lost.  It
reads again too where a live event does not follow the one before: an append whose outcome nobody knew may be on record.
"""

import threading
import time
from collections import deque

from eventstore.catalogue import RunCancelled, RunCompleted, RunFailed
from eventstore.log import Envelope, EventLog
from eventstore.queries import Queries

WAITING = 256
"""Live events that wait for a follower at most."""


class Follower:
    """A cursor over one run; `next` belongs to one thread, `close` may come from any."""

    def __init__(self, log: EventLog, queries: Queries, run_id: str, after: int) -> None:
        self._queries, self._run_id, self._cursor = queries, run_id, after
        self._stream = f"run-{run_id}"
        self._news = threading.Condition()
        self._live: deque[Envelope] = deque()
        self._behind = True  # the log may hold what the queue does not
        self._page: deque[Envelope] = deque()
        self._ended = self._closed = False
        self._leave = log.subscribe(self._hear)  # before the first page, so that nothing falls between the two

    @property
    def ended(self) -> bool:
        """Say whether the run's last event was handed out, or the follower was closed: nothing more will come."""
        return self._ended or self._closed

    def next(self, timeout: float) -> Envelope | None:
        """Return the next event; None after `timeout` seconds without one, and at once when `ended`.

        Raises:
            StoreError: the log cannot be read.
        """
        deadline = time.monotonic() + timeout
        while not self.ended:
            envelope = self._take()
            if envelope is not None:
                return self._handed(envelope)
            if not self._wait(deadline - time.monotonic()):
                return None
        return None

    def close(self) -> None:
        """Stop listening and wake `next`; a second call does nothing."""
        self._leave()
        with self._news:
            self._closed = True
            self._live.clear()
            self._news.notify_all()

    def _handed(self, envelope: Envelope) -> Envelope:
        self._cursor = envelope.seq or self._cursor
        if isinstance(envelope.event, RunCompleted | RunCancelled | RunFailed):
            self._ended = True
            self._leave()
        return envelope

    def _wait(self, seconds: float) -> bool:
        """Wait for something to look at; False if the time is over."""
        with self._news:
            ready = self._live or self._behind or self.ended
            return bool(ready) or (seconds > 0 and self._news.wait(seconds))

    def _hear(self, envelopes: tuple[Envelope, ...]) -> None:
        mine = [one for one in envelopes if one.stream == self._stream and one.seq is not None]
        if not mine:
            return
        with self._news:
            if len(self._live) + len(mine) > WAITING:
                self._live.clear()
                self._behind = True
            elif not self._behind:
                self._live.extend(mine)
            self._news.notify_all()

    def _take(self) -> Envelope | None:
        if not self._page and self._behind:
            self._read()
        if self._page:
            return self._page.popleft()
        with self._news:
            while self._live and not self._behind:
                envelope = self._live.popleft()
                self._behind = (envelope.seq or 0) > self._cursor + 1
                if (envelope.seq or 0) == self._cursor + 1:
                    return envelope
        return None

    def _read(self) -> None:
        """Read the next page; an empty one says that from here on the queue holds all that is missing."""
        with self._news:
            self._behind = False  # from now on live events are kept again, and what came before is in the page
        try:
            page = self._queries.events(self._run_id, after=self._cursor, limit=WAITING)
            if not page:
                self._end_if_over()
        except BaseException:
            self._behind = True  # whoever asks again reads again
            raise
        self._page.extend(page)
        if len(page) == WAITING:
            with self._news:
                self._behind = True
                self._live.clear()

    def _end_if_over(self) -> None:
        run = self._queries.run(None, self._run_id)
        if run is not None and run.finished_at is not None and run.last_seq <= self._cursor:
            self._ended = True
            self._leave()


def follow(log: EventLog, queries: Queries, run_id: str, after: int = 0) -> Follower:
    """Follow a run from behind `after`, a `seq`; it need not exist yet.  `close` the follower in the end."""
    return Follower(log, queries, run_id, after)
