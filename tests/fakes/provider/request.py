"""A request as the fake provider received it, and a refusal of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ProtocolName = Literal["openai_chat", "openai_responses", "anthropic_messages", "models", "other"]


@dataclass(frozen=True, slots=True)
class Received:
    """`headers`: lower-case names.  `body`: the JSON value, None where there was none.  `number` counts from 1."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any
    protocol: ProtocolName

    @property
    def streams(self) -> bool:
        return isinstance(self.body, dict) and self.body.get("stream") is True

    @property
    def model(self) -> str:
        return str(self.body.get("model")) if isinstance(self.body, dict) else ""


class Invalid(Exception):
    """The request breaks the protocol: the vendor would answer 400 with this message."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.code = message, param, code


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def protocol_of(method: str, path: str) -> ProtocolName:
    """Tell the protocol by the path's end."""
    path = path.partition("?")[0]
    if method == "GET" and path.endswith("/models"):
        return "models"
    if method != "POST":
        return "other"
    if path.endswith("/chat/completions"):
        return "openai_chat"
    if path.endswith("/responses"):
        return "openai_responses"
    return "anthropic_messages" if path.endswith("/messages") else "other"
