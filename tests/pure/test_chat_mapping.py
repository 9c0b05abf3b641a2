"""OpenAI's request becomes canonical: fields, sessions, messages, tools; what cannot be kept is refused by name."""

import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types.chat import completion_create_params as published

from gateways.http.chat_fields import FIELDS, OWN_FIELDS, PASS, REFUSE
from gateways.http.chat_request import ChatRequest, chat_request
from gateways.http.errors import ApiError
from gateways.http.ports import ModelOffer

OFFERS = (ModelOffer("default", profile="default"), ModelOffer("vendor/small", "vendor", provider="vendor", model="small"))
USER = {"role": "user", "content": "hi"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}


def ask(header: str | None = None, **body: Any) -> ChatRequest:
    return chat_request({"model": "default", "messages": [USER], **body}, "ann", header, OFFERS, 2000)


def refused(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        ask(**body)
    return caught.value


def text(message: Any) -> str:
    return "".join(part["text"] for part in message["content"])


def test_every_field_that_openai_publishes_has_a_row_and_no_row_is_invented() -> None:
    hints = {**get_type_hints(published.CompletionCreateParamsBase), "stream": bool}
    assert set(FIELDS) == set(hints)


def test_the_documents_table_says_of_each_field_what_the_code_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (mapped|passed|refused|own) \|", page, re.MULTILINE))
    assert rows == {name: field.does for name, field in FIELDS.items()} | dict.fromkeys(OWN_FIELDS, "own")


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.does == REFUSE])
def test_a_refused_field_is_named_and_may_be_null_or_harmless(name: str) -> None:
    error = refused(**{name: {"some": "value"}})
    assert (error.code, error.param) == ("unsupported_field", name)
    for value in (None, *FIELDS[name].harmless):
        assert ask(**{name: value}).model == "default"


def test_passed_fields_reach_the_provider_under_their_own_names_beside_its_options() -> None:
    values: dict[str, Any] = {"temperature": 0.5, "max_tokens": 7, "stop": ["x"], "tool_choice": "auto", "seed": 3}
    options = ask(**values, provider_options={"top_k": 4}).inbound.provider_options
    assert options == values | {"top_k": 4}
    assert {name for name, field in FIELDS.items() if field.does == PASS} >= set(values)


def test_an_unknown_field_is_named_with_what_was_meant_or_where_it_goes() -> None:
    assert "did you mean `temperature`" in refused(temprature=1).detail
    error = refused(top_k=4)
    assert (error.code, error.param) == ("unknown_field", "top_k")
    assert "provider_options" in error.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", "hot"), ("stream", 1), ("tools", {}), ("metadata", []), ("max_tokens", True), ("on_disconnect", "x")],
)
def test_a_field_of_a_wrong_type_is_named(name: str, value: Any) -> None:
    error = refused(**{name: value})
    assert (error.code, error.param) == ("invalid_field", name)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_what_must_be_there_is_named(missing: str) -> None:
    error = refused(**{missing: None})
    assert (error.code, error.param) == ("missing_field", missing)


def test_a_model_is_an_offered_name_or_any_of_the_profiles_provider() -> None:
    offered, other = ask(model="vendor/small").inbound, ask(model="gpt-9").inbound
    assert (offered.provider, offered.model, offered.profile) == ("vendor", "small", None)
    assert (other.provider, other.model, other.profile) == (None, "gpt-9", None)
    assert (ask().inbound.profile, ask().inbound.model) == ("default", None)
    assert (refused(model="").code, refused(model="x" * 201).code) == ("invalid_field", "invalid_field")


