"""The command that lists what the configured profiles and providers offer."""

import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import msgspec

from gateways.choice import choose
from gateways.cli.options import config_option, json_option, show
from gateways.config_load import load
from gateways.known_models import KnownModel, KnownModels
from gateways.providers import Providers

COLUMNS = ("provider", "model", "adapter", "context", "can", "in/out per 1M", "key", "profiles")
MICRO = 1_000_000


@click.command()
@config_option
@click.option("--provider", metavar="NAME", help="Only the models of this provider.")
@click.option("--live", is_flag=True, help="Ask each provider whose key is there for its own list too.")
@json_option
def models(config_file: Path | None, provider: str | None, *, live: bool, as_json: bool) -> None:
    """List what the configured profiles and providers offer.

    Prices are money per million tokens.  With --live the exit code is 1 if a provider does not tell.
    """
    providers = Providers(load(config_file), os.environ)
    providers.check()
    known = KnownModels(providers, choose(providers), provider)
    problems: list[str] = []
    rows = _asked(known, problems) if live else known.rows()
    shown = (msgspec.to_builtins(row) if as_json else _columns(row) for row in rows)
    show(shown, COLUMNS, as_json=as_json, empty="there are no models")
    for problem in problems:
        click.echo(f"deedbox: {problem}", err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _asked(known: KnownModels, problems: list[str]) -> Iterator[KnownModel]:
    for rows, problem in known.live():
        problems.extend([problem] if problem is not None else [])
        yield from rows


def _columns(row: KnownModel) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "model": row.model if row.listed is not False else f"{row.model} (not listed)",
        "adapter": row.adapter,
        "context": row.context_tokens,
        "can": " ".join(name for name, can in row.capabilities.items() if can) or None,
        "in/out per 1M": price(row.price),
        "key": f"{row.key_env or f'providers.{row.provider}.api_key_env'} is missing" if row.key == "missing" else row.key,
        "profiles": " ".join(row.profiles) or None,
    }


def price(told: Mapping[str, Any] | None) -> str:
    """Return a price of micro-units as money, such as `0.40/1.60 USD`, or `unknown`."""
    if told is None:
        return "unknown"
    return f"{_money(told['input'])}/{_money(told['output'])} {told.get('currency') or ''}".rstrip()


def _money(micros: int) -> str:
    whole, _, rest = f"{Decimal(micros) / MICRO:.6f}".partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"
