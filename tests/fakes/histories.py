"""Random histories as sessions leave them behind: failed and cancelled runs, cuts, model switches, broken and reused calls.

`history_of(random)` makes one, `request_of(random, …)` the rest of what a run would ask; the same seed gives the same.
"""

import base64
from random import Random
from typing import Any

Json = dict[str, Any]
MODELS = (
    ("deepseek", "deepseek-reasoner", "openai_chat"),
    ("openai", "gpt-5", "openai_responses"),
    ("anthropic", "claude-sonnet-4-5", "anthropic_messages"),
    ("anthropic", "claude-opus-4-5", "anthropic_messages"),
)
TEXTS = (
    "hello",
    "a longer text, with words",
    "trailing space ",
    "\n\nlead",
    "é \U0001d573 \u2028",
    '{"json": true}',
    "x" * 300,
)
BLANKS = ("", " ", "\n\t ")
IDS = (
    "call_1",
    "call_2",
    "toolu_01",
    "functions.add:0",
    "",
    "call_" + "z" * 60,
    "chatcmpl-tool-9f86d081884c7d659a2feaa0c55ad0",
)
NAMES = ("add", "sub", "read_file", "bad name!", "", "n" * 80)
ARGUMENTS: tuple[Any, ...] = (
    {},
    {"x": 1},
    {"path": "a/b", "deep": {"y": [1, None, "é"]}},
    '{"x": 2}',
    "not json",
    [1],
    None,
)
PIXEL = base64.b64encode(b"\x89PNG pixel").decode()
TOOLS = tuple({"name": name, "description": d, "parameters": p} for name, d, p in (
    ("add", "Adds.", {"type": "object", "properties": {"x": {"type": "integer"}}}), ("read_file", "", {"type": "object"}),
    ("sub", " ", {}),
))  # fmt: skip


def history_of(random: Random) -> list[Any]:
    """Return a history of up to about thirty messages, not checked and not repaired."""
    history: list[Any] = []
    for _ in range(random.choice((1, 1, 2, 3, 4, 6, 8))):
        history += _turn(random)
    if not history:
        return history
    if random.random() < 0.2:
        history = history[random.randrange(len(history)) :]
        if random.random() < 0.5:
            history.insert(0, _user(random, "A summary of what came before."))
    if random.random() < 0.1:
        history.insert(random.randrange(len(history) + 1), _odd(random))
    if random.random() < 0.05:
        history.pop(random.randrange(len(history)))
    if random.random() < 0.1:
        at = random.randrange(len(history) + 1)
        history[at:at] = history[max(0, at - random.randrange(1, 4)) : at]
    return history


def request_of(random: Random, made: Any, messages: list[Json], system: list[str], model: str) -> Json:
    """Return an LlmRequest made by `made` (the script's `llm_request`)."""
    tools = list(TOOLS[: random.randrange(4)])
    options: Json = {"stream": random.random() < 0.8, "provider_options": {}}
    if random.random() < 0.3:
        options["tool_choice"] = random.choice((None, "auto", "none", "required", {"name": "add"} if tools else None))
        if not tools:
            options["tool_choice"] = None
    if random.random() < 0.4:
        options["reasoning"] = random.choice(
            ({"effort": "low"}, {"effort": "high"}, {"max_tokens": 4096}, {"max_tokens": 10})
        )
    if random.random() < 0.3:
        options |= random.choice(({"temperature": 0.5}, {"temperature": 1.7, "top_p": 0.9}, {"top_p": 0.5}))
    if random.random() < 0.3:
        options["max_output_tokens"] = random.choice((1, 100, 1500, 50_000))
    if random.random() < 0.1:
        options["stop"] = random.choice((["END"], [" "], ["a", "b"]))
    if random.random() < 0.1:
        options["provider_options"] = random.choice(
            ({"seed": 1, "user": "u"}, {"parallel_tool_calls": False}, {"store": True})
        )
    prompt = "\n\n".join([random.choice(("Be brief.", "", " ")), *system])
    request: Json = made(model, prompt, messages, tools, options)
    return request


def provider_of(random: Random, name: str, model: str) -> Json:
    """Return the provider as a script sees it."""
    able: Json = {"images": random.random() < 0.8, "files": random.random() < 0.8}
    return {
        "name": name,
        "capabilities": able,
        "models": {model: {"max_output_tokens": random.choice((4096, 64_000))}},
        "reasoning_replay": random.choice(("always", "tool_turns", "never")),
        "cache": random.choice(("marks", "automatic")),
    }


def _turn(random: Random) -> list[Any]:
    turn: list[Any] = [_user(random) for _ in range(random.choice((1, 1, 1, 1, 2, 0)))]
    maker = random.choice(MODELS)
    end = random.random()
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        message = _assistant(random, maker)
        turn.append(message)
        turn += _results(random, message)
    if end < 0.1:
        turn.append({**_assistant(random, maker), "aborted": True})
    elif end < 0.2:
        turn = turn[: random.randrange(len(turn) + 1)]
    return turn


