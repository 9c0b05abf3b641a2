"""The two ways a stream leaves the server: by the hub, or, where waitress cannot give sockets away, by a thread each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import falcon

from eventstore.queries import Queries
from gateways.http import takeover
from gateways.http.feed import RunFeed
from gateways.http.hub import StreamHub
from gateways.http.limits import Slots
from gateways.http.paging import next_page
from gateways.http.streams import Ending, EventStream

POLL_SECONDS = 1.0


class StreamTransport(Protocol):
    """Sends a stream as the answer to a request."""

    def reserve(self, req: falcon.Request, name: str) -> Callable[[], None]:
        """Take a place for a stream of this principal, before anything else is done, and return the way to give it back.

        Raises:
            ApiError: `streams_full`, `too_many_streams` or `waiting_full`.
        """

    def send(self, req: falcon.Request, resp: falcon.Response, stream: EventStream) -> None:
        """Make the stream the response; from here on, the stream's `on_closed` tells its end."""


class HubTransport:
    """Hands the client's socket to the hub; where that is impossible, falls back to a thread for the stream."""

    def __init__(self, hub: StreamHub, places: Slots, fallback: StreamTransport) -> None:
        """Take a hub that was started, and what serves requests whose socket cannot be taken."""
        self._hub, self._places, self._fallback = hub, places, fallback

    def reserve(self, req: falcon.Request, name: str) -> Callable[[], None]:
        """Take a place for a stream."""
        return self._places.take(name) if takeover.supported(req.env) else self._fallback.reserve(req, name)

    def send(self, req: falcon.Request, resp: falcon.Response, stream: EventStream) -> None:
        """Give the worker back at once; the hub writes the head and all that follows."""
        if takeover.supported(req.env):
            resp.stream = takeover.TakeOver(req.env, partial(self._hub.adopt, stream), partial(_lost, stream))
        else:
            self._fallback.send(req, resp, stream)


def _lost(stream: EventStream) -> None:
    if stream.on_closed is not None:
        stream.on_closed("disconnected", 0)


class ThreadTransport:
    """Holds the request's worker for the stream; at most so many that others are left for short requests."""

    def __init__(self, queries: Queries, feed: RunFeed, workers: Slots, *, heartbeat: float, first_event: float) -> None:
        """Take where events come from, the places that streams and waiting completions share, and two spans in seconds."""
        self._queries, self._feed, self._workers = queries, feed, workers
        self._heartbeat, self._first_event = heartbeat, first_event

    def reserve(self, req: falcon.Request, name: str) -> Callable[[], None]:
        """Take a worker."""
        return self._workers.take("worker")

    def send(self, req: falcon.Request, resp: falcon.Response, stream: EventStream) -> None:
        """Make the stream a generator that the worker runs; a patient stream waits here for its first frame."""
        pump = _Pump(self._queries, self._feed, stream, lambda: takeover.disconnected(req.env))
        first = pump.first(self._first_event)
        for name, value in stream.headers:
            resp.set_header(name, value)
        if stream.answer is not None:
            pump.close()
            resp.status, resp.data = falcon.code_to_http_status(stream.answer.status), stream.answer.body
            resp.content_type = stream.answer.content_type
            resp.set_headers(list(stream.answer.headers))
            return
        resp.content_type = "text/event-stream; charset=utf-8"
        resp.set_header("X-Accel-Buffering", "no")
        resp.stream = _Body(pump, first, self._heartbeat)


class _Pump:
    """Moves one stream's events from the log to bytes, on the worker's thread."""

    def __init__(self, queries: Queries, feed: RunFeed, stream: EventStream, gone: Callable[[], bool]) -> None:
        self._queries, self._stream, self._gone = queries, stream, gone
        self._watch = feed.watch(stream.run_id)
        self._closed = False
        self.ending: Ending = "disconnected"

    def first(self, patience: float) -> bytes:
        """Return the first bytes; a patient stream waits for them, but not longer than its patience."""
        data = self._stream.begin()
        waited = 0.0
        while not data and self._stream.answer is None and not self._stream.over and waited < patience and not self._gone():
            data = self._page()
            if not data and not self._stream.over:
                self._watch.wait(min(POLL_SECONDS, patience))
                waited += POLL_SECONDS
        return data or (b"" if self._stream.answer is not None else self._stream.idle())

    def chunks(self, heartbeat: float) -> Iterator[bytes]:
        """Yield what follows, comments while nothing happens, until the run's end, the client's or the server's."""
        quiet = 0.0
        while not self._stream.over and not self._gone():
            if self._watch.closed:
                self.ending = "shutdown"
                yield self._stream.farewell()
                return
            data = self._page()
            if data:
                quiet = 0.0
                yield data
            elif not self._stream.over:
                quiet = 0.0 if self._watch.wait(min(POLL_SECONDS, heartbeat)) else quiet + POLL_SECONDS
                if quiet >= heartbeat:
                    quiet = 0.0
                    yield self._stream.idle()
        if self._stream.over:
            self.ending = "finished"

    def _page(self) -> bytes:
        return next_page(self._queries, self._stream)[0]

    def close(self) -> None:
        """Tell the end; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._watch.leave()
            if self._stream.on_closed is not None:
                self._stream.on_closed("finished" if self._stream.over else self.ending, self._watch.others)


class _Body(Iterator[bytes]):
    """A WSGI body whose `close`, which the server calls however it ends, closes the pump."""

    def __init__(self, pump: _Pump, first: bytes, heartbeat: float) -> None:
        self._pump, self._first = pump, first
        self._rest = pump.chunks(heartbeat)

    def __next__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return next(self._rest)

    def close(self) -> None:
        self._pump.close()


def stream_slots(total: int, each: int) -> Slots:
    """Return the places for open streams."""
    return Slots(total, each, full="streams_full", many="too_many_streams")


def worker_slots(threads: int) -> Slots:
    """Return the places for requests that hold a worker; eight workers stay for short requests, where there are so many."""
    places = max(1, threads - 8)
    return Slots(places, places, full="waiting_full", many="waiting_full")
