"""The command that runs the server, and what signals do to it."""

import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import click

from gateways import __version__, logs
from gateways.cli.options import config_option
from gateways.compose import serving
from gateways.config_checks import address
from gateways.config_load import Loaded, load
from gateways.http.auth import is_loopback
from gateways.http.tokens import TokenFile
from gateways.paths import token_file


@click.command()
@config_option
@click.option("--address", metavar="HOST:PORT", help="Listen there; port 0 takes a free one.")
@click.option("--data-dir", metavar="DIR", help="Keep the log there; made if it does not exist.")
@click.option("--provider", metavar="NAME", help="The default provider.")
@click.option("--model", metavar="NAME", help="The default model.")
@click.option("--recovery", type=click.Choice(["resume", "fail"]), help="What becomes of runs that a crash cut short.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Diagnostics from there on.")
def serve(config_file: Path | None, **given: str | None) -> None:
    """Run the server until Ctrl-C or SIGTERM.

    SIGUSR1 prints what every thread does.
    """
    loaded = load(config_file, flags=_flags(given))
    logs.set_up(loaded.config.server.log_level)
    stop = _stop_on_signals()
    with serving(loaded) as server:
        click.echo(f"deedbox {__version__} serves {server.url}")
        click.echo(f"data directory {server.data_dir}")
        click.echo(f"model {server.model}")
        sys.stdout.flush()
        if lacks_token(loaded):
            click.echo("every request needs a token, and there is none: make one with 'deedbox token create NAME'", err=True)
        stop.wait()
        click.echo("stopping: runs that have not ended are taken up at the next start")
    click.echo("stopped")


def lacks_token(loaded: Loaded) -> bool:
    """Tell whether nobody can use the server: it listens on more than loopback, and no token has been made."""
    host, _ = address(loaded.config.server.address, loaded.source("server.address"))
    return not is_loopback(host) and not TokenFile(token_file(Path(loaded.config.server.data_dir))).list()


def _flags(given: dict[str, str | None]) -> dict[str, tuple[str, Any]]:
    names = {
        "address": "server.address",
        "data_dir": "server.data_dir",
        "provider": "model.provider",
        "model": "model.model",
        "recovery": "server.recovery",
        "log_level": "server.log_level",
    }
    return {names[each]: (f"--{each.replace('_', '-')}", value) for each, value in given.items() if value is not None}


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # Asked twice: leave at once, as kill -9 would; the log is made for that.
            os._exit(128 + number)
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, ask)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    return stop
