"""The judge of Chat Completions requests."""

from collections.abc import Iterator
from typing import Any

from tests.fakes.grammar.shapes import NAME_64, encodable, is_blank, json_object, link, numbers, only, words

_TOP = words(
    "messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata"
    " modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention reasoning_effort"
    " response_format safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools"
    " top_logprobs top_p user verbosity web_search_options"
    # of other vendors
    " reasoning provider plugins thinking"
)
_ASSISTANT = words(
    "content refusal name audio tool_calls reasoning_content reasoning reasoning_details thinking_blocks extra_content"
    " thinking reasoning_text"
)
_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "max_tokens": (1, 1e9), "max_completion_tokens": (1, 1e9)}


def faults(body: Any) -> list[str]:
    found = [*only("body", body, frozenset({"model", "messages"}), _TOP), *encodable(body), *numbers(body, _BOUNDS)]
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    return [*found, *_tools(body, names), *_messages(body["messages"])]


def _tools(body: dict[str, Any], names: list[str]) -> Iterator[str]:
    if "tools" in body and not names:
        yield "tools: empty"
    for tool in body.get("tools", []):
        yield from only("tools", tool, frozenset({"type", "function"}), frozenset())
        function = tool["function"]
        yield from only("tools", function, frozenset({"name"}), words("description parameters strict"))
        if not NAME_64.match(function["name"]) or not isinstance(function.get("parameters", {}), dict):
            yield f"tools: {function['name']!r}"
    if len(set(names)) != len(names):
        yield "tools: a name twice"
    choice = body.get("tool_choice")
    if choice is not None and not names:
        yield "tool_choice: without tools"
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        yield "tool_choice: no such tool"
    if not isinstance(choice, dict | None) and choice not in ("none", "auto", "required"):
        yield f"tool_choice: {choice!r}"


def _messages(messages: list[Any]) -> Iterator[str]:
    open_ids: list[str] = []
    spoken = 0
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message["role"]
        if role != "tool" and open_ids:
            yield f"{where}: calls {open_ids} are not answered"
            open_ids = []
        match role:
            case "system" | "developer":
                yield from only(where, message, words("role content"), words("name"))
                yield from _content(where, message["content"], words("text"))
                if spoken:
                    yield f"{where}: system in the middle"
            case "user":
                yield from only(where, message, words("role content"), words("name"))
                yield from _content(where, message["content"], words("text image_url file input_audio"))
            case "assistant":
                yield from _assistant(where, message)
                open_ids = [call["id"] for call in message.get("tool_calls") or []]
            case "tool":
                yield from only(where, message, words("role content tool_call_id"), frozenset())
                yield from _content(where, message["content"], words("text"))
                if message["tool_call_id"] not in open_ids:
                    yield f"{where}: result {message['tool_call_id']!r} has no call"
                else:
                    open_ids.remove(message["tool_call_id"])
            case _:
                yield f"{where}: role {role!r}"
        spoken += role not in ("system", "developer")
    if open_ids or not spoken:
        yield f"messages: calls {open_ids} are not answered" if open_ids else "messages: none"


def _content(where: str, content: Any, kinds: frozenset[str]) -> Iterator[str]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not parts:
        yield f"{where}: no content"
        return
    for part in parts:
        kind = part["type"]
        if kind not in kinds:
            yield f"{where}: part {kind!r}"
        elif kind == "text" and is_blank(part["text"]):
            yield f"{where}: blank text"
        elif kind == "image_url" and not link(part["image_url"]["url"], ("image/",)):
            yield f"{where}: image {part['image_url']!r}"
        elif kind == "file" and not link(part["file"]["file_data"], ("application/", "text/")):
            yield f"{where}: file"


def _assistant(where: str, message: dict[str, Any]) -> Iterator[str]:
    yield from only(where, message, words("role"), _ASSISTANT)
    calls = message.get("tool_calls")
    if message.get("content") is not None or calls is None:
        yield from _content(where, message.get("content"), words("text refusal"))
    if calls is None:
        return
    ids = [call["id"] for call in calls]
    if not calls or len(set(ids)) != len(ids):
        yield f"{where}: call ids {ids}"
    for call in calls:
        function = call["function"]
        if not isinstance(call["id"], str) or not call["id"] or call["type"] != "function":
            yield f"{where}: call {call['id']!r}"
        if not NAME_64.match(function["name"]):
            yield f"{where}: name {function['name']!r}"
        if not json_object(function["arguments"]):
            yield f"{where}: arguments {function['arguments']!r}"
