"""The OpenAI Responses adapter: what its requests say, and what an answer keeps so that it can go back unchanged."""

import json
from typing import Any

import pytest

from tests.fakes.adapter import ScriptAdapter, script_names
from tests.fakes.encoding import PROVIDER, call, result, said, user
from tests.fakes.encoding import body as body_of
from tests.fakes.encoding import encoded as encoded_of

Json = dict[str, Any]
ADAPTER = ScriptAdapter("responses")


def body(history: list[Json], **more: Any) -> Json:
    return body_of("openai_responses", history, **more)


def encoded(history: list[Json], **more: Any) -> Json:
    return encoded_of("openai_responses", history, **more)


def decoded(output: list[Json], **more: Any) -> Json:
    answer = ADAPTER.decode(json.dumps({"id": "resp_1", "status": "completed", "model": "m-1", "output": output, **more}))
    assert answer["ok"]
    response: Json = answer["response"]
    return response


def back(output: list[Json], *behind: Json, **more: Any) -> list[Json]:
    message = {**decoded(output)["message"], "provider": "fake", "model": "m-1"}
    sent: list[Json] = body([user("go"), message, *behind, user("?")], **more)["input"][1 : -1 - len(behind)]
    return sent


def reasoning(number: int, **more: Any) -> Json:
    summary = [{"type": "summary_text", "text": f"t{number}"}]
    return {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": f"sealed {number}", **more}


def spoken(text: str, item_id: str = "msg_1", **more: Any) -> Json:
    part = {"type": "output_text", "annotations": [], "text": text}
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", **more, "content": [part]}


def function_call(number: int, call_id: str) -> Json:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": "add",
        "arguments": "{}",
    }


def test_a_plain_request_keeps_nothing_at_the_provider_and_asks_for_sealed_reasoning() -> None:
    assert encoded([user("hello")], tools=[]) == {
        "ok": True,
        "path": "/responses",
        "headers": {},
        "repairs": [],
        "body": {
            "model": "m-1",
            "instructions": "Be brief.",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "stream": True,
        },
    }


def test_a_model_that_is_known_not_to_reason_is_not_asked_for_it() -> None:
    provider = {**PROVIDER, "models": {"m-1": {"capabilities": {"reasoning": False}}}}
    assert "include" not in body([user("x")], provider=provider)


