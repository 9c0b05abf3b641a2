"""Anthropic Messages as the vendor speaks it: answers, stream events, errors, and the rules of requests."""

import hashlib
import json
import re
from typing import Any

from tests.fakes.provider.request import Invalid, Received, words
from tests.fakes.provider.script import Answer, Reasoning, Refusal, Text, ToolCall

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_FIELDS = words(
    "model messages max_tokens system stream tools tool_choice temperature top_p top_k stop_sequences metadata thinking"
    " service_tier container mcp_servers context_management output_config output_format cache_control inference_geo"
)
_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
           413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}  # fmt: skip
_BLOCKS = {
    "user": frozenset({"text", "image", "document", "tool_result", "search_result"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}),
}
_CACHE_BLOCKS = 4
_MINIMUM_THINKING = 1024


def signature_of(thinking: str) -> str:
    """Return the signature that the fake gives to a thinking block, and asks back."""
    return "sig-" + hashlib.sha256(thinking.encode("utf-8", "replace")).hexdigest()[:24]


def body(answer: Answer, request: Received) -> dict[str, Any]:
    blocks = [_block(part, request, i) for i, part in enumerate(answer.parts)]
    return _message(request, answer) | {"content": blocks, "stop_reason": _STOPS[answer.end], "usage": _usage(answer)}


def events(answer: Answer, request: Received) -> list[str]:
    started = _message(request, answer) | {"usage": _usage(answer) | {"output_tokens": 1}}
    sent: list[dict[str, Any]] = [{"type": "message_start", "message": started}]
    for index, part in enumerate(answer.parts):
        sent.append({"type": "content_block_start", "index": index, "content_block": _empty(_block(part, request, index))})
        if index == 0:
            sent.append({"type": "ping"})
        sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(answer, part)]
        sent.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": _STOPS[answer.end], "stop_sequence": None}
    sent.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": answer.usage.output}})
    return [_event(event) for event in (*sent, {"type": "message_stop"})]


def error(message: str, status: int, kind: str | None = None, param: str | None = None, code: str | None = None) -> Any:
    detail = {"type": kind or _ERRORS.get(status, "api_error"), "message": message}
    return {"type": "error", "error": detail, "request_id": "req_fake"}


def error_event(message: str) -> str:
    return _event({"type": "error", "error": {"type": "overloaded_error", "message": message}})


def check(request: Received) -> None:
    """Raise Invalid where the vendor would answer 400."""
    asked = request.body
    if "anthropic-version" not in request.headers:
        raise Invalid("anthropic-version: header is required")
    if not isinstance(asked, dict):
        raise Invalid("The request body is not valid JSON")
    for name in ("model", "max_tokens", "messages"):
        if asked.get(name) is None:
            raise Invalid(f"{name}: Field required")
    for name in asked:
        if name not in _FIELDS:
            raise Invalid(f"{name}: Extra inputs are not permitted")
    _check_settings(asked)
    _check_tools(asked.get("tools") or [])
    _check_messages(asked["messages"], asked)


def _check_settings(asked: dict[str, Any]) -> None:
    limit = asked["max_tokens"]
    if not isinstance(limit, int) or limit < 1:
        raise Invalid("max_tokens: Input should be greater than or equal to 1")
    temperature = asked.get("temperature")
    if temperature is not None and not 0 <= temperature <= 1:
        raise Invalid("temperature: range: 0..1")
    thinking = asked.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens", 0)
        if budget < _MINIMUM_THINKING:
            raise Invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= limit:
            raise Invalid("`max_tokens` must be greater than `thinking.budget_tokens`")
    system = asked.get("system")
    for block in system if isinstance(system, list) else []:
        _check_text(block.get("text"), "system")
    marked = json.dumps(asked).count('"cache_control"')
    if marked > _CACHE_BLOCKS:
        raise Invalid(f"A maximum of {_CACHE_BLOCKS} blocks with cache_control may be provided. Found {marked}.")


