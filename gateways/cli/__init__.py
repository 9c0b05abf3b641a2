"""The command line: one file a command, all of them thin over the HTTP API, the configuration or the composition root."""

from gateways.cli.commands import main

__all__ = ["main"]
