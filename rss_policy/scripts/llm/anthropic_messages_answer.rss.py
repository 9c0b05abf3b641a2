"""The Anthropic Messages adapter, inwards: answers, whole or streamed, to canonical events and responses.

A whole answer takes the same way as a streamed one: its blocks are those that a stream would have built.  Every block keeps
its own form under `raw.messages_block`, so that it goes back unchanged; blocks without a canonical place (of server tools,
redacted thinking) are reasoning parts without text, in their place among the others.
"""

import json

from llm.retry import retry_http_error
from llm.types import (
    Json,
    count_of,
    dict_of,
    invalid_body,
    json_object,
    json_value,
    list_of,
    llm_call_event,
    llm_error_event,
    llm_response,
    llm_text_event,
    llm_usage,
    made_call_id,
    provider_error,
    text_of,
    tool_call_part,
)

MESSAGES_FIELDS = ("id", "type", "role", "model", "content", "stop_reason", "usage", "error")
MESSAGES_EVENTS: dict[str, str] = {"text": "text", "thinking": "reasoning"}
MESSAGES_DELTAS = ("text_delta", "thinking_delta", "signature_delta")
MESSAGES_KNOWN = ("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use")
MESSAGES_STOPS: dict[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
}


def messages_begin() -> Json:
    """Return the state of a streamed answer of which nothing has come yet."""
    return {
        "id": "", "model": None, "usage": {}, "stop": "", "ended": False, "error": None, "started": False,
        "blocks": [], "at": {}, "raw": {},
    }  # fmt: skip


def messages_feed(state: Json, event: Json) -> list[Json]:
    """Take one server-sent event in; return the LlmEvents that it brings."""
    data = text_of(event.get("data")).strip()
    if state["ended"] or state["error"] is not None or not data or data == "[DONE]":
        return []
    value = json_value(data)
    if not isinstance(value, dict):
        told = f"the stream holds no JSON: {data[:120]}"
        return messages_fail(state, provider_error("protocol", "invalid_chunk", told, {"raw": data[:2_000]}))
    kind = text_of(value.get("type")) or text_of(event.get("event"))
    if kind == "error" or value.get("error"):
        return messages_fail(state, retry_http_error(None, {}, value))
    if kind == "message_start":
        return messages_take_message(state, dict_of(value.get("message")))
    if kind == "content_block_start":
        return messages_start_block(state, messages_key(value), dict_of(value.get("content_block")))
    if kind == "content_block_delta":
        return messages_take_delta(state, messages_key(value), dict_of(value.get("delta")))
    if kind == "message_delta":
        messages_take_end(state, value)
    elif kind == "message_stop":
        state["ended"] = True
    return []


def messages_end(state: Json) -> Json:
    """Return the whole answer, or the error: also for a stream without its `message_stop`, which was cut."""
    usage = messages_usage(state["usage"])
    if state["error"] is not None:
        return {"ok": False, "error": state["error"], "usage": usage}
    if not state["ended"]:
        cut = provider_error("network", "stream_cut", "the stream ended before the answer did", {})
        return {"ok": False, "error": cut, "usage": usage}
    if not state["started"]:
        empty = provider_error("protocol", "no_message", "the answer holds no message", {"raw": state["raw"]})
        return {"ok": False, "error": empty, "usage": usage}
    return {"ok": True, "response": messages_response(state)}


def messages_decode(body_text: str) -> Json:
    """Read a whole answer."""
    body = json_value(body_text)
    state = messages_begin()
    if not isinstance(body, dict):
        return invalid_body(body_text)
    if body.get("error") or body.get("type") == "error":
        return {"ok": False, "error": retry_http_error(None, {}, body), "usage": None}
    if isinstance(body.get("content"), list):
        messages_take_message(state, body)
        messages_take_end(state, {"delta": body})
    state["ended"] = True
    return messages_end(state)


def messages_fail(state: Json, error: Json) -> list[Json]:
    """Keep the error that ends this answer, and tell it."""
    state["error"] = error
    return [llm_error_event(error)]


def messages_key(value: Json) -> str:
    """Return the index of the block that an event is about; JSON state has texts as keys."""
    return str(count_of(value.get("index")))


def messages_take_message(state: Json, message: Json) -> list[Json]:
    """Take in the message, whole or empty as a stream begins it."""
    state["started"] = True
    state["id"] = text_of(message.get("id")) or state["id"]
    state["model"] = text_of(message.get("model")) or state["model"]
    messages_take_usage(state, message.get("usage"))
    messages_keep(state, message)
    events: list[Json] = []
    for number, block in enumerate(list_of(message.get("content"))):
        if isinstance(block, dict):
            events.extend(messages_start_block(state, str(number), block))
    return events


def messages_keep(state: Json, source: Json) -> None:
    """Keep what has no canonical place."""
    for name, value in source.items():
        if name not in MESSAGES_FIELDS and value is not None:
            state["raw"][name] = value


def messages_take_usage(state: Json, usage: object) -> None:
    """Take in counts; those of a later event are totals and replace the earlier ones."""
    state["usage"].update({name: value for name, value in dict_of(usage).items() if value is not None})


def messages_take_end(state: Json, value: Json) -> None:
    """Take in how the message ended; also from a vendor that does not begin its messages."""
    delta = dict_of(value.get("delta"))
    state["stop"] = text_of(delta.get("stop_reason")) or state["stop"]
    messages_take_usage(state, value.get("usage"))
    messages_keep(state, delta)
    messages_keep(state, {name: held for name, held in value.items() if name not in ("delta", "usage")})


