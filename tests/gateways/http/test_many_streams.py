"""A thousand open streams: each gets every event in order, the server keeps a handful of threads, and answers others."""

import selectors
import socket
import threading
import time
from collections.abc import Callable

import pytest
import requests

from eventstore.catalogue import ModelDelta
from tests.fakes.service import said
from tests.gateways.http.conftest import Served
from tests.gateways.http.test_streams import start, within

STREAMS = 1000


def read_all(sockets: list[socket.socket], seconds: float) -> dict[socket.socket, bytes]:
    """Read all sockets to their ends."""
    got = dict.fromkeys(sockets, b"")
    selector = selectors.DefaultSelector()
    for sock in sockets:
        selector.register(sock, selectors.EVENT_READ, sock)
    until = time.monotonic() + seconds
    while selector.get_map() and time.monotonic() < until:
        for key, _ in selector.select(0.5):
            reader: socket.socket = key.data
            data = reader.recv(65536)
            got[reader] += data
            if not data:
                selector.unregister(reader)
    selector.close()
    return got


@pytest.fixture
def crowd(make_served: Callable[..., Served]) -> tuple[Served, str, list[socket.socket]]:
    served = make_served(connections=1200, heartbeat_seconds=10.0)
    run_id = start(served)
    served.service.start(run_id)
    sockets = []
    for _ in range(STREAMS):
        sockets.append(served.connect())
        sockets[-1].sendall(
            f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
    assert within(20, lambda: served.server.gateway.hub.active == STREAMS)
    return served, run_id, sockets


def test_a_thousand_streams_get_every_event_once_and_others_are_answered(
    crowd: tuple[Served, str, list[socket.socket]],
) -> None:
    served, run_id, sockets = crowd
    assert threading.active_count() < 40
    for number in range(5):
        served.service.emit(run_id, ModelDelta, attempt=1, text=str(number))
    began = time.monotonic()
    assert requests.get(f"{served.url}/health", timeout=5).status_code == 200
    assert time.monotonic() - began < 2
    served.service.finish(run_id, said("01234"))
    wanted = [f"id: {seq}".encode() for seq in range(1, 10)]
    for body in read_all(sockets, 20).values():
        assert [line for line in body.split(b"\n") if line.startswith(b"id: ")] == wanted
    assert within(5, lambda: served.server.gateway.streams.taken == 0)
