"""Options and output that commands share: the configuration, the server to talk to, and listings as columns or JSON."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from gateways.cli.client import Client
from gateways.config_checks import address
from gateways.config_load import Loaded, load

Command = TypeVar("Command", bound=Callable[..., Any])
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (a server on all addresses is reached on loopback)


def config_option(command: Command) -> Command:
    """Add `--config FILE`."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read this instead of ./deedbox.toml.",
    )(command)


def data_dir_option(command: Command) -> Command:
    """Add `--data-dir DIR`."""
    return click.option("--data-dir", metavar="DIR", help="The server's data directory; else server.data_dir.")(command)


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")(command)


def server_options(command: Command) -> Command:
    """Add `--config`, `--url` and `--token`."""
    command = click.option(
        "--token", envvar="DEEDBOX_TOKEN", show_envvar=True, help="Bearer token; not needed on loopback."
    )(command)
    command = click.option("--url", envvar="DEEDBOX_URL", show_envvar=True, help="The server; else server.address.")(command)
    return config_option(command)


def client(config_file: Path | None, url: str | None, token: str | None) -> Client:
    """Return a client for the named server, else for the configured one.

    Raises:
        ConfigInvalid: the configuration cannot be read.
    """
    return Client(url or url_of(load(config_file)), token)


def url_of(loaded: Loaded) -> str:
    """Return where the configured server is reached from this machine."""
    host, port = address(loaded.config.server.address, loaded.source("server.address"))
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def show(rows: Iterable[dict[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print rows, as one JSON object a line or as aligned columns; `empty` goes to standard error if there are none."""
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row))
        return
    table = [[_cell(row.get(name)) for name in columns] for row in rows]
    if not table:
        click.echo(empty, err=True)
        return
    lines = [[name.upper() for name in columns], *table]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())[:80]
