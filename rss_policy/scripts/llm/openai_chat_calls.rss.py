"""Tool calls of a Chat Completions stream, put together from their pieces.

The protocol says that pieces belong together by index; vendors disagree.  The rule here: by id, else by index; an id on an
index that belongs to another id is another call; and nothing is ever added to arguments that are whole already.
"""

import json

from llm.types import Json, dict_of, first_text, json_object, llm_call_event, made_call_id, text_of, tool_call_part

CHAT_PIECE_FIELDS = ("id", "type", "index", "function", "custom")


def chat_take_call(calls: list[Json], piece: Json, position: int, whole: bool) -> list[Json]:
    """Take in one element of `tool_calls`; `position` stands in for a missing index, `whole` says that it is no piece."""
    function = dict_of(piece.get("function"))
    custom = dict_of(piece.get("custom"))
    name = first_text(function.get("name"), custom.get("name"), piece.get("name"))
    told = function.get("arguments", custom.get("input"))
    arguments = told if isinstance(told, (str, dict)) else ""
    call_id = text_of(piece.get("id"))
    index = piece["index"] if isinstance(piece.get("index"), int) else position
    call = None if whole else chat_find_call(calls, call_id, index, name)
    if call is not None and chat_starts_anew(call, call_id, name, arguments):
        own = call_id == call["id"] if call_id else not name
        if own and arguments == call["arguments"]:
            return []  # The vendor repeats the call whole at its end.
        if own and call["arguments"] == "{}":
            call["arguments"] = ""  # It was a placeholder; the arguments come now.
        else:
            call = None
    if call is None:
        call = {"id": "", "name": "", "arguments": "", "index": index, "number": len(calls), "raw": {}}
        calls.append(call)
    return chat_add_piece(call, piece, (call_id, name), arguments)


def chat_find_call(calls: list[Json], call_id: str, index: int, name: str) -> Json | None:
    """Return the call that a piece continues, newest first, or None where it starts one."""
    newest = list(reversed(calls))
    at_index = [call for call in newest if call["index"] == index]
    if not call_id:
        return at_index[0] if at_index else None
    same = [call for call in newest if call["id"] == call_id]
    here = [call for call in same if call["index"] == index]
    if here:
        return here[0]
    if same and not name:
        return same[0]  # The index drifts, the id holds.
    if at_index and (not at_index[0]["id"] or not name):
        return at_index[0]  # The id comes late, or a new one with every piece.
    return None


def chat_is_whole(call: Json) -> bool:
    """Return whether the arguments are a complete JSON object."""
    arguments = call["arguments"]
    if isinstance(arguments, dict):
        return True
    return arguments.rstrip().endswith("}") and json_object(arguments) is not None


def chat_starts_anew(call: Json, call_id: str, name: str, arguments: str | Json) -> bool:
    """Return whether a piece begins a call although it was found to belong to one: that one is whole."""
    begins = isinstance(arguments, dict) or arguments.lstrip()[:1] == "{" or (bool(name) and not call_id)
    return begins and chat_is_whole(call)


def chat_add_piece(call: Json, piece: Json, ids: tuple[str, str], arguments: str | Json) -> list[Json]:
    """Add a piece to its call and tell it."""
    call_id, name = ids
    known = (None if call["id"] else call_id or None, None if call["name"] else name or None)
    call["id"] = call["id"] or call_id
    if name and not call["name"]:
        call["name"] = name
    elif name and name != call["name"] and not call["arguments"]:
        call["name"] = name if name.startswith(call["name"]) else call["name"] + name  # The name itself comes in pieces.
    if isinstance(arguments, dict):
        call["arguments"] = arguments
    elif isinstance(call["arguments"], str):
        call["arguments"] += arguments
    for field, value in piece.items():
        if field not in CHAT_PIECE_FIELDS and value is not None:
            call["raw"][field] = value
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    if text == "{}" and call["arguments"] == "{}":
        text = ""  # It may be a placeholder, and what was told cannot be taken back.
    if not text and known == (None, None):
        return []
    return [llm_call_event(call["number"], known[0], known[1], text)]


def chat_call_parts(calls: list[Json], answer_id: str, cut: bool) -> list[Json]:
    """Return the calls as canonical parts; the last one of a `cut` answer may lack its end.

    A call without an id gets one from the answer's id and its position.
    """
    parts: list[Json] = []
    for number, call in enumerate(calls):
        call_id = call["id"] or made_call_id(answer_id, number)
        part = tool_call_part(call_id, call["name"], call["arguments"], cut and number == len(calls) - 1)
        if call["raw"]:
            part["raw"] = call["raw"]
        parts.append(part)
    return parts
