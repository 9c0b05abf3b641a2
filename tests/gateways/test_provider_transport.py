"""Exchanges with a provider over real connections: what comes back, whatever the provider does."""

import email.utils
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.ports import ModelCall, StreamBatch
from actors.sse import events_of
from gateways.clock import SystemClock
from gateways.provider.settings import Endpoint, Timeouts
from gateways.provider.transport import ProviderTransport
from tests.fakes.provider import (
    Answer,
    Exactly,
    FakeProvider,
    HangUp,
    Silence,
    Status,
    Text,
    Wire,
    nobody_listens,
    says,
)
from tests.fakes.provider.server import nobody_accepts

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STREAM = ModelCall("fake", "/chat/completions", BODY | {"stream": True}, stream=True)
WHOLE = ModelCall("fake", "/chat/completions", BODY, stream=False)
Make = Callable[..., ProviderTransport]


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def transport_to() -> Iterator[Make]:
    made: list[ProviderTransport] = []

    def make(url: str, **settings: Any) -> ProviderTransport:
        seconds = settings.pop("seconds", {})
        endpoint = Endpoint("fake", url, timeouts=Timeouts(**seconds), **settings)
        made.append(ProviderTransport({"fake": endpoint}.get, SystemClock()))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def everything(transport: ProviderTransport, call: ModelCall = STREAM) -> tuple[dict[str, Any], list[StreamBatch]]:
    exchange = transport.exchange(call)
    head = exchange.open()
    batches: list[StreamBatch] = []
    while head.get("stream") and (not batches or not batches[-1].done):
        batches.append(exchange.read())
    return head, batches


def texts(batches: list[StreamBatch]) -> str:
    data = [event["data"] for batch in batches for event in events_of(batch.raw)]
    return "".join(piece.partition('"content":"')[2].partition('"')[0] for piece in data)


def error_of(batches: list[StreamBatch]) -> str | None:
    return batches[-1].error["code"] if batches[-1].error else None


