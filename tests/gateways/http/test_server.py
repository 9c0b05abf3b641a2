"""The server's life: a port in use, start, stop with requests under way, and nothing left behind."""

import errno
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests

from eventstore.catalogue import ModelDelta
from gateways.errors import AddressInUse, cannot_listen
from gateways.http.server import HttpServer
from tests.gateways.http.conftest import Served, World
from tests.gateways.http.test_streams import within

CHAT = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}


def test_a_port_in_use_is_said_before_anything_starts(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = replace(world.ports, settings=replace(world.ports.settings, address=("127.0.0.1", port)))
        with pytest.raises(AddressInUse, match=rf"127\.0\.0\.1:{port}.*server\.address"):
            HttpServer(ports)


def test_an_address_of_another_machine_is_said(world: World) -> None:
    ports = replace(world.ports, settings=replace(world.ports.settings, address=("192.0.2.1", 80)))
    with pytest.raises(AddressInUse, match=r"set server\.address to an address of this machine"):
        HttpServer(ports)


def test_who_may_not_listen_on_a_port_is_not_told_to_stop_a_program_there() -> None:
    said = cannot_listen("127.0.0.1", 80, PermissionError(errno.EACCES, "Permission denied"))
    assert said.startswith("127.0.0.1:80 cannot be listened on (Permission denied): set server.address to a port from 1024")
    assert "stop" not in said


def test_a_server_that_was_never_started_can_be_stopped(world: World) -> None:
    server = HttpServer(world.ports)
    server.stop()
    server.stop()


def test_after_a_stop_the_port_is_free_and_no_thread_is_left(make_served: Callable[..., Served]) -> None:
    before = set(threading.enumerate())
    served = make_served()
    address = served.server.address
    requests.get(f"{served.url}/health", timeout=5)
    assert served.server.alive
    served.server.stop()
    assert not served.server.alive
    assert within(2, lambda: set(threading.enumerate()) <= before)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(address)


def test_a_completion_that_waits_at_shutdown_is_told_and_its_run_stays(served: Served) -> None:
    answers: list[requests.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(requests.post(f"{served.url}/v1/chat/completions", json=CHAT, timeout=10))
    )
    waiting.start()
    assert within(5, lambda: len(served.service.inbounds) == 1)
    began = time.monotonic()
    served.server.stop()
    waiting.join(5)
    assert time.monotonic() - began < 3
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "shutting_down")
    assert served.service.cancelled == []


def test_a_streamed_completion_at_shutdown_ends_with_an_error_and_not_as_a_short_answer(served: Served) -> None:
    def act(run_id: str, _: Any) -> None:
        served.service.start(run_id)
        served.service.emit(run_id, ModelDelta, attempt=1, text="Hel")

    served.service.on_admit = act
    with requests.post(f"{served.url}/v1/chat/completions", json=CHAT | {"stream": True}, stream=True, timeout=10) as answer:
        served.server.stop()
        assert b'"code":"shutting_down"' in answer.content
        assert b"[DONE]" not in answer.content