def messages_start_block(state: Json, key: str, block: Json) -> list[Json]:
    """Begin a block, also under an index that had one; one that begins with content, as some vendors do, tells it."""
    state["started"] = True
    kind = text_of(block.get("type"))
    number = len([one for one in state["blocks"] if one["block"].get("type") == "tool_use"])
    state["at"][key] = len(state["blocks"])
    state["blocks"].append({"block": {**block}, "pieces": [], "number": number})
    if kind == "tool_use":
        given = dict_of(block.get("input"))
        text = json.dumps(given, ensure_ascii=False) if given else ""
        return [llm_call_event(number, text_of(block.get("id")) or None, text_of(block.get("name")) or None, text)]
    text = text_of(block.get(kind)) if kind in MESSAGES_EVENTS else ""
    return [llm_text_event(MESSAGES_EVENTS[kind], text)] if text else []


def messages_take_delta(state: Json, key: str, delta: Json) -> list[Json]:
    """Take in a piece of a block; a delta for a block that never began begins it."""
    kind = text_of(delta.get("type"))
    begun: list[Json] = []
    if key not in state["at"]:
        guess = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}.get(kind, "tool_use")
        begun = messages_start_block(state, key, {"type": guess})
    slot = state["blocks"][state["at"][key]]
    if kind == "input_json_delta":
        piece = text_of(delta.get("partial_json"))
        slot["pieces"].append(piece)
        told = piece and slot["block"].get("type") == "tool_use"
        return begun + ([llm_call_event(slot["number"], None, None, piece)] if told else [])
    if kind == "citations_delta":
        slot["block"]["citations"] = [*list_of(slot["block"].get("citations")), delta.get("citation")]
        return begun
    if kind not in MESSAGES_DELTAS and slot["block"].get("type") in MESSAGES_KNOWN:
        # The block goes back as it is, and nobody knows this field there.
        state["raw"]["deltas"] = [*list_of(state["raw"].get("deltas")), delta]
        return begun
    events = begun
    for name, value in delta.items():
        if name == "type":
            continue
        if isinstance(value, str):
            slot["block"][name] = text_of(slot["block"].get(name)) + value
            if value and name in MESSAGES_EVENTS:
                events = [*events, llm_text_event(MESSAGES_EVENTS[name], value)]
        elif value is not None:
            slot["block"][name] = value
    return events


def messages_response(state: Json) -> Json:
    """Return the whole answer, its parts in the order of its blocks."""
    stop = MESSAGES_STOPS.get(state["stop"], state["stop"])
    parts: list[Json] = []
    for number, slot in enumerate(state["blocks"]):
        part = messages_part(slot, stop == "length" and number == len(state["blocks"]) - 1)
        if part["type"] == "tool_call" and not part["id"]:
            part["id"] = made_call_id(state["id"], slot["number"])
        if part["type"] != "text" or part["text"]:
            parts.append(part)
    calls = [part for part in parts if part["type"] == "tool_call"]
    if stop in ("", "stop") and calls:
        stop = "tool_calls"
    raw = {**state["raw"], "stop_reason": state["stop"]} if state["stop"] else state["raw"]
    extra = {
        name: value for name, value in state["usage"].items() if name in ("server_tool_use", "service_tier", "iterations")
    }
    raw = {**raw, "usage": extra} if extra else raw
    return llm_response(parts, {}, messages_usage(state["usage"]), (stop or "stop", state["model"]), raw)


def messages_part(slot: Json, cut: bool) -> Json:
    """Return a block as a canonical part; `cut` says that the answer ended inside it."""
    block, pieces = slot["block"], "".join(slot["pieces"])
    kind = block.get("type")
    if kind == "tool_use":
        return messages_call_part(block, pieces, cut)
    if pieces.strip():
        value = json_object(pieces)
        block = {**block, "input": {} if value is None else value}
    raw = {"messages_block": block}
    if kind == "text":
        text = text_of(block.get("text"))
        plain = all(name in ("type", "text") or not value for name, value in block.items())
        return {"type": "text", "text": text} if plain else {"type": "text", "text": text, "raw": raw}
    if kind == "thinking":
        return {"type": "reasoning", "text": text_of(block.get("thinking")), "raw": raw}
    return {"type": "reasoning", "text": "", "raw": {**raw, "opaque": kind != "redacted_thinking"}}


def messages_call_part(block: Json, pieces: str, cut: bool) -> Json:
    """Return a tool call; where the answer was cut in it, only arguments that came as a whole text are believed."""
    given = block.get("input")
    arguments: object = pieces
    if not pieces.strip():
        arguments = given if isinstance(given, dict) else json.dumps(given) if given is not None else {}
        if cut and isinstance(arguments, dict):
            arguments = None
    call_id, name = text_of(block.get("id")), text_of(block.get("name"))
    if arguments is None:
        text = json.dumps(given, ensure_ascii=False)
        part: Json = {"type": "tool_call", "id": call_id, "name": name, "arguments": {}, "raw_arguments": text}
    else:
        part = tool_call_part(call_id, name, arguments, cut)
    rest = {name: value for name, value in block.items() if name not in ("type", "id", "name", "input")}
    return {**part, "raw": {"messages_block": rest}} if rest else part


def messages_usage(told: Json) -> Json | None:
    """Return the Usage; this protocol counts cached input beside `input_tokens`, a Usage inside."""
    if not told:
        return None
    cached, written = count_of(told.get("cache_read_input_tokens")), count_of(told.get("cache_creation_input_tokens"))
    thinking = dict_of(told.get("output_tokens_details")).get("thinking_tokens")
    fed = count_of(told.get("input_tokens")) + cached + written
    usage = llm_usage(fed, count_of(told.get("output_tokens")), cached, written, count_of(thinking), 0)
    cost = told.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < 1e6:
        usage["reported_cost_micros"] = round(cost * 1_000_000)
    return usage
