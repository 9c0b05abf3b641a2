"""What a run comes to when the provider fails: one end, a stable code, and a session that still works."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.provider import (
    Exactly,
    FakeProvider,
    HangUp,
    Silence,
    Status,
    Wire,
    calls,
    nobody_listens,
    says,
)
from tests.service.served import HELLO, Served, said, serving, whole

ONCE = {"max_retries": 0}
SETTINGS = """
[providers.nobody]
base_url = "{nobody}"
models = ["m"]
[profiles.hurried]
limits = {{max_turns = 5}}
"""
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    waits = {"FIRST_BYTE_TIMEOUT_S": "0.4", "IDLE_TIMEOUT_S": "0.4", "TOTAL_TIMEOUT_S": "3"}
    environ = {f"DEEDBOX_PROVIDERS__CUSTOM__{name}": value for name, value in waits.items()}
    settings = SETTINGS.format(nobody=nobody_listens())
    with serving(tmp_path_factory.mktemp("served"), settings=settings, **environ) as it:
        yield it


@pytest.fixture(autouse=True)
def provider(served: Served) -> FakeProvider:
    return served.provider.clear()


def sse(*deltas: str, end: str = "") -> bytes:
    """Return the bytes of a stream whose deltas are JSON texts."""
    head = json.dumps(CHUNK)[:-1]
    return (
        "".join(
            f'data: {head}, "choices": [{{"index": 0, "delta": {delta}, "finish_reason": null}}]}}\n\n' for delta in deltas
        ).encode()
        + end.encode()
    )


HALF = '{"content": "half a "}'


@pytest.mark.parametrize(
    ("step", "code"),
    [
        # nothing
        (Silence(), "provider_timeout"),
        (HangUp(), "provider_network_error"),
        (HangUp(reset=True), "provider_network_error"),
        (Exactly(b""), "provider_network_error"),
        (Exactly(b"", content_type="application/json"), "provider_protocol"),
        (says("x", comments_only=True), "provider_timeout"),
        # garbage
        (Wire(b"I am no HTTP server\r\n\r\n"), "provider_network_error"),
        (Wire(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n"), "provider_network_error"),
        (Exactly(b"<html>It works!</html>", content_type="text/html"), "provider_protocol"),
        (Exactly(b"data: {not json}\n\ndata: [DONE]\n\n"), "provider_protocol"),
        (Exactly(b"data: 5\n\ndata: []\n\ndata: [DONE]\n\n"), "provider_protocol"),
        (Exactly(b'data: {"choices": "no"}\n\ndata: {"choices": [{"delta": 7}]}\n\n'), "provider_network_error"),
        (Exactly(b'{"choices": []}', content_type="application/json"), "provider_protocol"),
        # half
        (says("one two three", cut_after=700), "provider_network_error"),
        (says("one two three", cut_after=700, reset=True), "provider_network_error"),
        (says("one two three", stall_after=2), "provider_timeout"),
        (Exactly(sse(HALF)), "provider_network_error"),
        (Exactly(sse(HALF, end='data: {"choi')), "provider_network_error"),
        (calls("weather", '{"city": "Os', no_end=True, cut_after=600), "provider_network_error"),
        # too much
        (Exactly(b"data: " + b"x" * 1_000_000), "provider_network_error"),
        (Exactly(b"data: " + b"x" * 20_000_000), "provider_protocol"),
        # refusals
        (Status(404, "The model does not exist."), "provider_refused"),
        (Status(402, "Pay your bill first."), "provider_quota"),
        (Exactly(b"", status=302, headers={"Location": "http://127.0.0.1:1/v1"}), "refused_url"),
        (Exactly(b"\xff\xfe\x00 no text", status=500, content_type="text/html"), "provider_server_error"),
    ],
)  # fmt: skip
def test_a_fault_ends_the_run_with_its_code_and_the_session_works_on(served: Served, step: Any, code: str) -> None:
    served.provider.then(step)
    run = served.turn("hi", limits=ONCE)
    events = served.events(run["run_id"])
    assert whole(events)
    assert (run["status"], run["error"]["code"]) == ("failed", code), run["error"]
    assert len(run["error"]["message"]) > 10
    assert [event["type"] for event in events][-2:] == ["model.discarded", "run.failed"]
    again = served.turn("again", session_id=run["session_id"])
    assert (again["status"], again["output"]["content"][0]["text"]) == ("completed", HELLO)
    assert served.asked_of_the_model()[0] == ("user", "hi")
    assert served.asked_of_the_model()[-1] == ("user", "again")


def test_a_provider_that_cannot_be_reached_is_told_with_its_name(served: Served) -> None:
    run = served.turn("hi", provider="nobody", model="m", limits=ONCE)
    assert (run["status"], run["error"]["code"]) == ("failed", "provider_network_error")
    assert "nobody" in run["error"]["message"] or "refused" in run["error"]["message"].lower()
    again = served.turn("again", session_id=run["session_id"], provider="custom", model="fake-model")
    assert again["status"] == "completed"


@pytest.mark.parametrize(
    "step",
    [
        HangUp(),
        says("one two three", cut_after=700),
        Exactly(b"data: {not json}\n\n"),
        says("one two three", stall_after=2),
        Status(500),
    ],
)
def test_a_fault_that_passes_is_retried_and_the_answer_is_whole(served: Served, step: Any) -> None:
    served.provider.then(step, says("one two three"))
    run = served.turn()
    assert (run["status"], run["output"]["content"][0]["text"]) == ("completed", "one two three")
    events = served.events(run["run_id"])
    assert (whole(events), said(events)) == (True, "one two three")
    assert [event["type"] for event in events].count("model.discarded") == 1


def test_lines_that_are_no_fields_do_not_harm_a_stream(served: Served) -> None:
    served.provider.then(says("one two three", garbage_after=1))
    assert served.turn()["output"]["content"][0]["text"] == "one two three"


def test_a_line_of_a_megabyte_is_one_delta(served: Served) -> None:
    served.provider.then(Exactly(sse(json.dumps({"content": "x" * 1_000_000}), end=END)))
    run = served.turn()
    assert run["status"] == "completed", run["error"]
    assert run["output"]["content"][0]["text"] == "x" * 1_000_000
    assert said(served.events(run["run_id"])) == "x" * 1_000_000
    assert served.turn("again", session_id=run["session_id"])["status"] == "completed"


END = f"data: {json.dumps(CHUNK | {'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]})}\n\ndata: [DONE]\n\n"


def test_lone_surrogates_and_nul_in_an_answer_harm_nobody(served: Served) -> None:
    served.provider.then(
        Exactly(sse(r'{"content": "a\ud835b\u0000c"}', r'{"content": "\ud83d"}', r'{"content": "\ude42"}', end=END))
    )
    run = served.turn()
    assert run["status"] == "completed", run["error"]
    text = run["output"]["content"][0]["text"]
    assert (text[0], "b" in text, "\ud835" in text) == ("a", True, False)
    assert served.turn("again", session_id=run["session_id"])["status"] == "completed"


def test_arguments_that_are_no_json_go_back_to_the_model_as_a_failed_call(served: Served) -> None:
    served.provider.then(calls("weather", '{"city": "Os'), says("I was wrong."))
    run = served.turn()
    assert (run["status"], run["output"]["content"][0]["text"]) == ("completed", "I was wrong.")
    assert whole(served.events(run["run_id"]))
    assert served.turn("again", session_id=run["session_id"])["status"] == "completed"


def test_an_answer_without_end_is_cut_by_a_limit_that_is_named(served: Served) -> None:
    served.provider.then(says("word", endless=True, pace=0.002))
    run = served.turn(limits=ONCE | {"max_events": 60})
    assert (run["status"], run["error"]["code"]) == ("failed", "limit_events")
    assert whole(served.events(run["run_id"]))
    assert served.turn("again", session_id=run["session_id"])["status"] == "completed"


def test_a_model_that_never_stops_calling_tools_is_stopped_by_the_limit_of_turns(served: Served) -> None:
    served.provider.then(*[calls("missing", {}) for _ in range(5)])
    run = served.turn(profile="hurried")
    assert (run["status"], run["error"]["code"]) == ("failed", "max_turns")
    assert served.turn("again", session_id=run["session_id"])["status"] == "completed"
