"""The judge of Anthropic Messages requests."""

from collections.abc import Iterator
from typing import Any

from tests.fakes.grammar.shapes import BASE64, NAME_128, encodable, is_blank, link, numbers, only, words

_TOP = words(
    "cache_control container inference_geo metadata output_config service_tier stop_sequences stream system temperature"
    " thinking tool_choice tools top_k top_p"
)
_FIELDS = {
    "text": words("text citations"),
    "image": words("source"),
    "document": words("source title context citations"),
    "tool_result": words("tool_use_id content is_error"),
    "tool_use": words("id name input caller"),
    "thinking": words("thinking signature"),
    "redacted_thinking": words("data"),
    "server_tool_use": words("id name input caller"),
}
_SERVER_RESULTS = words(
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result"
    " text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_result advisor_tool_result"
)
_FIELDS |= dict.fromkeys(_SERVER_RESULTS, words("tool_use_id content caller is_error"))
_OF = {
    "user": words("text image document tool_result"),
    "assistant": words("text tool_use thinking redacted_thinking server_tool_use") | _SERVER_RESULTS,
}
_THINKING = words("thinking redacted_thinking")
_MARKS = 4


def faults(body: Any) -> list[str]:
    found = [
        *only("body", body, words("model messages max_tokens"), _TOP),
        *encodable(body),
        *numbers(body, {"temperature": (0, 1), "top_p": (0, 1), "max_tokens": (1, 1e9)}),
        *_system(body),
        *_tools(body),
        *_marks(body),
        *_Turns(body["messages"]).faults(),
        *_thinking(body),
    ]
    if any(is_blank(text) for text in body.get("stop_sequences", [])):
        found.append("stop_sequences: blank")
    return found


def _system(body: dict[str, Any]) -> Iterator[str]:
    system = body.get("system", [])
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        if block["type"] != "text" or is_blank(block["text"]):
            yield "system: blank, or no text"


def _tools(body: dict[str, Any]) -> Iterator[str]:
    names = [tool["name"] for tool in body.get("tools", [])]
    for tool in body.get("tools", []):
        yield from only("tools", tool, words("name input_schema"), words("description cache_control strict type"))
        if not NAME_128.match(tool["name"]) or tool["input_schema"].get("type") != "object":
            yield f"tools: {tool['name']!r}"
        if "description" in tool and is_blank(tool["description"]):
            yield "tools: blank description"
    if len(set(names)) != len(names):
        yield "tools: names must be unique"
    choice = body.get("tool_choice")
    if choice is None:
        return
    yield from only("tool_choice", choice, words("type"), words("name disable_parallel_tool_use"))
    if choice["type"] not in ("auto", "any", "tool", "none") or not names:
        yield "tool_choice: type, or no tools"
    if choice["type"] == "tool" and choice["name"] not in names:
        yield "tool_choice: no such tool"


def _marks(body: dict[str, Any]) -> Iterator[str]:
    held: list[dict[str, Any]] = [body, *body.get("tools", []), *(b for b in body.get("system", []) if isinstance(b, dict))]
    held += [block for turn in body["messages"] if isinstance(turn["content"], list) for block in turn["content"]]
    marked = [one for one in held if "cache_control" in one]
    if len(marked) > _MARKS:
        yield f"cache_control: {len(marked)} marks"
    if any(one["cache_control"] != {"type": "ephemeral"} or one.get("type") in _THINKING for one in marked):
        yield "cache_control: a wrong mark"


