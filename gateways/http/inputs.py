"""From the `input` of a native run to canonical messages: text, content parts, or messages of role user and tool."""

import base64
import binascii
from typing import Any

from eventstore.catalogue import Json
from gateways.http.bodies import kind_of
from gateways.http.checks import unknown
from gateways.http.errors import ApiError

_PARTS = {
    "text": ["type", "text"],
    "image": ["type", "media_type", "data", "url"],
    "file": ["type", "name", "media_type", "data"],
}
_MESSAGES = {"user": ["role", "content"], "tool": ["role", "call_id", "name", "content", "ok"]}
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def canonical_input(value: Any) -> tuple[Json, ...]:
    """Return the canonical messages that `input` stands for, at least one.

    Raises:
        ApiError: `invalid_field`, `missing_field` or `unknown_field`, with the place in `param`.
    """
    match value:
        case str():
            return (user_message([_text_part(value, "input")]),)
        case [dict() as first, *_] if "role" in first:
            return tuple(_message(each, f"input.{index}") for index, each in enumerate(value))
        case [_, *_]:
            return (user_message([_part(each, f"input.{index}") for index, each in enumerate(value)]),)
    raise _wrong("input", "must be text, a list of content parts or a list of messages, and not empty")


def user_message(parts: list[Json]) -> Json:
    """Return a canonical user message."""
    return {"role": "user", "content": parts}


def _message(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise _wrong(where, f"must be an object, not {kind_of(value)}")
    role = value.get("role")
    if role not in _MESSAGES:
        raise _wrong(f"{where}.role", "must be user or tool")
    _only(value, _MESSAGES[role], where)
    if role == "tool":
        return _tool_message(value, where)
    content = value.get("content")
    if isinstance(content, str):
        return user_message([_text_part(content, f"{where}.content")])
    if not isinstance(content, list) or not content:
        raise _wrong(f"{where}.content", "must be text or a list of parts, and not empty")
    return user_message([_part(each, f"{where}.content.{index}") for index, each in enumerate(content)])


def _tool_message(value: Json, where: str) -> Json:
    ok = value.get("ok", True)
    if not isinstance(ok, bool):
        raise _wrong(f"{where}.ok", "must be true or false")
    return {
        "role": "tool",
        "call_id": string(value, "call_id", where),
        "name": string(value, "name", where, default=""),
        "content": string(value, "content", where, blank=True),
        "ok": ok,
    }


def _part(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise _wrong(where, f"must be a content part, not {kind_of(value)}")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        raise _wrong(f"{where}.type", "must be text, image or file")
    _only(value, _PARTS[kind], where)
    match kind:
        case "text":
            return _text_part(value.get("text"), f"{where}.text")
        case "image":
            return _image_part(value, where)
    return file_part(string(value, "name", where), string(value, "media_type", where), string(value, "data", where), where)


def _image_part(value: Json, where: str) -> Json:
    if ("url" in value) == ("data" in value):
        raise _wrong(where, "must have either `url` or `data` with `media_type`")
    if "url" in value:
        return image_url(string(value, "url", where), where)
    return image_data(string(value, "media_type", where), string(value, "data", where), where)


def _text_part(value: Any, where: str) -> Json:
    if not isinstance(value, str):
        raise _wrong(where, f"must be text, not {kind_of(value)}")
    if not value.strip():
        raise _wrong(where, "must not be blank")
    return {"type": "text", "text": value}


def image_data(media_type: str, data: str, where: str) -> Json:
    """Return an image part of base64 data.

    Raises:
        ApiError: `invalid_field`: another type of image, or not base64.
    """
    if media_type not in IMAGE_TYPES:
        raise _wrong(where, f"must be an image of type {', '.join(IMAGE_TYPES)}")
    return {"type": "image", "media_type": media_type, "data": _base64(data, where)}


def image_url(url: str, where: str) -> Json:
    """Return an image part; a `data:` URL becomes data.

    Raises:
        ApiError: `invalid_field`.
    """
    if url.startswith("data:"):
        media_type, data = split_data_url(url, where)
        return image_data(media_type, data, where)
    if not url.startswith(("https://", "http://")):
        raise _wrong(where, "must be an http, https or data URL")
    return {"type": "image", "url": url}


def file_part(name: str, media_type: str, data: str, where: str) -> Json:
    """Return a file part of base64 data.

    Raises:
        ApiError: `invalid_field`: not base64.
    """
    return {"type": "file", "name": name, "media_type": media_type, "data": _base64(data, where)}


def split_data_url(url: str, where: str) -> tuple[str, str]:
    """Return (media type, base64 data) of a `data:` URL (RFC 2397).

    Raises:
        ApiError: `invalid_field`: no base64 marker.
    """
    head, comma, data = url.removeprefix("data:").partition(",")
    if not comma or not head.endswith(";base64"):
        raise _wrong(where, "must be a data URL in base64")
    return head.removesuffix(";base64").partition(";")[0] or "application/octet-stream", data


def string(value: Json, name: str, where: str, *, default: str | None = None, blank: bool = False) -> str:
    """Return a text field of an object.

    Raises:
        ApiError: `missing_field` or `invalid_field`.
    """
    if name not in value:
        if default is not None:
            return default
        raise ApiError("missing_field", f"The field `{where}.{name}` is missing.", param=f"{where}.{name}")
    found = value[name]
    if not isinstance(found, str):
        raise _wrong(f"{where}.{name}", f"must be text, not {kind_of(found)}")
    if not found and not blank:
        raise _wrong(f"{where}.{name}", "must not be empty")
    return found


def _base64(data: str, where: str) -> str:
    try:
        if not base64.b64decode(data, validate=True):
            raise _wrong(where, "holds no data")
    except (binascii.Error, ValueError) as exc:
        raise _wrong(where, "is not base64") from exc
    return data


def _only(value: Json, known: list[str], where: str) -> None:
    for name in value:
        if name not in known:
            raise unknown("unknown_field", name, known, where)


def _wrong(where: str, rule: str) -> ApiError:
    return ApiError("invalid_field", f"The field `{where}` {rule}.", param=where)
