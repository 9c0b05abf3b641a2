"""The OpenAI route beside the SDK: its places, its clients that leave, its keys, and when the head goes out."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from actors.errors import Refused
from eventstore.catalogue import ModelDelta, ModelDiscarded
from eventstore.errors import StoreBusy, StoreError
from tests.gateways.http.conftest import Reader, Served, Site
from tests.gateways.http.test_streams import within

CHAT: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


def ask(served: Served, **more: Any) -> Reader:
    """Send a completion over a raw socket."""
    body = json.dumps(CHAT | more).encode()
    sock = served.connect()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sock.sendall(head.encode() + body)
    return Reader(sock)


def admitted(served: Served) -> str:
    """Wait for the one run that was admitted."""
    assert within(5, lambda: len(served.service.inbounds) == 1)
    return next(iter(served.service.inbounds))


def test_waiting_completions_leave_workers_for_short_requests(make_served: Callable[..., Served]) -> None:
    served = make_served(threads=10)
    waiting = [ask(served) for _ in range(2)]
    assert within(5, lambda: len(served.service.inbounds) == 2)
    refused = requests.post(f"{served.url}{PATH}", json=CHAT, timeout=10)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "waiting_full")
    assert refused.headers["Retry-After"] == "5"
    assert len(served.service.inbounds) == 2
    assert requests.get(f"{served.url}/health", timeout=5).status_code == 200
    for run_id in served.service.inbounds:
        served.service.answer(run_id, "hi")
    for reader in waiting:
        assert reader.head().startswith("HTTP/1.1 200")
    assert within(2, lambda: served.server.gateway.workers.taken == 0)


@pytest.mark.parametrize(
    ("error", "key", "told"),
    [
        (StoreError("no answer"), {}, "false"),
        (StoreError("no answer"), {"Idempotency-Key": "k"}, None),
        (StoreBusy("full"), {}, None),
        (ValueError("unforeseen"), {}, "false"),
        (ValueError("unforeseen"), {"Idempotency-Key": "k"}, None),
    ],
)
def test_a_client_repeats_by_itself_only_what_cannot_be_done_twice(
    site: Site, error: Exception, key: dict[str, str], told: str | None
) -> None:
    site.service.refuse = error
    answer = site.post(PATH, CHAT, headers=key)
    assert answer.status_code >= 500
    assert answer.headers.get("x-should-retry") == told


@pytest.mark.parametrize(
    ("headers", "told"),
    [({}, None), ({"X-Session-Id": "s"}, "false"), ({"X-Session-Id": "s", "Idempotency-Key": "k"}, None)],
)
def test_who_waits_while_the_server_stops_is_told_whether_to_ask_again(
    site: Site, headers: dict[str, str], told: str | None
) -> None:
    site.gateway.feed.close()
    answer = site.post(PATH, CHAT, headers=headers)
    assert (answer.status_code, answer.json["error"]["code"]) == (503, "shutting_down")
    assert answer.headers.get("x-should-retry") == told


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "cancels"),
    [
        ({}, True),
        ({"metadata": {"session_id": "s"}}, False),
        ({"on_disconnect": "continue"}, False),
        ({"metadata": {"session_id": "s"}, "on_disconnect": "cancel"}, True),
    ],
)
def test_a_client_that_leaves_ends_a_run_without_a_session_and_no_other_unless_told(
    served: Served, more: dict[str, Any], *, cancels: bool, stream: bool
) -> None:
    reader = ask(served, stream=stream, **more)
    gateway = served.server.gateway
    run_id = admitted(served)
    assert within(5, lambda: gateway.hub.active + gateway.workers.taken == 1)
    reader.close()
    assert within(3, lambda: gateway.streams.taken + gateway.workers.taken == 0)
    assert served.service.cancelled == ([(run_id, "client_disconnect")] if cancels else [])


def test_a_client_that_stays_is_not_taken_for_one_that_left(served: Served) -> None:
    reader = ask(served)
    run_id = admitted(served)
    time.sleep(0.6)
    served.service.answer(run_id, "hi")
    assert reader.head().startswith("HTTP/1.1 200")
    assert served.service.cancelled == []


def test_a_stream_that_the_server_breaks_off_ends_its_run_by_the_same_rule(served: Served) -> None:
    reader = ask(served, stream=True)
    run_id = admitted(served)
    assert within(5, lambda: served.server.gateway.hub.active == 1)
    served.service.start(run_id)
    served.service.emit(run_id, ModelDelta, attempt=1, text="Hello")
    served.service.emit(run_id, ModelDiscarded, turn=1, attempt=1, reason="cut")
    served.service.emit(run_id, ModelDelta, attempt=2, text="Bye")
    assert b"attempt_discarded" in reader.rest()
    assert within(2, lambda: served.service.cancelled == [(run_id, "client_disconnect")])


def test_the_head_waits_for_the_first_event_but_not_for_ever(make_served: Callable[..., Served]) -> None:
    served = make_served(first_event_seconds=0.5)
    reader = ask(served, stream=True)
    assert reader.head().startswith("HTTP/1.1 200")
    assert '"role":"assistant"' in reader.block()
    assert reader.block() == ": ping"
    (run_id,) = served.service.inbounds
    served.service.answer(run_id, "hi")
    assert b"[DONE]" in reader.rest()


def test_the_head_of_a_stream_names_session_and_run(served: Served) -> None:
    served.service.on_admit = lambda run_id, _: served.service.answer(run_id, "hi")
    head = ask(served, stream=True).head()
    (run_id,) = served.service.inbounds
    assert f"X-Run-Id: {run_id}" in head
    assert "X-Session-Id: ses_" in head
    assert "X-Accel-Buffering: no" in head


def test_an_id_that_only_routes_requests_of_a_client_to_one_cache_names_no_session(served: Served) -> None:
    served.service.on_admit = lambda run_id, _: served.service.answer(run_id, "hi")
    asked = {"messages": [*CHAT["messages"], {"role": "assistant", "content": "yes"}, {"role": "user", "content": "so?"}]}
    headers = {"X-Session-Id": "theirs", "X-Session-Affinity": "theirs"}
    answer = requests.post(f"{served.url}{PATH}", json=CHAT | asked, headers=headers, timeout=10)
    assert answer.headers["X-Session-Id"] != "theirs"
    (inbound,) = served.service.inbounds.values()
    assert len(inbound.history) == 2


def test_a_repeat_with_the_same_key_gives_the_same_answer_streamed_or_not(served: Served) -> None:
    served.service.on_admit = lambda run_id, _: served.service.answer(run_id, "hi")
    key = {"Idempotency-Key": "k"}
    first, again = (requests.post(f"{served.url}{PATH}", json=CHAT, headers=key, timeout=10) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    other = requests.post(f"{served.url}{PATH}", json=CHAT | {"seed": 1}, headers={"Idempotency-Key": "k"}, timeout=10)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert other.headers["X-Should-Retry"] == "false"


def test_a_refusal_by_the_actors_gives_the_place_back(served: Served) -> None:
    served.service.refuse = Refused("overloaded", "busy", retry_after=3)
    for stream in (False, True):
        refused = requests.post(f"{served.url}{PATH}", json=CHAT | {"stream": stream}, timeout=10)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "3")
    assert served.server.gateway.streams.taken + served.server.gateway.workers.taken == 0


def test_an_answer_that_takes_too_long_is_said_with_the_runs_id(make_served: Callable[..., Served]) -> None:
    served = make_served(completion_seconds=0.1)
    late = requests.post(f"{served.url}{PATH}", json=CHAT, timeout=10)
    assert (late.status_code, late.json()["error"]["code"]) == (504, "completion_timeout")
    (run_id,) = served.service.inbounds
    assert run_id in late.json()["error"]["message"]
    assert served.service.cancelled == [(run_id, "client_disconnect")], "nobody waits for it any more"


def test_an_answer_of_a_session_that_takes_too_long_goes_on(make_served: Callable[..., Served]) -> None:
    served = make_served(completion_seconds=0.1)
    late = requests.post(f"{served.url}{PATH}", json=CHAT, headers={"X-Session-Id": "s"}, timeout=10)
    assert (late.status_code, served.service.cancelled) == (504, [])


def test_a_cancelled_run_is_an_error_and_not_an_empty_answer(served: Served) -> None:
    answers: list[requests.Response] = []
    asking = threading.Thread(target=lambda: answers.append(requests.post(f"{served.url}{PATH}", json=CHAT, timeout=10)))
    asking.start()
    run_id = admitted(served)
    served.service.cancel("local", run_id, "requested")
    asking.join(10)
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (409, "run_cancelled")


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"{", "invalid_json"), (b"{}", "missing_field"), (b'{"model": "m", "messages": []}', "invalid_message")],
)
def test_bad_requests_get_openais_error_shape(site: Site, raw: bytes, code: str) -> None:
    answer = site.call("POST", PATH, body=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert (answer.json["error"]["code"], answer.json["error"]["type"]) == (code, "invalid_request_error")


def test_ten_thousand_messages_are_refused_by_name(site: Site) -> None:
    answer = site.post(PATH, CHAT | {"messages": CHAT["messages"] * 10_000})
    assert answer.json["error"]["code"] == "too_many_messages"
    assert "2000" in answer.json["error"]["message"]
