"""The judge of requests finds every fault that was put in, and finds none in what the encoders make of random histories."""

import copy
import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from random import Random
from typing import Any

import jsonschema
import pytest

from benchmarks.fuzz_requests import BATCH, batch, wrong
from tests.fakes.adapter import script_names
from tests.fakes.grammar import faults
from tests.fakes.histories import MODELS, history_of, provider_of, request_of

Json = dict[str, Any]
Spoil = Callable[[Json], object]
FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
CHAT: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "https://a.b/c"}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "add", "arguments": '{"x":1}'}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "auto",
    "stream": True,
}  # fmt: skip
RESPONSES: Json = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "add", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "add", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "message", "role": "assistant", "content": "done"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
    ],
    "tools": [{"type": "function", "strict": False, **FUNCTION}],
    "store": False,
    "include": ["reasoning.encrypted_content"],
}  # fmt: skip
MESSAGES: Json = {
    "model": "m",
    "max_tokens": 4096,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "add", "input": {}},
            {"type": "tool_use", "id": "b", "name": "add", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"},
                                     {"type": "tool_result", "tool_use_id": "b", "content": "2"}]},
    ],
    "thinking": {"type": "enabled", "budget_tokens": 2048},
}  # fmt: skip
VALID = {"openai_chat": CHAT, "openai_responses": RESPONSES, "anthropic_messages": MESSAGES}


def put(*path: Any, value: Any) -> Spoil:
    """Return what sets the value at a path; a path of a list may name one place behind its end."""

    def spoil(body: Json) -> None:
        held: Any = body
        for step in path[:-1]:
            held = held[step]
        if isinstance(held, list) and path[-1] == len(held):
            held.append(value)
        else:
            held[path[-1]] = value

    return spoil


def drop(*path: Any) -> Spoil:
    def spoil(body: Json) -> None:
        held: Any = body
        for step in path[:-1]:
            held = held[step]
        held.pop(path[-1])

    return spoil


def swap(name: str, first: int, second: int) -> Spoil:
    def spoil(body: Json) -> None:
        items = body[name]
        items[first], items[second] = items[second], items[first]

    return spoil


