"""Canonical requests to the Chat Completions wire format."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.adapter import ScriptAdapter, script_names

Json = dict[str, Any]

CHAT = ScriptAdapter("chat")
PROVIDER: Json = {"name": "fake", "adapter": "openai_chat", "capabilities": {}, "models": {}, "reasoning_replay": "never"}
TOOL: Json = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def said(*parts: Json, provider: str = "fake", model: str = "m-1", **more: Any) -> Json:
    return {"role": "assistant", "content": list(parts), "provider": provider, "model": model, **more}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def thought(value: str, name: str = "reasoning_content", **blocks: Any) -> Json:
    return {"type": "reasoning", "text": value, "raw": {"name": name, "blocks": blocks}}


def call(call_id: str, arguments: Json | None = None, **more: Any) -> Json:
    return {"type": "tool_call", "id": call_id, "name": "add", "arguments": arguments or {}, **more}


def result(call_id: str, content: str = "3") -> Json:
    return {"role": "tool", "call_id": call_id, "name": "add", "content": content, "ok": True, "outcome": "ok"}


def encoded(
    messages: list[Json], provider: Json = PROVIDER, system: str = "", tools: tuple[Json, ...] = (), **options: Any
) -> Json:
    request = script_names()["llm_request"]("m-1", system, messages, list(tools), options)
    answer: Json = CHAT.encode(request, provider)
    return answer


def body(messages: list[Json], **more: Any) -> Json:
    answer = encoded(messages, **more)
    assert answer["ok"], answer
    value: Json = answer["body"]
    return value


def test_a_plain_request_says_model_messages_and_that_usage_is_wanted() -> None:
    assert encoded([user("hello")], system="Be brief.") == {
        "ok": True,
        "path": "/chat/completions",
        "headers": {},
        "repairs": [],
        "body": {
            "model": "m-1",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    }


def test_without_streaming_no_stream_options_are_sent() -> None:
    value = body([user("hello")], stream=False)
    assert value["stream"] is False
    assert "stream_options" not in value


def test_tools_go_out_sorted_by_name_whatever_their_order() -> None:
    tools = [{**TOOL, "name": name} for name in ("zip", "add", "mul")]
    one, other = body([user("x")], tools=tuple(tools)), body([user("x")], tools=tuple(reversed(tools)))
    assert [tool["function"]["name"] for tool in one["tools"]] == ["add", "mul", "zip"]
    assert json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"name": "add"}, {"type": "function", "function": {"name": "add"}}),
    ],
)
def test_a_tool_choice_keeps_its_meaning(choice: Any, wire: Any) -> None:
    assert body([user("x")], tools=(TOOL,), tool_choice=choice)["tool_choice"] == wire


def test_a_tool_choice_without_tools_is_not_sent() -> None:
    assert "tool_choice" not in body([user("x")], tool_choice="required")


def test_options_go_out_under_the_names_of_the_profile() -> None:
    provider = {
        **PROVIDER,
        "max_tokens_field": "max_completion_tokens",
        "reasoning_field": "reasoning_effort",
        "system_role": "developer",
    }
    value = body(
        [user("x")],
        provider=provider,
        system="s",
        max_output_tokens=7,
        temperature=0.5,
        top_p=0.9,
        stop=["END"],
        reasoning={"effort": "low"},
    )
    assert (value["max_completion_tokens"], value["temperature"], value["top_p"], value["stop"]) == (7, 0.5, 0.9, ["END"])
    assert value["reasoning_effort"] == "low"
    assert value["messages"][0]["role"] == "developer"
    assert "max_tokens" not in value


def test_reasoning_is_asked_for_as_an_object_where_the_profile_says_so_and_not_at_all_where_it_says_nothing() -> None:
    wish = {"effort": "high", "max_tokens": 100, "summary": "auto"}
    asked = body([user("x")], provider={**PROVIDER, "reasoning_field": "reasoning"}, reasoning=wish)
    assert asked["reasoning"] == {"effort": "high", "max_tokens": 100}
    assert not {"reasoning", "reasoning_effort"} & set(body([user("x")], reasoning=wish))


def test_a_response_format_is_nested_as_the_protocol_wants() -> None:
    wanted = {"type": "json_schema", "name": "point", "schema": {"type": "object"}, "strict": True}
    value = body([user("x")], response_format=wanted)["response_format"]
    assert value == {"type": "json_schema", "json_schema": {"name": "point", "schema": {"type": "object"}, "strict": True}}


def test_the_providers_own_options_pass_but_never_replace_ours() -> None:
    own = {"seed": 7, "messages": [], "model": "other", "stream": False, "temperature": 2, "n": 3}
    value = body([user("x")], temperature=0.5, provider_options=own)
    assert (value["seed"], value["model"], value["stream"], value["temperature"]) == (7, "m-1", True, 0.5)
    assert value["messages"] == [{"role": "user", "content": "x"}]
    assert "n" not in value


def test_images_and_files_go_out_as_parts() -> None:
    parts = [
        text("look"),
        {"type": "image", "media_type": "image/png", "data": "QUJD"},
        {"type": "image", "url": "https://example.test/a.png"},
        {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "data": "QUJD"},
        {"type": "file", "name": "b.bin", "blob": "x"},
    ]
    content = body([{"role": "user", "content": parts}])["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url", "file", "text"]
    assert content[1]["image_url"]["url"] == "data:image/png;base64,QUJD"
    assert content[3]["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}


@pytest.mark.parametrize(
    ("capability", "part", "code"),
    [
        ("images", {"type": "image", "url": "https://example.test/a.png"}, "unsupported_images"),
        ("files", {"type": "file"}, "unsupported_files"),
    ],
)
def test_what_a_model_cannot_take_is_refused_before_anything_is_sent(capability: str, part: Json, code: str) -> None:
    message = {"role": "user", "content": [part]}
    for provider in (
        {**PROVIDER, "capabilities": {capability: False}},
        {**PROVIDER, "capabilities": {capability: True}, "models": {"m-1": {"capabilities": {capability: False}}}},
    ):
        answer = encoded([message], provider=provider)
        assert (answer["ok"], answer["error"]["kind"], answer["error"]["code"]) == (False, "client", code)
    assert encoded([message], provider={**PROVIDER, "models": {"m-1": {"capabilities": {capability: True}}}})["ok"]


def test_tools_for_a_model_without_them_are_refused_and_so_are_names_that_the_protocol_lacks() -> None:
    assert (
        encoded([user("x")], provider={**PROVIDER, "capabilities": {"tools": False}}, tools=(TOOL,))["error"]["code"]
        == "unsupported_tools"
    )
    assert encoded([user("x")], tools=({**TOOL, "name": "a b"},))["error"]["code"] == "invalid_tool_name"


def test_calls_and_results_go_back_with_the_ids_that_the_provider_gave() -> None:
    messages = [user("1+2"), said(text("Hm."), call("call_x", {"b": 2, "a": "é"})), result("call_x")]
    wire = body(messages)["messages"]
    function = {"name": "add", "arguments": '{"b":2,"a":"é"}'}
    assert wire[1] == {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": [{"id": "call_x", "type": "function", "function": function}],
    }
    assert wire[2] == {"role": "tool", "tool_call_id": "call_x", "content": "3"}


def test_invalid_arguments_go_back_as_an_empty_object() -> None:
    wire = body([user("x"), said(call("a", raw_arguments='{"x":')), result("a")])["messages"][1]
    assert wire["tool_calls"][0]["function"]["arguments"] == "{}"
    assert wire["content"] is None


TURNS = [
    user("a"),
    said(thought("t1"), call("1")),
    result("1"),
    said(thought("t2"), text("done")),
    user("b"),
    said(thought("t3"), text("plain")),
]


@pytest.mark.parametrize(("rule", "replayed"), [("always", ["t1", "t2", "t3"]), ("tool_turns", ["t1", "t2"]), ("never", [])])
def test_reasoning_goes_back_by_the_profiles_rule(rule: str, replayed: list[str]) -> None:
    wire = body(TURNS, provider={**PROVIDER, "reasoning_replay": rule})["messages"]
    assert [message["reasoning_content"] for message in wire if "reasoning_content" in message] == replayed


def test_reasoning_goes_back_under_its_own_name_with_its_blocks_unchanged() -> None:
    blocks = [{"type": "reasoning.text", "text": "t", "signature": "c2ln", "index": 0}]
    message = said(
        thought("t", "reasoning", reasoning_details=blocks),
        text("x"),
        raw={"extra_content": {"google": 1}, "annotations": [1]},
    )
    wire = body([user("a"), message], provider={**PROVIDER, "reasoning_replay": "always"})["messages"][1]
    assert (wire["reasoning"], wire["reasoning_details"], wire["extra_content"]) == ("t", blocks, {"google": 1})
    assert "annotations" not in wire


@pytest.mark.parametrize("other", [{"provider": "else"}, {"model": "m-2"}])
def test_after_a_change_of_model_foreign_blocks_are_dropped_whole(other: dict[str, str]) -> None:
    message = said(thought("t"), text("x"), call("a", raw={"extra_content": 1}), raw={"extra_content": 1}, **other)
    wire = body([user("a"), message, result("a")], provider={**PROVIDER, "reasoning_replay": "always"})["messages"][1]
    assert set(wire) == {"role", "content", "tool_calls"}
    assert set(wire["tool_calls"][0]) == {"id", "type", "function"}


def whole_answer(finish: str, more: Json, **message: Any) -> str:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}, **more}
    return json.dumps({"id": "x", "system_fingerprint": "fp", "choices": [choice]})


def test_what_an_answer_brought_goes_back_as_it_came() -> None:
    function = {"name": "add", "arguments": '{"x":1}'}
    told: Json = {
        "role": "assistant",
        "content": "Hm",
        "reasoning_content": "t",
        "extra_content": {"signature": "s"},
        "tool_calls": [{"id": "a", "type": "function", "function": function, "extra_content": {"s": 2}}],
    }
    answer = CHAT.decode(whole_answer("tool_calls", {}, **told))["response"]["message"]
    message = {**answer, "provider": "fake", "model": "m-1"}
    wire = body([user("a"), message, result("a")], provider={**PROVIDER, "reasoning_replay": "always"})["messages"][1]
    assert wire == told


def test_unknown_fields_of_an_answer_stay_under_raw() -> None:
    told = whole_answer("stop", {"logprobs": {"content": [1]}}, content="Hi", annotations=[{"type": "url"}])
    response = CHAT.decode(told)["response"]
    assert response["raw"] == {"system_fingerprint": "fp", "logprobs": {"content": [1]}, "finish_reason": "stop"}
    assert response["message"]["raw"] == {"annotations": [{"type": "url"}]}


def test_reasoning_details_of_a_stream_are_joined_as_a_whole_answer_would_hold_them() -> None:
    state = CHAT.begin()
    for details in (
        [{"type": "reasoning.text", "text": "a", "index": 0}],
        [
            {"type": "reasoning.text", "text": "b", "index": 0},
            {"type": "reasoning.encrypted", "data": "x", "id": "r", "index": 1},
        ],
        [{"type": "reasoning.text", "signature": "s", "index": 0}],
    ):
        chunk = {"choices": [{"index": 0, "delta": {"reasoning_details": details}}]}
        CHAT.feed(state, {"event": "message", "data": json.dumps(chunk)})
    CHAT.feed(state, {"event": "message", "data": "[DONE]"})
    part = CHAT.end(state)["response"]["message"]["content"][0]
    assert part["text"] == "ab"
    assert part["raw"]["blocks"]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x", "id": "r", "index": 1},
    ]


WORDS = st.text("ab é😀", min_size=1, max_size=5).filter(lambda word: bool(word.strip()))
ANSWERS = st.one_of(
    st.builds(lambda word, why: [said(thought(why), text(word))], WORDS, WORDS),
    st.builds(
        lambda word, n: [said(thought(word), call(f"c{n}", {"x": n})), result(f"c{n}", word), said(text(word))],
        WORDS,
        st.integers(0, 9),
    ),
)


@given(st.lists(st.tuples(WORDS, ANSWERS), min_size=2, max_size=6), st.sampled_from(["always", "tool_turns", "never"]))
def test_each_turns_request_begins_with_the_one_before_byte_for_byte(turns: list[Any], rule: str) -> None:
    provider, history, before = {**PROVIDER, "reasoning_replay": rule}, list[Json](), None
    for asked, answers in turns:
        history.append(user(asked))
        value = body(history, provider=provider, system="s", tools=(TOOL,))
        if before is not None:
            assert json.dumps(value["messages"][: len(before["messages"])]) == json.dumps(before["messages"])
            assert json.dumps(value["tools"]) == json.dumps(before["tools"])
        before = value
        history.extend(answers)
