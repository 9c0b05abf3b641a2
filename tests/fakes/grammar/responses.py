"""The judge of OpenAI Responses requests that keep nothing at the provider."""

from collections.abc import Iterator
from typing import Any

from tests.fakes.grammar.shapes import NAME_64, encodable, is_blank, json_object, link, numbers, only, words

_TOP = words(
    "background conversation include instructions max_output_tokens max_tool_calls metadata parallel_tool_calls"
    " previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning safety_identifier service_tier store"
    " stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user provider"
)
_INCLUDE = words(
    "file_search_call.results web_search_call.results web_search_call.action.sources message.input_image.image_url"
    " computer_call_output.output.image_url code_interpreter_call.outputs reasoning.encrypted_content"
    " message.output_text.logprobs"
)
_HOSTED = words(
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_list_tools mcp_call compaction"
    " tool_search_call tool_search_output"
)
_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "max_output_tokens": (16, 1e9)}


def faults(body: Any) -> list[str]:
    found = [*only("body", body, frozenset({"model", "input"}), _TOP), *encodable(body), *numbers(body, _BOUNDS)]
    if "instructions" in body and is_blank(body["instructions"]):
        found.append("instructions: blank")
    if not set(body.get("include") or []) <= _INCLUDE:
        found.append("include: unknown")
    return [*found, *_tools(body), *_Items(body["input"], bool(body.get("store", True))).faults()]


def _tools(body: dict[str, Any]) -> Iterator[str]:
    names = [tool.get("name") for tool in body.get("tools", [])]
    for tool in body.get("tools", []):
        yield from only("tools", tool, words("type name parameters strict"), words("description defer_loading"))
        if not NAME_64.match(tool["name"]) or not isinstance(tool["parameters"], dict) or tool["type"] != "function":
            yield f"tools: {tool['name']!r}"
    if len(set(names)) != len(names) or ("tools" in body and not names):
        yield "tools: a name twice, or none"
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and (choice["type"] != "function" or choice["name"] not in names):
        yield "tool_choice: no such tool"
    if not isinstance(choice, dict | None) and choice not in ("none", "auto", "required"):
        yield f"tool_choice: {choice!r}"
    if choice is not None and not names:
        yield "tool_choice: without tools"


class _Items:
    """The input's items, one after the other."""

    def __init__(self, items: list[Any], stored: bool) -> None:
        self._items, self._stored = items, stored
        self._open: set[str] = set()
        self._calls: set[str] = set()
        self._ids: set[str] = set()

    def faults(self) -> Iterator[str]:
        if not self._items:
            yield "input: empty"
        for at, item in enumerate(self._items):
            yield from self._item(f"input[{at}]", item, self._items[at + 1] if at + 1 < len(self._items) else {})
            if item.get("id") is not None:
                if item["id"] in self._ids:
                    yield f"input[{at}]: duplicate item {item['id']!r}"
                self._ids.add(item["id"])
        if self._open:
            yield f"input: no output for {sorted(self._open)}"

    def _item(self, where: str, item: dict[str, Any], following: dict[str, Any]) -> Iterator[str]:
        match item.get("type", "message"):
            case "message":
                yield from self._message(where, item)
            case "function_call":
                yield from self._call(where, item)
            case "function_call_output":
                yield from self._output(where, item)
            case "reasoning":
                yield from self._reasoning(where, item, following)
            case kind:
                if kind not in _HOSTED:
                    yield f"{where}: type {kind!r}"

    def _message(self, where: str, item: dict[str, Any]) -> Iterator[str]:
        role, content = item["role"], item["content"]
        if self._open and role != "assistant":
            yield f"{where}: no output yet for {sorted(self._open)}"
        if role not in ("user", "assistant", "system", "developer"):
            yield f"{where}: role {role!r}"
        if isinstance(content, str):
            yield from [f"{where}: blank"] if is_blank(content) else []
            return
        if not content:
            yield f"{where}: no content"
        if role == "assistant":
            yield from only(where, item, words("type role content id status"), words("phase"))
            if is_blank(item["id"]) or item["status"] not in ("completed", "incomplete", "in_progress"):
                yield f"{where}: id or status"
        for part in content:
            yield from _part(where, part, role)

    def _call(self, where: str, item: dict[str, Any]) -> Iterator[str]:
        yield from only(where, item, words("type call_id name arguments"), words("id status namespace"))
        if not isinstance(item["call_id"], str) or not 0 < len(item["call_id"]) <= 64 or item["call_id"] in self._calls:
            yield f"{where}: call_id {item['call_id']!r}"
        if not NAME_64.match(item["name"]) or not json_object(item["arguments"]):
            yield f"{where}: name or arguments"
        if "id" in item and not str(item["id"]).startswith("fc"):
            yield f"{where}: id {item['id']!r}"
        self._calls.add(item["call_id"])
        self._open.add(item["call_id"])

    def _output(self, where: str, item: dict[str, Any]) -> Iterator[str]:
        yield from only(where, item, words("type call_id output"), words("id status"))
        if item["call_id"] not in self._open:
            yield f"{where}: no tool call found for {item['call_id']!r}"
        if is_blank(item["output"]):
            yield f"{where}: blank output"
        self._open.discard(item["call_id"])

    def _reasoning(self, where: str, item: dict[str, Any], following: dict[str, Any]) -> Iterator[str]:
        yield from only(where, item, words("type id summary"), words("content encrypted_content status"))
        if any(part["type"] != "summary_text" for part in item["summary"]):
            yield f"{where}: summary"
        if not self._stored and not item.get("encrypted_content") and not item.get("content"):
            yield f"{where}: item {item['id']!r} not found, items are not persisted"
        kind = following.get("type", "message" if following else "nothing")
        behind = kind in _HOSTED or kind in ("reasoning", "function_call") or following.get("role") == "assistant"
        if not behind:
            yield f"{where}: reasoning without its required following item"


def _part(where: str, part: dict[str, Any], role: str) -> Iterator[str]:
    kind = part["type"]
    if kind not in (("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")):
        yield f"{where}: part {kind!r}"
    if kind in ("input_text", "output_text") and is_blank(part["text"]):
        yield f"{where}: blank text"
    if kind == "refusal" and is_blank(part["refusal"]):
        yield f"{where}: blank refusal"
    if kind == "output_text" and not isinstance(part["annotations"], list):
        yield f"{where}: annotations"
    if kind == "input_image" and not link(part.get("image_url"), ("image/",)):
        yield f"{where}: image"
    if kind == "input_file" and not link(part.get("file_data"), ("application/", "text/")):
        yield f"{where}: file"
