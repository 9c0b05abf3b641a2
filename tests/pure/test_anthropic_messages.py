"""The Anthropic Messages adapter: what its requests say, and what an answer keeps so that it can go back unchanged."""

import json
from typing import Any

import pytest

from tests.fakes.adapter import ScriptAdapter
from tests.fakes.encoding import ADD, PROVIDER, call, result, said, user
from tests.fakes.encoding import body as body_of
from tests.fakes.encoding import encoded as encoded_of

Json = dict[str, Any]
ADAPTER = ScriptAdapter("messages")
PNG = {"type": "image", "media_type": "image/png", "data": "QUJD"}


def body(history: list[Json], **more: Any) -> Json:
    return body_of("anthropic_messages", history, **more)


def encoded(history: list[Json], **more: Any) -> Json:
    return encoded_of("anthropic_messages", history, **more)


def decoded(content: list[Json], stop: str = "end_turn") -> Json:
    raw = {
        "type": "message",
        "model": "m-1",
        "content": content,
        "stop_reason": stop,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    answer = ADAPTER.decode(json.dumps(raw))
    assert answer["ok"]
    response: Json = answer["response"]
    return response


def back(content: list[Json], *behind: Json) -> list[Json]:
    message = {**decoded(content)["message"], "provider": "fake", "model": "m-1"}
    sent: list[Json] = body([user("go"), message, *behind, user("?")])["messages"][1]["content"]
    return sent


def test_a_plain_request_says_limit_system_and_messages() -> None:
    assert encoded([user("hello")], tools=[]) == {
        "ok": True,
        "path": "/messages",
        "headers": {"anthropic-version": "2023-06-01"},
        "repairs": [],
        "body": {
            "model": "m-1",
            "max_tokens": 8192,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]}
            ],
            "stream": True,
        },
    }


def test_the_output_limit_is_the_asked_one_else_the_models() -> None:
    provider = {**PROVIDER, "models": {"m-1": {"max_output_tokens": 64_000}}}
    assert body([user("x")], provider=provider)["max_tokens"] == 64_000
    assert body([user("x")], provider=provider, max_output_tokens=100)["max_tokens"] == 100


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("none", {"type": "none"}),
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ({"name": "add"}, {"type": "tool", "name": "add"}),
    ],
)
def test_a_tool_choice_has_this_protocols_words(choice: Any, wire: Json) -> None:
    made = body([user("x")], tool_choice=choice)
    assert made["tool_choice"] == wire
    tool = {
        "name": "add",
        "description": "Adds.",
        "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"},
    }
    assert made["tools"] == [tool]


def test_one_call_at_a_time_is_asked_in_this_protocols_words() -> None:
    made = encoded([user("x")], provider_options={"parallel_tool_calls": False, "seed": 7, "user": "u"})
    assert made["body"]["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert (made["body"]["metadata"], made["repairs"]) == ({"user_id": "u"}, ["options_left_out"])
    assert "seed" not in made["body"]


def test_all_results_of_a_turn_stand_first_in_one_message_and_what_the_user_said_behind() -> None:
    history = [
        user("go"),
        said("I look.", call("a"), call("b")),
        result("a", "1"),
        result("b", "no", ok=False),
        user("hurry"),
    ]
    turns = body(history)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
        {"type": "text", "text": "hurry"},
    ]


def test_blocks_go_back_as_they_came_and_in_their_order() -> None:
    blocks: list[Json] = [
        {"type": "thinking", "thinking": "A", "signature": "s1"},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "text", "text": "I look. ", "citations": [{"type": "char_location", "cited_text": "x"}]},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u", "encrypted_content": "e"}]},
        {"type": "thinking", "thinking": "B", "signature": "s2"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"b": 1, "a": 2}, "caller": {"type": "direct"}},
    ]
    sent = back(blocks, result("toolu_1"))
    assert sent == blocks
    assert json.dumps(sent) == json.dumps(blocks)


def test_thinking_without_its_signature_is_dropped_with_all_of_its_message() -> None:
    blocks: list[Json] = [
        {"type": "thinking", "thinking": "A", "signature": "s"},
        {"type": "thinking", "thinking": "B", "signature": ""},
    ]
    assert back([*blocks, {"type": "text", "text": "Hm."}]) == [{"type": "text", "text": "Hm."}]


def test_thinking_at_the_end_of_an_answer_that_was_cut_does_not_go_back() -> None:
    thinking = {"type": "thinking", "thinking": "A", "signature": "s"}
    assert back([{"type": "text", "text": "Hm."}, thinking]) == [{"type": "text", "text": "Hm."}]


def test_a_paused_turn_goes_back_as_it_is_and_goes_on() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    response = decoded([use], "pause_turn")
    message = {**response["message"], "provider": "fake", "model": "m-1"}
    assert response["stop_reason"] == "pause"
    turns = body([user("go"), message])["messages"]
    assert [(turn["role"], turn["content"][-1]) for turn in turns][1:] == [("assistant", use)]
    later = encoded([user("go"), message, user("never mind")])
    assert [turn["role"] for turn in later["body"]["messages"]] == ["user"]
    assert later["repairs"] == ["blocks_left_out"]


