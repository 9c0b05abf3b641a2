"""The Chat Completions adapter, inwards: answers, whole or streamed, to canonical events and responses.

A whole answer takes the same way as a streamed one, as one large chunk, so that both give the same.
"""

from typing import Any

from llm.openai_chat_calls import chat_call_parts, chat_take_call
from llm.retry import retry_http_error
from llm.types import (
    Json,
    count_of,
    dict_of,
    first_text,
    invalid_body,
    json_value,
    list_of,
    llm_error_event,
    llm_response,
    llm_text_event,
    llm_usage,
    provider_error,
    text_of,
)

CHAT_CHUNK_FIELDS = ("id", "object", "created", "model", "choices", "usage", "error", "obfuscation")
CHAT_CHOICE_FIELDS = ("index", "delta", "message", "finish_reason", "error")
CHAT_MESSAGE_FIELDS = ("role", "content", "refusal", "tool_calls", "function_call", "name")
CHAT_REASONING_TEXTS = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
CHAT_REASONING_BLOCKS = ("reasoning_details", "thinking_blocks")
CHAT_STOP_OF_FINISH: dict[str, str] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
}
CHAT_FAILED_FINISH = ("error", "insufficient_system_resource", "network_error", "abort", "cancelled")


def chat_begin() -> Json:
    """Return the state of a streamed answer of which nothing has come yet."""
    return {
        "id": "", "model": None, "usage": None, "finish": None, "ended": False, "error": None, "answered": False,
        "text": [], "refusal": [], "reasoning": [], "reasoning_name": "", "blocks": {}, "calls": [],
        "raw": {}, "message_raw": {},
    }  # fmt: skip


def chat_feed(state: Json, event: Json) -> list[Json]:
    """Take one server-sent event in; return the LlmEvents that it brings."""
    data = text_of(event.get("data")).strip()
    if state["ended"] or state["error"] is not None or not data:
        return []
    if data == "[DONE]":
        state["ended"] = True
        return []
    chunk = json_value(data)
    if not isinstance(chunk, dict):
        told = f"the stream holds no JSON: {data[:120]}"
        return chat_fail(state, provider_error("protocol", "invalid_chunk", told, {"raw": data[:2_000]}))
    named = event.get("event") == "error" or chunk.get("object") == "error" or chunk.get("type") == "error"
    if named or chunk.get("error"):
        return chat_fail(state, retry_http_error(None, {}, chunk))
    return chat_take_chunk(state, chunk, False)


def chat_end(state: Json) -> Json:
    """Return the whole answer, or the error: also for a stream without an end marker and a finish reason, which was cut."""
    if state["error"] is not None:
        return {"ok": False, "error": state["error"], "usage": state["usage"]}
    if not state["ended"] and not state["finish"]:
        cut = provider_error("network", "stream_cut", "the stream ended before the answer did", {})
        return {"ok": False, "error": cut, "usage": state["usage"]}
    if not state["answered"]:
        empty = provider_error("protocol", "no_choices", "the answer holds no message", {"raw": state["raw"]})
        return {"ok": False, "error": empty, "usage": state["usage"]}
    return {"ok": True, "response": chat_response(state)}


def chat_decode(body_text: str) -> Json:
    """Read a whole answer."""
    body = json_value(body_text)
    state = chat_begin()
    if not isinstance(body, dict):
        return invalid_body(body_text)
    if body.get("error") or body.get("object") == "error":
        return {"ok": False, "error": retry_http_error(None, {}, body), "usage": None}
    chat_take_chunk(state, body, True)
    state["ended"] = True
    return chat_end(state)


def chat_fail(state: Json, error: Json) -> list[Json]:
    """Keep the error that ends this answer, and tell it."""
    state["error"] = error
    return [llm_error_event(error)]


