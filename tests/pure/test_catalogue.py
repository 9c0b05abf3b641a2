"""Every event has a fixture that is read and written back unchanged; old shapes are lifted; what is no event is refused."""

import json
from pathlib import Path

import msgspec
import pytest

from eventstore.catalogue import CANONICAL_TAGS, TAGS, UPCASTERS, VERSIONS, MessageReceived, decode, encode, seq_of
from eventstore.errors import CorruptEvent

FIXTURES = Path(__file__).parents[1] / "fixtures" / "events"


def fixture(name: str) -> bytes:
    return (FIXTURES / f"{name}.json").read_bytes()


@pytest.mark.parametrize("tag", TAGS)
def test_an_event_is_read_and_written_back_unchanged(tag: str) -> None:
    shape = json.loads(fixture(tag))
    event = decode(tag, VERSIONS.get(tag, 1), fixture(tag))
    assert (encode(event)[:2], json.loads(encode(event)[2])) == ((tag, VERSIONS.get(tag, 1)), shape)
    assert seq_of(event) == shape.get("seq")


@pytest.mark.parametrize("tag", TAGS)
def test_a_fixture_sets_every_field_to_something_else_than_its_default(tag: str) -> None:
    assert json.loads(fixture(tag)).keys() == {"type", *(field.encode_name for field in msgspec.structs.fields(TAGS[tag]))}


def test_no_fixture_is_left_over() -> None:
    old = {f"{tag}.v{version}" for tag, version in UPCASTERS}
    assert {path.stem for path in FIXTURES.iterdir()} == {*TAGS, *old}


def test_canonical_events_are_those_with_a_seq() -> None:
    assert {tag for tag in TAGS if "seq" in json.loads(fixture(tag))} == CANONICAL_TAGS
    assert len(CANONICAL_TAGS) == 18


def test_every_older_version_has_a_step_up() -> None:
    assert UPCASTERS.keys() == {(tag, step) for tag, newest in VERSIONS.items() for step in range(1, newest)}


def test_a_message_of_version_1_is_lifted_to_canonical_messages() -> None:
    event = decode("session.message_received", 1, fixture("session.message_received.v1"))
    assert isinstance(event, MessageReceived)
    assert event.input == ({"role": "user", "content": [{"type": "text", "text": "What is the weather in Zürich? 🌦"}]},)
    assert event.received_at == 1764504000000000
    assert decode(*encode(event)) == event


@pytest.mark.parametrize(
    ("tag", "version", "payload"),
    [
        ("run.completed", 1, b""),
        ("run.completed", 1, b"{}"),
        ("run.completed", 1, b'{"type":"run.gone","seq":1}'),
        ("run.completed", 1, b'{"type":"run.completed"}'),
        ("run.completed", 1, b'{"type":"run.completed","seq":"1","output":{}}'),
        ("run.completed", 1, b'{"type":"compact.started","seq":1,"reason":"full"}'),
        ("session.message_received", 1, b'{"type":"session.message_received","message_id":"m","run_id":"r"}'),
        ("run.completed", 1, b'{"type":"run.completed","seq":1,"output":{},"finish_reason":"\xff"}'),
    ],
)
def test_a_row_that_is_no_event_is_called_corrupt(tag: str, version: int, payload: bytes) -> None:
    with pytest.raises(CorruptEvent):
        decode(tag, version, payload)


def test_an_event_of_a_newer_program_is_not_guessed_at() -> None:
    with pytest.raises(CorruptEvent, match="v2 is newer than v1"):
        decode("run.completed", 2, fixture("run.completed"))


def test_a_field_that_a_later_version_adds_is_ignored() -> None:
    payload = b'{"type":"run.recovery_started","attempt":2,"colour":"red"}'
    assert encode(decode("run.recovery_started", 1, payload))[2] == b'{"type":"run.recovery_started","attempt":2}'