CALL = ("messages", 2, "tool_calls", 0)
BLOCK = ("messages", 1, "content")
SEEDED: list[tuple[str, str, Spoil]] = [
    ("openai_chat", "a result is missing", drop("messages", 4)),
    ("openai_chat", "a result twice", put("messages", 4, value={"role": "tool", "tool_call_id": "a", "content": "1"})),
    ("openai_chat", "a result without a call", put("messages", 7, value={**CHAT["messages"][3], "tool_call_id": "z"})),
    ("openai_chat", "a result after a user's message", swap("messages", 4, 6)),
    ("openai_chat", "a call at the end", lambda body: body.update(messages=body["messages"][:3])),
    ("openai_chat", "two calls with one id", put("messages", 2, "tool_calls", 1, "id", value="a")),
    ("openai_chat", "arguments that are no JSON", put(*CALL, "function", "arguments", value="{")),
    ("openai_chat", "arguments that are a list", put(*CALL, "function", "arguments", value="[]")),
    ("openai_chat", "arguments as an object", put(*CALL, "function", "arguments", value={})),
    ("openai_chat", "a call's name with a space", put(*CALL, "function", "name", value="a b")),
    ("openai_chat", "no calls", put("messages", 2, "tool_calls", value=[])),
    ("openai_chat", "blank text", put("messages", 6, "content", value=" ")),
    ("openai_chat", "a blank part", put("messages", 1, "content", 0, "text", value="")),
    ("openai_chat", "a blank assistant", put("messages", 5, "content", value=None)),
    ("openai_chat", "a blank system prompt", put("messages", 0, "content", value="")),
    ("openai_chat", "the system prompt in the middle", swap("messages", 0, 1)),
    ("openai_chat", "an unknown role", put("messages", 6, "role", value="robot")),
    ("openai_chat", "an unknown part", put("messages", 1, "content", 0, "type", value="reasoning")),
    ("openai_chat", "an image without a link", put("messages", 1, "content", 1, "image_url", "url", value="a.png")),
    ("openai_chat", "an unknown field", put("max_completion", value=1)),
    ("openai_chat", "a field of ours", put("messages", 6, "provider", value="x")),
    ("openai_chat", "a tool twice", put("tools", 1, value={"type": "function", "function": FUNCTION})),
    ("openai_chat", "a tool's name too long", put("tools", 0, "function", "name", value="n" * 65)),
    ("openai_chat", "a choice of no tool", put("tool_choice", value={"type": "function", "function": {"name": "z"}})),
    ("openai_chat", "a choice without tools", drop("tools")),
    ("openai_chat", "half a surrogate pair", put("messages", 6, "content", value="\ud835")),
    ("openai_chat", "no number", put("temperature", value=float("nan"))),
    ("openai_chat", "no messages", put("messages", value=[])),
    ("openai_responses", "an output is missing", drop("input", 6)),
    ("openai_responses", "an output twice", put("input", 9, value=RESPONSES["input"][5])),
    ("openai_responses", "an output without a call", put("input", 5, "call_id", value="z")),
    ("openai_responses", "an output before its call", swap("input", 3, 5)),
    ("openai_responses", "a user's message before the output", swap("input", 5, 8)),
    ("openai_responses", "two calls with one id", put("input", 4, "call_id", value="a")),
    ("openai_responses", "a call id too long", put("input", 3, "call_id", value="c" * 65)),
    ("openai_responses", "arguments that are no JSON", put("input", 3, "arguments", value="{")),
    ("openai_responses", "a call's name with a space", put("input", 3, "name", value="a b")),
    ("openai_responses", "an item's id of another kind", put("input", 3, "id", value="call_1")),
    ("openai_responses", "an item twice", put("input", 4, "id", value="fc_1")),
    ("openai_responses", "reasoning that nobody has", drop("input", 1, "encrypted_content")),
    ("openai_responses", "reasoning at the end", put("input", 9, value={**RESPONSES["input"][1], "id": "rs_2"})),
    ("openai_responses", "reasoning before a user's message", swap("input", 2, 8)),
    ("openai_responses", "reasoning without a summary", drop("input", 1, "summary")),
    ("openai_responses", "blank text", put("input", 0, "content", 0, "text", value="\n")),
    ("openai_responses", "a user's part of an assistant", put("input", 2, "content", 0, "type", value="input_text")),
    ("openai_responses", "a text without annotations", drop("input", 2, "content", 0, "annotations")),
    ("openai_responses", "blank instructions", put("instructions", value="")),
    ("openai_responses", "messages in place of input", put("messages", value=[])),
    ("openai_responses", "a nested tool", put("tools", 0, value={"type": "function", "function": FUNCTION})),
    ("openai_responses", "a choice of no tool", put("tool_choice", value={"type": "function", "name": "z"})),
    ("openai_responses", "an output limit too low", put("max_output_tokens", value=5)),
    ("openai_responses", "stop", put("stop", value=["x"])),
    ("openai_responses", "no input", put("input", value=[])),
    ("anthropic_messages", "a result is missing", drop("messages", 2, "content", 1)),
    ("anthropic_messages", "a result twice", put("messages", 2, "content", 1, "tool_use_id", value="a")),
    ("anthropic_messages", "a result without a call", put("messages", 0, "content", 1, value={
        "type": "tool_result", "tool_use_id": "z", "content": "1"})),
    ("anthropic_messages", "text before results", lambda body: body["messages"][2]["content"].insert(
        0, {"type": "text", "text": "so"})),
    ("anthropic_messages", "a call at the end", drop("messages", 2)),
    ("anthropic_messages", "two calls with one id", put(*BLOCK, 3, "id", value="a")),
    ("anthropic_messages", "an id with a colon", put(*BLOCK, 3, "id", value="a:1")),
    ("anthropic_messages", "input as text", put(*BLOCK, 2, "input", value="{}")),
    ("anthropic_messages", "a call's name with a space", put(*BLOCK, 2, "name", value="a b")),
    ("anthropic_messages", "two turns of one role", put("messages", 3, value=MESSAGES["messages"][0])),
    ("anthropic_messages", "the assistant first", drop("messages", 0)),
    ("anthropic_messages", "a system message", put("messages", 0, "role", value="system")),
    ("anthropic_messages", "blank text", put("messages", 0, "content", 0, "text", value=" ")),
    ("anthropic_messages", "no content", put("messages", 0, "content", value=[])),
    ("anthropic_messages", "thinking without a signature", put(*BLOCK, 0, "signature", value="")),
    ("anthropic_messages", "thinking at the end", put("messages", 3, value={
        "role": "assistant", "content": [MESSAGES["messages"][1]["content"][0]]})),
    ("anthropic_messages", "a turn with calls that did not think", drop(*BLOCK, 0)),
    ("anthropic_messages", "thinking and temperature", put("temperature", value=0.5)),
    ("anthropic_messages", "thinking and a forced tool", put("tool_choice", value={"type": "any"})),
    ("anthropic_messages", "a budget over the limit", put("thinking", "budget_tokens", value=4096)),
    ("anthropic_messages", "no output limit", drop("max_tokens")),
    ("anthropic_messages", "temperature over 1", lambda body: (body.update(temperature=1.5), body.pop("thinking"))),
    ("anthropic_messages", "a schema that is no object's", put("tools", 0, "input_schema", value={})),
    ("anthropic_messages", "a blank system prompt", put("system", 0, "text", value="")),
    ("anthropic_messages", "five cache marks", lambda body: [
        block.update(cache_control={"type": "ephemeral"}) for turn in body["messages"] for block in turn["content"]]),
    ("anthropic_messages", "a server tool's call without a result", lambda body: body["messages"][1]["content"].insert(
        1, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
    ("anthropic_messages", "a field of Chat", put("parallel_tool_calls", value=False)),
    ("anthropic_messages", "an image of a strange type", put("messages", 0, "content", 1, value={
        "type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "QUJD"}})),
]  # fmt: skip


@pytest.mark.parametrize("protocol", VALID)
def test_a_valid_request_has_no_fault(protocol: str) -> None:
    assert faults(protocol, VALID[protocol]) == []


@pytest.mark.parametrize(("protocol", "fault", "spoil"), [pytest.param(*row, id=f"{row[0]}: {row[1]}") for row in SEEDED])
def test_a_fault_that_was_put_in_is_found(protocol: str, fault: str, spoil: Spoil) -> None:
    body = copy.deepcopy(VALID[protocol])
    spoil(body)
    assert faults(protocol, body), fault


@pytest.mark.parametrize("protocol", VALID)
@pytest.mark.parametrize(
    "body", [None, [], {}, {"model": "m"}, {"model": "m", "messages": [None], "input": [7], "max_tokens": 1}]
)
def test_what_is_no_request_at_all_is_at_fault(protocol: str, body: Any) -> None:
    assert faults(protocol, body)


def test_no_vendor_would_refuse_what_random_histories_become() -> None:
    found = batch(7_000_000, BATCH // 2)
    assert wrong(found) == {}
    assert found["sent"] > BATCH


def nullable(value: Json) -> Json:
    """Say OpenAPI 3.0's `nullable` as JSON Schema does."""
    if value.pop("nullable", None) is not True:
        return value
    return {"anyOf": [value, {"type": "null"}]}


@cache
def schema(document: str, name: str) -> Any:
    package = pytest.importorskip("llm_comply")
    spec = json.loads((resources.files(package) / "specs" / f"{document}.json").read_text("utf-8"), object_hook=nullable)
    chosen = {"components": spec["components"], "$ref": f"#/components/schemas/{name}"}
    return jsonschema.Draft202012Validator(chosen)


DOCUMENTS = {"openai_chat": ("openai_chat", "CreateChatCompletionRequest"),
             "openai_responses": ("openresponses", "CreateResponseBody"),
             "anthropic_messages": ("anthropic", "CreateMessageParams")}  # fmt: skip


def within_document(body: Json) -> Json:
    """Leave out what the open document of Responses does not know: hosted tools, and the open text of reasoning."""
    items = [
        item
        for item in body.get("input", [])
        if item["type"] != "web_search_call" and not ("summary" in item and "content" in item)
    ]
    return {**body, "input": items} if "input" in body else body


@pytest.mark.parametrize("protocol", DOCUMENTS)
def test_requests_fit_the_vendors_own_documents(protocol: str) -> None:
    validator = schema(*DOCUMENTS[protocol])
    assert validator.is_valid(VALID[protocol])
    assert not validator.is_valid({**VALID[protocol], "tools": 3})
    names = script_names()
    provider_name, model, _ = next(one for one in MODELS if one[2] == protocol)
    for seed in range(60):
        random = Random(seed)  # noqa: S311 - repeatable
        checked = names["gate_check"](history_of(random))
        request = request_of(random, names["llm_request"], checked["messages"], checked["system"], model)
        encoded = names["LLM_ADAPTERS"][protocol]["encode"](request, provider_of(random, provider_name, model))
        if encoded["ok"]:
            error = next(validator.iter_errors(within_document(encoded["body"])), None)
            assert error is None, (seed, error and (list(error.absolute_path), error.message[:300]))