def _thinking(body: dict[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "disabled":
        return
    if thinking["type"] == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        yield "thinking: budget_tokens"
    if any(name in body for name in ("temperature", "top_k", "top_p")):
        yield "thinking: may not be used with sampling"
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield "thinking: may not be enabled when tool_choice forces tool use"
    last = [turn for turn in body["messages"] if turn["role"] == "assistant"][-1:]
    goes_on = body["messages"][-1]["role"] == "user" and any(
        block["type"] == "tool_result" for block in body["messages"][-1]["content"]
    )
    if last and goes_on and last[0]["content"][0]["type"] not in _THINKING:
        yield "thinking: a final assistant message must start with a thinking block"


class _Turns:
    """The turns, one after the other."""

    def __init__(self, turns: list[Any]) -> None:
        self._turns = turns
        self._waiting: list[str] = []
        self._ids: set[str] = set()

    def faults(self) -> Iterator[str]:
        if not self._turns or self._turns[0]["role"] != "user":
            yield "messages: the first one must be the user's"
        for at, turn in enumerate(self._turns):
            where, role = f"messages.{at}", turn["role"]
            yield from only(where, turn, words("role content"), frozenset())
            if role not in _OF or (at and self._turns[at - 1]["role"] == role):
                yield f"{where}: roles must alternate"
            blocks = turn["content"]
            if not blocks or isinstance(blocks, str):
                yield f"{where}: must have non-empty content"
                continue
            yield from self._results(where, blocks)
            for block in blocks:
                yield from self._block(where, block, role)
            self._waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if role == "assistant":
                yield from _ending(where, blocks, at == len(self._turns) - 1)
        if self._waiting:
            yield f"messages: {self._waiting} without tool_result"

    def _results(self, where: str, blocks: list[dict[str, Any]]) -> Iterator[str]:
        kinds = [block["type"] == "tool_result" for block in blocks]
        told = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if not all(kinds[: len(told)]):
            yield f"{where}: tool_result blocks must come first"
        if sorted(told) != sorted(self._waiting):
            yield f"{where}: tool_use {self._waiting} but tool_result {told}"

    def _block(self, where: str, block: dict[str, Any], role: str) -> Iterator[str]:
        kind = block["type"]
        if kind not in _OF[role]:
            yield f"{where}: {kind!r} in a message of {role}"
            return
        yield from only(where, block, frozenset({"type"}), _FIELDS[kind] | {"cache_control"})
        match kind:
            case "text" if is_blank(block["text"]):
                yield f"{where}: text content blocks must contain non-whitespace text"
            case "tool_use" | "server_tool_use":
                yield from self._use(where, block)
            case "tool_result" if is_blank(block["content"]) or not NAME_128.match(block["tool_use_id"]):
                yield f"{where}: tool_result"
            case "thinking" if is_blank(block["signature"]) or not isinstance(block["thinking"], str):
                yield f"{where}: invalid signature"
            case "redacted_thinking" if is_blank(block["data"]):
                yield f"{where}: redacted_thinking"
            case "image":
                yield from _source(where, block["source"], ("image/jpeg", "image/png", "image/gif", "image/webp"))
            case "document":
                yield from _source(where, block["source"], ("application/pdf", "text/plain"))

    def _use(self, where: str, block: dict[str, Any]) -> Iterator[str]:
        if not NAME_128.match(block["id"]) or not NAME_128.match(block["name"]) or not isinstance(block["input"], dict):
            yield f"{where}: tool_use {block['id']!r}"
        if block["id"] in self._ids:
            yield f"{where}: tool_use ids must be unique: {block['id']!r}"
        self._ids.add(block["id"])


def _ending(where: str, blocks: list[dict[str, Any]], last: bool) -> Iterator[str]:
    if blocks[-1]["type"] in _THINKING:
        yield f"{where}: the final block cannot be thinking"
    if last and blocks[-1]["type"] == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        yield f"{where}: final assistant content cannot end with trailing whitespace"
    results = [block["tool_use_id"] for block in blocks if block["type"] in _SERVER_RESULTS]
    uses = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
    open_uses = [use for use in uses if use not in results]
    if open_uses and not (last and open_uses == [blocks[-1].get("id")]):
        yield f"{where}: server_tool_use {open_uses} without a result"
    if any(result not in uses for result in results):
        yield f"{where}: a server tool's result without its use"


def _source(where: str, source: dict[str, Any], kinds: tuple[str, ...]) -> Iterator[str]:
    match source["type"]:
        case "base64":
            if source["media_type"] not in kinds or not BASE64.match(source["data"]):
                yield f"{where}: source {source['media_type']!r}"
        case "url":
            if not link(source["url"], ()):
                yield f"{where}: url"
        case _:
            yield f"{where}: source {source['type']!r}"
