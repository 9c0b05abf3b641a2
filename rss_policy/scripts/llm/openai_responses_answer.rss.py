"""The OpenAI Responses adapter, inwards: answers, whole or streamed, to canonical events and responses.

An answer is a list of output items.  In a stream each item is built from its deltas under its `output_index`, then the
finished item replaces it; what the finished item holds beyond its deltas is told then, so that what a client saw is what
is recorded.  Items keep their own form under `raw.responses_item`, so that they go back with their ids and encrypted
content; items without a canonical place are reasoning parts without text, in their place among the others.
"""

import json
from typing import Any

from llm.openai_responses_items import responses_item_parts, responses_item_texts
from llm.retry import retry_http_error
from llm.types import (
    Json,
    count_of,
    dict_of,
    first_text,
    invalid_body,
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
)

RESPONSES_FIELDS = (
    "id", "object", "model", "output", "usage", "status", "error", "incomplete_details", "instructions", "tools", "text",
    "created_at", "completed_at",
)  # fmt: skip
RESPONSES_DELTAS: dict[str, tuple[str, str, str]] = {  # event: kind of text, name of its list in the item, name of the index
    "response.output_text.delta": ("text", "content", "content_index"),
    "response.refusal.delta": ("refusal", "content", "content_index"),
    "response.reasoning_text.delta": ("reasoning", "content", "content_index"),
    "response.reasoning.delta": ("reasoning", "content", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "summary_index"),
    "response.reasoning_summary.delta": ("reasoning", "summary", "summary_index"),
}
RESPONSES_CALL_DELTAS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
RESPONSES_CALLS = ("function_call", "custom_tool_call")
RESPONSES_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")


def responses_begin() -> Json:
    """Return the state of a streamed answer of which nothing has come yet."""
    return {
        "id": "",
        "model": None,
        "usage": None,
        "stop": "",
        "ended": False,
        "error": None,
        "slots": {},
        "at": {},
        "raw": {},
    }


def responses_feed(state: Json, event: Json) -> list[Json]:
    """Take one server-sent event in; return the LlmEvents that it brings."""
    data = text_of(event.get("data")).strip()
    if state["ended"] or state["error"] is not None or not data or data == "[DONE]":
        return []
    value = json_value(data)
    if not isinstance(value, dict):
        told = f"the stream holds no JSON: {data[:120]}"
        return responses_fail(state, provider_error("protocol", "invalid_chunk", told, {"raw": data[:2_000]}))
    kind = text_of(value.get("type")) or text_of(event.get("event"))
    if kind == "error" or (value.get("error") and "response" not in value):
        # `type` says that it is an error, and nothing about which.
        return responses_fail(state, retry_http_error(None, {}, {**value, "type": None} if kind == "error" else value))
    if kind in RESPONSES_ENDS:
        return responses_take_end(state, dict_of(value.get("response")), kind)
    if kind in ("response.output_item.added", "response.output_item.done"):
        return responses_take_item(state, responses_key(state, value), dict_of(value.get("item")), kind.endswith("done"))
    if kind in RESPONSES_DELTAS:
        return responses_take_text(state, value, RESPONSES_DELTAS[kind])
    if kind in RESPONSES_CALL_DELTAS:
        return responses_take_arguments(state, value)
    responses_take_about(state, dict_of(value.get("response")))
    return []


def responses_end(state: Json) -> Json:
    """Return the whole answer, or the error: also for a stream without its end event, which was cut."""
    if state["error"] is not None:
        return {"ok": False, "error": state["error"], "usage": state["usage"]}
    if not state["ended"]:
        cut = provider_error("network", "stream_cut", "the stream ended before the answer did", {})
        return {"ok": False, "error": cut, "usage": state["usage"]}
    return {"ok": True, "response": responses_response(state)}


def responses_decode(body_text: str) -> Json:
    """Read a whole answer."""
    body = json_value(body_text)
    state = responses_begin()
    if not isinstance(body, dict):
        return invalid_body(body_text)
    if not isinstance(body.get("output"), list) and (body.get("error") or body.get("object") == "error"):
        return {"ok": False, "error": retry_http_error(None, {}, body), "usage": None}
    responses_take_end(state, body, "")
    return responses_end(state)


