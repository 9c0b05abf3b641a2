"""What a policy script imports as `host`: typed functions over the raw host calls, through which only JSON text crosses.

This file is script source, not a Python module: it is fed to the interpreter before a bundle's own modules and belongs to
the bundle's digest.  The loader adds `_at="module:line"` to every call of a function that takes it.
"""

import json
from typing import Any

import raw


def emit(event: dict[str, Any], _at: str = "") -> None:
    """Record an event; types `model.*`, `tool.requested`, `compact.started`, `note.*`."""
    raw.note(json.dumps(event), _at)


def start(call: dict[str, Any], _at: str = "") -> int:
    """Start a host call without waiting for it; `call["kind"]` says which, the rest is its payload; return its handle."""
    return raw.start(json.dumps(call), _at)


async def join(handle: int, _at: str = "") -> dict[str, Any]:
    """Wait for the outcome of a started call; once."""
    return json.loads(await raw.join(handle, _at))


async def any_of(handles: list[int], _at: str = "") -> int:
    """Wait until one of the calls has its outcome and return its handle; the one that was first, if several have."""
    return await raw.any_of(json.dumps(handles), _at)


def stop(handle: int, _at: str = "") -> None:
    """Ask the host to end a call, or a request's open stream; what has no outcome gets `stopped`, or what came first."""
    raw.stop(handle, _at)


async def request(what: dict[str, Any], _at: str = "") -> dict[str, Any]:
    """Send a request to the model provider and wait for its head (and for its body, unless it streams)."""
    return json.loads(await raw.join(raw.start(json.dumps({**what, "kind": "request"}), _at), _at))


async def read(handle: int, _at: str = "") -> dict[str, Any]:
    """Wait for the next batch of server-sent events of a streaming request."""
    return json.loads(await raw.join(raw.start(json.dumps({"kind": "read", "of": handle}), _at), _at))


async def call_tool(what: dict[str, Any], _at: str = "") -> dict[str, Any]:
    """Have the host run a tool and wait for its result."""
    return json.loads(await raw.join(raw.start(json.dumps({**what, "kind": "call_tool"}), _at), _at))


async def ask_approval(what: dict[str, Any], _at: str = "") -> dict[str, Any]:
    """Ask those who may decide and wait for their answer."""
    return json.loads(await raw.join(raw.start(json.dumps({**what, "kind": "ask_approval"}), _at), _at))


async def spawn(what: dict[str, Any], _at: str = "") -> dict[str, Any]:
    """Run a child and wait for its end."""
    return json.loads(await raw.join(raw.start(json.dumps({**what, "kind": "spawn"}), _at), _at))


async def commit_compaction(what: dict[str, Any], _at: str = "") -> dict[str, Any]:
    """Have the host put a summary in the place of older messages."""
    return json.loads(await raw.join(raw.start(json.dumps({**what, "kind": "commit_compaction"}), _at), _at))


async def sleep(ms: int, _at: str = "") -> dict[str, Any]:
    """Wait for so many milliseconds."""
    return json.loads(await raw.join(raw.start(json.dumps({"kind": "sleep", "ms": ms}), _at), _at))


def now(_at: str = "") -> int:
    """Return UTC in microseconds since the epoch, as the host recorded it."""
    return json.loads(raw.answer("now", _at))


def random_id(_at: str = "") -> str:
    """Return an id that nobody has seen yet, as the host recorded it."""
    return json.loads(raw.answer("random_id", _at))


def new_messages(_at: str = "") -> list[dict[str, Any]]:
    """Return the user messages that came in for this run since the last call."""
    return json.loads(raw.answer("new_messages", _at))
