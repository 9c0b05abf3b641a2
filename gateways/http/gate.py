"""What happens to every request before and after its code: source, rate, principal, scope, parameters, headers, metrics."""

import logging
import secrets
import time
from typing import Any

import falcon

from actors.errors import Refused
from eventstore.errors import LogError
from gateways.errors import ConfigInvalid
from gateways.http.answers import answer
from gateways.http.auth import Gatekeeper, require
from gateways.http.checks import check_query
from gateways.http.errors import ApiError, from_log, from_refusal
from gateways.http.limits import Buckets
from gateways.http.metrics import Metrics
from gateways.http.ports import Principal
from gateways.http.routes import BY_PLACE, Route

log = logging.getLogger(__name__)

_FALCON = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}


class Gate:
    """Falcon middleware; raises ApiError for what may not pass."""

    def __init__(self, keeper: Gatekeeper, peers: Buckets, principals: Buckets, metrics: Metrics) -> None:
        """Take who decides, both rate limits and the counters."""
        self._keeper, self._peers, self._principals, self._metrics = keeper, peers, principals, metrics

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Check where the request comes from, and charge its peer, before anything is read."""
        req.context.began = time.perf_counter()
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Cache-Control", "no-store")
        self._keeper.check_source(req)
        if req.path not in ("/health", "/ready"):
            self._peers.take(str(req.env.get("REMOTE_ADDR", "")))

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, _resource: object, _params: dict[str, Any]
    ) -> None:
        """Find out who asks, whether it may, and with which parameters."""
        route = BY_PLACE.get((req.method, str(req.uri_template)))
        if route is None:
            return
        req.context.route = route
        if route.scope is not None:
            principal = self._keeper.principal(req)
            self._principals.take(principal.name)
            require(principal, route.scope)
            req.context.principal = principal
        req.context.asked = check_query(route, req)

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: object, _succeeded: bool) -> None:
        """Count the request under its route, never under its path, which may hold ids."""
        route: Route | None = getattr(req.context, "route", None)
        place = route.path if route is not None else (req.uri_template or "none")
        self._metrics.request(place, req.method, resp.status_code, time.perf_counter() - req.context.began)


def caller(req: falcon.Request) -> Principal:
    """Return who asks, as the gate found out."""
    principal: Principal = req.context.principal
    return principal


def asked(req: falcon.Request) -> dict[str, Any]:
    """Return the checked query parameters."""
    found: dict[str, Any] = req.context.asked
    return found


def install_errors(app: falcon.App[falcon.Request, falcon.Response]) -> None:
    """Make every error leave in the shape of its route; what nobody foresaw is logged, without contents, under an id."""
    app.add_error_handler(Exception, _on_unforeseen)
    app.add_error_handler(falcon.HTTPError, _on_falcon)
    app.add_error_handler(ApiError, lambda req, resp, error, _params: _reply(req, resp, error))
    app.add_error_handler(Refused, lambda req, resp, error, _params: _reply(req, resp, from_refusal(error)))
    app.add_error_handler(LogError, _on_log)
    app.add_error_handler(ConfigInvalid, _on_config)


def _reply(req: falcon.Request, resp: falcon.Response, error: ApiError) -> None:
    reply = answer(error, req.path)
    resp.status = falcon.code_to_http_status(reply.status)
    resp.content_type, resp.data = reply.content_type, reply.body
    resp.text = resp.stream = None
    resp.set_headers(list(reply.headers))


def _on_log(req: falcon.Request, resp: falcon.Response, error: LogError, _params: dict[str, Any]) -> None:
    log.warning("the log refused: %s", error.code)
    _reply(req, resp, from_log(error, keyed=_keyed(req)))


def _keyed(req: falcon.Request) -> bool:
    """Tell whether the request may be repeated although it is not known what the first one did."""
    return req.get_header("Idempotency-Key") is not None


def _on_config(req: falcon.Request, resp: falcon.Response, error: ConfigInvalid, _params: dict[str, Any]) -> None:
    log.error("a setting became invalid: %s", error)
    _reply(req, resp, ApiError("internal_error", "A file of the server cannot be read; its log says which.", final=False))


def _on_falcon(req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, _params: dict[str, Any]) -> None:
    code = _FALCON.get(error.status_code, "bad_request")
    match code:
        case "route_not_found":
            detail = "There is no such route; `GET /openapi.json` lists all."
        case "method_not_allowed":
            detail = f"The route does not take {req.method[:20]}; the Allow header says what it takes."
        case _:
            detail = error.description or error.title or "The request cannot be read."
    _reply(req, resp, ApiError(code, detail))
    resp.set_headers(dict(error.headers or {}))


def _on_unforeseen(req: falcon.Request, resp: falcon.Response, error: Exception, _params: dict[str, Any]) -> None:
    number = secrets.token_hex(6)
    places = [f"{each.tb_frame.f_code.co_filename}:{each.tb_lineno}" for each in _frames(error)]
    log.error(
        "unforeseen %s in %s, id %s, at %s", type(error).__name__, req.uri_template, number, " < ".join(reversed(places))
    )
    _reply(
        req,
        resp,
        ApiError(
            "internal_error",
            f"Something went wrong in the server; its log knows more under {number}.",
            final=not _keyed(req),
        ),
    )


def _frames(error: Exception) -> list[Any]:
    """Return the innermost frames; an exception's own words may hold what people said, so they are not logged."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames[-5:]
