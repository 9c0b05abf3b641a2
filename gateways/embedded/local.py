"""Finds a model server that already runs on this machine."""

import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from gateways.provider.probe import models_of
from gateways.provider.settings import Endpoint, Timeouts

# Each server's default port, by its own documentation.
WELL_KNOWN: Final = (("ollama", 11434), ("llama.cpp", 8080), ("lm-studio", 1234), ("vllm", 8000))
_WAIT: Final = 0.3


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server on this machine: the program that usually has this port, its API's URL, its models in its order."""

    name: str
    base_url: str
    models: tuple[str, ...]

    def endpoint(self) -> Endpoint:
        """Return how to use it; a local model may think long before its first byte."""
        return Endpoint(self.name, self.base_url, auth="none", timeouts=Timeouts(first_byte=600, idle=300))


def find_local(candidates: Sequence[tuple[str, int]] = WELL_KNOWN, wait: float = _WAIT) -> LocalServer | None:
    """Return the first loopback server that lists at least one model, or None; waits `wait` seconds for each at most.

    Asks in order, on the caller's thread.
    """
    for name, port in candidates:
        if not _listens(port):
            continue
        url = f"http://127.0.0.1:{port}/v1"
        models = models_of(Endpoint(name, url, auth="none", timeouts=Timeouts(wait, wait, wait, wait)))
        if models:
            return LocalServer(name, url, models)
    return None


def _listens(port: int) -> bool:
    """Tell whether anybody listens there, so that a machine without model servers is not told of failed requests."""
    try:
        with closing(socket.create_connection(("127.0.0.1", port), _WAIT)):
            return True
    except OSError:
        return False
