"""How to read each protocol's recorded answers, whole and streamed, into facts; see `rss_policy.transcript_facts`.

Written apart from the adapters and simpler than they are.  Pure.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rss_policy.transcript_facts import Call, Facts, Json, chat_answer, chat_stream

MESSAGES_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
}
RESPONSES_ENDS = ("response.completed", "response.incomplete", "response.failed")
NOT_DONE = ("queued", "in_progress", "failed", "cancelled")


def responses_answer(body: Json) -> Facts:
    """Read a whole Responses answer."""
    output = body.get("output")
    if body.get("error") or body.get("status") in NOT_DONE or not isinstance(output, list):
        return Facts(error="any")
    calls = tuple(
        Call(item.get("call_id") or "", item["name"], _text(item["arguments"]))
        for item in output
        if item["type"] == "function_call"
    )
    texts = [part for item in output if item["type"] == "message" for part in item["content"]]
    text = "".join(part["text"] for part in texts if part["type"] == "output_text")
    refusal = "".join(part["refusal"] for part in texts if part["type"] == "refusal")
    usage = body.get("usage")
    return Facts(
        text=text,
        reasoning="".join(_responses_reasoning(item) for item in output if item["type"] == "reasoning"),
        refusal=refusal,
        calls=calls,
        usage=_responses_usage(usage) if usage else None,
        stop=_responses_stop(body, calls, refusal if not text else ""),
    )


def responses_stream(events: Sequence[Json]) -> Facts:
    """Read the events of a streamed Responses answer: its last event holds all of it."""
    if any(event.get("type") == "error" for event in events):
        return Facts(error="any")
    ends = [event["response"] for event in events if event.get("type") in RESPONSES_ENDS]
    if not ends:
        return Facts(error="any")
    items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
    return responses_answer({**ends[-1], "output": ends[-1].get("output") or items})


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _responses_reasoning(item: Json) -> str:
    parts = [*(item.get("summary") or []), *(item.get("content") or [])]
    return "\n\n".join(part["text"] for part in parts if part.get("text"))


def _responses_stop(body: Json, calls: tuple[Call, ...], refusal: str) -> str:
    if body.get("status") == "incomplete":
        reason = (body.get("incomplete_details") or {}).get("reason")
        return "length" if reason == "max_output_tokens" else str(reason)
    return "tool_calls" if calls else "refusal" if refusal else "stop"


def _responses_usage(usage: Json) -> tuple[int, int, int, int]:
    fed, out = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return usage["input_tokens"], usage["output_tokens"], fed.get("cached_tokens") or 0, out.get("reasoning_tokens") or 0


def messages_answer(body: Json) -> Facts:
    """Read a whole Messages answer."""
    blocks = body.get("content")
    if body.get("type") == "error" or not isinstance(blocks, list):
        return Facts(error="any")
    calls = [block for block in blocks if block["type"] == "tool_use"]
    usage = body.get("usage")
    return Facts(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        reasoning="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=tuple(Call(block["id"], block["name"], json.dumps(block["input"])) for block in calls),
        usage=_messages_usage(usage) if usage else None,
        stop=MESSAGES_STOPS.get(body.get("stop_reason") or "end_turn"),
    )


def messages_stream(events: Sequence[Json]) -> Facts:
    """Read the events of a streamed Messages answer."""
    if any(event.get("type") == "error" for event in events) or events[-1:] != [{"type": "message_stop"}]:
        return Facts(error="any")
    blocks: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"usage": {}}
    for event in events:
        match event["type"]:
            case "message_start":
                whole["usage"] = dict(event["message"].get("usage") or {})
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            case "content_block_delta":
                _add(blocks[event["index"]], event["delta"])
            case "message_delta":
                whole["stop_reason"] = event["delta"].get("stop_reason")
                whole["usage"] |= {name: value for name, value in event.get("usage", {}).items() if value is not None}
    for block in blocks.values():
        if block["json"]:
            block["input"] = json.loads(block["json"])
    return messages_answer({**whole, "content": list(blocks.values())})


def _add(block: dict[str, Any], delta: Json) -> None:
    for name in ("text", "thinking"):
        block[name] = block.get(name, "") + delta.get(name, "")
    block["json"] += delta.get("partial_json", "")


def _messages_usage(usage: Json) -> tuple[int, int, int, int]:
    cached, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    thinking = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    return usage.get("input_tokens", 0) + cached + written, usage.get("output_tokens", 0), cached, thinking


@dataclass(frozen=True, slots=True)
class Protocol:
    """How to read one protocol's recordings: a whole answer's JSON, and the JSON data of a stream's events."""

    answer: Callable[[Json], Facts]
    stream: Callable[[Sequence[Json]], Facts]


PROTOCOLS: dict[str, Protocol] = {
    "openai_chat": Protocol(chat_answer, chat_stream),
    "openai_responses": Protocol(responses_answer, responses_stream),
    "anthropic_messages": Protocol(messages_answer, messages_stream),
}
