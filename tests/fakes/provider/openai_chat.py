"""OpenAI Chat Completions as the vendor speaks it: answers, stream chunks, errors, and the rules of requests."""

import json
import re
from typing import Any

from tests.fakes.provider.request import Invalid, Received, words
from tests.fakes.provider.script import Answer, Reasoning, Refusal, Text, ToolCall

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
END = "data: [DONE]"
_FIELDS = words(
    "model messages stream stream_options tools tool_choice parallel_tool_calls max_tokens max_completion_tokens temperature"
    " top_p n stop seed presence_penalty frequency_penalty logit_bias logprobs top_logprobs response_format user metadata"
    " store reasoning_effort service_tier prediction modalities audio verbosity prompt_cache_key safety_identifier"
    " web_search_options functions function_call prompt_cache_retention"
    # of those who speak the same protocol
    " reasoning thinking provider models transforms top_k min_p repetition_penalty cache_prompt chat_template_kwargs"
    " include_reasoning plugins usage"
)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_USER_PARTS = frozenset({"text", "image_url", "input_audio", "file"})


def body(answer: Answer, request: Received) -> dict[str, Any]:
    message = {"role": "assistant", "content": _joined(answer, Text), "refusal": _joined(answer, Refusal)}
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = [_call(call, request, i) for i, call in enumerate(calls)]  # type: ignore[assignment]
    if (reasoning := _joined(answer, Reasoning)) is not None:
        message["reasoning_content"] = reasoning
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    return _envelope(request, "chat.completion") | {"choices": [choice], "usage": usage(answer)}


def events(answer: Answer, request: Received) -> list[str]:
    wants_usage = bool((request.body.get("stream_options") or {}).get("include_usage"))
    common = _envelope(request, "chat.completion.chunk") | ({"usage": None} if wants_usage else {})
    chunks = [_chunk(common, {"role": "assistant", "content": "", "refusal": None})]
    chunks += [_chunk(common, delta) for delta in _deltas(answer, request)]
    chunks.append(_chunk(common, {}, _finish(answer)))
    if wants_usage:
        chunks.append(common | {"choices": [], "usage": usage(answer)})
    return [*(f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}" for chunk in chunks), END]


def error(message: str, status: int, kind: str | None = None, param: str | None = None, code: str | None = None) -> Any:
    kinds = {401: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
    return {
        "error": {
            "message": message,
            "type": kind or kinds.get(status, "invalid_request_error"),
            "param": param,
            "code": code,
        }
    }


def error_event(message: str) -> str:
    return f"data: {json.dumps(error(message, 500))}"


def usage(answer: Answer) -> dict[str, Any]:
    used = answer.usage
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning, "audio_tokens": 0},
    }


def check(request: Received) -> None:
    """Raise Invalid where the vendor would answer 400."""
    asked = request.body
    if not isinstance(asked, dict):
        raise Invalid("We could not parse the JSON body of your request.")
    for name in asked:
        if name not in _FIELDS:
            raise Invalid(f"Unrecognized request argument supplied: {name}", name)
    if not isinstance(asked.get("model"), str) or not asked["model"]:
        raise Invalid("you must provide a model parameter", "model")
    if asked.get("stream_options") is not None and not request.streams:
        raise Invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    _check_numbers(asked)
    _check_tools(asked)
    _check_messages(asked.get("messages"))


def _check_numbers(asked: dict[str, Any]) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        value = asked.get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise Invalid(f"Invalid '{name}': integer below minimum value. Expected a value >= 1.", name)
    temperature = asked.get("temperature")
    if temperature is not None and not 0 <= temperature <= 2:
        raise Invalid("Invalid 'temperature': expected a value between 0 and 2.", "temperature")


def _check_tools(asked: dict[str, Any]) -> None:
    tools = asked.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        raise Invalid("Invalid 'tools': empty array. Expected an array with minimum length 1.", "tools")
    if not tools and asked.get("tool_choice") not in (None, "none", "auto"):
        raise Invalid(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", "tool_choice"
        )
    for i, tool in enumerate(tools or ()):
        function = tool.get("function") if tool.get("type") == "function" else None
        if not isinstance(function, dict) or not NAME.match(str(function.get("name", ""))):
            raise Invalid(f"Invalid 'tools[{i}].function.name': string does not match pattern.", f"tools[{i}].function.name")
        parameters = function.get("parameters", {})
        if not isinstance(parameters, dict):
            raise Invalid(f"Invalid type for 'tools[{i}].function.parameters': expected an object.", "tools")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise Invalid("Invalid 'messages': empty array. Expected an array with minimum length 1.", "messages")
    waiting: list[str] = []
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        role = message.get("role")
        if role not in _ROLES:
            raise Invalid(
                f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user' and 'tool'.", f"{where}.role"
            )
        if role == "tool":
            _check_tool_message(message, waiting, where)
            continue
        _check_answered(waiting, where)
        waiting = _check_message(message, role, where)
    _check_answered(waiting, "messages")


