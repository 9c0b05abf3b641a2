"""Runs recorded answers of providers through an adapter, cut anew in many ways, and reports what was lost on the way.

Pure: recordings, adapter and the parser of server-sent events are given; nothing is read, nothing is random (the cuts of
the "random" kind come from a seed).
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from rss_policy.transcript_facts import BAD_REQUEST, Call, Facts, error_of_status
from rss_policy.transcript_protocols import PROTOCOLS

RANDOM_CUTS = 3
LONG_BODY = 200_000


class Adapter(Protocol):
    """The six functions of one wire adapter, as `llm/types.rss.py` describes them."""

    def decode(self, body_text: str) -> dict[str, Any]:
        """Read a whole answer."""

    def begin(self) -> dict[str, Any]:
        """Return the state of a stream."""

    def feed(self, state: dict[str, Any], event: dict[str, str]) -> list[dict[str, Any]]:
        """Take one event in."""

    def end(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the whole answer, or the error."""

    def error(self, status: int, headers: dict[str, str], body_text: str) -> dict[str, Any]:
        """Return the error of an HTTP status."""


class Frames(Protocol):
    """A parser of server-sent events: bytes in, whole events out."""

    def feed(self, raw: bytes) -> list[dict[str, str]]:
        """Return the events that are whole now."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded answer; `stream` says that the body is a stream of server-sent events.

    `expect` is what it says, where that is written beside it; else it is read from the body.
    """

    id: str
    vendor: str
    stream: bool
    status: int
    body: str
    expect: Facts | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that the recording holds and the adapter's result does not; `cut` names how the bytes were cut."""

    id: str
    vendor: str
    cut: str
    what: str
    expected: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Report:
    """What a check of many recordings found."""

    recordings: int
    runs: int
    losses: tuple[Loss, ...]


def recordings_of(lines: Iterable[str]) -> Iterator[Recording]:
    """Read recordings, one JSON object a line with `id vendor stream status body`."""
    return (recording_of(json.loads(line)) for line in lines if line.strip())


def recording_of(row: dict[str, Any]) -> Recording:
    """Read one recording; a list as body is its lines, an object its JSON, and `expect` has the fields of `Facts`."""
    match row["body"]:
        case str(text):
            body = text
        case list(lines):
            body = "\n".join(lines)
        case value:
            body = json.dumps(value)
    expect = facts_told(row["expect"]) if "expect" in row else None
    return Recording(str(row["id"]), str(row.get("vendor", "")), bool(row["stream"]), int(row["status"]), body, expect)


def facts_told(told: dict[str, Any]) -> Facts:
    """Read the facts that stand beside a recording."""
    calls = (Call(call["id"], call["name"], call["arguments"]) for call in told.get("calls", ()))
    usage = told.get("usage")
    return Facts(
        text=told.get("text", ""),
        reasoning=told.get("reasoning", ""),
        refusal=told.get("refusal", ""),
        calls=tuple(calls),
        usage=(usage[0], usage[1], usage[2], usage[3]) if usage else None,
        stop=told.get("stop"),
        error=told.get("error"),
    )


def check_all(name: str, adapter: Adapter, recordings: Iterable[Recording], frames: Callable[[], Frames]) -> Report:
    """Check all recordings of the protocol `name`; `frames` makes a parser of server-sent events."""
    seen, runs, losses = 0, 0, list[Loss]()
    for recording in recordings:
        seen += 1
        for cut, found in _results(adapter, recording, frames):
            runs += 1
            losses.extend(_compare(recording, cut, _expected(name, recording, frames), found))
        losses.extend(_short_answers(adapter, recording, frames))
    return Report(seen, runs, tuple(losses))


def _results(adapter: Adapter, recording: Recording, frames: Callable[[], Frames]) -> Iterator[tuple[str, dict[str, Any]]]:
    if recording.status >= BAD_REQUEST:
        yield "status", _guarded(lambda: {"ok": False, "error": adapter.error(recording.status, {}, recording.body)})
    elif not recording.stream:
        yield "whole", _guarded(lambda: adapter.decode(recording.body))
    else:
        for cut, pieces in _cuts(recording):
            yield cut, _guarded(partial(_streamed, adapter, frames(), pieces))


