"""The class of a failure, and when it is tried again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.adapter import ScriptAdapter, script_names

NAMES = script_names()
CHAT = ScriptAdapter("chat")
NOW = 1_445_412_480_000_000  # Wed, 21 Oct 2015 07:28:00 GMT


def error(kind: str, code: str = "", **more: Any) -> dict[str, Any]:
    value: dict[str, Any] = NAMES["provider_error"](kind, code, "it failed", more)
    return value


def delay(failure: dict[str, Any], tries: dict[str, int] | None = None, most: int = 100, word: str = "id") -> int | None:
    value: int | None = NAMES["retry_delay"](failure, tries or {}, most, NOW, word)
    return value


@pytest.mark.parametrize(
    ("kind", "retries"), [("rate", 20), ("network", 5), ("server", 5), ("overload", 5), ("timeout", 4), ("protocol", 3)]
)
def test_each_class_has_its_own_number_of_retries(kind: str, retries: int) -> None:
    assert delay(error(kind), {kind: retries - 1}) is not None
    assert delay(error(kind), {kind: retries}) is None


@pytest.mark.parametrize("kind", ["overflow", "auth", "quota", "client", "other"])
def test_what_will_not_get_better_is_not_tried_again(kind: str) -> None:
    assert delay(error(kind)) is None


@pytest.mark.parametrize(
    ("kind", "first", "cap"),
    [("rate", 1000, 30_000), ("network", 500, 8_000), ("server", 1000, 15_000), ("timeout", 1000, 10_000)],
)
@given(done=st.integers(0, 3), word=st.text(max_size=20))
def test_the_wait_doubles_up_to_its_cap_with_at_most_a_quarter_of_jitter(
    kind: str, first: int, cap: int, done: int, word: str
) -> None:
    wait = delay(error(kind), {kind: done}, word=word)
    plain = min(cap, first * 2**done)
    assert wait is not None
    assert plain <= wait <= plain * 5 // 4


def test_the_same_draw_gives_the_same_wait_and_others_differ() -> None:
    waits = [delay(error("rate"), word=f"id_{number}") for number in range(50)]
    assert waits == [delay(error("rate"), word=f"id_{number}") for number in range(50)]
    assert len(set(waits)) > 20


def test_all_retries_together_are_capped_and_a_crash_costs_neither_time_nor_one_of_them() -> None:
    assert delay(error("rate"), {"server": 1, "rate": 1}, most=2) is None
    assert delay(error("rate"), {"interrupted": 5, "rate": 1}, most=2) is not None
    interrupted = NAMES["retry_transport_error"]({"code": "interrupted", "message": "the server stopped"})
    assert delay(interrupted, {"rate": 2}, most=2) == 0
    assert delay(interrupted, {"interrupted": 5}) is None


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7_000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 250),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:05 GMT"}, 5_000),
        ({"retry-after": "Wednesday, 21-Oct-2015 07:28:05 GMT"}, 5_000),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0),
        ({"retry-after": "3600"}, 60_000),
        ({"retry-after": "Thu, 22 Oct 2015 07:28:05 GMT"}, 60_000),
    ],
)
def test_what_the_provider_asks_for_wins_and_nothing_waits_over_a_minute(headers: dict[str, str], wait: int) -> None:
    assert delay(CHAT.error(429, headers, "")) == wait


@pytest.mark.parametrize("told", ["soon", "-3", "nan", "1e99", "Wed, 21 Foo 2015 07:28:00 GMT", "21 Oct"])
def test_a_senseless_retry_after_is_ignored(told: str) -> None:
    failure = CHAT.error(429, {"retry-after": told}, "")
    assert (failure["retry_after_ms"], failure["retry_at"]) == (None, None)


def test_a_wait_in_the_body_is_read() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = json.dumps([{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [info]}}])
    assert delay(CHAT.error(429, {}, body)) == 34_000


@given(st.integers(0, 4_000_000_000))
def test_dates_are_read_right(seconds: int) -> None:
    from datetime import UTC, datetime  # noqa: PLC0415 - only this test knows a calendar

    text = datetime.fromtimestamp(seconds, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert NAMES["retry_date"](text) == seconds * 1_000_000


@pytest.mark.parametrize(
    ("code", "kind"),
    [("network_error", "network"), ("dns_error", "network"), ("timeout_idle", "timeout"), ("missing_secret", "auth"),
     ("refused_url", "client"), ("line_too_long", "protocol"), ("interrupted", "network"), ("cancelled", "other")],
)  # fmt: skip
def test_what_the_transport_says_has_a_class(code: str, kind: str) -> None:
    assert NAMES["retry_transport_error"]({"code": code, "message": "m"})["kind"] == kind


def test_a_problem_keeps_the_codes_that_tell_what_to_do_and_hides_the_vendors() -> None:
    problem = NAMES["retry_problem"]
    assert problem(error("auth", "missing_secret"))["code"] == "missing_secret"
    assert problem(error("overflow", "context_length_exceeded"))["code"] == "context_overflow"
    assert problem(error("server", "weird_vendor_code", status=500)) == {
        "code": "provider_server_error", "message": "it failed", "kind": "server", "status": 500,
    }  # fmt: skip


def test_the_request_id_is_kept_for_the_providers_support() -> None:
    assert CHAT.error(500, {"x-request-id": "req_1"}, "")["request_id"] == "req_1"


def test_a_demand_for_money_is_never_repeated_whatever_code_stands_beside_it() -> None:
    body = json.dumps({"type": "error", "error": {"type": "api_error", "message": "your credit balance is too low"}})
    assert CHAT.error(402, {}, body)["kind"] == "quota"


FIELDS = st.sampled_from(["error", "message", "code", "type", "status", "details", "choices", "delta", "tool_calls"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
)


@given(st.integers(400, 599), st.one_of(st.text(max_size=40), VALUES.map(json.dumps)), st.text(max_size=12))
def test_no_error_answer_makes_the_adapter_raise(status: int, body: str, retry_after: str) -> None:
    failure = CHAT.error(status, {"retry-after": retry_after}, body)
    assert failure["kind"] in NAMES["RUN_CODE_OF_KIND"]
    assert failure["message"]


@given(st.lists(st.one_of(st.text(max_size=30), VALUES.map(json.dumps)), max_size=5))
def test_no_stream_makes_the_adapter_raise(events: list[str]) -> None:
    state = CHAT.begin()
    for data in events:
        CHAT.feed(state, {"event": "message", "data": data})
    assert CHAT.end(state)["ok"] in (True, False)
    assert CHAT.decode(events[0] if events else "")["ok"] in (True, False)