def test_tools_are_flat_and_strict_only_if_they_say_so() -> None:
    tools = [
        {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
        {"name": "b", "parameters": {}, "strict": True},
    ]
    assert body([user("x")], tools=tools)["tools"] == [
        {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": False},
        {"type": "function", "name": "b", "description": "", "parameters": {}, "strict": True},
    ]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [("none", "none"), ("auto", "auto"), ("required", "required"), ({"name": "add"}, {"type": "function", "name": "add"})],
)
def test_a_tool_choice_has_this_protocols_words(choice: Any, wire: Any) -> None:
    assert body([user("x")], tool_choice=choice)["tool_choice"] == wire


def test_options_have_this_protocols_names() -> None:
    made = encoded(
        [user("x")],
        max_output_tokens=5,
        temperature=0.5,
        top_p=0.9,
        stop=["END"],
        reasoning={"effort": "low", "summary": "auto"},
        response_format={"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
        provider_options={
            "verbosity": "low",
            "seed": 1,
            "parallel_tool_calls": False,
            "include": ["message.output_text.logprobs"],
            "background": True,
            "previous_response_id": "resp_0",
        },
    )
    wire = made["body"]
    assert (wire["max_output_tokens"], wire["temperature"], wire["top_p"]) == (16, 0.5, 0.9)
    assert wire["reasoning"] == {"effort": "low", "summary": "auto"}
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    assert wire["text"] == {"format": form, "verbosity": "low"}
    assert wire["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert wire["parallel_tool_calls"] is False
    assert {"background", "previous_response_id", "seed", "stop"} & set(wire) == set()
    assert made["repairs"] == ["options_left_out", "output_limit_raised"]


def test_items_go_back_with_their_ids_and_sealed_reasoning_in_their_order() -> None:
    items = [reasoning(1), spoken("I look.", phase="commentary"), reasoning(2), function_call(1, "a")]
    sent = back(items, result("a"))
    assert sent[:3] == items[:3]
    assert sent[3] == {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}", "id": "fc_1"}


def test_a_text_of_several_parts_and_a_refusal_are_one_message_again() -> None:
    item = spoken("One.")
    item["content"] += [
        {"type": "output_text", "text": "Two.", "annotations": [{"type": "url_citation"}]},
        {"type": "refusal", "refusal": "No."},
    ]
    assert back([item]) == [item]


def test_reasoning_that_is_neither_sealed_nor_open_goes_back_only_where_answers_are_stored() -> None:
    bare = {"id": "rs_1", "type": "reasoning", "summary": []}
    assert [item["type"] for item in back([bare, spoken("x")])] == ["message"]
    stored = {"provider_options": {"store": True}}
    assert [item["type"] for item in back([bare, spoken("x")], **stored)] == ["reasoning", "message"]
    assert "include" not in body([user("x")], **stored)
    opened = {**bare, "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert back([opened, spoken("x")])[0] == opened


def test_reasoning_with_nothing_behind_it_does_not_go_back() -> None:
    assert [item["type"] for item in back([spoken("Once"), reasoning(1)])] == ["message"]


def test_a_hosted_tools_item_goes_back_and_one_that_a_client_had_to_answer_stays_on_record() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    computer = {"id": "cu_1", "type": "computer_call", "call_id": "x", "action": {}}
    response = decoded([search, computer, spoken("x")])
    assert [part["raw"]["responses_item"]["type"] for part in response["message"]["content"]][:2] == [
        "web_search_call",
        "computer_call",
    ]
    assert [item["type"] for item in back([search, computer, spoken("x")])] == ["web_search_call", "message"]


def test_an_item_is_never_there_twice() -> None:
    first = {**decoded([reasoning(1), spoken("a"), function_call(1, "c")])["message"], "provider": "fake", "model": "m-1"}
    items = body([user("go"), first, result("c"), user("again"), first, result("c"), user("?")])["input"]
    ids = [item["id"] for item in items if "id" in item]
    assert ids == ["rs_1", "msg_1", "fc_1"]
    assert [item["call_id"] for item in items if item["type"] == "function_call"] == ["c", "c_2"]


def test_what_another_model_said_is_a_plain_message_with_its_calls_behind() -> None:
    foreign = {**said(call("a", {"b": "é"}), "I look."), "model": "other"}
    assert body([user("go"), foreign, result("a", "1")])["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": '{"b":"é"}'},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]


def test_images_and_files_are_parts() -> None:
    parts = [
        {"type": "image", "media_type": "image/png", "data": "QUJD"},
        {"type": "image", "url": "https://example.test/a.png"},
        {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "data": "QUJD"},
        {"type": "file", "name": "b", "blob": "x"},
    ]
    content = body([{"role": "user", "content": parts}])["input"][0]["content"]
    assert [part["type"] for part in content] == ["input_image", "input_image", "input_file", "input_text"]
    assert content[0]["image_url"] == "data:image/png;base64,QUJD"
    assert content[2] == {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}


def test_what_has_no_canonical_place_stays_under_raw_as_equal_values() -> None:
    response = decoded([spoken("x")], service_tier="default", future={"a": [None, 1]}, user=None)
    assert response["raw"] == {"service_tier": "default", "future": {"a": [None, 1]}}


def test_a_cost_that_the_provider_tells_is_used_where_no_price_is_known() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "cost": 0.000125, "input_tokens_details": {"cache_write_tokens": 1}}
    told = decoded([spoken("x")], usage=usage)["usage"]
    priced = script_names()["llm_priced"]
    assert (told["reported_cost_micros"], told["cache_write_tokens"], told["total_tokens"]) == (125, 1, 5)
    assert (priced(told, None)["cost_micros"], priced(told, None)["price"]) == (125, {"source": "provider"})
    price = {"input": 1_000_000, "output": 10_000_000}
    assert (priced(told, price)["cost_micros"], priced(told, price)["price"]) == (23, price)
    assert "cost_micros" not in priced({**told, "reported_cost_micros": None}, None)