def _check_message(message: dict[str, Any], role: str, where: str) -> list[str]:
    calls = message.get("tool_calls")
    content = message.get("content")
    if role != "assistant":
        _check_content(content, _USER_PARTS if role == "user" else frozenset({"text"}), where)
        return []
    if content is not None:
        _check_content(content, frozenset({"text", "refusal"}), where)
    elif not calls and not message.get("refusal"):
        raise Invalid("Invalid value for 'content': expected a string, got null.", f"{where}.content")
    if calls is not None and not calls:
        raise Invalid(
            f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1.", f"{where}.tool_calls"
        )
    return [_check_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls or ())]


def _check_content(content: Any, kinds: frozenset[str], where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise Invalid("Invalid value for 'content': expected a string or a non-empty array.", f"{where}.content")
    for part in content:
        if part.get("type") not in kinds:
            raise Invalid(f"Invalid '{where}'. Content blocks are expected to be one of {sorted(kinds)}.", where)
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise Invalid(f"Missing required parameter: '{where}.content[].text'.", where)


def _check_call(call: dict[str, Any], where: str) -> str:
    function = call.get("function") or {}
    if call.get("type") != "function" or not isinstance(call.get("id"), str) or not call["id"]:
        raise Invalid(f"Missing required parameter: '{where}.id'.", where)
    if not NAME.match(str(function.get("name", ""))):
        raise Invalid(f"Invalid '{where}.function.name': string does not match pattern.", where)
    try:
        parsed = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        parsed = None
    if not isinstance(parsed, dict):
        raise Invalid(f"Invalid '{where}.function.arguments': expected a JSON object as text.", where)
    return str(call["id"])


def _check_tool_message(message: dict[str, Any], waiting: list[str], where: str) -> None:
    _check_content(message.get("content"), frozenset({"text"}), where)
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str):
        raise Invalid(f"Missing parameter 'tool_call_id': messages with role 'tool' must have it ({where}).", where)
    if call_id not in waiting:
        raise Invalid(
            "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.", f"{where}.role"
        )
    waiting.remove(call_id)


def _check_answered(waiting: list[str], where: str) -> None:
    if waiting:
        raise Invalid(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The"
            f" following tool_call_ids did not have response messages: {', '.join(waiting)}",
            where,
        )


def _envelope(request: Received, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-fake{request.number}", "object": kind, "created": 1_750_000_000, "model": request.model,
            "system_fingerprint": "fp_fake"}  # fmt: skip


def _chunk(common: dict[str, Any], delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return common | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def _deltas(answer: Answer, request: Received) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    index = 0
    for part in answer.parts:
        match part:
            case Text(text):
                deltas += [{"content": piece} for piece in answer.pieces(text)]
            case Reasoning(text):
                deltas += [{"reasoning_content": piece} for piece in answer.pieces(text)]
            case Refusal(text):
                deltas += [{"refusal": piece} for piece in answer.pieces(text)]
            case ToolCall():
                deltas += _call_deltas(answer, part, request, index)
                index += 1
    return deltas


def _call_deltas(answer: Answer, part: ToolCall, request: Received, index: int) -> list[dict[str, Any]]:
    call = _call(part, request, index)
    head = {"index": index, **call, "function": call["function"] | {"arguments": ""}}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in answer.pieces(part.arguments)]
    return [{"tool_calls": [delta]} for delta in (head, *rest)]


def _call(call: ToolCall, request: Received, index: int) -> dict[str, Any]:
    name = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id or f"call_fake{request.number}_{index}", "type": "function", "function": name}


def _joined(answer: Answer, kind: type[Text] | type[Reasoning] | type[Refusal]) -> str | None:
    texts = [part.text for part in answer.parts if isinstance(part, kind)]
    return "".join(texts) if texts else None


def _finish(answer: Answer) -> str:
    return "stop" if answer.end == "refusal" else answer.end
