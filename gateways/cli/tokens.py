"""The commands that make, list and revoke bearer tokens, in the data directory's token file; no server need run."""

from pathlib import Path
from typing import get_args

import click
import msgspec

from gateways.cli.options import config_option, data_dir_option, json_option, show
from gateways.clock import SystemClock
from gateways.config_load import Loaded, load
from gateways.errors import NoSuchToken
from gateways.http.ports import Scope
from gateways.http.tokens import TokenFile
from gateways.http.views import moment
from gateways.paths import token_file

COLUMNS = ("token_id", "name", "principal", "scopes", "created_at")


@click.group()
def token() -> None:
    """Make, list and revoke bearer tokens."""


@token.command()
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(get_args(Scope)), help="May be repeated; else read and run."
)
@click.option("--principal", help="Whose sessions and runs it reaches; else local, the principal of loopback.")
@config_option
@data_dir_option
@json_option
def create(
    name: str,
    scopes: tuple[Scope, ...],
    principal: str | None,
    config_file: Path | None,
    data_dir: str | None,
    *,
    as_json: bool,
) -> None:
    """Make a token called NAME and print it.

    It is shown this once and stored nowhere.
    """
    secret, record = _file(config_file, data_dir).create(name, scopes or ("read", "run"), SystemClock().now(), principal)
    if as_json:
        shown = {"token": secret, "token_id": record.token_id, "principal": record.principal, "scopes": record.scopes}
        click.echo(msgspec.json.encode(shown))
        return
    click.echo(secret)
    click.echo(f"{record.token_id}: {', '.join(record.scopes)} as {record.principal}; it is not shown again", err=True)


@token.command("list")
@config_option
@data_dir_option
@json_option
def list_tokens(config_file: Path | None, data_dir: str | None, *, as_json: bool) -> None:
    """List tokens, without their secrets."""
    records = [msgspec.to_builtins(each) for each in _file(config_file, data_dir).list()]
    rows = [{name: record[name] for name in COLUMNS} | {"created_at": moment(record["created_at"])} for record in records]
    show(rows, COLUMNS, as_json=as_json, empty="there are no tokens: make one with 'deedbox token create NAME'")


@token.command()
@click.argument("token_id")
@config_option
@data_dir_option
def revoke(token_id: str, config_file: Path | None, data_dir: str | None) -> None:
    """Revoke a token by its id or its name.

    A running server refuses it from the next request on.
    """
    revoked = _file(config_file, data_dir).revoke(token_id)
    if revoked is None:
        raise NoSuchToken(f"there is no token {token_id!r}: 'deedbox token list' shows all")
    click.echo(f"revoked {revoked.token_id} ({revoked.name}): {', '.join(revoked.scopes)} as {revoked.principal}")


def _file(config_file: Path | None, data_dir: str | None) -> TokenFile:
    flags = {"server.data_dir": ("--data-dir", data_dir)} if data_dir is not None else {}
    loaded: Loaded = load(config_file, flags=flags)
    return TokenFile(token_file(Path(loaded.config.server.data_dir)))
