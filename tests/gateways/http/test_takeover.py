"""The contract with waitress's insides, and what happens where they are not as we know them."""

import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from waitress import wasyncore
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.server import create_server
from waitress.utilities import BadRequest

from eventstore.catalogue import ModelDelta, Problem, RunFailed
from gateways.http import takeover
from tests.fakes.service import said
from tests.gateways.http.conftest import Reader, Served, Site
from tests.gateways.http.test_streams import start, within


@pytest.fixture
def plain_waitress() -> Any:
    """A waitress with an application that gives its socket away at once."""
    taken: list[socket.socket] = []
    seen: list[Any] = []

    def app(environ: Any, start_response: Any) -> Any:
        seen.append((takeover.supported(environ), environ["waitress.client_disconnected"].__self__))
        start_response("200 OK", [])
        return takeover.TakeOver(environ, taken.append, lambda: None)

    sockets: dict[int, Any] = {}
    server: Any = create_server(app, map=sockets, host="127.0.0.1", port=0, threads=1, channel_request_lookahead=1)
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            wasyncore.loop(timeout=0.05, use_poll=True, map=sockets, count=1)

    thread = threading.Thread(target=loop)
    thread.start()
    yield server, taken, seen
    stop.set()
    thread.join()
    server.task_dispatcher.shutdown()
    wasyncore.close_all(sockets)
    for each in taken:
        each.close()


def test_waitress_writes_nothing_frees_its_worker_and_leaves_the_socket_open(plain_waitress: Any) -> None:
    server, taken, seen = plain_waitress
    for number in range(3):  # with one worker, the second request shows that the first one was let go
        sock = socket.create_connection(("127.0.0.1", int(server.effective_port)), timeout=5)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert within(3, lambda wanted=number + 1: len(taken) == wanted)  # type: ignore[misc]
        assert within(3, lambda: not server.active_channels)
        taken[-1].setblocking(True)
        taken[-1].sendall(b"ours alone")
        assert sock.recv(100) == b"ours alone"
        sock.close()
    assert all(supported and isinstance(channel, HTTPChannel) for supported, channel in seen)


def test_a_client_that_hung_up_before_the_takeover_is_told_as_lost() -> None:
    channel = type("Gone", (), {"total_outbufs_len": 0, "socket": None, "ask": lambda self: True})()
    lost: list[int] = []
    body = takeover.TakeOver({"waitress.client_disconnected": channel.ask}, lambda _: None, lambda: lost.append(1))
    with pytest.raises(ClientDisconnected):
        next(body)
    body.close()
    assert lost == [1]


def test_the_names_that_the_takeover_needs_are_there() -> None:
    assert issubclass(ClientDisconnected, Exception)
    assert callable(HTTPChannel.check_client_disconnected)
    assert isinstance(HTTPChannel.total_outbufs_len, int)
    assert hasattr(HTTPChannel, "error_task_class")


def test_an_unknown_server_is_not_taken_over() -> None:
    assert not takeover.supported({})
    assert not takeover.supported({"waitress.client_disconnected": lambda: False})
    assert not takeover.disconnected({})


def test_the_answer_to_a_pipelined_request_comes_whole_before_the_stream(served: Served) -> None:
    run_id = start(served)
    sock = served.connect()
    sock.sendall(
        f"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    reader = Reader(sock)
    assert reader.head().startswith("HTTP/1.1 200")
    assert reader.until(b"}") == b'{"status":"ok"'
    assert "text/event-stream" in reader.head()
    reader.close()


def test_clients_that_pipeline_and_do_not_read_hold_no_worker(served: Served) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 140
    deaf = [served.connect() for _ in range(15)]  # more than there are workers
    for sock in deaf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(asked)
    time.sleep(0.5)
    assert requests.get(f"{served.url}/health", timeout=5).status_code == 200
    for sock in deaf:
        sock.close()


@pytest.fixture
def threaded(make_served: Callable[..., Served]) -> Served:
    return make_served(takeover=False, threads=10)


def test_without_the_takeover_a_thread_serves_the_same_stream(threaded: Served) -> None:
    run_id = start(threaded)
    threaded.service.start(run_id)
    with requests.get(
        f"{threaded.url}/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, stream=True, timeout=10
    ) as answer:
        lines = answer.iter_lines()
        assert next(lines) == b"retry: 1000"
        threaded.service.emit(run_id, ModelDelta, attempt=1, text="hi")
        threaded.service.finish(run_id, said("hi"))
        ids = [line for line in lines if line.startswith(b"id: ")]
    assert ids == [b"id: 1", b"id: 2", b"id: 3", b"id: 4", b"id: 5"]
    assert within(2, lambda: threaded.server.gateway.workers.taken == 0)


def test_without_the_takeover_streams_are_bounded_and_short_requests_still_pass(threaded: Served) -> None:
    run_id = start(threaded)
    readers = [threaded.stream(f"/v1/runs/{run_id}/events") for _ in range(2)]
    for reader in readers:
        reader.head()
    refused = requests.get(f"{threaded.url}/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, timeout=10)
    assert (refused.status_code, refused.json()["code"]) == (503, "waiting_full")
    assert refused.headers["Retry-After"] == "5"
    assert requests.get(f"{threaded.url}/health", timeout=5).status_code == 200
    for reader in readers:
        reader.close()
    assert within(5, lambda: threaded.server.gateway.workers.taken == 0)


def test_without_the_takeover_a_shutdown_says_bye(threaded: Served) -> None:
    reader = threaded.stream(f"/v1/runs/{start(threaded)}/events")
    reader.head()
    threaded.server.stop()
    assert b": bye" in reader.rest()
    reader.close()


def test_without_the_takeover_an_early_failure_is_an_http_error_too(threaded: Served) -> None:
    problem = Problem(code="x", message="no key", kind="auth")

    def act(run_id: str, _: Any) -> None:
        threaded.service.emit(run_id, RunFailed, error=problem)

    threaded.service.on_admit = act
    body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    answer = requests.post(f"{threaded.url}/v1/chat/completions", json=body, timeout=10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_auth")


def test_a_request_that_does_not_come_from_waitress_is_served_by_a_thread(site: Site) -> None:
    run_id = site.run()
    site.service.answer(run_id, "hi")
    answer = site.get(f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
    assert answer.text.count("id: ") == 5


def test_a_client_that_goes_before_its_refusal_is_written_is_no_fault() -> None:
    class Gone:
        server = SimpleNamespace(adj=SimpleNamespace(ident="deedbox", log_socket_errors=False))

        def write_soon(self, data: bytes) -> int:
            raise ClientDisconnected

    class Unreadable:
        version, headers, error = "1.1", dict[str, str](), BadRequest("a line is none")

    unreadable = Unreadable()
    with pytest.raises(ClientDisconnected):
        takeover.ProblemTask(Gone(), unreadable).service()
    assert getattr(unreadable, "path", None) == "", "waitress names it in its log when it lets go"
