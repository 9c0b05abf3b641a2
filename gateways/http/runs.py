"""The routes of runs: start, list, read, cancel; and their events, as pages or as a stream."""

from functools import lru_cache

import falcon

from actors.service import Inbound
from eventstore.catalogue import CANONICAL_TAGS, Json, RunAdmitted
from eventstore.queries import RunRow
from gateways.http import views
from gateways.http.bodies import fingerprint, idempotency_key, read_object
from gateways.http.checks import check_body, cursor, unknown
from gateways.http.disconnects import Disconnects
from gateways.http.errors import ApiError
from gateways.http.gate import asked, caller
from gateways.http.inputs import canonical_input
from gateways.http.ports import HttpPorts
from gateways.http.sessions import optional_body
from gateways.http.streams import EventStream, RunRenderer
from gateways.http.transports import StreamTransport


class RunRoutes:
    """Handlers; each runs on a worker's thread and sees only what belongs to the caller."""

    def __init__(self, ports: HttpPorts, transport: StreamTransport, disconnects: Disconnects) -> None:
        self._ports, self._transport, self._disconnects = ports, transport, disconnects

    def create(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Start a run: 202 once it is on record; a repeat of the same key gives the same run."""
        key = idempotency_key(req)
        body = read_object(req, self._ports.settings.max_body_bytes)
        check_body("CreateRun", body)
        inbound = _inbound(caller(req).name, body, key)
        admitted = self._ports.service.admit(inbound)
        resp.status = falcon.HTTP_202
        resp.media = {
            "run_id": admitted.run_id,
            "session_id": admitted.session_id,
            "message_id": admitted.message_id,
            "status": admitted.status,
        }
        resp.set_header("Location", f"/v1/runs/{admitted.run_id}")
        if admitted.repeat:
            resp.set_header("Idempotent-Replayed", "true")

    def list(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the caller's runs, newest first."""
        query = asked(req)
        rows = self._ports.queries.runs(
            caller(req).name,
            limit=query["limit"] + 1,
            after=query["after"],
            session_id=query["session_id"],
            status=query["status"],
        )
        resp.media = views.page([views.run(row) for row in rows], query["limit"], "run_id")

    def read(self, req: falcon.Request, resp: falcon.Response, run_id: str) -> None:
        """Read a run: the truth about it, whatever a stream showed."""
        resp.media = views.run(self._find(req, run_id))

    def cancel(self, req: falcon.Request, resp: falcon.Response, run_id: str) -> None:
        """Ask a run to end: 202 with its status."""
        body = optional_body(req, self._ports.settings.max_body_bytes)
        check_body("CancelRun", body)
        self._find(req, run_id)
        status = self._ports.service.cancel(caller(req).name, run_id, body.get("reason", "requested"))
        resp.status, resp.media = falcon.HTTP_202, {"run_id": run_id, "status": status}

    def events(self, req: falcon.Request, resp: falcon.Response, run_id: str) -> None:
        """Give a page of events, or, where `Accept` wants one, a stream that goes on until the run's end."""
        run = self._find(req, run_id)
        types = _types(asked(req)["types"])
        last = req.get_header("Last-Event-ID")
        after = asked(req)["after"] if last is None else cursor(last.strip(), "Last-Event-ID")
        if "text/event-stream" in req.accept:
            self._stream(req, resp, run, after, types)
            return
        limit = asked(req)["limit"]
        rows = self._ports.queries.events(run_id, after=after, limit=limit + 1, types=types)
        data = [views.event(row, run.parent_run_id) for row in rows]
        resp.media = {
            "data": data[:limit],
            "has_more": len(data) > limit,
            "next": data[:limit][-1]["seq"] if data else after,
            "status": run.status,
            "last_seq": run.last_seq,
        }

    def _stream(self, req: falcon.Request, resp: falcon.Response, run: RunRow, after: int, types: frozenset[str]) -> None:
        release = self._transport.reserve(req, caller(req).name)
        rule = self._disconnects.rule(run.owner, run.run_id, cancels=self._cancels(run), release=release)
        self._transport.send(req, resp, EventStream(run.run_id, after, _renderer(run.parent_run_id, types), on_closed=rule))

    def _cancels(self, run: RunRow) -> bool:
        """Tell whether the run was started with `on_disconnect: cancel`; its admission is the first event of its stream."""
        first = self._ports.queries.log(stream=f"run-{run.run_id}", limit=1)
        return any(isinstance(each.event, RunAdmitted) and each.event.on_disconnect == "cancel" for each in first)

    def _find(self, req: falcon.Request, run_id: str) -> RunRow:
        row = self._ports.queries.run(caller(req).name, run_id)
        if row is None:
            raise ApiError("run_not_found", "There is no such run, or it is another principal's.")
        return row


def _inbound(owner: str, body: Json, key: str | None) -> Inbound:
    names = (
        "session_id",
        "profile",
        "model",
        "provider",
        "provider_options",
        "system_prompt",
        "limits",
        "metadata",
        "title",
    )
    return Inbound(
        owner=owner,
        input=canonical_input(body["input"]),
        client_tools=tuple(sorted(body.get("tools", ()), key=lambda tool: str(tool["name"]))),
        on_disconnect=body.get("on_disconnect", "continue"),
        key=key,
        fingerprint=fingerprint("POST /v1/runs", body),
        **{name: body[name] for name in names if name in body},
    )


def _types(raw: str | None) -> frozenset[str]:
    types = frozenset(name.strip() for name in (raw or "").split(",") if name.strip())
    for name in sorted(types - CANONICAL_TAGS):
        fault = unknown("invalid_parameter", name, sorted(CANONICAL_TAGS))
        raise ApiError("invalid_parameter", f"`types`: {fault.detail}", param="types")
    return types


@lru_cache(256)
def _renderer(parent_run_id: str | None, types: frozenset[str]) -> RunRenderer:
    """Return a renderer that streams share, so that a live event is written once for all of them."""
    return RunRenderer(parent_run_id, types)
