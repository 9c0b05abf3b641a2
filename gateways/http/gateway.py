"""Puts the HTTP gateway together: hub, feed, limits, routes and the WSGI application, from the ports that it is given."""

from collections.abc import Callable
from typing import Any

import falcon

from gateways.http.about import AboutRoutes
from gateways.http.answers import dump
from gateways.http.auth import Gatekeeper
from gateways.http.chat import ChatRoutes
from gateways.http.disconnects import Disconnects
from gateways.http.feed import RunFeed
from gateways.http.gate import Gate, install_errors
from gateways.http.hub import StreamHub
from gateways.http.limits import Buckets, Slots
from gateways.http.metrics import Metrics
from gateways.http.ports import HttpPorts
from gateways.http.routes import ROUTES
from gateways.http.runs import RunRoutes
from gateways.http.sessions import SessionRoutes
from gateways.http.transports import HubTransport, StreamTransport, ThreadTransport

Handler = Callable[..., None]


class Gateway:
    """Everything behind the socket; `app` is a WSGI application, `start` and `close` frame its life."""

    def __init__(self, ports: HttpPorts) -> None:
        """Build all parts; nothing runs before `start`."""
        settings = ports.settings
        self.hub = StreamHub(
            ports.queries,
            heartbeat=settings.heartbeat_seconds,
            first_event=settings.first_event_seconds,
            stalled=settings.stalled_seconds,
        )
        self.feed = RunFeed(ports.subscribe, self.hub.publish)
        self.streams = Slots(settings.streams, settings.streams_per_principal, full="streams_full", many="too_many_streams")
        # Some workers stay free for short requests, whatever waits.
        places = max(1, settings.threads - 8)
        self.workers = Slots(places, places, full="waiting_full", many="waiting_full")
        self.metrics = Metrics(ports.queries.counts, self._gauges(ports))
        self.app = self._app(ports)

    def start(self) -> None:
        """Start the hub."""
        self.hub.start()

    def close(self) -> None:
        """Wake every waiting worker, say good-bye on every stream, and end the hub's threads."""
        self.feed.close()
        self.hub.stop()

    def _gauges(self, ports: HttpPorts) -> dict[str, Callable[[], float]]:
        own: dict[str, Callable[[], float]] = {
            "streams_active": lambda: self.streams.taken,
            "http_workers_waiting": lambda: self.workers.taken,
        }
        return own | dict(ports.gauges)

    def _transport(self, ports: HttpPorts) -> StreamTransport:
        settings = ports.settings
        threads = ThreadTransport(
            ports.queries,
            self.feed,
            self.workers,
            heartbeat=settings.heartbeat_seconds,
            first_event=settings.first_event_seconds,
        )
        return HubTransport(self.hub, self.streams, threads) if settings.takeover else threads

    def _app(self, ports: HttpPorts) -> falcon.App[falcon.Request, falcon.Response]:
        keeper = Gatekeeper(ports.tokens, ports.settings.address[0], ports.settings.allowed_hosts)
        peers = Buckets(ports.settings.requests_per_minute_per_peer, ports.clock.monotonic)
        principals = Buckets(ports.settings.requests_per_minute_per_principal, ports.clock.monotonic)
        app = falcon.App(middleware=[Gate(keeper, peers, principals, self.metrics)])
        app.resp_options.media_handlers[falcon.MEDIA_JSON] = falcon.media.JSONHandler(dumps=_dumps)
        app.req_options.strip_url_path_trailing_slash = True
        app.req_options.keep_blank_qs_values = True
        install_errors(app)
        for path, resource in _resources(self._handlers(ports)).items():
            app.add_route(path, resource)
        return app

    def _handlers(self, ports: HttpPorts) -> dict[str, Handler]:
        transport, disconnects = self._transport(ports), Disconnects(ports.service)
        sessions, about = SessionRoutes(ports), AboutRoutes(ports, self.metrics)
        runs = RunRoutes(ports, transport, disconnects)
        chat = ChatRoutes(ports, transport, disconnects, self.feed, self.workers)
        return {
            "create_session": sessions.create,
            "list_sessions": sessions.list,
            "read_session": sessions.read,
            "change_session": sessions.change,
            "erase_session": sessions.erase,
            "list_messages": sessions.messages,
            "create_run": runs.create,
            "list_runs": runs.list,
            "read_run": runs.read,
            "cancel_run": runs.cancel,
            "read_events": runs.events,
            "create_completion": chat.create,
            "list_models": about.list_models,
            "read_model": about.read_model,
            "health": about.health,
            "ready": about.ready,
            "metrics": about.metrics,
            "openapi": about.openapi,
        }


class _Resource:
    """A path's handlers under the names by which falcon finds them."""


def _resources(handlers: dict[str, Handler]) -> dict[str, _Resource]:
    """Return a resource for each path of the route table; a route without code is a fault at start."""
    resources: dict[str, _Resource] = {}
    for route in ROUTES:
        resource = resources.setdefault(route.path, _Resource())
        setattr(resource, f"on_{route.method.lower()}", handlers[route.operation])
    return resources


def _dumps(value: Any) -> str:
    return dump(value).decode()
