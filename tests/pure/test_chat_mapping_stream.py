"""A run becomes OpenAI's chunks: whatever the attempts did, the client has a beginning of the answer, or an error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from eventstore.catalogue import (
    Event,
    ModelCompleted,
    ModelDelta,
    ModelDiscarded,
    ModelStarted,
    Problem,
    RunCancelled,
    RunCompleted,
    RunFailed,
    Usage,
)
from eventstore.log import Envelope
from gateways.http import chat_result
from gateways.http.chat_stream import ChatRenderer
from gateways.http.chat_tracks import Diverged, Tracks
from gateways.http.errors import TABLE

TOOLS = frozenset({"weather"})
USAGE = Usage(input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2)


def envelope(event: Event) -> Envelope:
    return Envelope(1, "run-run_1", 1, getattr(event, "seq", None), 0, "test", event)


def delta(text: str = "", **more: Any) -> ModelDelta:
    return ModelDelta(seq=1, attempt=1, text=text, **more)


def message(text: str = "", *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}, *calls]}


def call(name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": "c1", "name": name, "arguments": {"a": 1}, **more}


def whole(message: Any) -> ModelCompleted:
    return ModelCompleted(seq=1, turn=1, attempt=1, message=message)


def end(message: Any, reason: str = "stop") -> RunCompleted:
    return RunCompleted(seq=1, output=message, finish_reason=reason, usage=USAGE)


def chunks(*events: Event, include_usage: bool = False) -> list[Any]:
    renderer = ChatRenderer("run_1", 5, "m", TOOLS, include_usage=include_usage)
    raw = b"".join(renderer.render(envelope(event)) for event in events).decode()
    return [json.loads(block[6:]) if block != "data: [DONE]" else "[DONE]" for block in raw.split("\n\n") if block]


def said(found: list[Any], field: str = "content") -> str:
    return "".join(each["choices"][0]["delta"].get(field, "") for each in found if each != "[DONE]" and each["choices"])


def test_every_chunk_is_one_that_the_sdk_reads() -> None:
    piece = {"index": 0, "id": "c1", "name": "weather", "arguments": '{"a": 1}'}
    events = (delta("x", reasoning="r", refusal="n", tool_calls=(piece,)), end(message("x", call()), "tool_calls"))
    found = chunks(*events, include_usage=True)
    assert found.pop() == "[DONE]"
    for each in found:
        ChatCompletionChunk.model_validate(each, strict=True)


def test_reasoning_has_its_own_field_and_never_mixes_with_the_content() -> None:
    found = chunks(delta(reasoning="hm"), delta("yes"), end(message("yes")))
    assert (said(found, "reasoning_content"), said(found)) == ("hm", "yes")


def test_an_answer_that_came_without_deltas_is_sent_whole() -> None:
    assert said(chunks(whole(message("all at once")), end(message("all at once")))) == "all at once"
    assert said(chunks(end(message("a word of the policy")))) == "a word of the policy"


def test_what_the_deltas_left_out_comes_with_the_whole_message() -> None:
    assert said(chunks(delta("Hel"), whole(message("Hello")), end(message("Hello")))) == "Hello"


def test_the_texts_of_two_turns_are_two_paragraphs() -> None:
    found = chunks(delta("Let me look."), whole(message("Let me look.")), delta("It is 4."), end(message("It is 4.")))
    assert said(found) == "Let me look.\n\nIt is 4."


def test_a_call_of_the_servers_own_tool_is_never_sent_to_the_client() -> None:
    own = {"index": 0, "id": "c0", "name": "read_file", "arguments": "{}"}
    theirs = {"index": 1, "id": "c1", "name": "weather", "arguments": '{"a": 1}'}
    answer = message("", call("read_file"), call())
    found = chunks(delta(tool_calls=(own,)), delta(tool_calls=(theirs,)), whole(answer), end(answer, "tool_calls"))
    calls = [one for each in found[:-1] for one in each["choices"][0]["delta"].get("tool_calls", [])]
    assert [(one["index"], one["function"]["name"]) for one in calls] == [(0, "weather")]


def test_a_run_that_only_used_the_servers_tools_does_not_end_with_tool_calls() -> None:
    found = chunks(delta("x"), end(message("x", call("read_file")), "tool_calls"))
    assert found[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_call_is_held_until_its_name_is_known() -> None:
    first, second = {"index": 0, "arguments": '{"a"'}, {"index": 0, "id": "c1", "name": "weather", "arguments": ": 1}"}
    found = chunks(delta(tool_calls=(first,)), delta(tool_calls=(second,)))
    (sent,) = [one for each in found for one in each["choices"][0]["delta"]["tool_calls"]]
    assert sent["function"] == {"name": "weather", "arguments": '{"a": 1}'}


def test_the_usage_sums_all_attempts_and_names_cached_and_reasoning_tokens() -> None:
    usage = chunks(delta("x"), end(message("x")), include_usage=True)[-2]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_a_retried_call_with_another_id_is_an_error_for_it_cannot_be_taken_back() -> None:
    one, two = ({"index": 0, "id": name, "name": "weather", "arguments": "{}"} for name in ("c1", "c2"))
    discarded = ModelDiscarded(seq=1, turn=1, attempt=1, reason="cut")
    found = chunks(delta(tool_calls=(one,)), discarded, delta(tool_calls=(two,)))
    assert found[-1]["error"]["code"] == "attempt_discarded"


def test_an_attempt_that_is_discarded_before_anything_was_shown_leaves_no_trace() -> None:
    discarded = ModelDiscarded(seq=1, turn=1, attempt=1, reason="cut")
    started = ModelStarted(seq=1, turn=1, attempt=2)
    assert said(chunks(discarded, started, delta("yes"), end(message("yes")))) == "yes"


def test_a_retried_answer_that_is_shorter_than_what_was_shown_is_an_error() -> None:
    discarded = ModelDiscarded(seq=1, turn=1, attempt=1, reason="cut")
    found = chunks(delta("Hello world"), discarded, delta("Hello"), whole(message("Hello")))
    assert found[-1]["error"]["code"] == "attempt_discarded"


@given(st.lists(st.text(max_size=5), max_size=6), st.lists(st.text(max_size=5), max_size=6), st.text(max_size=5))
def test_after_any_retry_the_client_has_exactly_the_answer_or_an_error(
    first: list[str], second: list[str], tail: str
) -> None:
    tracks, shown = Tracks(frozenset()), ""
    for piece in first:
        shown += "".join(value for _, value in tracks.delta(delta(piece)))
    tracks.discard()
    answer = "".join(second) + tail
    try:
        for piece in second:
            shown += "".join(value for _, value in tracks.delta(delta(piece)))
        shown += "".join(value for _, value in tracks.complete(message(answer)))
    except Diverged:
        assert not answer.startswith("".join(first))
    else:
        assert shown == answer


@pytest.mark.parametrize(
    "kind", ["rate", "overload", "server", "timeout", "network", "overflow", "auth", "quota", "client", "other"]
)
def test_every_class_of_failure_has_a_status_and_a_code_of_its_own_or_run_failed(kind: str) -> None:
    error = chat_result.failure(Problem(code="x", message="why", kind=kind), "run_1")
    assert error.code in TABLE
    assert "why" in error.detail
    assert (error.code == "run_failed") == (kind == "other")
    assert error.entry.status != 401


@pytest.mark.parametrize(
    ("reason", "calls", "word"),
    [
        ("stop", False, "stop"),
        ("length", False, "length"),
        ("max_turns", False, "length"),
        ("content_filter", False, "content_filter"),
        ("refusal", False, "stop"),
        ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "stop"),
        ("something new", False, "stop"),
    ],
)
def test_every_way_to_end_has_openais_word(reason: str, calls: bool, word: str) -> None:
    assert chat_result.finish_reason(reason, calls=calls) == word


def test_a_whole_completion_is_one_that_the_sdk_reads() -> None:
    parts = [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "yes"},
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {}, "raw_arguments": "{broken"},
    ]
    answer = chat_result.completion("run_1", 5, "m", {"role": "assistant", "content": parts}, ("tool_calls", USAGE), TOOLS)
    read = ChatCompletion.model_validate(answer, strict=True)
    calls: Any = read.choices[0].message.tool_calls
    assert calls[0].function.arguments == "{broken"
    assert answer["choices"][0]["message"]["reasoning_content"] == "hm"
    assert answer["choices"][0]["message"]["annotations"] == []


def test_a_failure_before_the_head_is_an_http_answer_and_after_it_a_frame() -> None:
    for event in (RunFailed(seq=1, error=Problem(code="x", message="why")), RunCancelled(seq=1, reason="requested")):
        renderer = ChatRenderer("run_1", 5, "m", TOOLS, include_usage=False)
        answer = renderer.refusal(envelope(event))
        assert answer is not None
        assert answer.status in (409, 500)
        assert b'"error"' in renderer.render(envelope(event))