def _user(random: Random, text: str | None = None) -> Json:
    content: list[Any] = [{"type": "text", "text": text or _text(random)}]
    if text is None and random.random() < 0.1:
        content.append(random.choice((
            {"type": "image", "media_type": "image/png", "data": PIXEL}, {"type": "image", "url": "https://example.test/a.png"},
            {"type": "image", "url": f"data:image/png;base64,{PIXEL}"}, {"type": "text", "text": ""},
            {"type": "image", "media_type": "image/tiff", "data": PIXEL}, {"type": "file", "name": "b", "blob": "x"},
            {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "data": PIXEL}, {"type": "sound"},
        )))  # fmt: skip
    return {"role": "user", "content": content}


def _text(random: Random) -> str:
    return random.choice(BLANKS) if random.random() < 0.06 else random.choice(TEXTS)


def _assistant(random: Random, maker: tuple[str, str, str]) -> Json:
    parts: list[Json] = []
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        parts += _part(random, maker[2])
    message: Json = {"role": "assistant", "content": parts, "provider": maker[0], "model": maker[1]}
    if maker[2] == "openai_chat" and random.random() < 0.1:
        message["raw"] = {"extra_content": {"google": {"thought_signature": "c2ln"}}, "annotations": []}
    return message


def _part(random: Random, protocol: str) -> list[Json]:
    kind = random.random()
    if kind < 0.4:
        return [_said(random, protocol)]
    if kind < 0.75:
        return [_call(random, protocol)]
    if kind < 0.8:
        return [{"type": "refusal", "text": _text(random)}]
    return _reasoning(random, protocol)


def _said(random: Random, protocol: str) -> Json:
    part: Json = {"type": "text", "text": _text(random)}
    if protocol == "openai_responses":
        about = {"id": f"msg_{random.randrange(6)}", "type": "message", "role": "assistant", "status": "completed"}
        part["raw"] = {"responses_item": about | ({"phase": "commentary"} if random.random() < 0.2 else {})}
    elif protocol == "anthropic_messages" and random.random() < 0.2:
        part["raw"] = {"messages_block": {"type": "text", "text": part["text"], "citations": []}}
    return part


def _call(random: Random, protocol: str) -> Json:
    part: Json = {"type": "tool_call", "id": random.choice(IDS), "name": random.choice(NAMES[: random.choice((3, 3, 3, 6))])}
    part["arguments"] = random.choice(ARGUMENTS[: random.choice((3, 3, 3, 7))])
    if random.random() < 0.1:
        part |= {"arguments": {}, "raw_arguments": '{"x": 1,,'}
    if protocol == "openai_responses":
        about = {"id": f"fc_{random.randrange(6)}", "type": "function_call", "call_id": part["id"], "name": part["name"]}
        part["raw"] = {"responses_item": {**about, "status": "completed"}}
    elif protocol == "anthropic_messages" and random.random() < 0.3:
        part["raw"] = {"messages_block": {"caller": {"type": "direct"}}}
    elif protocol == "openai_chat" and random.random() < 0.05:
        part["raw"] = {"index": 0, "type": "function"}
    return part


def _reasoning(random: Random, protocol: str) -> list[Json]:
    if protocol == "openai_chat":
        return [{"type": "reasoning", "text": "hm", "raw": {"name": "reasoning_content", "blocks": {}}}]
    if protocol == "openai_responses":
        item: Json = {"id": f"rs_{random.randrange(6)}", "type": "reasoning", "summary": []}
        item |= random.choice(({"encrypted_content": "sealed"}, {"content": [{"type": "reasoning_text", "text": "hm"}]}, {}))
        if random.random() < 0.1:
            item = {"id": f"ws_{random.randrange(6)}", "type": "web_search_call", "status": "completed"}
            return [{"type": "reasoning", "text": "", "raw": {"responses_item": item, "opaque": True}}]
        return [{"type": "reasoning", "text": "hm", "raw": {"responses_item": item}}]
    use = {"type": "server_tool_use", "id": f"srvtoolu_{random.randrange(4)}", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": use["id"], "content": []}
    blocks = random.choice((
        ({"type": "thinking", "thinking": "hm", "signature": "c2ln"},), ({"type": "redacted_thinking", "data": "c2VhbGVk"},),
        ({"type": "thinking", "thinking": "hm", "signature": ""},), (use, result), (use,), (result,),
    ))  # fmt: skip
    return [
        {
            "type": "reasoning",
            "text": block.get("thinking", ""),
            "raw": {"messages_block": block, "opaque": "tool" in block["type"]},
        }
        for block in blocks
    ]


def _results(random: Random, message: Json) -> list[Any]:
    results: list[Any] = []
    for part in message["content"]:
        if part["type"] == "tool_call" and random.random() < 0.88:
            text = _text(random)
            content: Any = text if random.random() < 0.95 else [{"type": "text", "text": text}]
            ok = random.random() < 0.8
            results.append({"role": "tool", "call_id": part["id"], "name": part["name"], "content": content, "ok": ok})
    if results and random.random() < 0.1:
        random.shuffle(results)
    if results and random.random() < 0.05:
        results.append(random.choice(results))
    if random.random() < 0.04:
        results.append({"role": "tool", "call_id": random.choice(IDS), "name": "add", "content": "orphan", "ok": True})
    return results


def _odd(random: Random) -> Any:
    return random.choice((
        None, {}, {"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, {"role": "robot", "content": "x"},
        {"role": "user", "content": "plain text"}, {"role": "assistant", "content": []}, {"role": "tool"}, "text", 7,
        {"role": "assistant", "content": "plain text"}, {"role": "user", "content": [None, 3, {"type": "text"}]},
    ))  # fmt: skip
