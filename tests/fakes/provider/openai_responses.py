"""OpenAI Responses as the vendor speaks it: answers, stream events, errors, and the rules of requests."""

import json
from typing import Any

from tests.fakes.provider import openai_chat
from tests.fakes.provider.openai_chat import NAME
from tests.fakes.provider.request import Invalid, Received, words
from tests.fakes.provider.script import Answer, Reasoning, Refusal, Text, ToolCall

_FIELDS = words(
    "model input instructions stream stream_options tools tool_choice parallel_tool_calls max_output_tokens max_tool_calls"
    " temperature top_p top_logprobs reasoning text include store metadata user previous_response_id truncation background"
    " service_tier prompt_cache_key safety_identifier conversation prompt prompt_cache_retention provider plugins"
)
_IN = frozenset({"input_text", "input_image", "input_file"})
_OUT = frozenset({"output_text", "refusal"})
_MINIMUM_OUTPUT = 16

error = openai_chat.error


def body(answer: Answer, request: Received) -> dict[str, Any]:
    return _response(request, answer, [_item(part, request, i) for i, part in enumerate(answer.parts)])


def events(answer: Answer, request: Received) -> list[str]:
    begun = _response(request, None, [])
    sent: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, part in enumerate(answer.parts):
        item = _item(part, request, index)
        sent.append({"type": "response.output_item.added", "output_index": index, "item": _begun(item)})
        sent += [{**delta, "item_id": item["id"], "output_index": index} for delta in _deltas(answer, part, item)]
        sent.append({"type": "response.output_item.done", "output_index": index, "item": item})
    response = body(answer, request)
    sent.append({"type": f"response.{response['status']}", "response": response})
    return [_event(event | {"sequence_number": number}) for number, event in enumerate(sent)]


def error_event(message: str) -> str:
    return _event({"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": 99})


