"""The command that talks with an agent in the terminal, through the HTTP API of a running server."""

import difflib
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from gateways.cli.client import TERMINAL, Client
from gateways.cli.options import client, server_options
from gateways.clock import UlidIds
from gateways.errors import GatewayError

COMMANDS = ("/new", "/quit", "/exit", "/help")
UNKNOWN_COMMAND = re.compile(r"(/[A-Za-z]+)(?:[^\S\n].*)?")
"""A line such as `/nwe` or `/model x`; neither a path such as `/etc/hosts`, nor a line that begins with a space."""
MOST_PIPED = 8 * 1024 * 1024
"""Characters that are read from a pipe beside a message; the server takes less."""
HELP = "/new starts a new session, /quit ends, Ctrl-C cancels the answer, Ctrl-D ends"


class Conversation:
    """One person's side of a session: says something, shows what comes back, and remembers the session."""

    def __init__(self, server: Client, request: dict[str, Any], console: Console) -> None:
        """Start a conversation; `request` holds what each message carries: session_id, model, profile."""
        self._server, self._request, self._console = server, request, console
        self._printed = ""

    @property
    def session_id(self) -> str | None:
        """The session that the next message goes on with, or None."""
        return self._request.get("session_id")

    def new(self) -> None:
        """Forget the session: the next message starts another."""
        self._request.pop("session_id", None)

    def say(self, text: str) -> bool:
        """Send a message and show the answer as it comes; return whether the run completed.

        Ctrl-C cancels the run, and its end is still shown.
        """
        self._printed = ""
        run_id, seen, interrupted = self._admit(text, UlidIds().new("chat")), 0, False
        while True:
            try:
                for event in self._server.follow(run_id, seen):
                    seen = event["seq"]
                    self._show(event)
                    if event["type"] in TERMINAL:
                        return bool(event["type"] == "run.completed")
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                self._server.post(f"/v1/runs/{run_id}/cancel", {})

    def _admit(self, text: str, key: str) -> str:
        """Return the id of the run that answers; one that was interrupted on the way in is cancelled."""
        request = {"input": text, **self._request}
        try:
            admitted = self._server.post("/v1/runs", request, key)
        except KeyboardInterrupt:
            # Whether it was taken in is not known; the same key gives the same run, and that one is cancelled.
            admitted = self._server.post("/v1/runs", request, key)
            self._server.post(f"/v1/runs/{admitted['run_id']}/cancel", {})
        self._request["session_id"] = admitted["session_id"]
        return str(admitted["run_id"])

    def _show(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "model.delta":
                self._write(event.get("reasoning", ""), "dim")
                text = event.get("text", "") + event.get("refusal", "")
                self._printed += text
                self._write(text)
            case "model.discarded":
                self._take_back(event)
            case "model.completed":
                self._rest(event)
            case "tool.requested":
                self._write(f"\n[{event['name']}]\n", "cyan")
            case "run.cancelled":
                self._write("\n[cancelled]", "yellow")
                self._write("\n")
            case "run.failed":
                self._write(f"\n[failed: {event['error']['message']}]", "red")
                self._write("\n")
            case "run.completed":
                if event.get("finish_reason") == "length" and self._console.is_terminal:
                    self._write("\n[cut off: this is as long as an answer may be]", "yellow")
                self._write("\n")
            case _:
                pass

    def _take_back(self, event: dict[str, Any]) -> None:
        if self._printed:
            self._write("\n[the answer broke off and starts again]\n", "yellow")
        elif self._console.is_terminal:
            self._write(f"[trying again: {event['reason']}]\n", "dim")
        self._printed = ""

    def _rest(self, event: dict[str, Any]) -> None:
        # An answer that came whole has no deltas before it.
        parts = event["message"].get("content", [])
        if not self._printed:
            self._write("".join(part["text"] for part in parts if part["type"] in ("text", "refusal")))
        self._printed = ""

    def _write(self, text: str, style: str = "") -> None:
        if text:
            self._console.print(Text(text, style=style), end="", soft_wrap=True)
            self._console.file.flush()


@click.command()
@click.argument("message", nargs=-1)
@server_options
@click.option("--session", "session_id", help="Go on with this session.")
@click.option("--model", help="The model, for this conversation.")
@click.option("--profile", help="The profile of the configuration.")
def chat(  # noqa: PLR0913 (one parameter an option)
    message: tuple[str, ...],
    config_file: Path | None,
    url: str | None,
    token: str | None,
    *,
    session_id: str | None,
    model: str | None,
    profile: str | None,
) -> None:
    """Talk with the agent.

    MESSAGE alone is answered once, with what is piped in behind it; without it, each line that is typed or piped in.  Lines
    that are pasted together are one message.
    """
    if message and not " ".join(message).strip():
        raise click.UsageError("MESSAGE is empty")
    text = "\n\n".join(filter(None, (" ".join(message), _beside() if message else "")))
    given = {"session_id": session_id, "model": model, "profile": profile}
    request = {name: value for name, value in given.items() if value is not None}
    console = Console(highlight=False, markup=False, emoji=False)
    with client(config_file, url, token) as server:
        server.get("/health")
        talk = Conversation(server, request, console)
        if message:
            lines: Iterator[str] = iter((text,))
        else:
            lines = _typed(console) if sys.stdin.isatty() else _piped()
        good = _converse(talk, lines, console, keep_on=not message and sys.stdin.isatty())
        if message and session_id is None and talk.session_id is not None and sys.stderr.isatty():
            click.secho(f"'deedbox chat --session {talk.session_id}' goes on from here", err=True, dim=True)
        if not good:
            raise click.exceptions.Exit(1)


def _converse(talk: Conversation, lines: Iterator[str], console: Console, *, keep_on: bool) -> bool:
    good = True
    for line in lines:
        match line.strip():
            case "":
                pass
            case "/quit" | "/exit":
                break
            case "/new":
                talk.new()
                if keep_on:
                    console.print("a new session begins with the next message", style="dim")
            case "/help":
                console.print(HELP)
            case text if not line.startswith(" ") and (wrong := UNKNOWN_COMMAND.fullmatch(text)):
                good = _unknown(wrong[1], keep_on=keep_on)
            case text:
                good = _said(talk, text, keep_on=keep_on) and good
    return good or keep_on


def _unknown(name: str, *, keep_on: bool) -> bool:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    said = f"there is no command {name}; {meant}known are {', '.join(COMMANDS)}; a space before it makes it a message"
    if not keep_on:
        raise click.UsageError(said)
    click.echo(f"deedbox: {said}", err=True)
    return False


def _said(talk: Conversation, text: str, *, keep_on: bool) -> bool:
    try:
        return talk.say(text)
    except GatewayError as exc:
        if not keep_on:
            raise
        click.echo(f"deedbox: {exc}", err=True)
        return False


def _beside() -> str:
    """Return what is piped in beside a message; what is no pipe and no file may never end, so it is left alone."""
    with suppress(OSError):  # tests and embedders have streams without a file
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return ""
    try:
        text = sys.stdin.read(MOST_PIPED + 1)
    except UnicodeDecodeError as exc:
        raise click.UsageError("what is piped in is not UTF-8 text") from exc
    if len(text) > MOST_PIPED:
        raise click.UsageError(f"what is piped in has more than {MOST_PIPED} characters")
    return text.strip()


def _piped() -> Iterator[str]:
    yield from sys.stdin


def _typed(console: Console) -> Iterator[str]:
    with suppress(ImportError):
        import readline  # noqa: PLC0415 - not on every machine; with it, lines can be edited and called back

        readline.parse_and_bind("set enable-bracketed-paste on")  # pasted lines stay together; Python turns it off
    console.print(HELP, style="dim")
    while True:
        try:
            yield input("> ")
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()  # at the prompt there is no run to cancel: the line is dropped