def test_without_a_session_the_messages_are_the_whole_history_of_one_that_is_not_continued() -> None:
    messages = [{"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "content": "yes"}, USER]
    inbound = ask(messages=messages).inbound
    assert (inbound.ephemeral, inbound.session_id, inbound.system_prompt) == (True, None, "Be kind.")
    assert [(each["role"], text(each)) for each in inbound.history] == [("user", "hi"), ("assistant", "yes")]
    assert [text(each) for each in inbound.input] == ["hi"]
    assert inbound.on_disconnect == "cancel"


def test_with_a_session_only_what_follows_the_last_answer_is_new() -> None:
    more = {"role": "user", "content": "more"}
    messages = [{"role": "developer", "content": "Be kind."}, USER, {"role": "assistant", "content": "yes"}, more, USER]
    for asked in (ask("s-1", messages=messages), ask(messages=messages, metadata={"session_id": "s-1", "k": "v"})):
        inbound = asked.inbound
        assert (inbound.session_id, inbound.ephemeral, inbound.history) == ("s-1", False, ())
        assert [text(each) for each in inbound.input] == ["more", "hi"]
        assert (inbound.system_prompt, inbound.on_disconnect) == ("Be kind.", "continue")


def test_the_header_goes_before_the_metadata_and_a_strange_id_is_refused() -> None:
    assert ask("one", metadata={"session_id": "two"}).inbound.session_id == "one"
    assert refused(metadata={"session_id": "a b"}).code == "invalid_field"
    assert refused(metadata={"session_id": 5}).code == "invalid_field"


def test_the_rule_for_a_lost_client_can_be_chosen_either_way() -> None:
    assert ask(on_disconnect="continue").inbound.on_disconnect == "continue"
    assert ask("s", on_disconnect="cancel").inbound.on_disconnect == "cancel"


def test_a_system_message_in_the_middle_keeps_its_place() -> None:
    messages = [{"role": "system", "content": "a"}, USER, {"role": "system", "content": "b"}, USER]
    inbound = ask(messages=messages).inbound
    assert inbound.system_prompt == "a"
    assert [each["role"] for each in inbound.history] == ["user", "system"]


def test_tool_calls_and_their_results_become_canonical_and_the_result_knows_its_tool() -> None:
    inbound = ask(messages=[USER, CALLS, RESULT]).inbound
    assert inbound.history[1]["content"] == [
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
    ]
    assert inbound.input == ({"role": "tool", "call_id": "c1", "name": "weather", "content": "sunny", "ok": True},)


def test_arguments_that_are_no_json_object_are_kept_as_text() -> None:
    for raw in ("{broken", "[1]", '"x"'):
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": raw}}
        part = ask(messages=[USER, {"role": "assistant", "tool_calls": [call]}, RESULT]).inbound.history[1]["content"][0]
        assert (part["arguments"], part["raw_arguments"]) == ({}, raw)


def test_a_tool_result_without_its_call_is_refused_with_its_place() -> None:
    error = refused(messages=[USER, RESULT])
    assert (error.code, error.param) == ("invalid_message", "messages.1.tool_call_id")


def test_images_and_files_become_parts() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
    ]
    (message,) = ask(messages=[{"role": "user", "content": content}]).inbound.input
    assert message["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "media_type": "image/png", "data": "aGk=", "detail": "low"},
        {"type": "image", "url": "https://example.com/a.png"},
        {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "data": "aGk="},
    ]


def test_an_answer_may_be_echoed_as_a_client_got_it() -> None:
    echoed: dict[str, Any] = {
        "role": "assistant",
        "content": "yes",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": "hm",
    }
    assert ask(messages=[USER, echoed, USER]).inbound.history[1]["content"] == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "yes"},
    ]


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        ([], "invalid_message", "messages"),
        ("hi", "invalid_message", "messages"),
        (["hi"], "invalid_message", "messages.0"),
        ([{"role": "robot", "content": "x"}], "invalid_message", "messages.0.role"),
        ([USER, {"role": "assistant", "content": "x"}], "invalid_message", "messages.1"),
        ([{"role": "user", "content": " "}], "invalid_message", "messages.0"),
        ([{"role": "user", "content": None}], "invalid_message", "messages.0.content"),
        ([{"role": "user", "content": 5}], "invalid_message", "messages.0.content"),
        (
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
            "invalid_message",
            "messages.0.content.0.type",
        ),
        ([{"role": "user", "content": "x", "mood": "sad"}], "unsupported_field", "messages.0.mood"),
        ([{"role": "assistant", "function_call": {"name": "x"}}, USER], "unsupported_field", "messages.0.function_call"),
        ([{"role": "tool", "content": "x"}], "missing_field", "messages.0.tool_call_id"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}, USER], "invalid_message", "messages.0.tool_calls.0"),
        ([USER] * 2001, "too_many_messages", "messages"),
        ([{"role": "user", "content": ["x"]}], "invalid_message", "messages.0.content.0"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
            "invalid_message",
            "messages.0.content.0.image_url",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}],
            "invalid_message",
            "messages.0.content.0.file",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x", "mood": 1}]}],
            "unsupported_field",
            "messages.0.content.0.mood",
        ),
        ([{"role": "system", "content": 5}, USER], "invalid_message", "messages.0.content"),
        ([{"role": "system", "content": [{"type": "image_url"}]}, USER], "invalid_message", "messages.0.content.0"),
        ([{"role": "assistant", "content": [{"type": "image"}]}, USER], "invalid_message", "messages.0.content.0"),
        ([{"role": "assistant", "tool_calls": {}, "content": "x"}, USER], "invalid_message", "messages.0.tool_calls"),
    ],
)
def test_a_message_that_cannot_be_used_is_refused_with_its_place(messages: Any, code: str, param: str) -> None:
    error = refused(messages=messages)
    assert (error.code, error.param) == (code, param)


