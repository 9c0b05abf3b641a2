"""Answers in the Chat Completions format, short to write in tests."""

import json
from typing import Any

Json = dict[str, Any]
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
DONE = b"data: [DONE]\n\n"


def chunk(finish: str | None = None, usage: Json | None = None, **delta: Any) -> bytes:
    """Return one event of a stream."""
    value: Json = {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if usage is not None:
        value["usage"] = usage
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def calls(*named: tuple[str, str, str]) -> bytes:
    """Return one event with whole calls: (id, name, arguments as text)."""
    pieces = [
        {"index": at, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (call_id, name, arguments) in enumerate(named)
    ]
    return chunk(tool_calls=pieces)


def ending(finish: str = "stop", usage: Json | None = None) -> bytes:
    """Return the end of a stream."""
    return chunk(finish, usage or USAGE) + DONE


def whole(finish: str = "stop", **message: Any) -> str:
    """Return a whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "c1", "model": "m-1", "choices": [choice], "usage": USAGE})
