"""The command `deedbox`: which commands there are, and how every failure becomes one sentence and an exit code.

A command's module is imported when the command is used, so that `deedbox events` does not pay for the server's libraries.
"""

import difflib
import importlib
import os
from typing import Any

import click

from actors.errors import Refused
from eventstore.errors import LogError
from gateways import __version__
from gateways.errors import GatewayError, placed
from rss_policy.errors import ScriptError

COMMANDS = {
    "serve": "gateways.cli.serve:serve",
    "chat": "gateways.cli.chat:chat",
    "sessions": "gateways.cli.listings:sessions",
    "runs": "gateways.cli.listings:runs",
    "cancel": "gateways.cli.cancel:cancel",
    "events": "gateways.cli.listings:events",
    "models": "gateways.cli.models:models",
    "token": "gateways.cli.tokens:token",
    "config": "gateways.cli.settings:config",
    "doctor": "gateways.cli.diagnosis:doctor",
    "policy": "gateways.cli.policy:policy",
}
EXIT_UNEXPECTED, EXIT_USAGE, EXIT_REFUSED, EXIT_STORE, EXIT_INTERRUPTED = 1, 2, 3, 6, 130


class Commands(click.Group):
    """Loads a command by name, and turns what it raises into a sentence on standard error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; one that does not exist is answered with the nearest."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            raise click.UsageError(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what comes before the command's name; a wrong option ends it with a sentence."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            _misused(ctx, exc)
            return []

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a known error ends it with its sentence and its family's code."""
        try:
            return super().invoke(ctx)
        except GatewayError as exc:
            _end(ctx, str(exc), exc.exit_code)
        except Refused as exc:
            _end(ctx, exc.message, EXIT_REFUSED)
        except ScriptError as exc:
            _end(ctx, placed(exc), EXIT_REFUSED)
        except LogError as exc:
            _end(ctx, str(exc), EXIT_STORE)
        except click.UsageError as exc:
            _misused(ctx, exc)
        except KeyboardInterrupt:
            _end(ctx, "interrupted", EXIT_INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        # Whatever else fails is a fault of deedbox: a person gets a sentence, a developer asks for the traceback.
        except Exception as exc:
            if os.environ.get("DEEDBOX_TRACEBACK"):
                raise
            _end(ctx, f"{type(exc).__name__}: {exc} (set DEEDBOX_TRACEBACK=1 to see where)", EXIT_UNEXPECTED)
        return None


def _misused(ctx: click.Context, exc: click.UsageError) -> None:
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        raise exc
    path = exc.ctx.command_path if exc.ctx else ctx.command_path
    said = exc.format_message()
    _end(ctx, f"{said if said.endswith(('.', '?')) else said + '.'} See '{path} --help'.", EXIT_USAGE)


def _end(ctx: click.Context, sentence: str, code: int) -> None:
    click.echo(f"deedbox: {sentence}", err=True)
    ctx.exit(code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deedbox")
def main() -> None:
    """A local agent server whose every step is on record."""
