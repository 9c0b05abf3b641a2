"""The commands that show what a running server has on record: sessions, runs and the events of one run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from eventstore.catalogue import CANONICAL_TAGS
from gateways.cli.client import Client
from gateways.cli.options import client, json_option, server_options, show
from gateways.config_checks import unknown

SESSION_COLUMNS = ("session_id", "title", "profile", "model", "run_count", "updated_at")
RUN_COLUMNS = ("run_id", "session_id", "status", "model", "created_at", "finish_reason")
STATUSES = ("queued", "running", "waiting", "completed", "cancelled", "failed")
ENVELOPE = frozenset({"run_id", "parent_run_id", "seq", "at", "type"})


@click.command()
@server_options
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="At most so many, newest first.")
@click.option("--platform", help="Only sessions of this way in, such as http.")
@json_option
def sessions(
    config_file: Path | None, url: str | None, token: str | None, *, limit: int, platform: str | None, as_json: bool
) -> None:
    """List sessions, newest first.

    One without a title is shown by its first words.
    """
    with client(config_file, url, token) as server:
        rows = server.pages("/v1/sessions", limit, platform=platform)
        none_yet = "there are no sessions yet: say something with 'deedbox chat'"
        empty = f"there are no sessions of the platform {platform}" if platform else none_yet
        shown = rows if as_json else ({**row, "title": row["title"] or row.get("preview")} for row in rows)
        show(shown, SESSION_COLUMNS, as_json=as_json, empty=empty)


@click.command()
@server_options
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="At most so many, newest first.")
@click.option("--session", "session_id", help="Only runs of this session.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs in this state.")
@json_option
def runs(  # noqa: PLR0913 (one parameter an option)
    config_file: Path | None,
    url: str | None,
    token: str | None,
    *,
    limit: int,
    session_id: str | None,
    status: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    with client(config_file, url, token) as server:
        rows = server.pages("/v1/runs", limit, session_id=session_id, status=status)
        show(rows, RUN_COLUMNS, as_json=as_json, empty="there are no such runs")


@click.command()
@click.argument("run_id")
@server_options
@click.option("--after", default=0, show_default=True, type=click.IntRange(0), help="Only events with a greater seq.")
@click.option("--follow", is_flag=True, help="Go on with the live events until the run ends.")
@click.option("--types", help="Only these types, with commas between them.")
@json_option
def events(  # noqa: PLR0913 (one parameter an option)
    run_id: str,
    config_file: Path | None,
    url: str | None,
    token: str | None,
    *,
    after: int,
    follow: bool,
    types: str | None,
    as_json: bool,
) -> None:
    """Show the events of a run.

    With --follow also those that come, over cut connections and restarts of the server.
    """
    wanted = _types(types or "")
    with client(config_file, url, token) as server:
        found = server.follow(run_id, after) if follow else _recorded(server, run_id, after)
        for event in found:
            if not wanted or event["type"] in wanted:
                click.echo(msgspec.json.encode(event) if as_json else _line(event))


def _types(text: str) -> frozenset[str]:
    wanted = frozenset(name.strip() for name in text.split(",") if name.strip())
    for name in sorted(wanted - CANONICAL_TAGS):
        raise unknown("type of event", name, CANONICAL_TAGS, "--types")
    return wanted


def _recorded(server: Client, run_id: str, after: int) -> Iterator[dict[str, Any]]:
    return server.pages(f"/v1/runs/{run_id}/events", 1_000_000, after=after)


def _line(event: dict[str, Any]) -> str:
    payload = {name: value for name, value in event.items() if name not in ENVELOPE}
    return f"{event['seq']:>5}  {event['type']:<18}  {msgspec.json.encode(payload).decode()}"
