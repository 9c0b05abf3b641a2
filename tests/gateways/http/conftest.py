"""A gateway over a log in memory, without sockets (`site`) and with a real server on loopback (`served`)."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import falcon.testing
import pytest

from eventstore.log import EventLog
from eventstore.memory import MemoryLog
from eventstore.queries import Queries
from gateways.http.gateway import Gateway
from gateways.http.ports import HttpPorts, HttpSettings, ModelOffer, Readiness
from gateways.http.server import HttpServer
from gateways.http.tokens import TokenFile
from tests.fakes.clock import ManualClock
from tests.fakes.service import FakeService

OFFERS = (ModelOffer("default", profile="default"), ModelOffer("vendor/small", "vendor", provider="vendor", model="small"))


@dataclass
class World:
    """What a test needs of the server's inside."""

    log: EventLog
    service: FakeService
    tokens: TokenFile
    clock: ManualClock
    ports: HttpPorts


class Site:
    """A gateway without sockets."""

    def __init__(self, world: World, gateway: Gateway) -> None:
        self.world, self.service, self.gateway = world, world.service, gateway
        self.client = falcon.testing.TestClient(gateway.app, headers={"Host": "127.0.0.1:8787"})

    def call(self, method: str, path: str, **more: Any) -> falcon.testing.Result:
        return self.client.simulate_request(method, path, remote_addr="127.0.0.1", **more)

    def get(self, path: str, **more: Any) -> falcon.testing.Result:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> falcon.testing.Result:
        return self.call("POST", path, json=body, **more)

    def run(self, text: str = "hello") -> str:
        made = self.post("/v1/runs", {"input": text})
        assert made.status_code == 202, made.text
        run_id: str = made.json["run_id"]
        return run_id


class Served:
    """A real server on a free port of loopback."""

    def __init__(self, world: World, server: HttpServer) -> None:
        self.world, self.service, self.server, self.url = world, world.service, server, server.url
        self._sockets: list[socket.socket] = []

    def connect(self) -> socket.socket:
        self._sockets.append(socket.create_connection(self.server.address, timeout=10))
        return self._sockets[-1]

    def close(self) -> None:
        self.server.stop()
        for sock in self._sockets:
            sock.close()

    def stream(self, path: str, *headers: str) -> "Reader":
        """Open an event stream over a raw socket."""
        sock = self.connect()
        lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream", *headers]
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return Reader(sock)


class Reader:
    """Reads a response head and server-sent events from a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self._buffer = sock, b""

    def until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            got = self.sock.recv(65536)
            if not got:
                raise EOFError(self._buffer)
            self._buffer += got
        before, _, self._buffer = self._buffer.partition(mark)
        return before

    def head(self) -> str:
        return self.until(b"\r\n\r\n").decode("latin-1")

    def block(self) -> str:
        return self.until(b"\n\n").decode()

    def event(self) -> dict[str, Any]:
        while True:
            block = self.block()
            if "data: " in block:
                value: dict[str, Any] = json.loads(block.split("data: ", 1)[1])
                return value

    def events(self) -> list[dict[str, Any]]:
        """Read to the end of the stream."""
        found = []
        while True:
            try:
                found.append(self.event())
            except EOFError:
                return found

    def rest(self) -> bytes:
        while got := self.sock.recv(65536):
            self._buffer += got
        return self._buffer

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def settings() -> HttpSettings:
    return HttpSettings(address=("127.0.0.1", 0), threads=12, heartbeat_seconds=0.6, first_event_seconds=5.0)


def world_over(log: EventLog, queries: Queries, tmp_path: Path, settings: HttpSettings) -> World:
    """Make a world over any log."""
    service = FakeService(log, queries)
    tokens, clock = TokenFile(tmp_path / "tokens.json"), ManualClock()
    ports = HttpPorts(
        service=service,
        queries=queries,
        subscribe=log.subscribe,
        tokens=tokens,
        clock=clock,
        ready=lambda: Readiness(ok=True, parts={"log": "ok"}),
        models=lambda: OFFERS,
        settings=settings,
        gauges={"policy_workers": lambda: 3},
    )
    return World(log, service, tokens, clock, ports)


@pytest.fixture
def world(tmp_path: Path, settings: HttpSettings) -> Iterator[World]:
    log = MemoryLog()
    yield world_over(log, log.queries, tmp_path, settings)
    log.close()


@pytest.fixture
def make_site(world: World) -> Iterator[Callable[..., Site]]:
    made: list[Gateway] = []

    def make(**changes: Any) -> Site:
        ports = {name: changes.pop(name) for name in list(changes) if name in HttpPorts.__dataclass_fields__}
        settings = replace(world.ports.settings, **changes)
        world.ports = replace(world.ports, settings=settings, **ports)
        gateway = Gateway(world.ports)
        gateway.start()
        made.append(gateway)
        return Site(world, gateway)

    yield make
    for gateway in made:
        gateway.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def make_served(world: World) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**changes: Any) -> Served:
        world.ports = replace(world.ports, settings=replace(world.ports.settings, **changes))
        server = HttpServer(world.ports)
        server.start()
        made.append(Served(world, server))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.fixture
def served(make_served: Callable[..., Served]) -> Served:
    return make_served()