def check(request: Received) -> None:
    """Raise Invalid where the vendor would answer 400."""
    asked = request.body
    if not isinstance(asked, dict):
        raise Invalid("We could not parse the JSON body of your request.")
    for name in asked:
        if name not in _FIELDS:
            raise Invalid(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    if not isinstance(asked.get("model"), str) or not asked["model"]:
        raise Invalid("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    limit = asked.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < _MINIMUM_OUTPUT):
        raise Invalid(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected >= {_MINIMUM_OUTPUT}.", "max_output_tokens"
        )
    _check_tools(asked.get("tools") or [])
    _check_input(asked.get("input"), bool(asked.get("previous_response_id")))


def _check_tools(tools: list[dict[str, Any]]) -> None:
    for i, tool in enumerate(tools):
        if tool.get("type") != "function":
            continue
        if not NAME.match(str(tool.get("name", ""))):
            raise Invalid(
                f"Missing required parameter: 'tools[{i}].name'.", f"tools[{i}].name", "missing_required_parameter"
            )
        if not isinstance(tool.get("parameters", {}), dict | None):
            raise Invalid(f"Invalid type for 'tools[{i}].parameters': expected an object.", f"tools[{i}].parameters")


def _check_input(items: Any, continues: bool) -> None:
    if isinstance(items, str) and items:
        return
    if not isinstance(items, list) or not items:
        raise Invalid("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    calls, outputs = [], []
    for i, item in enumerate(items):
        kind = item.get("type", "message")
        where = f"input[{i}]"
        if kind == "message":
            _check_message(item, where)
        elif kind == "function_call":
            calls.append(_check_call(item, where))
        elif kind == "function_call_output":
            outputs.append(_check_output(item, where))
        elif kind == "reasoning":
            _check_reasoning(items, i)
        elif kind != "item_reference":
            raise Invalid(f"Invalid value: '{kind}'.", f"{where}.type", "invalid_value")
    _check_pairs(calls, outputs, continues)


def _check_message(item: dict[str, Any], where: str) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        raise Invalid(f"Invalid value: '{role}'.", f"{where}.role", "invalid_value")
    if isinstance(content, str):
        return
    allowed = _OUT if role == "assistant" else _IN
    if not isinstance(content, list) or not content:
        raise Invalid(f"Missing required parameter: '{where}.content'.", f"{where}.content", "missing_required_parameter")
    for i, part in enumerate(content):
        if part.get("type") not in allowed:
            supported = ", ".join(f"'{kind}'" for kind in sorted(allowed))
            raise Invalid(
                f"Invalid value: '{part.get('type')}'. Supported values are: {supported}.",
                f"{where}.content[{i}]",
                "invalid_value",
            )


def _check_call(item: dict[str, Any], where: str) -> str:
    if not isinstance(item.get("call_id"), str) or not NAME.match(str(item.get("name", ""))):
        raise Invalid(f"Missing required parameter: '{where}.call_id'.", f"{where}.call_id", "missing_required_parameter")
    if not isinstance(item.get("arguments"), str):
        raise Invalid(f"Invalid type for '{where}.arguments': expected a string.", f"{where}.arguments", "invalid_type")
    if item.get("id") is not None and not str(item["id"]).startswith("fc"):
        raise Invalid(f"Invalid '{where}.id': Expected an ID that begins with 'fc'.", f"{where}.id", "invalid_value")
    return str(item["call_id"])


def _check_output(item: dict[str, Any], where: str) -> str:
    if not isinstance(item.get("call_id"), str) or not isinstance(item.get("output"), str | list):
        raise Invalid(f"Missing required parameter: '{where}.output'.", f"{where}.output", "missing_required_parameter")
    return str(item["call_id"])


def _check_reasoning(items: list[dict[str, Any]], i: int) -> None:
    name = items[i].get("id")
    if not isinstance(items[i].get("summary"), list):
        raise Invalid(
            f"Missing required parameter: 'input[{i}].summary'.", f"input[{i}].summary", "missing_required_parameter"
        )
    follows = items[i + 1] if i + 1 < len(items) else {}
    if follows.get("role") != "assistant" and follows.get("type") not in ("function_call", "reasoning", "item_reference"):
        raise Invalid(f"Item '{name}' of type 'reasoning' was provided without its required following item.", "input")


def _check_pairs(calls: list[str], outputs: list[str], continues: bool) -> None:
    for call_id in calls:
        if call_id not in outputs:
            raise Invalid(f"No tool output found for function call {call_id}.", "input")
    for call_id in outputs:
        if call_id not in calls and not continues:
            raise Invalid(f"No tool call found for function call output with call_id {call_id}.", "input")


def _event(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}"


def _response(request: Received, answer: Answer | None, output: list[dict[str, Any]]) -> dict[str, Any]:
    asked = request.body
    incomplete = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(answer.end if answer else "")
    status = "in_progress" if answer is None else "incomplete" if incomplete else "completed"
    return {
        "id": f"resp_fake{request.number}", "object": "response", "created_at": 1_750_000_000,
        "status": status, "error": None, "incomplete_details": {"reason": incomplete} if incomplete else None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"), "model": request.model, "output": output,
        "parallel_tool_calls": True, "previous_response_id": None, "reasoning": {"effort": None, "summary": None},
        "store": asked.get("store", True), "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
        "tools": asked.get("tools") or [], "top_p": 1.0, "truncation": "disabled", "user": None, "metadata": {},
        "usage": _usage(answer) if answer else None,
    }  # fmt: skip


def _usage(answer: Answer) -> dict[str, Any]:
    used = answer.usage
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cached},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }


def _item(part: Text | Reasoning | Refusal | ToolCall, request: Received, index: int) -> dict[str, Any]:
    number = f"fake{request.number}_{index}"
    message = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
    match part:
        case Text(text):
            return message | {"content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}
        case Refusal(text):
            return message | {"content": [{"type": "refusal", "refusal": text}]}
        case Reasoning(text):
            summary = [{"type": "summary_text", "text": text}]
            return {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": f"sealed:{number}"}
        case ToolCall():
            return {"id": f"fc_{number}", "type": "function_call", "status": "completed", "name": part.name,
                    "call_id": part.id or f"call_{number}", "arguments": part.arguments}  # fmt: skip


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty = {"content": [], "summary": [], "arguments": "", "status": "in_progress"}
    return item | {name: value for name, value in empty.items() if name in item}


def _deltas(answer: Answer, part: Text | Reasoning | Refusal | ToolCall, item: dict[str, Any]) -> list[dict[str, Any]]:
    match part:
        case ToolCall():
            whole = {"arguments": part.arguments}
            return _run(answer, "response.function_call_arguments", {}, part.arguments, whole)
        case Reasoning(text):
            place = {"summary_index": 0}
            block = {"type": "summary_text", "text": text}
            deltas = _run(answer, "response.reasoning_summary_text", place, text, {"text": text})
            return _within("response.reasoning_summary_part", place, block, "text", deltas)
        case Refusal(text):
            deltas = _run(answer, "response.refusal", {"content_index": 0}, text, {"refusal": text})
            return _within("response.content_part", {"content_index": 0}, item["content"][0], "refusal", deltas)
        case Text(text):
            extra: dict[str, Any] = {"content_index": 0, "logprobs": []}
            deltas = _run(answer, "response.output_text", extra, text, {"text": text})
            return _within("response.content_part", {"content_index": 0}, item["content"][0], "text", deltas)


def _run(answer: Answer, prefix: str, place: dict[str, Any], text: str, whole: dict[str, Any]) -> list[dict[str, Any]]:
    deltas = [{"type": f"{prefix}.delta", **place, "delta": piece} for piece in answer.pieces(text)]
    return [*deltas, {"type": f"{prefix}.done", **place, **whole}]


def _within(
    prefix: str, place: dict[str, Any], part: dict[str, Any], name: str, deltas: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    added = {"type": f"{prefix}.added", **place, "part": part | {name: ""}}
    return [added, *deltas, {"type": f"{prefix}.done", **place, "part": part}]