def chat_take_chunk(state: Json, chunk: Json, whole: bool) -> list[Json]:
    """Take in a chunk, or a whole answer."""
    state["id"] = state["id"] or text_of(chunk.get("id"))
    state["model"] = first_text(chunk.get("model"), state["model"]) or None
    # Usage comes on a chunk of its own, on the last chunk with choices, on every chunk (the last one counts), or, from
    # Groq, under a name of its own.
    usage = dict_of(chunk.get("usage")) or dict_of(dict_of(chunk.get("x_groq")).get("usage"))
    if usage:
        state["usage"] = chat_usage(usage)
    chat_keep(state["raw"], chunk, CHAT_CHUNK_FIELDS)
    events: list[Json] = []
    for choice in list_of(chunk.get("choices")):
        if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
            events.extend(chat_take_choice(state, choice, whole))
    return events


def chat_take_choice(state: Json, choice: Json, whole: bool) -> list[Json]:
    """Take in the one choice that was asked for."""
    if choice.get("error"):
        return chat_fail(state, retry_http_error(None, {}, choice))
    delta = dict_of(choice.get("delta"))
    if not delta and (whole or not chat_has_content(state)):
        delta = dict_of(choice.get("message"))
    chat_keep(state["raw"], choice, CHAT_CHOICE_FIELDS)
    if delta or "delta" in choice or "message" in choice:
        state["answered"] = True
    events = chat_take_delta(state, delta, whole)
    finish = text_of(choice.get("finish_reason"))
    if finish.lower() in CHAT_FAILED_FINISH:
        kind = "overload" if finish == "insufficient_system_resource" else "server"
        return events + chat_fail(state, provider_error(kind, finish, f"the provider gave up: {finish}", {}))
    state["finish"] = finish or state["finish"]
    return events


def chat_has_content(state: Json) -> bool:
    """Return whether anything of the message has come."""
    return bool(state["text"] or state["calls"] or state["reasoning"] or state["refusal"])


def chat_take_delta(state: Json, delta: Json, whole: bool) -> list[Json]:
    """Take in what a delta, or a whole message, adds."""
    events = chat_take_reasoning(state, delta)
    content = delta.get("content")
    for piece in [content] if isinstance(content, (str, dict)) else list_of(content):
        events.extend(chat_take_content(state, piece))
    events.extend(chat_add(state, "refusal", text_of(delta.get("refusal"))))
    for position, piece in enumerate(list_of(delta.get("tool_calls"))):
        if isinstance(piece, dict):
            events.extend(chat_take_call(state["calls"], piece, position, whole))
    legacy = dict_of(delta.get("function_call"))
    if text_of(legacy.get("name")) or text_of(legacy.get("arguments")):
        events.extend(chat_take_call(state["calls"], {"function": legacy}, 0, whole))
    chat_keep(state["message_raw"], delta, CHAT_MESSAGE_FIELDS + CHAT_REASONING_TEXTS + CHAT_REASONING_BLOCKS)
    return events


def chat_take_content(state: Json, piece: Any) -> list[Json]:
    """Take in content: a text, or a part of a list of parts as Mistral and others give it."""
    if isinstance(piece, str):
        return chat_add(state, "text", piece)
    part = dict_of(piece)
    if part.get("type") in ("thinking", "reasoning"):
        state["reasoning_name"] = state["reasoning_name"] or "thinking"
        return chat_add(state, "reasoning", chat_text_in(part.get("thinking") or part.get("text") or part.get("reasoning")))
    if part.get("type") == "refusal":
        return chat_add(state, "refusal", text_of(part.get("refusal")))
    if isinstance(part.get("text"), str):
        return chat_add(state, "text", part["text"])
    if part:
        state["message_raw"].setdefault("content", []).append(part)
    return []


def chat_text_in(value: Any) -> str:
    """Return the text of a text, or of a list of text parts."""
    if isinstance(value, str):
        return value
    return "".join([text_of(dict_of(part).get("text")) for part in list_of(value)])


def chat_add(state: Json, kind: str, text: str) -> list[Json]:
    """Add a piece of text, reasoning or refusal."""
    if not text:
        return []
    state[kind].append(text)
    return [llm_text_event(kind, text)]


