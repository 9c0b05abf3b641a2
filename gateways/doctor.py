"""Finds out what is missing on this machine: one check a question, one sentence an answer, nothing is changed."""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eventstore.errors import AlreadyServed
from eventstore.lock import Lock
from gateways.config_checks import address
from gateways.config_load import Loaded

State = Literal["good", "warning", "bad"]
LITTLE_SPACE = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `sentence` says what is so and, where it is not good, what to do."""

    check: str
    state: State
    sentence: str


Check = Callable[[Loaded], Finding]


def python(_: Loaded) -> Finding:
    """Tell the interpreter's version."""
    return Finding("python", "good", f"Python {sys.version.split()[0]} runs deedbox")


def data_dir(loaded: Loaded) -> Finding:
    """Tell whether the data directory can be written, or be made."""
    folder = Path(loaded.config.server.data_dir)
    if not folder.exists():
        above = next(each for each in folder.absolute().parents if each.exists())
        if os.access(above, os.W_OK | os.X_OK):
            return Finding("data directory", "good", f"{folder} does not exist yet and will be made")
        return Finding("data directory", "bad", f"{folder} cannot be made: {above} is not writable; set server.data_dir")
    if not folder.is_dir():
        return Finding("data directory", "bad", f"{folder} is not a folder: set server.data_dir to one")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("data directory", "good", f"{folder} can be written")
    except OSError as exc:
        return Finding(
            "data directory", "bad", f"{folder} cannot be written ({exc.strerror}): free it or set server.data_dir"
        )


def disk(loaded: Loaded) -> Finding:
    """Tell how much space the data directory's disk has left."""
    folder = Path(loaded.config.server.data_dir).absolute()
    free = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free
    said = f"{free / (1 << 30):.1f} GiB are free where the data directory is"
    if free < LITTLE_SPACE:
        return Finding("disk", "warning", f"{said}: make space, a full disk refuses messages")
    return Finding("disk", "good", said)


def lock(loaded: Loaded) -> Finding:
    """Tell whether a server holds the data directory."""
    folder = Path(loaded.config.server.data_dir)
    if folder.is_dir():
        try:
            Lock(folder, "a doctor that looks").close()
        except AlreadyServed as held:
            return Finding("lock", "warning", str(held))
    return Finding("lock", "good", "no server holds the data directory")


def port(loaded: Loaded) -> Finding:
    """Tell whether the server's address is free."""
    host, number = address(loaded.config.server.address, loaded.source("server.address"))
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, number))
    except OSError as exc:
        sentence = f"{host}:{number} cannot be listened on ({exc.strerror}): stop what does, or set server.address"
        return Finding("address", "warning", sentence)
    return Finding("address", "good", f"{host}:{number} is free")


CHECKS: tuple[Check, ...] = (python, data_dir, disk, lock, port)


def examine(loaded: Loaded, checks: tuple[Check, ...] = CHECKS) -> Iterator[Finding]:
    """Yield what each check finds; a check that fails itself is a finding too."""
    for check in checks:
        try:
            yield check(loaded)
        except Exception as exc:  # noqa: BLE001 - a doctor reports every fault, whatever it is, and goes on
            yield Finding(check.__name__, "bad", f"the check itself failed with {type(exc).__name__}: {exc}")
