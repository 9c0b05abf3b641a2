"""Secrets: found by their known values and by their shape, replaced by a marker that tells them apart.

The marker is `[redacted:xxxxxxxx]` with the first 8 hex digits of the SHA-256 of what stood there.  Redacting twice changes
nothing.  A known secret is found in base64 and in URLs too, and any secret whose letters are written as JSON escapes.  One
that is split over two texts or two reads is not found.
"""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""Known secrets with fewer characters are ignored: they would hit ordinary words."""

_MARKER = r"\[redacted:[0-9a-f]{8}\]"
_BEGIN = "-----BEGIN [A-Z ]*PRIVATE KEY-----"
_SHAPES: tuple[tuple[str, str], ...] = (
    # what must occur for the shape to be tried at all, and the shape
    ("sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("gh", r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
    ("ASIA", r"\bASIA[0-9A-Z]{16}\b"),
    (":AA", r"\b[0-9]{6,12}:AA[A-Za-z0-9_-]{30,}"),
    ("earer ", r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{16,}=*"),
    ("PRIVATE KEY-----", rf"{_BEGIN}(?:[A-Za-z0-9+/=\s\\:,]|-(?!----))*+-----END [A-Z ]*PRIVATE KEY-----"),
    ("PRIVATE KEY-----", rf"{_BEGIN}(?:[A-Za-z0-9+/=\s]|\\[nr])*"),
    ("eyJ", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}"),
)
"""No shape may look far ahead from many places: each begins where no other can begin, or stops where the next one may."""
_HEAD = "[redacted:"
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[\s\S])")
_SPELLED = r"\\+u00(2[013-9a-fA-F]|[346][0-9a-fA-F]|5[0-9abd-fABD-F]|7[0-9a-eA-E])"
"""A printable character as a JSON escape, at any depth of JSON inside JSON, but for those that JSON must escape."""
_spelled, _spelled_bytes = re.compile(_SPELLED), re.compile(_SPELLED.encode())


def clean(text: str) -> str:
    """Return the text as real Unicode: pairs of surrogates joined, lone ones replaced by U+FFFD; NUL stays."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def marker(secret: str) -> str:
    """Return what stands in the place of a secret."""
    return f"[redacted:{sha256(secret.encode()).hexdigest()[:8]}]"


class Redactor:
    """Knows the secrets of this server; safe from any thread, keeps nothing of what it reads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {clean(secret) for secret in secrets}
        usable = sorted(secret for secret in known if len(secret) >= SHORTEST and secret not in _HEAD)
        self._text = _Finder({form: marker(secret) for secret in usable for form in _forms(secret)})
        # Bytes are searched as Latin-1 text, one character a byte, so that what is not UTF-8 passes through unchanged.
        self._bytes = _Finder({_narrow(form): mark for form, mark in self._text.literals.items()})
        self._needles = tuple(needle.encode("latin-1") for needle in self._bytes.needles)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        return self._found(text, self._text) if self._text.suspects(text) else text

    def json(self, value: Any) -> Any:
        """Return the JSON value without secrets, in keys too; the value itself is not changed."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.json(key): self.json(item) for key, item in value.items()}
            case list() | tuple():
                return type(value)(self.json(item) for item in value)
            case _:
                return value

    def raw(self, data: bytes) -> bytes:
        """Return the bytes without secrets; JSON stays valid, for a match grows to the escape sequences that it cuts."""
        if not self.suspects(data):
            return data
        return self._found(data.decode("latin-1"), self._bytes, json=True).encode("latin-1")

    def suspects(self, data: bytes) -> bool:
        """Say, cheaply, whether there may be a secret."""
        return any(needle in data for needle in self._needles) or _spelled_bytes.search(data) is not None

    def _found(self, text: str, finder: "_Finder", *, json: bool = False) -> str:
        text = finder.replaced(text, json=json)
        plain = _spelled.sub(lambda found: chr(int(found[1], 16)), text)
        redacted = finder.replaced(plain, json=json)
        return text if redacted == plain else redacted  # what hides nothing stays as it is spelled


class _Finder:
    def __init__(self, literals: dict[str, str]) -> None:
        self.literals = literals
        self.needles = (*literals, *dict.fromkeys(needle for needle, _ in _SHAPES))
        known = (re.escape(form) for form in sorted(literals, key=len, reverse=True))
        self._pattern = re.compile("|".join((_MARKER, *known, *(shape for _, shape in _SHAPES))), re.ASCII)

    def suspects(self, text: str) -> bool:
        return any(needle in text for needle in self.needles) or _spelled.search(text) is not None

    def replaced(self, text: str, *, json: bool = False) -> str:
        escapes = [found.span() for found in _ESCAPE.finditer(text)] if json and "\\" in text else []
        kept: list[str] = []
        done = 0
        for found in self._pattern.finditer(text):
            secret = found[0]
            if secret.startswith(_HEAD) and secret not in self.literals:
                continue
            start, end = _widened(found.span(), escapes)
            if end > done:
                kept += text[done : max(start, done)], self.literals.get(secret) or marker(secret)
                done = end
        return "".join((*kept, text[done:]))


def _widened(span: tuple[int, int], escapes: list[tuple[int, int]]) -> tuple[int, int]:
    start, end = span
    for index in range(max(0, bisect_right(escapes, (start, 0)) - 1), len(escapes)):
        first, last = escapes[index]
        if first >= end:
            break
        if last > start:
            start, end = min(start, first), max(end, last)
    return start, end


def _forms(secret: str) -> set[str]:
    """Return how a secret may be written: plain, in JSON (in JSON) with and without ASCII escapes, in a URL, in base64."""
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    escaped |= {form.replace("/", "\\/") for form in escaped}
    nested = {json.dumps(form, ensure_ascii=False)[1:-1] for form in escaped}
    return {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)} | escaped | nested | _in_base64(secret)


def _in_base64(secret: str) -> set[str]:
    """Return the digits that are the secret's alone, wherever it begins in a group of three bytes."""
    found: set[str] = set()
    for offset in range(3):
        data = bytes(offset) + secret.encode()
        digits = slice(-(-offset * 4 // 3), len(data) * 4 // 3)
        found |= {b64encode(data).decode()[digits], urlsafe_b64encode(data).decode()[digits]}
    return found


def _narrow(text: str) -> str:
    return text.encode().decode("latin-1")
