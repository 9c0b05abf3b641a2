"""Recorded answers of all three protocols, sent back as history by each: valid, and unchanged where they came from."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.sse import Parser
from rss_policy.transcript_facts import BAD_REQUEST
from rss_policy.transcript_folder import BundledAdapter
from rss_policy.transcripts import Recording, recording_of, recordings_of
from tests.fakes.encoding import PROTOCOLS, body, result, user
from tests.fakes.grammar import faults

Json = dict[str, Any]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"


def fixtures(protocol: str) -> Iterator[Recording]:
    for path in sorted((FIXTURES / protocol).glob("*.json")):
        yield recording_of(json.loads(path.read_text("utf-8")))


def others(protocol: str) -> Iterator[Recording]:
    folder = os.environ.get("DEEDBOX_TRANSCRIPTS")
    if folder is None:
        pytest.skip("DEEDBOX_TRANSCRIPTS names no folder with recorded answers")
    with (Path(folder) / f"{protocol}.jsonl").open(encoding="utf-8") as lines:
        yield from recordings_of(lines)


def messages(protocol: str, recordings: Iterator[Recording]) -> Iterator[tuple[Recording, Json]]:
    adapter = BundledAdapter(protocol)
    for recording in recordings:
        if recording.status >= BAD_REQUEST:
            continue
        state = adapter.begin()
        if recording.stream:
            for event in Parser().feed(recording.body.encode()):
                adapter.feed(state, event)
        answer = adapter.end(state) if recording.stream else adapter.decode(recording.body)
        if answer["ok"]:
            yield recording, {**answer["response"]["message"], "provider": "fake", "model": "m-1"}


def history(message: Json) -> list[Json]:
    calls = [part for part in message["content"] if part["type"] == "tool_call"]
    return [user("go"), message, *[result(call["id"]) for call in calls], user("and?")]


@pytest.mark.parametrize("source", [fixtures, others])
@pytest.mark.parametrize("maker", PROTOCOLS)
def test_what_was_answered_can_be_sent_back_by_every_protocol(maker: str, source: Any) -> None:
    tried = 0
    for recording, message in messages(maker, source(maker)):
        for protocol in PROTOCOLS:
            sent = body(protocol, history(message))
            assert (recording.id, protocol, faults(protocol, sent)) == (recording.id, protocol, [])
            tried += 1
    assert tried > 0


@pytest.mark.parametrize("source", [fixtures, others])
def test_thinking_goes_back_to_its_model_byte_for_byte(source: Any) -> None:
    for recording, message in messages("anthropic_messages", source("anthropic_messages")):
        if not recording.stream:
            signed = [
                block for block in json.loads(recording.body)["content"] if block.get("signature") or block.get("data")
            ]
            turns = body("anthropic_messages", history(message))["messages"]
            kept = [
                block for turn in turns for block in turn["content"] if block["type"] in ("thinking", "redacted_thinking")
            ]
            assert [json.dumps(block) for block in kept] == [json.dumps(block) for block in signed]


@pytest.mark.parametrize("source", [fixtures, others])
def test_sealed_reasoning_goes_back_to_its_model_byte_for_byte(source: Any) -> None:
    for recording, message in messages("openai_responses", source("openai_responses")):
        if not recording.stream and json.loads(recording.body).get("output"):
            *items, _ = json.loads(recording.body)["output"]
            sealed = [item for item in items if item["type"] == "reasoning" and item.get("encrypted_content")]
            sent = [item for item in body("openai_responses", history(message))["input"] if item["type"] == "reasoning"]
            known = [json.dumps(item) for item in sent if item.get("encrypted_content")]
            assert [json.dumps(item) for item in sealed] == known
