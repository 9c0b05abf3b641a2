"""The commands for those who write policies."""

import contextlib
from pathlib import Path

import click
import msgspec

from gateways.cli.options import json_option
from rss_policy.engine import MontyEngine
from rss_policy.shelf import check as checked


@click.group()
def policy() -> None:
    """Work on policies, the scripts that drive runs."""


@policy.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@json_option
def check(folder: Path, *, as_json: bool) -> None:
    """Check the policy in DIR as the server would: its manifest, its dialect, its types; nothing is run."""
    with contextlib.closing(MontyEngine(workers=1)) as engine:
        bundle = checked(folder, engine)
    names = [module.name for module in bundle.modules]
    if as_json:
        click.echo(msgspec.json.encode({"ok": True, "digest": bundle.digest, "modules": names}))
        return
    click.echo(f"{folder} is a good policy: {len(names)} modules, digest {bundle.digest[:16]}")