def _guarded(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return run()
    except Exception as fault:  # noqa: BLE001 - an adapter that raises is what this looks for; it goes into the report
        return {"ok": False, "error": {"kind": "raised", "message": repr(fault)}}


def _cuts(recording: Recording) -> Iterator[tuple[str, Sequence[bytes]]]:
    raw = recording.body.encode()
    yield "whole", [raw]
    yield "events", re.split(rb"(?<=\n\n)", raw)
    if len(raw) <= LONG_BODY:
        yield "bytes", [raw[at : at + 1] for at in range(len(raw))]
    for seed in range(RANDOM_CUTS):
        chance = random.Random(f"{recording.id}:{seed}")  # noqa: S311 - repeatable cuts, nothing secret
        edges = sorted({0, len(raw), *(chance.randrange(len(raw) + 1) for _ in range(20))})
        yield f"random {seed}", [raw[a:b] for a, b in pairwise(edges)]


def _streamed(adapter: Adapter, frames: Frames, pieces: Iterable[bytes]) -> dict[str, Any]:
    state, shown = adapter.begin(), {"text": "", "reasoning": "", "refusal": ""}
    for piece in pieces:
        for event in frames.feed(piece):
            for told in adapter.feed(state, event):
                if told["type"] in shown:
                    shown[told["type"]] += told["text"]
    return {**adapter.end(state), "shown": shown}


def _expected(name: str, recording: Recording, frames: Callable[[], Frames]) -> Facts | None:
    """Return what the recording says, or None where even the simple reading does not understand it."""
    if recording.expect is not None:
        return recording.expect
    if recording.status >= BAD_REQUEST:
        return Facts(error=error_of_status(recording.status))
    try:
        if not recording.stream:
            return PROTOCOLS[name].answer(json.loads(recording.body))
        events = frames().feed(recording.body.encode())
        return PROTOCOLS[name].stream([json.loads(event["data"]) for event in events if event["data"].startswith("{")])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _compare(recording: Recording, cut: str, expected: Facts | None, result: dict[str, Any]) -> Iterator[Loss]:
    def loss(what: str, wanted: object, got: object) -> Loss:
        return Loss(recording.id, recording.vendor, cut, what, wanted, got)

    if not result["ok"]:
        kind, wanted = result["error"]["kind"], "any" if expected is None else expected.error
        if wanted not in ("any", kind) or kind == "raised":
            yield loss("error class", wanted or "an answer", result["error"])
        return
    found = facts_of(result["response"])
    if expected is not None:
        yield from (loss(what, wanted, got) for what, wanted, got in _differences(expected, found))
    for kind, text in result.get("shown", {}).items():
        if text != getattr(found, kind):
            yield loss(f"{kind} deltas", getattr(found, kind), text)


def _differences(expected: Facts, found: Facts) -> Iterator[tuple[str, object, object]]:
    for name in Facts.__dataclass_fields__:
        wanted, got = getattr(expected, name), getattr(found, name)
        if name == "calls":
            if not _same_calls(wanted, got):
                yield name, wanted, got
        elif wanted != got and not (name == "stop" and wanted is None):
            yield name, wanted, got


def facts_of(response: dict[str, Any]) -> Facts:
    """Return what a canonical response says, in the same form."""
    parts, usage = response["message"]["content"], response["usage"]

    def text(kind: str) -> str:
        return "".join(part["text"] for part in parts if part["type"] == kind)

    calls = (part for part in parts if part["type"] == "tool_call")
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    counts = [usage[name] for name in names] if usage else []
    return Facts(
        text=text("text"),
        reasoning=text("reasoning"),
        refusal=text("refusal"),
        calls=tuple(
            Call(call["id"], call["name"], call.get("raw_arguments", json.dumps(call["arguments"]))) for call in calls
        ),
        usage=(counts[0], counts[1], counts[2], counts[3]) if usage else None,
        stop=response["stop_reason"],
    )


def _same_calls(wanted: Sequence[Call], got: Sequence[Call]) -> bool:
    return len(wanted) == len(got) and all(
        (a.name == b.name and a.id in ("", b.id) and _same_json(a.arguments, b.arguments))
        for a, b in zip(wanted, got, strict=True)
    )


def _same_json(wanted: str, got: str) -> bool:
    try:
        return bool(json.loads(wanted or "{}") == json.loads(got))
    except (ValueError, TypeError):
        return wanted == got


def _short_answers(adapter: Adapter, recording: Recording, frames: Callable[[], Frames]) -> Iterator[Loss]:
    """Find the places where a cut stream is taken for a whole answer that is shorter than the real one."""
    if recording.status >= BAD_REQUEST or not recording.stream:
        return
    whole = _guarded(partial(_streamed, adapter, frames(), [recording.body.encode()]))
    if not whole["ok"]:
        return
    events = frames().feed(recording.body.encode())
    state = adapter.begin()
    for number, event in enumerate(events[:-1]):
        adapter.feed(state, event)
        cut = adapter.end(state)
        if cut["ok"] and _content(cut["response"]) != _content(whole["response"]):
            yield Loss(recording.id, recording.vendor, f"after event {number}", "short answer", "an error", cut["response"])


def _content(response: dict[str, Any]) -> tuple[object, ...]:
    facts = facts_of(response)
    return facts.text, facts.refusal, facts.calls