def chat_take_reasoning(state: Json, delta: Json) -> list[Json]:
    """Take in reasoning under whichever name it comes; the same text under two names counts once."""
    blocks: list[Json] = []
    for name in CHAT_REASONING_BLOCKS:
        for block in list_of(delta.get(name)):
            if isinstance(block, dict):
                chat_merge_block(state["blocks"].setdefault(name, []), block)
                blocks.append(block)
    for name in CHAT_REASONING_TEXTS:
        text = chat_text_in(delta.get(name))
        if text:
            state["reasoning_name"] = state["reasoning_name"] or name
            return chat_add(state, "reasoning", text)
    told = [first_text(block.get("text"), block.get("summary"), block.get("thinking")) for block in blocks]
    return chat_add(state, "reasoning", "".join(told))


def chat_merge_block(blocks: list[Json], piece: Json) -> None:
    """Join a piece of a reasoning block to the block that it continues, else begin one."""
    block = chat_find_block(blocks, piece)
    if block is None:
        blocks.append({**piece})
        return
    for name, value in piece.items():
        if name in ("text", "summary", "thinking", "data") and isinstance(value, str):
            block[name] = text_of(block.get(name)) + value
        elif value or name not in block:
            block[name] = value


def chat_find_block(blocks: list[Json], piece: Json) -> Json | None:
    """Return the block of the same type and index and no other id; without an index, the last one if it is unsigned."""
    index = piece.get("index")
    for block in reversed(blocks):
        same_id = not piece.get("id") or not block.get("id") or piece["id"] == block["id"]
        if same_id and block.get("type") == piece.get("type") and block.get("index") == index:
            return None if index is None and block.get("signature") else block
        if index is None:
            return None
    return None


def chat_keep(into: Json, source: Json, known: tuple[str, ...]) -> None:
    """Keep what has no canonical place: lists grow, objects take the newer fields, of other values the last one stays."""
    for name, value in source.items():
        if name in known or (not value and value is not False and value != 0):
            continue
        old = into.get(name)
        if isinstance(old, list) and isinstance(value, list):
            into[name] = old + value
        elif isinstance(old, dict) and isinstance(value, dict):
            into[name] = {**old, **value}
        else:
            into[name] = value


def chat_response(state: Json) -> Json:
    """Return the whole answer; parts in this protocol's order: reasoning, text, refusal, calls."""
    finish = text_of(state["finish"]).lower()
    calls = chat_call_parts(state["calls"], state["id"], CHAT_STOP_OF_FINISH.get(finish) == "length")
    parts: list[Json] = []
    if state["reasoning"] or state["blocks"]:
        raw = {"name": state["reasoning_name"], "blocks": state["blocks"]}
        parts.append({"type": "reasoning", "text": "".join(state["reasoning"]), "raw": raw})
    for kind in ("text", "refusal"):
        text = "".join(state[kind])
        parts.extend([{"type": kind, "text": text}] if text else [])
    stop = CHAT_STOP_OF_FINISH.get(finish, finish)
    if stop in ("stop", "") and calls:
        stop = "tool_calls"
    elif stop in ("stop", "") and state["refusal"] and not state["text"]:
        stop = "refusal"
    raw = {**state["raw"], "finish_reason": state["finish"]} if state["finish"] else state["raw"]
    return llm_response(parts + calls, state["message_raw"], state["usage"], (stop or "stop", state["model"]), raw)


def chat_usage(told: Json) -> Json:
    """Return the Usage of an answer, with the names that the vendors have for the same numbers."""
    input_details = dict_of(told.get("prompt_tokens_details"))
    output_details = dict_of(told.get("completion_tokens_details"))
    cached = [input_details.get("cached_tokens"), told.get("prompt_cache_hit_tokens"), told.get("cached_tokens"),
              told.get("num_cached_tokens"), told.get("cache_read_input_tokens")]  # fmt: skip
    written = [input_details.get("cache_write_tokens"), told.get("cache_creation_input_tokens")]
    usage = llm_usage(
        count_of(told.get("prompt_tokens", told.get("input_tokens"))),
        count_of(told.get("completion_tokens", told.get("output_tokens"))),
        max([count_of(value) for value in cached]),
        max([count_of(value) for value in written]),
        max(count_of(output_details.get("reasoning_tokens")), count_of(told.get("reasoning_tokens"))),
        count_of(told.get("total_tokens")),
    )
    cost = told.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < 1e6:
        usage["reported_cost_micros"] = round(cost * 1_000_000)
    return usage