def responses_fail(state: Json, error: Json) -> list[Json]:
    """Keep the error that ends this answer, and tell it."""
    state["error"] = error
    return [llm_error_event(error)]


def responses_key(state: Json, value: Json) -> str:
    """Return the key of the item that an event is about: by its `output_index`, else its id, else the newest.

    An item that begins under an index whose item is done is another one.
    """
    if isinstance(value.get("output_index"), int):
        index = str(value["output_index"])
        key = state["at"].get(index, index)
        if text_of(value.get("type")).endswith(".added") and state["slots"].get(key, {"done": False})["done"]:
            key = str(1 + max([int(one) for one in state["slots"]]))
            state["at"][index] = key
        return str(key)
    item_id = first_text(value.get("item_id"), dict_of(value.get("item")).get("id"))
    for key, slot in state["slots"].items():
        if item_id and slot["item"].get("id") == item_id:
            return str(key)
    return str(max(0, len(state["slots"]) - (0 if "item" in value else 1)))


def responses_slot(state: Json, key: str, item: Json) -> Json:
    """Return the item's place, begun if it is new."""
    if key not in state["slots"]:
        state["slots"][key] = {"item": item, "texts": {}, "order": [], "arguments": [], "told": False, "done": False}
    slot: Json = state["slots"][key]
    return slot


def responses_take_text(state: Json, value: Json, names: tuple[str, str, str]) -> list[Json]:
    """Take in a piece of text, refusal or reasoning."""
    kind, field, index = names
    item = {"type": "reasoning" if kind == "reasoning" else "message"}
    slot = responses_slot(state, responses_key(state, value), {**item, "id": text_of(value.get("item_id"))})
    return responses_add(
        slot, kind, f"{field}:{count_of(value.get(index))}", first_text(value.get("delta"), value.get("text"))
    )


def responses_add(slot: Json, kind: str, place: str, text: str) -> list[Json]:
    """Add a piece to the text at a place of an item and tell it; paragraphs of reasoning are told apart."""
    if not text:
        return []
    if place in slot["texts"]:
        slot["texts"][place].append(text)
        return [llm_text_event(kind, text)]
    apart = "\n\n" if kind == "reasoning" and slot["order"] else ""
    slot["texts"][place] = [text]
    slot["order"].append([place, kind])
    return [llm_text_event(kind, apart + text)]


def responses_take_arguments(state: Json, value: Json) -> list[Json]:
    """Take in a piece of a call's arguments."""
    item = {"type": "function_call", "id": text_of(value.get("item_id"))}
    key = responses_key(state, value)
    slot = responses_slot(state, key, item)
    piece = text_of(value.get("delta"))
    slot["arguments"].append(piece)
    return responses_tell_call(state, slot, piece)


def responses_tell_call(state: Json, slot: Json, piece: str) -> list[Json]:
    """Tell a piece of a call, with its name the first time; one without a name yet waits for it."""
    item = slot["item"]
    if not slot["told"] and not text_of(item.get("name")):
        return []
    if slot["told"]:
        return [llm_call_event(slot["number"], None, None, piece)] if piece else []
    slot["told"] = True
    slot["number"] = len([one for one in state["slots"].values() if one["told"]]) - 1
    call_id = first_text(item.get("call_id"), item.get("id"))
    return [llm_call_event(slot["number"], call_id or None, item["name"], "".join(slot["arguments"]))]


def responses_take_item(state: Json, key: str, item: Json, done: bool) -> list[Json]:
    """Take in an item as it begins, or as it is in the end; tell what its deltas did not."""
    slot = responses_slot(state, key, item)
    slot["item"] = {**slot["item"], **item}
    slot["done"] = slot["done"] or done
    if item.get("type") in RESPONSES_CALLS:
        return responses_take_call(state, slot, item)
    events: list[Json] = []
    for place, kind, text in responses_item_texts(item):
        told = "".join(slot["texts"].get(place, []))
        if text.startswith(told):
            events.extend(responses_add(slot, kind, place, text[len(told) :]))
    return events


