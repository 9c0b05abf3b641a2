"""What the judges share: names, texts, fields."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

NAME_64 = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
NAME_128 = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def is_blank(text: Any) -> bool:
    return not isinstance(text, str) or text.strip() == ""


def only(where: str, held: dict[str, Any], required: frozenset[str], optional: frozenset[str]) -> Iterator[str]:
    """Name the fields that are missing and those that nobody knows."""
    if missing := required - held.keys():
        yield f"{where}: missing {sorted(missing)}"
    if extra := held.keys() - required - optional:
        yield f"{where}: unknown {sorted(extra)}"


def json_object(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def link(url: Any, kinds: tuple[str, ...]) -> bool:
    """Whether this is an https link, or a data URL of one of these kinds."""
    if not isinstance(url, str):
        return False
    if url.startswith(("https://", "http://")):
        return True
    head, found, data = url.partition(";base64,")
    return bool(found) and head.startswith("data:") and head[5:].startswith(kinds) and bool(BASE64.match(data))


def encodable(body: Any) -> Iterator[str]:
    """A request is UTF-8 and holds no NaN."""
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, UnicodeEncodeError) as wrong:
        yield f"body: cannot be sent: {wrong}"


def numbers(body: dict[str, Any], bounds: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    for name, (least, most) in bounds.items():
        value = body.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most
        ):
            yield f"{name}: {value!r} is not from {least} to {most}"
