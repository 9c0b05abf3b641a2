"""Cancelling an exchange from another thread, in every phase, with and without TLS."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors.ports import Exchange, ModelCall
from gateways.clock import SystemClock
from gateways.provider.settings import Endpoint, Timeouts
from gateways.provider.transport import ProviderTransport
from tests.fakes.certificate import Certificate
from tests.fakes.provider import FakeProvider, Silence, says
from tests.fakes.provider.server import nobody_accepts

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
STREAM = ModelCall("fake", "/chat/completions", BODY, stream=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["http", "https"])
def fake(request: pytest.FixtureRequest, certificate: Certificate) -> Iterator[FakeProvider]:
    with FakeProvider(tls=certificate.server() if request.param == "https" else None) as provider:
        yield provider


def transport_to(url: str, ca_file: Path | None = None, **seconds: float) -> ProviderTransport:
    endpoint = Endpoint("fake", url, ca_file=str(ca_file) if ca_file else None, timeouts=Timeouts(**seconds))
    return ProviderTransport({"fake": endpoint}.get, SystemClock())


def cancelled_while(
    exchange: Exchange, work: Callable[[], Any], ready: Callable[[], object] = lambda: True
) -> tuple[Any, float]:
    """Once it is `ready`, cancel from another thread while `work` blocks; return its result and how long that took."""
    at: list[float] = []

    def cut() -> None:
        ready()
        time.sleep(0.05)
        at.append(time.monotonic())
        exchange.cancel()

    thread = threading.Thread(target=cut)
    thread.start()
    result = work()
    took = time.monotonic() - at[0] if at else -1.0
    thread.join()
    return result, took


def test_while_waiting_for_the_head(fake: FakeProvider, certificate: Certificate) -> None:
    fake.then(Silence())
    with closing(transport_to(fake.url, certificate.file)) as transport:
        exchange = transport.exchange(STREAM)
        head, took = cancelled_while(exchange, exchange.open, lambda: fake.wait_requests(1))
    assert head["error"]["code"] == "cancelled"
    assert 0 <= took < 0.5
    assert fake.wait_disconnected()


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_while_a_stream_is_silent(fake: FakeProvider, certificate: Certificate, framing: str) -> None:
    fake.then(says("one two three", stall_after=2, framing=framing))
    with closing(transport_to(fake.url, certificate.file)) as transport:
        exchange = transport.exchange(STREAM)
        assert exchange.open()["stream"] is True
        assert exchange.read().raw
        last, took = cancelled_while(exchange, lambda: next(batch for _ in range(3) if (batch := exchange.read()).done))
    assert last.error["code"] == "cancelled"
    assert 0 <= took < 0.5
    assert fake.wait_disconnected()


def test_while_a_body_is_read(fake: FakeProvider, certificate: Certificate) -> None:
    fake.then(says("one", stall_after=0))
    whole = ModelCall("fake", "/chat/completions", BODY | {"stream": False}, stream=False)
    with closing(transport_to(fake.url, certificate.file)) as transport:
        exchange = transport.exchange(whole)
        head, took = cancelled_while(exchange, exchange.open, lambda: fake.wait_requests(1))
    assert (head["error"]["code"], took < 0.5) == ("cancelled", True)
    assert fake.wait_disconnected()


def test_while_connecting() -> None:
    with nobody_accepts() as url, closing(transport_to(url)) as transport:
        exchange = transport.exchange(STREAM)
        head, took = cancelled_while(exchange, exchange.open)
    assert (head["error"]["code"], took < 0.5) == ("cancelled", True)


def test_in_the_tls_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}/v1"
        with closing(transport_to(url)) as transport:
            exchange = transport.exchange(STREAM)
            accepted: list[socket.socket] = []
            head, took = cancelled_while(exchange, exchange.open, lambda: accepted.append(mute.accept()[0]))
            accepted[0].close()
    assert (head["error"]["code"], took < 0.5) == ("cancelled", True)


def test_while_the_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        answered.wait(5)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    endpoint = Endpoint("fake", "https://slow.example/v1", auth="none")
    with closing(ProviderTransport({"fake": endpoint}.get, SystemClock())) as transport:
        exchange = transport.exchange(STREAM)
        head, took = cancelled_while(exchange, exchange.open)
    answered.set()
    assert (head["error"]["code"], took < 0.5) == ("cancelled", True)


def test_before_it_is_opened_nothing_is_sent(fake: FakeProvider, certificate: Certificate) -> None:
    with closing(transport_to(fake.url, certificate.file)) as transport:
        exchange = transport.exchange(STREAM)
        exchange.cancel()
        assert exchange.open()["error"]["code"] == "cancelled"
    assert fake.requests == []


def test_after_the_end_it_does_not_touch_the_connections_next_user(fake: FakeProvider, certificate: Certificate) -> None:
    fake.then(says("first"), says("one two three four", pace=0.03))
    with closing(transport_to(fake.url, certificate.file)) as transport:
        first = transport.exchange(STREAM)
        first.open()
        while not first.read().done:
            pass
        second = transport.exchange(STREAM)
        assert second.open()["stream"] is True
        first.cancel()
        while not (batch := second.read()).done:
            pass
    assert batch.error is None
    assert fake.connections == 1


def test_the_transport_goes_on_after_a_cancel(fake: FakeProvider, certificate: Certificate) -> None:
    fake.then(Silence(), says("back again"))
    with closing(transport_to(fake.url, certificate.file)) as transport:
        exchange = transport.exchange(STREAM)
        cancelled_while(exchange, exchange.open, lambda: fake.wait_requests(1))
        again = transport.exchange(STREAM)
        assert again.open()["ok"] is True
        while not (batch := again.read()).done:
            pass
    assert batch.error is None


def test_many_streams_are_cancelled_without_a_leak(fake: FakeProvider, certificate: Certificate) -> None:
    fake.always(says("on and on", endless=True, pace=0.01))
    with closing(transport_to(fake.url, certificate.file)) as transport:
        exchanges = [transport.exchange(STREAM) for _ in range(16)]
        for exchange in exchanges:
            exchange.open()
            exchange.read()
        for exchange in exchanges:
            exchange.cancel()
        assert fake.wait_disconnected(count=16)
        deadline = time.monotonic() + 5
        while any(t.name == "provider-stream" for t in threading.enumerate()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(t.name == "provider-stream" for t in threading.enumerate())


def test_a_certificate_that_nobody_vouches_for_is_a_tls_error(certificate: Certificate) -> None:
    with FakeProvider(tls=certificate.server()) as fake, closing(transport_to(fake.url)) as transport:
        head = transport.exchange(STREAM).open()
    assert head["error"]["code"] == "tls_error"
    assert "self-signed" in head["error"]["message"] or "verify" in head["error"]["message"]


def test_a_certificate_for_another_name_is_a_tls_error(certificate: Certificate) -> None:
    with FakeProvider(tls=certificate.server()) as fake:
        url = fake.url.replace("localhost", "other.localhost")
        with closing(transport_to(url, certificate.file)) as transport:
            assert transport.exchange(STREAM).open()["error"]["code"] == "tls_error"


def test_plain_http_where_tls_is_spoken_is_no_crash(certificate: Certificate) -> None:
    with (
        FakeProvider(tls=certificate.server()) as fake,
        closing(transport_to(fake.url.replace("https", "http"))) as transport,
    ):
        assert transport.exchange(STREAM).open()["ok"] is False


def test_tls_where_plain_http_is_spoken_is_a_tls_error() -> None:
    with FakeProvider() as fake, closing(transport_to(fake.url.replace("http", "https"))) as transport:
        assert transport.exchange(STREAM).open()["error"]["code"] == "tls_error"
