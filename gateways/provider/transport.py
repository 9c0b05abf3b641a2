"""Opens exchanges with the configured providers; owns their sessions and the thread that watches deadlines."""

import threading
from collections.abc import Callable
from typing import Any

import requests

from actors.ports import Clock, Exchange, ModelCall, StreamBatch
from gateways.provider.connection import session_for
from gateways.provider.deadlines import Watchdog
from gateways.provider.errors import Broken
from gateways.provider.exchange import HttpExchange
from gateways.provider.settings import Endpoint


class ProviderTransport:
    """Implements `actors.ports.ModelTransport`; any thread."""

    def __init__(self, endpoint_of: Callable[[str], Endpoint | None], clock: Clock) -> None:
        """`endpoint_of` is asked at each call, so that an endpoint may move (the embedded model gets a new port).

        It returns None for an unknown name, and raises `Broken` where it knows why nobody can be asked now.
        """
        self._endpoint_of, self._monotonic = endpoint_of, clock.monotonic
        self._watchdog = Watchdog(clock.monotonic)
        self._lock = threading.Lock()
        self._sessions: dict[tuple[object, ...], requests.Session] = {}

    def exchange(self, call: ModelCall, on_first_byte: Callable[[], None] | None = None) -> Exchange:
        """Prepare an exchange; `on_first_byte` is called once, at the first byte of the body, and must not block."""
        try:
            endpoint = self._endpoint_of(call.provider)
        except Broken as broken:
            return _Refused(broken)
        if endpoint is None:
            return _Refused(Broken("unknown_provider", f"there is no provider {call.provider[:80]!r}"))
        return HttpExchange(endpoint, call, self._session, self._watchdog, self._monotonic, on_first_byte)

    def close(self) -> None:
        """Close idle connections and end the watchdog; exchanges under way should be cancelled before."""
        self._watchdog.close()
        with self._lock:
            sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def _session(self, endpoint: Endpoint) -> requests.Session:
        key = (endpoint.name, endpoint.proxy, endpoint.ca_file, endpoint.connections)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = session_for(endpoint)
            return self._sessions[key]


class _Refused:
    """An exchange that fails before anything is sent."""

    def __init__(self, broken: Broken) -> None:
        self._error = broken.as_error()

    def open(self) -> dict[str, Any]:
        return {"ok": False, "error": self._error}

    def read(self) -> StreamBatch:
        return StreamBatch(b"", True, self._error)

    def cancel(self) -> None:
        """Nothing is under way."""
