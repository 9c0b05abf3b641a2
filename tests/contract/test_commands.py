"""Every command has a fixture that is read and written back unchanged, and that says what is decided on which state."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from actors import run_commands, session_commands
from actors.aggregate import Aggregate
from actors.errors import Refused
from actors.run import RUN
from actors.service import Inbound, NewSession
from actors.session import SESSION
from eventstore.catalogue import VERSIONS, Event, decode, tag_of
from tests.fakes import command_codec

FIXTURES = Path(__file__).parents[1] / "fixtures"
AGGREGATES: dict[str, Aggregate[Any, Any, Any, Any]] = {"session": SESSION, "run": RUN}
COMMANDS: dict[str, Any] = {
    f"{name}.{kind.__name__}": kind
    for name, union in (("session", session_commands.Command), ("run", run_commands.Command))
    for kind in get_args(union)
}
VALUES: dict[str, Any] = {f"service.{kind.__name__}": kind for kind in (Inbound, NewSession)}
ALL = {**COMMANDS, **VALUES}


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / "commands" / f"{name}.json").read_bytes())


def event(given: Any) -> Event:
    """Return the event of a tag's fixture, with other fields where the case says so."""
    other = {"type": given} if isinstance(given, str) else given
    shape = json.loads((FIXTURES / "events" / f"{other['type']}.json").read_bytes()) | other
    return decode(shape["type"], VERSIONS.get(shape["type"], 1), json.dumps(shape).encode())


def tags(events: Any) -> list[str]:
    return [tag_of(one) for one in events]


CASES = [
    pytest.param(name, number, id=f"{name}: {case['when']}")
    for name in COMMANDS
    if (FIXTURES / "commands" / f"{name}.json").exists()
    for number, case in enumerate(fixture(name)["cases"])
]


def test_each_command_and_each_value_of_the_front_door_has_a_fixture_and_none_is_left_over() -> None:
    assert sorted(path.stem for path in (FIXTURES / "commands").iterdir()) == sorted(ALL)


@pytest.mark.parametrize("name", ALL)
def test_it_is_read_and_written_back_unchanged(name: str) -> None:
    shape = fixture(name)["command"]
    command = command_codec.decode(ALL[name], shape)
    assert type(command) is ALL[name]
    assert command_codec.encode(ALL[name], command) == shape
    assert command_codec.decode(ALL[name], command_codec.encode(ALL[name], command)) == command


@pytest.mark.parametrize("name", ALL)
def test_it_is_frozen(name: str) -> None:
    command = command_codec.decode(ALL[name], fixture(name)["command"])
    for field in dataclasses.fields(command):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(command, field.name, None)


@pytest.mark.parametrize("name", ALL)
def test_its_fixture_sets_every_field_to_something_else_than_its_default(name: str) -> None:
    command = command_codec.decode(ALL[name], fixture(name)["command"])
    same = [field.name for field in dataclasses.fields(command) if getattr(command, field.name) == field.default]
    assert same == []


@pytest.mark.parametrize("name", ALL)
def test_what_is_not_whole_or_has_more_is_no_command(name: str) -> None:
    shape = fixture(name)["command"]
    wrong = [{**shape, "colour": "red"}, *({other: shape[other] for other in shape if other != left} for left in shape)]
    for each in wrong:
        with pytest.raises(msgspec.ValidationError):
            command_codec.decode(ALL[name], each)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_it_is_decided_as_its_fixture_says(name: str, number: int) -> None:
    aggregate, kind = AGGREGATES[name.partition(".")[0]], COMMANDS[name]
    shape = fixture(name)
    case, command = shape["cases"][number], command_codec.decode(kind, shape["command"])
    state = aggregate.fold(map(event, case["given"]))
    if "refused" in case:
        with pytest.raises(Refused) as refusal:
            aggregate.decide(state, command)
        assert refusal.value.code == case["refused"]
        return
    events = tuple(aggregate.decide(state, command))
    assert tags(events) == case["then"]
    opened = aggregate.opens(state, command, events) if events else ()
    assert [tag for part in opened for tag in tags(part.events)] == case.get("opens", [])
    if "attaches" in case:
        going = aggregate.attaches(state, command, events)
        assert [len(going.batches), len(going.seals), len(going.blobs)] == case["attaches"]
    assert tags(aggregate.decide(aggregate.fold(events, state), command)) == case["again"]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_fixture_tells_of_a_state_in_which_the_command_is_taken(name: str) -> None:
    cases = fixture(name)["cases"]
    changes_nothing = name.endswith(".Wake") or name == "session.Recover"
    assert any(case.get("then") for case in cases) != changes_nothing
    assert len({case["when"] for case in cases}) == len(cases)
