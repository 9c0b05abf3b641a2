"""What a test can make the fake provider do: answers in neutral words, and everything that goes wrong."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Finish = Literal["stop", "length", "tool_calls", "content_filter", "refusal"]
Framing = Literal["chunked", "close", "length"]
STAMP = b"@monotonic@"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the text that is sent, so that it may be broken JSON; `id` None: made by the fake."""

    name: str
    arguments: str
    id: str | None = None


Part = Text | Reasoning | Refusal | ToolCall


@dataclass(frozen=True, slots=True)
class Usage:
    input: int = 12
    output: int = 7
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong in an answer with status 200; all may be combined.

    `head_after`, `body_after`, `pace`: seconds before the head, the body, each event.  `stall_after`: events, then nothing
    until the client goes away.  `cut_after`: bytes of the body, then the connection ends (`reset`: with RST).
    `no_end`: without the end marker.  `error_after`: events, then an error event of the vendor's kind.  `garbage_after`:
    events, then bytes that are no events.  `write_size`: bytes of each write, `line_end`: of the events.  `comments`: before
    each event, `comments_only`: nothing else, for ever.  `endless`: the deltas repeat for ever.  `bom`: the stream begins
    with one.  `gzip`: although nobody asked.  `stamp`: `STAMP` in a text becomes the
    CLOCK_MONOTONIC of its sending, in nanoseconds.
    """

    head_after: float = 0
    body_after: float = 0
    pace: float = 0
    stall_after: int | None = None
    cut_after: int | None = None
    reset: bool = False
    no_end: bool = False
    error_after: int | None = None
    garbage_after: int | None = None
    garbage: bytes = b"\x00\xff\xfe garbage \xc3\x28\n<html>\n\n"
    write_size: int | None = None
    line_end: Literal["\n", "\r\n", "\r"] = "\n"
    comments: int = 0
    comments_only: bool = False
    endless: bool = False
    bom: bool = False
    gzip: bool = False
    stamp: bool = False
    framing: Framing = "chunked"
    json_although_stream: bool = False

    @property
    def is_none(self) -> bool:
        return self == _NONE


_NONE = Faults()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in any of the three protocols; `piece`: characters of a delta, None: word by word, 0: all in one.

    `finish` None: `tool_calls` if there are any, else `stop`.
    """

    parts: tuple[Part, ...]
    finish: Finish | None = None
    usage: Usage = field(default_factory=Usage)
    piece: int | None = None
    faults: Faults = _NONE
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> Finish:
        called = any(isinstance(part, ToolCall) for part in self.parts)
        return self.finish or ("tool_calls" if called else "stop")

    def pieces(self, text: str) -> list[str]:
        """Cut a part's text into deltas."""
        if self.piece == 0 or not text:
            return [text]
        if self.piece is None:
            return re.findall(r"\s*\S+\s*|\s+", text)
        return [text[i : i + self.piece] for i in range(0, len(text), self.piece)]


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP error in the vendor's own shape; `retry_after` is sent as it is (seconds or a date)."""

    code: int
    message: str = "something went wrong"
    retry_after: str | None = None
    retry_after_ms: int | None = None
    kind: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exactly:
    """A whole HTTP answer as it is, such as a recorded one; `after`: seconds before it."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    after: float = 0


@dataclass(frozen=True, slots=True)
class Wire:
    """Bytes for the socket in place of HTTP, then the connection is closed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection ends without an answer: cleanly or (`reset`) with RST."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """The request is read and nothing is ever answered."""


Step = Answer | Status | Exactly | Wire | HangUp | Silence


def says(text: str, **faults: Any) -> Answer:
    """Return an answer of one text."""
    return Answer((Text(text),), faults=Faults(**faults))


def calls(name: str, arguments: object, id: str | None = None, **faults: Any) -> Answer:
    """Return an answer that calls one tool; `arguments` text is sent as it is, anything else as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))
    return Answer((ToolCall(name, text, id),), piece=8, faults=Faults(**faults))
