"""The command that shows the effective configuration: every value, and where it comes from."""

import os
import re
from pathlib import Path
from typing import Any

import click
import msgspec

from gateways.choice import choose
from gateways.cli.options import config_option, json_option, show
from gateways.config_load import Entry, load
from gateways.providers import Providers

SECRET_HEADER = re.compile(r"key|token|secret|auth|cookie|pass", re.IGNORECASE)
CREDENTIALS = re.compile(r"//[^/@\s]*@")


@click.command()
@config_option
@click.option("--chosen", is_flag=True, help="Print only which provider and model the server would use, and why.")
@json_option
def config(config_file: Path | None, *, chosen: bool, as_json: bool) -> None:
    """Show every setting, its value and its source.

    Secrets are never shown.
    """
    loaded = load(config_file)
    providers = Providers(loaded, os.environ)
    providers.check()
    if chosen:
        choice = choose(providers)
        row = {"provider": choice.provider, "model": choice.model, "why": choice.why}
        click.echo(msgspec.json.encode(row) if as_json else f"{choice.provider}\t{choice.model or '-'}\t{choice.why}")
        return
    rows = [{"name": entry.name, "value": masked(entry), "source": entry.source} for entry in loaded.entries()]
    show(rows, ("name", "value", "source"), as_json=as_json, empty="there are no settings")


def masked(entry: Entry) -> Any:
    """Return the value as it may be shown: headers that look like secrets, and credentials in addresses, become `***`."""
    if isinstance(entry.value, dict) and entry.name.endswith(".headers"):
        return {name: "***" if SECRET_HEADER.search(name) else value for name, value in entry.value.items()}
    return CREDENTIALS.sub("//***@", entry.value) if isinstance(entry.value, str) else entry.value
