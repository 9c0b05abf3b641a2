"""`docs/cli.md` names every command and every flag, and none that is not there."""

import re
from collections.abc import Iterator

import click
import pytest

from gateways.cli import main
from tests.docs.tables import DOCS, rows

TABLE = {re.sub(r" [\[A-Z].*", "", row[0].strip("`")): row[1] for row in rows((DOCS / "cli.md").read_text("utf-8"))}


def commands(group: click.Group, above: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{above} {name}")
        else:
            yield f"{above} {name}", command


ALL = [("deedbox", main), *commands(main, "deedbox")]


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_a_command_is_documented_with_every_flag(name: str, command: click.Command) -> None:
    assert name in TABLE, f"add a row for `{name}` to docs/cli.md"
    flags = {option for each in command.params if isinstance(each, click.Option) for option in each.opts}
    documented = set(re.findall(r"--[a-z-]+", TABLE[name]))
    assert flags == documented - ({"--help"} if name == "deedbox" else set())


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_a_command_and_each_of_its_flags_has_a_help_text(name: str, command: click.Command) -> None:
    assert command.help, name
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []


def test_nothing_is_documented_that_is_not_a_command() -> None:
    assert set(TABLE) == {name for name, _ in ALL}


def test_every_listing_can_be_read_by_a_program() -> None:
    listing = ("sessions", "runs", "events", "models", "token list", "config", "doctor")
    assert all("--json" in TABLE[f"deedbox {name}"] for name in listing)
