"""From OpenAI's messages to canonical ones; what cannot be kept is refused with its place."""

import json
from typing import Any

from eventstore.catalogue import Json
from gateways.http.bodies import kind_of
from gateways.http.errors import ApiError
from gateways.http.inputs import file_part, image_url, split_data_url, string

_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls", "reasoning_content", "reasoning", "annotations"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_HINTS = ("cache_control",)  # Marks for a provider's cache, as opencode and LiteLLM set them; the adapters set their own.
_NOT_KEPT = {"function_call": "use `tool_calls`", "audio": "there is no audio"}


def canonical_messages(messages: Any, limit: int) -> list[Json]:
    """Return the canonical form of all messages; system and developer messages have role system.

    Raises:
        ApiError: `invalid_message`, `too_many_messages` or `unsupported_field`, with the place in `param`.
    """
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "must be a list of messages, and not empty")
    if len(messages) > limit:
        detail = f"There are {len(messages)} messages, the limit is {limit}; send fewer, or continue a session by its id."
        raise ApiError("too_many_messages", detail, param="messages")
    names: dict[str, str] = {}
    return [_message(each, f"messages.{index}", names) for index, each in enumerate(messages)]


def _message(value: Any, where: str, names: dict[str, str]) -> Json:
    if not isinstance(value, dict):
        raise _wrong(where, f"must be an object, not {kind_of(value)}")
    role = value.get("role")
    if not isinstance(role, str) or role not in _FIELDS:
        raise _wrong(f"{where}.role", "must be system, developer, user, assistant or tool")
    given = {name: inner for name, inner in value.items() if inner is not None}
    _check_fields(given, _FIELDS[role], where)
    match role:
        case "user":
            named = {"name": string(given, "name", where)} if "name" in given else {}
            return {"role": "user", "content": _user_parts(given.get("content"), f"{where}.content"), **named}
        case "assistant":
            return _assistant(given, where, names)
        case "tool":
            return _tool(given, where, names)
    return {"role": "system", "content": _text_parts(given.get("content"), f"{where}.content")}


def _check_fields(given: Json, known: set[str], where: str) -> None:
    for name in given:
        if name not in known and name not in _HINTS and given[name] not in ([], {}):
            hint = _NOT_KEPT.get(name, "leave it out")
            raise ApiError(
                "unsupported_field", f"`{where}.{name[:100]}` is not supported: {hint}.", param=f"{where}.{name[:100]}"
            )


def _user_parts(content: Any, where: str) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    if not isinstance(content, list):
        raise _wrong(where, f"must be text or a list of parts, not {kind_of(content)}")
    return [part for index, each in enumerate(content) for part in _user_part(each, f"{where}.{index}")]


def _user_part(value: Any, where: str) -> list[Json]:
    if not isinstance(value, dict):
        raise _wrong(where, f"must be a content part, not {kind_of(value)}")
    match value.get("type"):
        case "text":
            _only(value, {"type", "text"}, where)
            text = string(value, "text", where, blank=True)
            return [{"type": "text", "text": text}] if text.strip() else []
        case "image_url":
            _only(value, {"type", "image_url"}, where)
            return [_image(value.get("image_url"), f"{where}.image_url")]
        case "file":
            _only(value, {"type", "file"}, where)
            return [_file(value.get("file"), f"{where}.file")]
    raise _wrong(f"{where}.type", "must be text, image_url or file")


def _image(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise _wrong(where, "must be an object with `url`")
    _only(value, {"url", "detail"}, where)
    detail = {"detail": string(value, "detail", where)} if value.get("detail") is not None else {}
    return image_url(string(value, "url", where), f"{where}.url") | detail


def _file(value: Any, where: str) -> Json:
    if not isinstance(value, dict) or "file_data" not in value:
        raise _wrong(where, "must be an object with `filename` and `file_data`; uploaded files are not known here")
    _only(value, {"file_data", "filename"}, where)
    media_type, data = split_data_url(string(value, "file_data", where), f"{where}.file_data")
    return file_part(string(value, "filename", where, default="file"), media_type, data, where)


def _text_parts(content: Any, where: str) -> list[Json]:
    return [{"type": "text", "text": _text(content, where)}]


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(where, f"must be text or a list of text parts, not {kind_of(content)}")
    pieces = []
    for index, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise _wrong(f"{where}.{index}", "must be a text part")
        pieces.append(part["text"])
    return "".join(pieces)


def _assistant(given: Json, where: str, names: dict[str, str]) -> Json:
    parts: list[Json] = []
    for name in ("reasoning_content", "reasoning"):
        if isinstance(given.get(name), str) and given[name]:
            parts.append({"type": "reasoning", "text": given[name]})
            break
    parts += _assistant_parts(given.get("content", ""), f"{where}.content")
    if given.get("refusal"):
        parts.append({"type": "refusal", "text": string(given, "refusal", where)})
    calls = given.get("tool_calls", [])
    if not isinstance(calls, list):
        raise _wrong(f"{where}.tool_calls", f"must be a list, not {kind_of(calls)}")
    for index, call in enumerate(calls):
        part = _call(call, f"{where}.tool_calls.{index}")
        names[part["id"]] = part["name"]
        parts.append(part)
    return {"role": "assistant", "content": parts, "provider": None, "model": None}


def _assistant_parts(content: Any, where: str) -> list[Json]:
    if isinstance(content, list):
        return [_assistant_part(part, f"{where}.{index}") for index, part in enumerate(content)]
    text = _text(content, where)
    return [{"type": "text", "text": text}] if text.strip() else []


def _assistant_part(part: Any, where: str) -> Json:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "refusal", "text": text}
    raise _wrong(where, "must be a text or refusal part")


def _call(call: Any, where: str) -> Json:
    if (
        not isinstance(call, dict)
        or call.get("type", "function") != "function"
        or not isinstance(call.get("function"), dict)
    ):
        raise _wrong(where, "must be a call of a function")
    function = call["function"]
    arguments = string(function, "arguments", f"{where}.function", default="{}", blank=True)
    part: Json = {
        "type": "tool_call",
        "id": string(call, "id", where),
        "name": string(function, "name", f"{where}.function"),
    }
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return part | {"arguments": value}
    return part | {"arguments": {}, "raw_arguments": arguments}


def _tool(given: Json, where: str, names: dict[str, str]) -> Json:
    call_id = string(given, "tool_call_id", where)
    name = names.get(call_id) or string(given, "name", where, default="")
    content = _text(given.get("content"), f"{where}.content")
    return {"role": "tool", "call_id": call_id, "name": name, "content": content, "ok": True}


def _only(value: Json, known: set[str], where: str) -> None:
    for name, inner in value.items():
        if name not in known and name not in _HINTS and inner is not None:
            raise ApiError("unsupported_field", f"`{where}.{name[:100]}` is not supported.", param=f"{where}.{name[:100]}")


def _wrong(where: str, rule: str) -> ApiError:
    return ApiError("invalid_message", f"`{where}` {rule}.", param=where)
