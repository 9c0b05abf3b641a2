"""The command that ends a run whose client is gone."""

from pathlib import Path
from urllib.parse import quote

import click

from gateways.cli.client import ENDED
from gateways.cli.options import client, server_options


@click.command()
@click.argument("run_id")
@server_options
def cancel(run_id: str, config_file: Path | None, url: str | None, token: str | None) -> None:
    """Cancel a run.

    What it did so far stays on record; a run that has ended stays as it is.
    """
    with client(config_file, url, token) as server:
        status = server.post(f"/v1/runs/{quote(run_id, safe='')}/cancel", {})["status"]
    if status == "cancelled":
        click.echo(f"{run_id} is cancelled")
    elif status in ENDED:
        click.echo(f"{run_id} has ended already: it {status}")
    else:
        click.echo(f"{run_id} is being cancelled")
