"""Large values: cut out of an event's stored data before it is written, put back when it is read.

A text of more than 8 KB, wherever it stands in the payload, is replaced by `{"$blob": id, "size": bytes, "preview": text}`
and kept once.  A field that is still larger than 8 KB after that (many small things) is kept as a whole instead.  An object
of the payload that has itself a key such as `$blob` gets one more `$` in front, so that no client can make a reference.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

LIMIT = 8 * 1024
PREVIEW = 512
KEY = "$blob"

DEEPEST = 256
"""Levels of nesting in one event at most; what scripts and clients send is bounded lower."""

_TEXT, _JSON = b"s", b"j"
_MARK = b'$blob"'
_string, _bracket = re.compile(rb'"(?:[^"\\]|\\.)*+"'), re.compile(rb"[\[\]{}]")
_taken = re.compile(r"\$+blob")


@dataclass(frozen=True, slots=True)
class Big:
    """A value that goes to the blobs; the first byte of `content` says whether it is text (s) or JSON (j)."""

    id: str
    content: bytes


Keyed = Callable[[bytes], str]
"""Gives the id of some content: a keyed hash, for a plain one would let a removed text be guessed."""


def preview(text: str) -> str:
    """Return the beginning of a text, at most 512 bytes, cut at the end of a line or else of a character."""
    head = text[:PREVIEW].encode()[:PREVIEW].decode(errors="ignore")
    end = head.rfind("\n")
    return head[:end] if end > 0 and len(head) < len(text) else head


def is_too_deep(data: bytes) -> bool:
    """Say whether a payload nests deeper than `DEEPEST`; those who read it may stand deep themselves."""
    if data.count(b"{") + data.count(b"[") <= DEEPEST:
        return False
    levels = accumulate(1 if bracket in b"[{" else -1 for bracket in _bracket.findall(_string.sub(b"", data)))
    return max(levels, default=0) > DEEPEST


def externalise(data: bytes, keyed: Keyed) -> tuple[bytes, tuple[Big, ...]]:
    """Return the payload with its large values replaced, and those values, one for each reference."""
    if len(data) <= LIMIT and _MARK not in data:
        return data, ()
    found: list[Big] = []
    fields = {name: _field(value, keyed, found) for name, value in msgspec.json.decode(data).items()}
    return msgspec.json.encode(fields), tuple(found)


def inflate(data: bytes, fetch: Callable[[str], bytes]) -> bytes:
    """Return the payload with every reference replaced by its value; `fetch` gives the content of an id."""
    if _MARK not in data:
        return data
    return msgspec.json.encode({name: _whole(value, fetch) for name, value in msgspec.json.decode(data).items()})


def references(data: bytes) -> tuple[str, ...]:
    """Return the ids that a stored payload refers to, as often as it does."""
    found: list[str] = []

    def note(name: str) -> bytes:
        found.append(name)
        return _TEXT

    inflate(data, note)
    return tuple(found)


def _field(value: Any, keyed: Keyed, found: list[Big]) -> Any:
    inner: list[Big] = []
    small = _small(value, keyed, inner)
    if len(msgspec.json.encode(small)) <= LIMIT:
        found += inner
        return small
    return _reference(_JSON, msgspec.json.encode(value), keyed, found)


def _small(value: Any, keyed: Keyed, found: list[Big]) -> Any:
    match value:
        case str() if len(value) > LIMIT // 4 and len(content := value.encode()) > LIMIT:
            return _reference(_TEXT, content, keyed, found)
        case dict():
            return {_escaped(name): _small(item, keyed, found) for name, item in value.items()}
        case list():
            return [_small(item, keyed, found) for item in value]
        case _:
            return value


def _reference(kind: bytes, content: bytes, keyed: Keyed, found: list[Big]) -> dict[str, Any]:
    big = Big(keyed(kind + content), kind + content)
    found.append(big)
    return {KEY: big.id, "size": len(content), "preview": preview(content[: 2 * PREVIEW].decode(errors="ignore"))}


def _whole(value: Any, fetch: Callable[[str], bytes]) -> Any:
    match value:
        case {"$blob": str(name)}:
            content = fetch(name)
            return content[1:].decode() if content[:1] == _TEXT else msgspec.json.decode(content[1:])
        case dict():
            return {_plain(name): _whole(item, fetch) for name, item in value.items()}
        case list():
            return [_whole(item, fetch) for item in value]
        case _:
            return value


def _escaped(name: str) -> str:
    return "$" + name if _taken.fullmatch(name) else name


def _plain(name: str) -> str:
    return name[1:] if _taken.fullmatch(name) else name
