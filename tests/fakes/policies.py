"""Small policies for tests of runs: a streamed answer with retries, tools, waiting."""

from tests.fakes.scripts import bundle_of
from tests.fakes.system import DONE, script

STREAMED = script(
    """
attempt = 0
text = ""
while attempt < 4:
    attempt = attempt + 1
    emit({"type": "model.started", "turn": 1, "attempt": attempt})
    body = {"model": context["model"], "said": [m["content"][0]["text"] for m in context["messages"] + context["input"]]}
    handle = start({"kind": "request", "path": "/chat", "body": body, "stream": True})
    head = await join(handle)
    reason = ""
    text = ""
    if not head["ok"]:
        reason = head["error"]["code"]
    elif head["status"] != 200:
        reason = "status"
    done = reason != ""
    while not done:
        batch = await read(handle)
        for event in batch["events"]:
            piece = event["data"]
            text = text + piece
            emit({"type": "model.delta", "attempt": attempt, "text": piece})
        if not batch["ok"]:
            reason = batch["error"]["code"]
            done = True
        elif batch["done"]:
            done = True
    if reason == "":
        message = {"role": "assistant", "content": [{"type": "text", "text": text}], "provider": "fake", "model": "m"}
        usage = {"input_tokens": 3, "output_tokens": 5}
        emit({"type": "model.completed", "turn": 1, "attempt": attempt, "message": message, "usage": usage})
        fresh = new_messages()
        if len(fresh) > 0:
            emit({"type": "note.steered", "texts": [m["content"][0]["text"] for m in fresh]})
        return {"output": message, "finish_reason": "stop", "error": None}
    emit({"type": "model.discarded", "turn": 1, "attempt": attempt, "reason": reason, "usage": {"input_tokens": 3}})
    await sleep(1)
return {"output": None, "finish_reason": "stop", "error": {"code": "model_failed", "message": reason, "kind": "transient"}}
"""
)
"""Asks once, streams, retries up to four attempts, and takes steering messages in at the end."""

TOOLS = script(
    f"""
calls = context["metadata"]["calls"]
parts = [{{"type": "tool_call", "id": c["id"], "name": c["name"], "arguments": {{}}}} for c in calls]
message = {{"role": "assistant", "content": parts, "provider": "fake", "model": "m"}}
emit({{"type": "model.started", "turn": 1, "attempt": 1}})
emit({{"type": "model.completed", "turn": 1, "attempt": 1, "message": message, "stop_reason": "tool_calls"}})
handles = []
for c in calls:
    emit({{"type": "tool.requested", "call_id": c["id"], "name": c["name"], "arguments": {{}}}})
    handles.append(start({{"kind": "call_tool", "call_id": c["id"], "name": c["name"], "arguments": {{}}}}))
results = []
for handle in handles:
    results.append(await join(handle))
emit({{"type": "note.results", "results": [r["outcome"] + ":" + r["content"] for r in results]}})
{DONE}
"""
)
"""Calls the tools that `metadata.calls` names, all at once, and notes their results in order."""

SLEEPING = script(f"await sleep(60000)\n{DONE}")
"""Waits for a minute."""

LOOPING = script("while True:\n    pass\nreturn {}")
"""Computes for ever."""

PLAIN = script(f'emit({{"type": "note.hello"}})\n{DONE}')
"""Ends at once."""

WHOLE = bundle_of(
    {
        "agent.main": """
from typing import Any
from host import emit, join, new_messages, now, random_id, read, sleep, start

async def attempt(context: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    emit({"type": "model.started", "turn": at["turn"], "attempt": at["attempt"]})
    handle = start({"kind": "request", "path": "/chat", "body": {"turn": at["turn"]}, "stream": True})
    head = await join(handle)
    if not head["ok"]:
        return {"error": head["error"]["code"]}
    text = ""
    while True:
        batch = await read(handle)
        for event in batch["events"]:
            text = text + event["data"]
            emit({"type": "model.delta", "attempt": at["attempt"], "text": event["data"]})
        if not batch["ok"]:
            return {"error": batch["error"]["code"]}
        if batch["done"]:
            return {"error": None, "text": text}

async def ask(context: dict[str, Any], at: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    while True:
        at["attempt"] = at["attempt"] + 1
        answer = await attempt(context, at)
        if answer["error"] is None:
            break
        emit({"type": "model.discarded", "turn": at["turn"], "attempt": at["attempt"], "reason": answer["error"]})
        await sleep(1)
    content = [{"type": "text", "text": answer["text"]}, *calls]
    message = {"role": "assistant", "content": content, "provider": "fake", "model": "m"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    done = {"type": "model.completed", "turn": at["turn"], "attempt": at["attempt"], "message": message}
    emit({**done, "usage": usage})
    return message

async def run(context: dict[str, Any]) -> dict[str, Any]:
    at: dict[str, Any] = {"turn": 1, "attempt": 0}
    emit({"type": "note.began", "at": now() > 0, "id": random_id() != ""})
    names = ["once", "look"]
    await ask(context, at, [{"type": "tool_call", "id": name, "name": name, "arguments": {}} for name in names])
    handles = [start({"kind": "call_tool", "call_id": name, "name": name, "arguments": {}}) for name in names]
    for handle in handles:
        await join(handle)
    at["turn"] = 2
    heard = new_messages()
    emit({"type": "note.heard", "count": len(heard)})
    message = await ask(context, at, [])
    return {"output": message, "finish_reason": "stop", "error": None}
"""
    }
)
"""Streams, retries, calls a tool that may run once and one that only looks, takes messages in, and streams again."""
