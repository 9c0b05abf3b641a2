"""From a run's end to OpenAI's answer: the completion, its usage and finish reason, or its error.  Pure."""

import json
from typing import Any

from eventstore.catalogue import Json, Problem, Usage
from gateways.http.errors import ApiError

_REASONS = {
    "stop": "stop",
    "length": "length",
    "max_turns": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "stop",
}
_KINDS = {
    "rate": "provider_rate_limited",
    "overload": "provider_overloaded",
    "server": "provider_error",
    "protocol": "provider_error",
    "interrupted": "provider_error",
    "timeout": "provider_timeout",
    "network": "provider_error",
    "overflow": "context_length_exceeded",
    "auth": "provider_auth",
    "quota": "insufficient_quota",
    "client": "provider_refused",
}


def completion(
    run_id: str, created: int, model: str, message: Json, end: tuple[str, Usage], client_tools: frozenset[str]
) -> Json:
    """Return a whole `chat.completion`; `end` is the run's finish reason and usage, `created` in seconds."""
    shown = assistant(message, client_tools)
    reason, usage = end
    choice = {
        "index": 0,
        "message": shown,
        "logprobs": None,
        "finish_reason": finish_reason(reason, calls=bool(shown.get("tool_calls"))),
    }
    return {
        "id": completion_id(run_id),
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage_object(usage),
    }


def completion_id(run_id: str) -> str:
    """Return the id that OpenAI's clients see for a run."""
    return f"chatcmpl-{run_id}"


def assistant(message: Json, client_tools: frozenset[str]) -> Json:
    """Return a canonical assistant message as OpenAI's; calls of the server's own tools are not the client's business."""
    shown: Json = {
        "role": "assistant",
        "content": text_of(message, "text") or None,
        "refusal": text_of(message, "refusal") or None,
        "annotations": [],
    }
    reasoning = text_of(message, "reasoning")
    if reasoning:
        shown["reasoning_content"] = reasoning
    calls = client_calls(message, client_tools)
    if calls:
        shown["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments_of(call)}}
            for call in calls
        ]
    return shown


def text_of(message: Json, kind: str) -> str:
    """Return the text of all parts of one type."""
    return "".join(part.get("text", "") for part in message.get("content", ()) if part.get("type") == kind)


def client_calls(message: Json, client_tools: frozenset[str]) -> list[Json]:
    """Return the calls that the client is to run."""
    return [
        part for part in message.get("content", ()) if part.get("type") == "tool_call" and part.get("name") in client_tools
    ]


def arguments_of(call: Json) -> str:
    """Return a call's arguments as text: the provider's own, where they were not a JSON object."""
    raw: Any = call.get("raw_arguments")
    return raw if isinstance(raw, str) else json.dumps(call.get("arguments", {}), ensure_ascii=False)


def finish_reason(reason: str, *, calls: bool) -> str:
    """Return OpenAI's word for how a run ended."""
    return "tool_calls" if calls else _REASONS.get(reason, "stop").replace("tool_calls", "stop")


def usage_object(usage: Usage) -> Json:
    """Return OpenAI's usage: sums over all attempts of the run."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def failure(problem: Problem, run_id: str) -> ApiError:
    """Return the HTTP error for a run that failed.

    The provider's refusal of the server's own key is no 401: the client's token is right.  Every one is final for a
    client that repeats by itself: the run has tried again as often as its policy wanted.
    """
    code = "context_length_exceeded" if problem.code == "context_length_exceeded" else _KINDS.get(problem.kind, "run_failed")
    return ApiError(code, f"{problem.message} ({problem.code}; run {run_id})", final=True)


def cancelled(reason: str, run_id: str) -> ApiError:
    """Return the HTTP error for a run that was cancelled."""
    return ApiError("run_cancelled", f"The run {run_id} was cancelled: {reason}.")