def test_a_whole_answer_comes_with_status_body_and_the_headers_that_matter(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(Answer((Text("Hi"),), headers={"X-RateLimit-Remaining": "9", "Set-Cookie": "a=b", "Server": "x"}))
    head, _ = everything(transport_to(fake.url), WHOLE)
    assert (head["ok"], head["status"]) == (True, 200)
    assert '"content": "Hi"' in head["body"]
    names = {"content-type", "x-request-id", "x-ratelimit-remaining"}
    assert set(head["headers"]) == names


def test_a_stream_comes_in_batches_cut_at_whole_events(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("one two three", pace=0.015))
    head, batches = everything(transport_to(fake.url))
    assert head["stream"] is True
    assert texts(batches) == "one two three"
    assert len(batches) >= 2
    assert all(batch.raw.endswith(b"\n\n") for batch in batches if batch.raw)
    assert (batches[-1].done, batches[-1].error) == (True, None)


@pytest.mark.parametrize(
    "faults",
    [
        {"write_size": 1},
        {"write_size": 7, "line_end": "\r\n", "comments": 2},
        {"write_size": 5, "line_end": "\r", "bom": True},
        {"framing": "close"},
        {"framing": "length", "write_size": 100},
        {"gzip": True},
    ],
)
def test_however_a_stream_is_written_it_reads_the_same(
    fake: FakeProvider, transport_to: Make, faults: dict[str, Any]
) -> None:
    fake.then(says("Grüße an 😀 und \u2028 dich", **faults))
    _, batches = everything(transport_to(fake.url))
    assert (texts(batches), error_of(batches)) == ("Grüße an 😀 und \u2028 dich", None)


def test_a_line_of_a_megabyte_is_no_problem(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(Answer((Text("x" * (1 << 20)),), piece=0))
    _, batches = everything(transport_to(fake.url))
    assert len(texts(batches)) == 1 << 20


def test_an_endless_line_ends_with_an_error_and_keeps_what_came_before(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(Exactly(b"data: first\n\ndata: " + b"x" * (9 << 20)))
    _, batches = everything(transport_to(fake.url))
    assert error_of(batches) == "line_too_long"
    assert [event["data"] for batch in batches for event in events_of(batch.raw)] == ["first"]


def test_an_endless_stream_ends_at_the_limit(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("and so on", endless=True))
    _, batches = everything(transport_to(fake.url, max_response_bytes=100_000))
    assert error_of(batches) == "response_too_large"
    assert fake.wait_disconnected()


def test_a_body_over_the_limit_is_refused(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("x" * 5000))
    head, _ = everything(transport_to(fake.url, max_response_bytes=4000), WHOLE)
    assert head["error"]["code"] == "response_too_large"


@pytest.mark.parametrize("reset", [False, True])
def test_a_stream_that_is_cut_keeps_what_came_and_says_so(fake: FakeProvider, transport_to: Make, reset: bool) -> None:
    fake.then(says("one two three four", cut_after=700, pace=0.01, reset=reset))
    _, batches = everything(transport_to(fake.url))
    assert error_of(batches) == "network_error"
    assert texts(batches).startswith("one")


def test_a_clean_end_without_the_end_marker_is_for_the_policy_to_judge(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("one two", no_end=True))
    _, batches = everything(transport_to(fake.url))
    assert (texts(batches), error_of(batches)) == ("one two", None)
    assert b"[DONE]" not in b"".join(batch.raw for batch in batches)


def test_garbage_in_a_stream_is_no_crash(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("one two", garbage_after=2))
    _, batches = everything(transport_to(fake.url))
    assert (texts(batches), error_of(batches)) == ("one two", None)


def test_an_error_inside_a_stream_reaches_the_policy(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("one two", error_after=2))
    _, batches = everything(transport_to(fake.url))
    assert b"overloaded" in b"".join(batch.raw for batch in batches)


@pytest.mark.parametrize(
    ("status", "name", "value"),
    [
        (Status(429, retry_after="7"), "retry-after", "7"),
        (
            Status(503, retry_after=email.utils.formatdate(1_800_000_000, usegmt=True)),
            "retry-after",
            "Fri, 15 Jan 2027 08:00:00 GMT",
        ),
        (Status(429, retry_after_ms=1500), "retry-after-ms", "1500"),
    ],
)
def test_an_http_error_is_an_answer_with_its_headers(
    fake: FakeProvider, transport_to: Make, status: Status, name: str, value: str
) -> None:
    fake.then(status)
    head, _ = everything(transport_to(fake.url))
    assert (head["ok"], head["status"], head["headers"][name]) == (True, status.code, value)
    assert "something went wrong" in head["body"]


def test_of_an_error_page_at_most_a_megabyte_is_read(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(Exactly(b"x" * (3 << 20), status=500, content_type="text/html"))
    head, _ = everything(transport_to(fake.url))
    assert (head["status"], len(head["body"])) == (500, 1 << 20)


def test_json_in_place_of_a_stream_comes_as_a_body(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("Hi", json_although_stream=True))
    head, _ = everything(transport_to(fake.url))
    assert "stream" not in head
    assert '"content": "Hi"' in head["body"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (HangUp(), "without an answer"),
        (HangUp(reset=True), "reset"),
        (Wire(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "could not be read"),
        (Wire(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort"), "too early"),
    ],
)
def test_no_proper_answer_is_a_network_error(fake: FakeProvider, transport_to: Make, step: Any, said: str) -> None:
    fake.then(step)
    head, _ = everything(transport_to(fake.url), WHOLE)
    assert head["error"]["code"] == "network_error"
    assert said in head["error"]["message"]


def test_a_refused_connection_is_told_apart(transport_to: Make) -> None:
    head, _ = everything(transport_to(nobody_listens()))
    assert head["error"]["code"] == "network_error"
    assert "nothing listens there" in head["error"]["message"]


def test_a_name_that_does_not_exist_is_told_apart(transport_to: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    head, _ = everything(transport_to("https://no-such-host.invalid/v1", auth="none"))
    assert head["error"]["code"] == "dns_error"
    assert "no-such-host.invalid" in head["error"]["message"]


def test_an_unknown_provider_is_an_outcome(transport_to: Make) -> None:
    head, batches = everything(transport_to(nobody_listens()), ModelCall("other", "/x", None, stream=False))
    assert (head["ok"], head["error"]["code"], batches) == (False, "unknown_provider", [])


def test_a_request_that_is_too_large_or_no_json_is_not_sent(fake: FakeProvider, transport_to: Make) -> None:
    transport = transport_to(fake.url, max_request_bytes=1000)
    for body, code in ((BODY | {"x": "y" * 1000}, "request_too_large"), ({"x": float("nan")}, "invalid_request")):
        head, _ = everything(transport, ModelCall("fake", "/chat/completions", body, stream=False))
        assert head["error"]["code"] == code
    assert fake.requests == []


def test_lone_surrogates_do_not_break_a_request(fake: FakeProvider, transport_to: Make) -> None:
    body = BODY | {"messages": [{"role": "user", "content": "a\ud835b\x00 😀"}]}
    head, _ = everything(transport_to(fake.url), ModelCall("fake", "/chat/completions", body, stream=False))
    assert head["status"] == 200
    assert fake.requests[0].body["messages"][0]["content"] == "a?b\x00 😀"


def test_complete_answers_reuse_one_connection(fake: FakeProvider, transport_to: Make) -> None:
    transport = transport_to(fake.url)
    for call in (STREAM, WHOLE) * 5:
        everything(transport, call)
    assert (len(fake.requests), fake.connections) == (10, 1)


def test_a_connection_that_the_provider_closed_meanwhile_is_replaced(fake: FakeProvider, transport_to: Make) -> None:
    transport = transport_to(fake.url)
    everything(transport, WHOLE)
    fake.drop_idle()
    time.sleep(0.05)
    assert everything(transport, WHOLE)[0]["status"] == 200


def test_the_first_batch_comes_at_once_and_the_first_byte_is_told(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("one two", stall_after=1))
    told = threading.Event()
    exchange = transport_to(fake.url).exchange(STREAM, told.set)
    exchange.open()
    began = time.monotonic()
    batch = exchange.read()
    assert told.is_set()
    assert len(events_of(batch.raw)) == 1
    assert time.monotonic() - began < 0.5
    exchange.cancel()


@pytest.mark.parametrize("call", [STREAM, WHOLE])
def test_a_provider_that_never_answers_runs_into_the_first_byte_deadline(
    fake: FakeProvider, transport_to: Make, call: ModelCall
) -> None:
    fake.then(Silence())
    head, _ = everything(transport_to(fake.url, seconds={"first_byte": 0.1}), call)
    assert head["error"]["code"] == "timeout_first_byte"
    assert fake.wait_disconnected()


@pytest.mark.parametrize("faults", [{"stall_after": 2}, {"comments_only": True, "pace": 0.02}])
def test_silence_and_comments_run_into_the_idle_deadline(
    fake: FakeProvider, transport_to: Make, faults: dict[str, Any]
) -> None:
    fake.then(says("one two", **faults))
    _, batches = everything(transport_to(fake.url, seconds={"idle": 0.15}))
    assert error_of(batches) == "timeout_idle"
    assert fake.wait_disconnected()


def test_events_keep_a_stream_alive_until_the_total_deadline(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("go on", endless=True, pace=0.02))
    _, batches = everything(transport_to(fake.url, seconds={"idle": 0.6, "total": 1}))
    assert error_of(batches) == "timeout_total"
    assert len(batches) > 3


def test_a_body_that_stalls_runs_into_the_idle_deadline(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(says("Hi", stall_after=0))
    head, _ = everything(transport_to(fake.url, seconds={"idle": 0.1}), WHOLE)
    assert head["error"]["code"] == "timeout_idle"


def test_a_host_that_accepts_no_connection_runs_into_the_connect_deadline(transport_to: Make) -> None:
    with nobody_accepts() as url:
        head, _ = everything(transport_to(url, seconds={"connect": 0.2}))
    assert head["error"]["code"] == "network_error"


def test_a_reader_that_does_not_read_holds_the_provider_back_and_no_memory(fake: FakeProvider, transport_to: Make) -> None:
    fake.then(Answer((Text("x" * 3000 + " "),), faults=says("", endless=True).faults))
    exchange = transport_to(fake.url, seconds={"idle": 0.4}).exchange(STREAM)
    exchange.open()
    time.sleep(1)
    batch = exchange.read()
    assert 1 << 20 <= len(batch.raw) < 3 << 20
    assert batch.error is None
    time.sleep(0.2)  # it is full again
    exchange.cancel()
    assert fake.wait_disconnected()
    deadline = time.monotonic() + 5
    while (left := [t for t in threading.enumerate() if t.name == "provider-stream"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []
