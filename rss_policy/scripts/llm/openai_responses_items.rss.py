"""Output items of the Responses protocol as canonical parts, and back as input items.

What goes back: messages and calls always; reasoning with its encrypted content, or its text, or (where the provider stores
answers) its id alone; items of hosted tools as they came.  Items that a client had to answer and that deedbox never asks
for, such as those of a computer, stay on record and do not go back.
"""

import json
from typing import Any

from llm.types import Json, dict_of, list_of, text_of, tool_call_part

RESPONSES_REASONING_TEXTS = ("reasoning_text", "summary_text", "text")


def responses_item_texts(item: Json) -> list[tuple[str, str, str]]:
    """Return the texts of an item, in order: (place, `text` | `refusal` | `reasoning`, text)."""
    texts: list[tuple[str, str, str]] = []
    if item.get("type") == "reasoning":
        for field in ("summary", "content"):
            for number, part in enumerate(list_of(item.get(field))):
                texts.append((f"{field}:{number}", "reasoning", text_of(dict_of(part).get("text"))))
    elif item.get("type") == "message":
        content = item.get("content")
        for number, part in enumerate(
            [{"type": "output_text", "text": content}] if isinstance(content, str) else list_of(content)
        ):
            held = dict_of(part)
            if held.get("type") == "refusal":
                texts.append((f"content:{number}", "refusal", text_of(held.get("refusal"))))
            elif isinstance(held.get("text"), str):
                texts.append((f"content:{number}", "text", held["text"]))
    return [one for one in texts if one[2]]


def responses_item_parts(slot: Json, cut: bool) -> list[Json]:
    """Return a finished item as canonical parts; `cut` says that the answer was broken off at a limit."""
    item = slot["item"]
    kind = item.get("type")
    if kind in ("function_call", "custom_tool_call"):
        cut = cut and item.get("status") != "completed"
        call_id = text_of(item.get("call_id")) or text_of(item.get("id"))
        part = tool_call_part(call_id, text_of(item.get("name")), "".join(slot["arguments"]), cut)
        return [{**part, "raw": {"responses_item": responses_without(item, ("arguments", "input"))}}]
    if kind == "reasoning":
        text = "\n\n".join(["".join(slot["texts"][place]) for place, _ in slot["order"]])
        return [{"type": "reasoning", "text": text, "raw": {"responses_item": item}}]
    if kind != "message":
        return [{"type": "reasoning", "text": "", "raw": {"responses_item": item, "opaque": True}}]
    parts: list[Json] = []
    content = list_of(item.get("content"))
    for place, told in sorted(slot["order"], key=responses_place):
        number = int(place.partition(":")[2])
        raw: Json = {"responses_item": responses_without(item, ("content",))}
        held = responses_without(dict_of(content[number]), ("text", "refusal")) if number < len(content) else {}
        if [name for name, value in held.items() if value and name != "type"]:
            raw["responses_part"] = held
        parts.append({"type": told, "text": "".join(slot["texts"][place]), "raw": raw})
    return parts


def responses_place(one: list[str]) -> int:
    """Return the number of a place, to sort by."""
    return int(one[0].partition(":")[2])


def responses_without(value: Json, names: tuple[str, ...]) -> Json:
    """Return an object without some of its fields."""
    return {name: held for name, held in value.items() if name not in names}


def responses_input_items(message: Json, own: bool, stored: bool, seen: Json) -> list[Json]:
    """Return one assistant message as input items; what another provider or model made is dropped whole but its words.

    `seen` holds the items' ids that are in the input already: none may be there twice.
    """
    items: list[Json] = []
    for part in message["content"]:
        raw = dict_of(dict_of(part.get("raw")).get("responses_item")) if own else {}
        own_id = text_of(raw.get("id"))
        if own_id in seen and not (items and items[-1].get("type") == "message" and items[-1].get("id") == own_id):
            raw = {}
        elif own_id:
            seen[own_id] = True
        if part["type"] == "tool_call":
            items.append(responses_call_item(part, raw))
        elif part["type"] == "reasoning":
            if responses_goes_back(raw, stored):
                items.append(raw)
        else:
            responses_put_text(items, part, raw)
    while items and items[-1].get("type") == "reasoning":
        items = items[:-1]
    if not own:
        items = responses_calls_last(items)
    return [
        {"type": "message", "role": "assistant", "content": responses_plain(item)} if responses_is_plain(item) else item
        for item in items
    ]


def responses_calls_last(items: list[Json]) -> list[Json]:
    """Return items with the calls behind the words, as their results come next; a model's own items keep their order."""
    calls = [item for item in items if item.get("type") == "function_call"]
    return [item for item in items if item.get("type") != "function_call"] + calls


def responses_goes_back(item: Json, stored: bool) -> bool:
    """Return whether an item can be sent back: it is all there, or the provider has it."""
    if item.get("type") == "reasoning":
        return bool(item.get("encrypted_content") or list_of(item.get("content")) or (stored and item.get("id")))
    return bool(item) and (not item.get("call_id") or item.get("execution") == "server")


def responses_call_item(part: Json, raw: Json) -> Json:
    """Return a call; its item's own id goes along only if it is one."""
    arguments = json.dumps(part["arguments"], ensure_ascii=False, separators=(",", ":"))
    item: Json = {"type": "function_call", "call_id": part["id"], "name": part["name"], "arguments": arguments}
    if text_of(raw.get("id")).startswith("fc"):
        item["id"] = raw["id"]
    if text_of(raw.get("namespace")):
        item["namespace"] = raw["namespace"]
    return item


def responses_put_text(items: list[Json], part: Json, raw: Json) -> None:
    """Add a text or refusal, to the message that it was part of, or as one of its own."""
    held: Json = {"type": "output_text", "text": part["text"], "annotations": []}
    if part["type"] == "refusal":
        held = {"type": "refusal", "refusal": part["text"]}
    elif raw:
        held = {**held, **dict_of(dict_of(part["raw"]).get("responses_part"))}
    own_id = text_of(raw.get("id"))
    if items and items[-1].get("type") == "message" and items[-1].get("id", "") == own_id:
        items[-1]["content"].append(held)
        return
    message: Json = {"type": "message", "role": "assistant", "status": "completed", "content": [held]}
    if own_id:
        message = {**raw, **message, "status": text_of(raw.get("status")) or "completed"}
    items.append(message)


def responses_is_plain(item: Json) -> bool:
    """Return whether a message has no id of its own, so that the short form is the only one that fits."""
    return item.get("type") == "message" and not item.get("id")


def responses_plain(item: Json) -> Any:
    """Return the text of a message without an id."""
    return "\n".join([text_of(part.get("text") or part.get("refusal")) for part in item["content"]])
