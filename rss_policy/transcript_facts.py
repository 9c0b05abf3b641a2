"""What a recorded answer says, read straight from its JSON: the measure that an adapter's result is held against.

Written apart from the adapters and simpler than they are, so that the two do not share their mistakes.  Pure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

STOPS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
BAD_REQUEST, SERVER_FAULT = 400, 500
ERROR_KINDS = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    413: "overflow",
    429: "rate",
    503: "overload",
    529: "overload",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it was told; `arguments` is the text of its arguments."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be found in the canonical result: texts, calls, token counts, the stop reason, or the class of the error."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    usage: tuple[int, int, int, int] | None = None
    stop: str | None = None
    error: str | None = None


def error_of_status(status: int) -> str:
    """Return the class of an HTTP error by its status alone."""
    return ERROR_KINDS.get(status, "server" if status >= SERVER_FAULT else "client")


def chat_answer(body: Json) -> Facts:
    """Read a whole Chat Completions answer."""
    choices = body.get("choices") or []
    if body.get("error") or not choices:
        return Facts(error="any")
    return _chat_facts([choices[0].get("message") or {}], choices[0].get("finish_reason"), body.get("usage"))


def chat_stream(chunks: Sequence[Json]) -> Facts:
    """Read the chunks of a streamed Chat Completions answer."""
    if any(chunk.get("error") for chunk in chunks):
        return Facts(error="any")
    choices = [choice for chunk in chunks for choice in chunk.get("choices") or [] if not choice.get("index")]
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    finishes = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    if any(finish == "error" for finish in finishes):
        return Facts(error="any")
    deltas = [choice.get("delta") or {} for choice in choices]
    return _chat_facts(deltas, finishes[-1] if finishes else None, usages[-1] if usages else None)


def _chat_facts(deltas: Sequence[Json], finish: str | None, usage: Json | None) -> Facts:
    calls = _chat_calls(deltas)
    stop = STOPS.get(finish or "stop")
    if calls and stop == "stop":
        stop = "tool_calls"
    return Facts(
        text="".join(_chat_text(delta.get("content"), "text") for delta in deltas),
        reasoning="".join(_chat_reasoning(delta) for delta in deltas),
        refusal="".join(delta.get("refusal") or "" for delta in deltas),
        calls=calls,
        usage=_chat_usage(usage) if usage else None,
        stop=stop,
    )


def _chat_text(content: Any, kind: str) -> str:
    if isinstance(content, str):
        return content if kind == "text" else ""
    parts = [part for part in content or [] if isinstance(part, dict) and part.get("type") == kind]
    return "".join(_plain(part.get(kind)) for part in parts)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "".join(part.get("text", "") for part in value or [])


def _chat_reasoning(delta: Json) -> str:
    for name in ("reasoning_content", "reasoning", "thinking"):
        if delta.get(name):
            return _plain(delta[name])
    details = delta.get("reasoning_details") or []
    return "".join(detail.get("text") or detail.get("summary") or "" for detail in details) or _chat_text(
        delta.get("content"), "thinking"
    )


def _chat_calls(deltas: Sequence[Json]) -> tuple[Call, ...]:
    told: dict[Any, Call] = {}
    for delta in deltas:
        for at, piece in enumerate(delta.get("tool_calls") or []):
            function = piece.get("function") or {}
            # Only streams of several deltas need an index; a whole answer has each call once.
            key = piece.get("index", at) if len(deltas) > 1 else at
            old = told.get(key, Call("", "", ""))
            arguments = function.get("arguments") or ""
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            told[key] = Call(old.id or piece.get("id") or "", old.name or function.get("name") or "", old.arguments + text)
    return tuple(told.values())


def _chat_usage(usage: Json) -> tuple[int, int, int, int]:
    prompt, completion = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    cached = prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("num_cached_tokens") or 0
    return usage["prompt_tokens"], usage["completion_tokens"], cached, completion.get("reasoning_tokens") or 0
