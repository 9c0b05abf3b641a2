"""The command that explains what is missing on this machine, one sentence each."""

from pathlib import Path

import click
import msgspec

from gateways import doctor as checks
from gateways.cli.options import config_option, data_dir_option, json_option
from gateways.config_load import load

MARKS = {"good": ("ok", "green"), "warning": ("note", "yellow"), "bad": ("bad", "red")}


@click.command()
@config_option
@data_dir_option
@click.option("--provider", metavar="NAME", help="Have this provider's model answer one tiny run, and check nothing else.")
@json_option
def doctor(config_file: Path | None, data_dir: str | None, provider: str | None, *, as_json: bool) -> None:
    """Check what the server needs, one sentence each.

    The exit code is 1 if something is bad.
    """
    loaded = load(config_file, flags={"server.data_dir": ("--data-dir", data_dir)} if data_dir is not None else {})
    bad = False
    for finding in [checks.reach(loaded, provider)] if provider else checks.examine(loaded):
        bad = bad or finding.state == "bad"
        if as_json:
            click.echo(msgspec.json.encode(finding))
            continue
        mark, colour = MARKS[finding.state]
        click.echo(f"{click.style(f'{mark:<4}', fg=colour)}  {finding.check}: {finding.sentence}")
    if bad:
        raise click.exceptions.Exit(1)