def test_an_answer_in_parts_and_a_refusal_become_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    messages = [USER, {"role": "assistant", "content": parts, "refusal": "c"}, USER]
    assert ask(messages=messages).inbound.history[1]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "refusal", "text": "b"},
        {"type": "refusal", "text": "c"},
    ]


def test_a_named_user_keeps_the_name() -> None:
    assert ask(messages=[USER | {"name": "ann"}], user="u-1").inbound.input[0]["name"] == "ann"
    assert ask(user="u-1").inbound.user_id == "u-1"


def test_blank_messages_of_the_past_are_left_out_for_no_provider_takes_them() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "  "},
        {"role": "assistant", "content": "x"},
        USER,
    ]
    assert [text(each) for each in ask(messages=messages).inbound.history] == ["hi", "x"]


def test_functions_become_the_clients_tools_sorted_by_name() -> None:
    def tool(name: str, **more: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, **more}}

    asked = ask(tools=[tool("b", description="B", strict=True, parameters={"type": "object"}), tool("a")])
    assert asked.inbound.client_tools == (
        {"name": "a", "description": "", "parameters": {"type": "object", "properties": {}}},
        {"name": "b", "description": "B", "parameters": {"type": "object"}, "strict": True},
    )
    assert asked.client_tools == {"a", "b"}


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ({"type": "custom", "custom": {"name": "x"}}, "unsupported_field"),
        ({"type": "function", "function": {"name": "a b"}}, "invalid_field"),
        ({"type": "function", "function": {"name": "a", "parameters": []}}, "invalid_field"),
        ({"type": "function", "function": {"name": "a", "exec": 1}}, "unknown_field"),
        ("x", "invalid_field"),
    ],
)
def test_a_tool_that_is_no_function_is_refused(tool: Any, code: str) -> None:
    assert refused(tools=[tool]).code == code


def test_two_tools_of_one_name_are_refused() -> None:
    tool = {"type": "function", "function": {"name": "a"}}
    assert refused(tools=[tool, tool]).code == "invalid_field"


def test_usage_is_wanted_only_where_the_stream_asks_for_it() -> None:
    assert not ask(stream=True).include_usage
    assert ask(stream=True, stream_options={"include_usage": True, "include_obfuscation": False}).include_usage
    assert refused(stream_options={"include_usage": True}).param == "stream_options"
    assert refused(stream=True, stream_options={"usage": True}).code == "unknown_field"
    assert refused(stream=True, stream_options={"include_usage": 1}).code == "invalid_field"


def test_a_mark_for_somebody_elses_cache_changes_nothing() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = [
        {"role": "system", "content": [{"type": "text", "text": "brief", **mark}], **mark},
        {"role": "user", "content": [{"type": "text", "text": "a", **mark}], **mark},
        {**CALLS, **mark},
        {**RESULT, **mark},
    ]
    plain = [
        {"role": "system", "content": [{"type": "text", "text": "brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        CALLS,
        RESULT,
    ]
    assert ask(messages=marked).inbound == ask(messages=plain).inbound
