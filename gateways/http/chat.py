"""The route that speaks OpenAI's Chat Completions: streamed through the hub, or waited for on bounded workers."""

import time
from dataclasses import replace
from typing import Any

import falcon

from actors.service import Admitted
from eventstore.queries import RunRow
from gateways.http import chat_result, takeover, views
from gateways.http.bodies import fingerprint, idempotency_key, read_object
from gateways.http.chat_request import ChatRequest, chat_request
from gateways.http.chat_stream import ChatRenderer
from gateways.http.disconnects import Disconnects
from gateways.http.errors import ApiError
from gateways.http.feed import RunFeed, Watch
from gateways.http.gate import caller
from gateways.http.limits import Slots
from gateways.http.ports import HttpPorts
from gateways.http.streams import EventStream
from gateways.http.transports import StreamTransport

LOOK_SECONDS = 0.25
"""How often a waiting worker looks whether its client is still there."""


class ChatRoutes:
    """The handler; a streamed answer frees its worker at once, a plain one holds it until the run's end."""

    def __init__(
        self, ports: HttpPorts, transport: StreamTransport, disconnects: Disconnects, feed: RunFeed, workers: Slots
    ) -> None:
        self._ports, self._transport, self._disconnects = ports, transport, disconnects
        self._feed, self._workers = feed, workers

    def create(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Complete a chat."""
        key = idempotency_key(req)
        body = read_object(req, self._ports.settings.max_body_bytes)
        session = _session(req)
        asked = chat_request(body, caller(req).name, session, self._ports.models(), self._ports.settings.max_chat_messages)
        print_ = fingerprint("POST /v1/chat/completions", body, session)
        asked = replace(asked, inbound=replace(asked.inbound, key=key, fingerprint=print_))
        if asked.stream:
            self._stream(req, resp, asked)
        else:
            self._wait(req, resp, asked)

    def _stream(self, req: falcon.Request, resp: falcon.Response, asked: ChatRequest) -> None:
        owner = asked.inbound.owner
        release = self._transport.reserve(req, owner)
        try:
            admitted = self._ports.service.admit(asked.inbound)
        except BaseException:
            release()
            raise
        renderer = ChatRenderer(
            admitted.run_id,
            self._ports.clock.now() // 1_000_000,
            asked.model,
            asked.client_tools,
            include_usage=asked.include_usage,
        )
        cancels = asked.inbound.on_disconnect == "cancel"
        rule = self._disconnects.rule(
            owner, admitted.run_id, cancels=cancels, release=release, broken=lambda: renderer.broken
        )
        self._transport.send(req, resp, EventStream(admitted.run_id, 0, renderer, _headers(admitted), rule))

    def _wait(self, req: falcon.Request, resp: falcon.Response, asked: ChatRequest) -> None:
        release = self._workers.take("worker")
        try:
            admitted = self._ports.service.admit(asked.inbound)
            watch = self._feed.watch(admitted.run_id, end_only=True)
            try:
                row = self._ended(req, asked, admitted, watch)
            finally:
                watch.leave()
        finally:
            release()
        resp.set_headers(list(_headers(admitted)))
        resp.media = self._completion(asked, row)

    def _ended(self, req: falcon.Request, asked: ChatRequest, admitted: Admitted, watch: Watch) -> RunRow:
        """Wait for the run's end; the row is the truth, the watch only says when to look."""
        until = time.monotonic() + self._ports.settings.completion_seconds
        while True:
            row = self._ports.queries.run(asked.inbound.owner, admitted.run_id)
            if row is not None and row.status in views.TERMINAL_STATUSES:
                return row
            if watch.closed:
                detail = f"The server is shutting down; the run is {admitted.run_id}."
                # In a session the run goes on after the start: who repeats without a key says the same twice.
                inbound = asked.inbound
                raise ApiError("shutting_down", detail, final=inbound.session_id is not None and inbound.key is None)
            self._sleep(req, asked, admitted, watch, until)

    def _sleep(self, req: falcon.Request, asked: ChatRequest, admitted: Admitted, watch: Watch, until: float) -> None:
        """Sleep until there is news; end the wait where nobody waits any more, or for too long."""
        while not watch.wait(LOOK_SECONDS):
            gone, late = takeover.disconnected(req.env), time.monotonic() > until
            if (gone or late) and asked.inbound.on_disconnect == "cancel":
                self._disconnects.cancel(asked.inbound.owner, admitted.run_id)
            if gone:
                raise ApiError("bad_request", "The client closed the connection.")
            if late:
                detail = f"The answer took too long; stream, or read the run at /v1/runs/{admitted.run_id}."
                raise ApiError("completion_timeout", detail)

    def _completion(self, asked: ChatRequest, row: RunRow) -> dict[str, Any]:
        if row.error is not None:
            raise chat_result.failure(row.error, row.run_id)
        if row.status != "completed":
            raise chat_result.cancelled(row.cancel_reason or "requested", row.run_id)
        end = (row.finish_reason or "stop", row.usage)
        created = row.created_at // 1_000_000
        return chat_result.completion(row.run_id, created, asked.model, row.output or {}, end, asked.client_tools)


def _session(req: falcon.Request) -> str | None:
    """Return the session that the headers name.

    opencode sends an id of its own with all its requests, those for titles too, and each time the whole history; it sends
    the same id as `X-Session-Affinity`: it asks for one machine or cache, not for a session on record.
    """
    named = req.get_header("X-Session-Id")
    return None if named == req.get_header("X-Session-Affinity") else named


def _headers(admitted: Admitted) -> tuple[tuple[str, str], ...]:
    ids = (("X-Session-Id", admitted.session_id), ("X-Run-Id", admitted.run_id))
    return (*ids, ("Idempotent-Replayed", "true")) if admitted.repeat else ids