def _check_tools(tools: list[dict[str, Any]]) -> None:
    names: list[str] = []
    for i, tool in enumerate(tools):
        if not NAME.match(str(tool.get("name", ""))):
            raise Invalid(f"tools.{i}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if "type" in tool and tool["type"] != "custom":
            continue
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise Invalid(f"tools.{i}.custom.input_schema.type: Field required")
        names.append(tool["name"])
    if len(names) != len(set(names)):
        raise Invalid("tools: Tool names must be unique.")


def _check_messages(messages: Any, asked: dict[str, Any]) -> None:
    if not isinstance(messages, list) or not messages:
        raise Invalid("messages: at least one message is required")
    before: str | None = None
    waiting: list[str] = []
    for i, message in enumerate(messages):
        role = message.get("role")
        if role not in _BLOCKS:
            raise Invalid(
                f'messages.{i}.role: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter.'
            )
        if before is None and role != "user":
            raise Invalid('messages: first message must use the "user" role')
        if role == before:
            raise Invalid(
                f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row'
            )
        last = i == len(messages) - 1
        blocks = _blocks(message, i, last)
        _check_results(blocks, waiting, i)
        found = [_check_block(block, role, f"messages.{i}.content.{j}") for j, block in enumerate(blocks)]
        waiting = [call_id for call_id in found if call_id]
        if i >= len(messages) - 2:  # the turn that goes on now
            _check_thinking(blocks, waiting, asked, i)
        before = role
    _check_results([], waiting, len(messages))


def _blocks(message: dict[str, Any], i: int, last: bool) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not content and not (last and message["role"] == "assistant"):
        raise Invalid(
            f"messages.{i}: all messages must have non-empty content except for the optional final assistant message"
        )
    if last and message["role"] == "assistant" and content and str(content[-1].get("text", "")).endswith((" ", "\n", "\t")):
        raise Invalid("messages: final assistant content cannot end with trailing whitespace")
    return list(content or [])


def _check_block(block: dict[str, Any], role: str, where: str) -> str | None:
    """Check one block and return the id of a tool use."""
    kind = block.get("type")
    if kind not in _BLOCKS[role]:
        raise Invalid(
            f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags of role {role}"
        )
    if kind == "text":
        _check_text(block.get("text"), "messages")
    if kind == "thinking" and block.get("signature") != signature_of(str(block.get("thinking"))):
        raise Invalid(f"{where}: Invalid `signature` in `thinking` block")
    if kind != "tool_use":
        return None
    if not NAME.match(str(block.get("id", ""))) or not NAME.match(str(block.get("name", ""))):
        raise Invalid(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("input"), dict):
        raise Invalid(f"{where}.tool_use.input: Input should be a valid dictionary")
    return str(block["id"])


def _check_text(text: Any, where: str) -> None:
    if not isinstance(text, str) or not text:
        raise Invalid(f"{where}: text content blocks must be non-empty")
    if not text.strip():
        raise Invalid(f"{where}: text content blocks must contain non-whitespace text")


def _check_results(blocks: list[dict[str, Any]], waiting: list[str], i: int) -> None:
    """Each tool use is answered in the very next message, before anything else in it."""
    first = next((j for j, block in enumerate(blocks) if block.get("type") != "tool_result"), len(blocks))
    for j, block in enumerate(blocks):
        if block.get("type") == "tool_result" and block.get("tool_use_id") not in waiting:
            raise Invalid(
                f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `tool_result` blocks:"
                f" {block.get('tool_use_id')}. Each `tool_result` block must have a"
                " corresponding `tool_use` block in the previous message."
            )
    answered = [block["tool_use_id"] for block in blocks[:first]]
    missing = [call_id for call_id in waiting if call_id not in answered]
    if missing:
        raise Invalid(
            f"messages.{i - 1}: `tool_use` ids were found without `tool_result` blocks immediately after:"
            f" {', '.join(missing)}. Each `tool_use` block must have a corresponding"
            " `tool_result` block in the next message."
        )
    if len(answered) != len(set(answered)):
        raise Invalid(f"messages.{i}: each tool_use must have a single result.")


def _check_thinking(blocks: list[dict[str, Any]], calls: list[str], asked: dict[str, Any], i: int) -> None:
    enabled = (asked.get("thinking") or {}).get("type") == "enabled"
    if enabled and calls and blocks[0].get("type") not in ("thinking", "redacted_thinking"):
        raise Invalid(
            f"messages.{i}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{blocks[0].get('type')}`."
            " When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )


def _event(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}"


def _message(request: Received, answer: Answer) -> dict[str, Any]:
    return {"id": f"msg_fake{request.number}", "type": "message", "role": "assistant", "model": request.model, "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": _usage(answer)}  # fmt: skip


def _usage(answer: Answer) -> dict[str, Any]:
    used = answer.usage
    return {"input_tokens": used.input - used.cached, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": used.cached, "output_tokens": used.output, "service_tier": "standard"}  # fmt: skip


def _block(part: Text | Reasoning | Refusal | ToolCall, request: Received, index: int) -> dict[str, Any]:
    match part:
        case Text(text) | Refusal(text):
            return {"type": "text", "text": text}
        case Reasoning(text):
            return {"type": "thinking", "thinking": text, "signature": signature_of(text)}
        case ToolCall():
            try:
                value = json.loads(part.arguments or "{}")
            except ValueError:
                value = {}
            return {
                "type": "tool_use",
                "id": part.id or f"toolu_fake{request.number}_{index}",
                "name": part.name,
                "input": value,
            }


def _empty(block: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}}
    return block | {name: value for name, value in empty.items() if name in block}


def _deltas(answer: Answer, part: Text | Reasoning | Refusal | ToolCall) -> list[dict[str, Any]]:
    match part:
        case Text(text) | Refusal(text):
            return [{"type": "text_delta", "text": piece} for piece in answer.pieces(text)]
        case Reasoning(text):
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in answer.pieces(text)]
            return [*pieces, {"type": "signature_delta", "signature": signature_of(text)}]
        case ToolCall():
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in answer.pieces(part.arguments)]
            return [{"type": "input_json_delta", "partial_json": ""}, *pieces]
