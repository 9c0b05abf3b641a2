"""The commands for those who write policies."""

import contextlib
from pathlib import Path
from typing import Any

import click
import msgspec

from actors.sse import Parser
from gateways.cli.options import json_option
from rss_policy.engine import MontyEngine
from rss_policy.shelf import check as checked
from rss_policy.transcript_folder import check_folder
from rss_policy.transcripts import Report

SHOWN_LOSSES = 20


@click.group()
def policy() -> None:
    """Work on policies, the scripts that drive runs."""


@policy.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@json_option
def check(folder: Path, *, as_json: bool) -> None:
    """Check the policy in DIR as the server would.

    Its manifest, its dialect, its types; nothing is run.
    """
    with contextlib.closing(MontyEngine(workers=1)) as engine:
        bundle = checked(folder, engine)
    names = [module.name for module in bundle.modules]
    if as_json:
        click.echo(msgspec.json.encode({"ok": True, "digest": bundle.digest, "modules": names}))
        return
    click.echo(f"{folder} is a good policy: {len(names)} modules, digest {bundle.digest[:16]}")


@policy.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@json_option
def transcripts(folder: Path, *, as_json: bool) -> None:
    """Run recorded answers of providers through the adapters.

    They are cut anew in many ways, and what was lost is reported.

    DIR holds `openai_chat.jsonl`, `openai_responses.jsonl` or `anthropic_messages.jsonl`: one answer a line, with `id vendor
    stream status body`.  Leaves with 1 if text, reasoning, calls, usage, a stop reason or an error's class was lost.
    """
    reports = dict(check_folder(folder, Parser))
    if as_json:
        click.echo(msgspec.json.encode({name: _told(report) for name, report in reports.items()}))
    else:
        for name, report in reports.items():
            _tell(name, report)
    if any(report.losses for report in reports.values()):
        raise click.exceptions.Exit(1)


def _told(report: Report) -> dict[str, Any]:
    losses = [{"id": loss.id, "vendor": loss.vendor, "cut": loss.cut, "what": loss.what} for loss in report.losses]
    return {"recordings": report.recordings, "runs": report.runs, "lost": len(losses), "losses": losses}


def _tell(name: str, report: Report) -> None:
    click.echo(f"{name}: {report.recordings} recordings, {report.runs} runs, {len(report.losses)} lost")
    for loss in report.losses[:SHOWN_LOSSES]:
        click.echo(f"  {loss.id} of {loss.vendor}, cut {loss.cut}: {loss.what}")
    if len(report.losses) > SHOWN_LOSSES:
        click.echo(f"  and {len(report.losses) - SHOWN_LOSSES} more; --json tells all")