def test_the_user_opens_and_has_the_last_word() -> None:
    made = encoded([said("Welcome."), user("hi"), said("Hello. ")])
    assert [turn["role"] for turn in made["body"]["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert made["repairs"] == ["user_turn_added"]


def test_images_and_documents_are_blocks_and_other_files_a_word() -> None:
    parts = [
        {"type": "text", "text": "see"},
        PNG,
        {"type": "image", "url": "https://example.test/a.png"},
        {"type": "image", "url": "data:image/gif;base64,QUJD"},
        {"type": "image", "media_type": "image/tiff", "data": "QUJD"},
        {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "data": "QUJD"},
        {"type": "file", "name": "b", "blob": "x"},
    ]
    content = body([{"role": "user", "content": parts}])["messages"][0]["content"]
    assert [block["type"] for block in content] == ["text", "image", "image", "image", "text", "document", "text"]
    assert content[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    assert content[2]["source"] == {"type": "url", "url": "https://example.test/a.png"}
    assert content[3]["source"]["media_type"] == "image/gif"
    assert content[5] == {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
        "title": "a.pdf",
    }


@pytest.mark.parametrize(
    ("options", "thinking", "repairs"),
    [
        ({"reasoning": {"effort": "low"}}, {"type": "enabled", "budget_tokens": 2048}, []),
        ({"reasoning": {"max_tokens": 5000}}, {"type": "enabled", "budget_tokens": 5000}, []),
        ({"reasoning": {"effort": "high"}}, {"type": "enabled", "budget_tokens": 8191}, []),
        ({"reasoning": {"effort": "none"}}, None, []),
        ({"reasoning": {"effort": "high"}, "max_output_tokens": 500}, None, ["thinking_left_out"]),
        ({"reasoning": {"effort": "low"}, "tool_choice": "required"}, None, ["thinking_left_out"]),
        (
            {"reasoning": {"effort": "low"}, "temperature": 0.2},
            {"type": "enabled", "budget_tokens": 2048},
            ["sampling_left_out"],
        ),
        ({"provider_options": {"thinking": {"type": "adaptive"}}}, {"type": "adaptive"}, []),
    ],
)
def test_thinking_is_asked_for_where_the_rest_allows_it(options: Json, thinking: Json | None, repairs: list[str]) -> None:
    made = encoded([user("x")], **options)
    assert (made["body"].get("thinking"), made["repairs"]) == (thinking, repairs)


def test_a_turn_that_began_without_thinking_goes_on_without_it() -> None:
    foreign = {**said("Hm.", call("a")), "model": "other"}
    made = encoded([user("go"), foreign, result("a")], reasoning={"effort": "low"})
    assert ("thinking" in made["body"], made["repairs"]) == (False, ["thinking_left_out"])
    assert "thinking" in body([user("go"), foreign, result("a"), said("ok"), user("next")], reasoning={"effort": "low"})


@pytest.mark.parametrize(
    ("options", "sent", "repairs"),
    [
        ({"temperature": 0.5}, {"temperature": 0.5}, []),
        ({"temperature": 1.7}, {"temperature": 1}, ["temperature_lowered"]),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, ["sampling_left_out"]),
        ({"top_p": 0.9}, {"top_p": 0.9}, []),
        ({"stop": ["END", " "]}, {"stop_sequences": ["END"]}, []),
    ],
)
def test_sampling_keeps_to_what_the_protocol_takes(options: Json, sent: Json, repairs: list[str]) -> None:
    made = encoded([user("x")], **options)
    told = {name: made["body"][name] for name in ("temperature", "top_p", "stop_sequences") if name in made["body"]}
    assert (told, made["repairs"]) == (sent, repairs)


def test_a_schema_for_the_answer_is_passed_and_plain_json_mode_is_refused() -> None:
    schema = {"type": "object", "properties": {}}
    made = body([user("x")], response_format={"type": "json_schema", "name": "n", "schema": schema})
    assert made["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert encoded([user("x")], response_format={"type": "json_object"})["error"]["code"] == "unsupported_response_format"


def test_what_has_no_canonical_place_stays_under_raw_as_equal_values() -> None:
    usage = {
        "input_tokens": 1,
        "output_tokens": 1,
        "server_tool_use": {"web_search_requests": 2},
        "service_tier": "standard",
    }
    body_text = {
        "type": "message",
        "content": [{"type": "text", "text": "x"}],
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "usage": usage,
        "container": {"id": "c", "expires_at": None},
        "future": [1, {"a": None}],
    }
    raw = ADAPTER.decode(json.dumps(body_text))["response"]["raw"]
    assert raw == {
        "stop_sequence": "END", "container": {"id": "c", "expires_at": None}, "future": [1, {"a": None}],
        "stop_reason": "stop_sequence",
        "usage": {"server_tool_use": {"web_search_requests": 2}, "service_tier": "standard"},
    }  # fmt: skip


def test_usage_counts_cached_input_inside_and_knows_what_was_written() -> None:
    told = {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 7}
    usage = ADAPTER.decode(json.dumps({"content": [], "usage": told}))["response"]["usage"]
    assert usage == {
        "input_tokens": 35, "output_tokens": 7, "cached_tokens": 20, "cache_write_tokens": 5, "reasoning_tokens": 0,
        "total_tokens": 42, "reported_cost_micros": None,
    }  # fmt: skip


def test_arguments_of_an_answer_that_was_cut_in_a_call_are_not_believed() -> None:
    part = decoded([{"type": "tool_use", "id": "a", "name": "add", "input": {"x": 1}}], "max_tokens")["message"]["content"][
        0
    ]
    assert (part["arguments"], json.loads(part["raw_arguments"])) == ({}, {"x": 1})
    assert (
        "raw_arguments"
        not in decoded([{"type": "tool_use", "id": "a", "name": "add", "input": {}}], "tool_use")["message"]["content"][0]
    )


def test_tools_without_a_type_in_their_schema_get_one() -> None:
    made = body([user("x")], tools=[{**ADD, "parameters": {}, "description": " "}])
    assert made["tools"][0]["input_schema"] == {"type": "object"}
    assert "description" not in made["tools"][0]