def responses_take_call(state: Json, slot: Json, item: Json) -> list[Json]:
    """Take in a call as it begins or as it is in the end."""
    given = item.get("arguments", item.get("input"))
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False) if given else ""
    told = "".join(slot["arguments"])
    rest = text[len(told) :] if text.startswith(told) else ""
    if rest:
        slot["arguments"].append(rest)
    return responses_tell_call(state, slot, rest)


def responses_take_about(state: Json, response: Json) -> None:
    """Take in what is said about the whole answer."""
    state["id"] = first_text(response.get("id"), state["id"])
    state["model"] = first_text(response.get("model"), state["model"]) or None
    usage = dict_of(response.get("usage"))
    if usage:
        state["usage"] = responses_usage(usage)
    for name, value in response.items():
        if name not in RESPONSES_FIELDS and value is not None:
            state["raw"][name] = value


def responses_take_end(state: Json, response: Json, kind: str) -> list[Json]:
    """Take in the end of an answer, with all its items; those that a stream brought already stay as they are."""
    responses_take_about(state, response)
    status = text_of(response.get("status")) or kind.partition(".")[2]
    details = dict_of(response.get("incomplete_details"))
    if kind == "response.failed" or status in ("failed", "cancelled") or dict_of(response.get("error")):
        error = retry_http_error(None, {}, {"error": response.get("error") or {"message": f"the answer is {status}"}})
        return responses_fail(state, {**error, "kind": "server"} if error["kind"] == "other" else error)
    if not isinstance(response.get("output"), list) and not state["slots"]:
        told = provider_error("protocol", "no_output", "the answer holds no output", {"raw": response})
        return responses_fail(state, told)
    if status in ("queued", "in_progress"):
        told = f"the provider answered before it was done: {status}"
        return responses_fail(state, provider_error("protocol", "not_finished", told, {"raw": response.get("id")}))
    events: list[Json] = []
    for number, item in enumerate(list_of(response.get("output"))):
        if isinstance(item, dict) and not state["slots"].get(str(number), {"done": False})["done"]:
            events.extend(responses_take_item(state, str(number), item, True))
    state["ended"] = True
    state["stop"] = ""
    if status == "incomplete" or kind == "response.incomplete":
        reason = text_of(details.get("reason"))
        state["stop"] = "length" if reason in ("max_output_tokens", "max_tokens", "") else reason
    return events


def responses_response(state: Json) -> Json:
    """Return the whole answer, its parts in the order of its items."""
    parts: list[Json] = []
    for key in sorted(state["slots"], key=int):
        for part in responses_item_parts(state["slots"][key], state["stop"] != ""):
            if part["type"] == "tool_call" and not part["id"]:
                part["id"] = made_call_id(state["id"], len(parts))
            parts.append(part)
    kinds = [part["type"] for part in parts]
    stop = state["stop"]
    if not stop:
        stop = "tool_calls" if "tool_call" in kinds else "stop"
        if "refusal" in kinds and "text" not in kinds and "tool_call" not in kinds:
            stop = "refusal"
    return llm_response(parts, {}, state["usage"], (stop, state["model"]), state["raw"])


def responses_usage(told: Json) -> Json:
    """Return the Usage of an answer."""
    fed, out = dict_of(told.get("input_tokens_details")), dict_of(told.get("output_tokens_details"))
    usage = llm_usage(
        count_of(told.get("input_tokens")),
        count_of(told.get("output_tokens")),
        count_of(fed.get("cached_tokens")),
        count_of(fed.get("cache_write_tokens")),
        count_of(out.get("reasoning_tokens")),
        count_of(told.get("total_tokens")),
    )
    cost: Any = told.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < 1e6:
        usage["reported_cost_micros"] = round(cost * 1_000_000)
    return usage
