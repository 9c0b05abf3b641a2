"""Recorded answers through the bundled adapters: our fixtures always, others from a folder that the environment names."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.sse import Parser
from rss_policy.transcripts import Loss, Recording, check_all, recording_of, recordings_of
from tests.fakes.adapter import ScriptAdapter

FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
PREFIXES = {"openai_chat": "chat", "openai_responses": "responses", "anthropic_messages": "messages"}
CASES = [
    pytest.param(name, path, id=f"{name}:{path.stem}")
    for name in PREFIXES
    for path in sorted((FIXTURES / name).glob("*.json"))
]


def read(path: Path) -> Recording:
    return recording_of(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("name", "path"), CASES)
def test_nothing_of_our_own_recordings_is_lost_however_the_bytes_are_cut(name: str, path: Path) -> None:
    report = check_all(name, ScriptAdapter(PREFIXES[name]), [read(path)], Parser)
    assert report.losses == ()
    assert report.runs >= 1


@pytest.mark.parametrize("name", PREFIXES)
def test_nothing_of_others_recordings_is_lost(name: str) -> None:
    folder = os.environ.get("DEEDBOX_TRANSCRIPTS")
    if folder is None:
        pytest.skip("DEEDBOX_TRANSCRIPTS names no folder with recorded answers")
    with (Path(folder) / f"{name}.jsonl").open(encoding="utf-8") as lines:
        report = check_all(name, ScriptAdapter(PREFIXES[name]), recordings_of(lines), Parser)
    assert report.losses == ()
    assert report.recordings > 0


class Forgetful(ScriptAdapter):
    """An adapter that loses one thing."""

    def __init__(self, what: str) -> None:
        super().__init__("chat")
        self._what, self._feed, self._end = what, self.feed, self.end
        self.feed, self.end = self.feed_less, self.end_less

    def feed_less(self, state: dict[str, Any], event: dict[str, str]) -> list[dict[str, Any]]:
        if self._what == "raises":
            raise KeyError(event["data"])
        told: list[dict[str, Any]] = self._feed(state, event)
        return [one for one in told if self._what != "deltas" or one["type"] != "text"]

    def end_less(self, state: dict[str, Any]) -> dict[str, Any]:
        if self._what == "cut":
            state["ended"] = state["answered"] = True
        answer: dict[str, Any] = self._end(state)
        if answer["ok"] and self._what in ("usage", "stop_reason"):
            answer["response"][self._what] = None
        if answer["ok"] and self._what in ("text", "tool_call", "reasoning"):
            message = answer["response"]["message"]
            message["content"] = [part for part in message["content"] if part["type"] != self._what]
        return answer


def losses(what: str) -> Iterator[Loss]:
    names = ("stream_plain", "stream_three_calls_interleaved", "stream_reasoning_content")
    recordings = [read(FIXTURES / "openai_chat" / f"{name}.json") for name in names]
    yield from check_all("openai_chat", Forgetful(what), recordings, Parser).losses


@pytest.mark.parametrize(
    ("what", "reported"),
    [
        ("text", "text"),
        ("reasoning", "reasoning"),
        ("tool_call", "calls"),
        ("usage", "usage"),
        ("stop_reason", "stop"),
        ("deltas", "text deltas"),
        ("raises", "error class"),
        ("cut", "short answer"),
    ],
)
def test_an_adapter_that_loses_something_is_found_out(what: str, reported: str) -> None:
    assert reported in {loss.what for loss in losses(what)}
