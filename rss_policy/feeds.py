"""Loads a bundle into a fresh worker, module by module, and maps what the interpreter reports back to `module:line`."""

import re
from typing import Any

from pydantic_monty import MontyError, MontyRuntimeError, MontySession, MontySyntaxError, MontyTypingError

from rss_policy.bundle import Bundle
from rss_policy.errors import BundleRefused, TypesRefused
from rss_policy.lease import discard_output

_FEED = re.compile(r"<python-input-(\d+)>")


def feed_bundle(session: MontySession, bundle: Bundle) -> None:
    """Feed the prelude and all modules, in dependency order.

    Raises:
        BundleRefused: a module does not parse, or raises while it is loaded.
        TypesRefused: the session checks types and found a fault; the place is the first one's.
        MontyCrashedError: the worker died.
    """
    for name, text in (("host", bundle.prelude), *((module.name, module.feed) for module in bundle.modules)):
        try:
            session.feed_run(text, print_callback=discard_output)
        except MontyTypingError as fault:
            raise _types_refused(name, fault) from None
        except (MontySyntaxError, MontyRuntimeError) as fault:
            place = place_of(bundle, fault) or name
            raise BundleRefused(f"{place}: {fault.display('type-msg')}", place) from None


def place_of(bundle: Bundle, fault: MontyError) -> str | None:
    """Return `module:line` of the innermost frame in one of the bundle's modules, or None."""
    frames: list[Any] = fault.traceback() if isinstance(fault, MontyRuntimeError | MontySyntaxError) else []
    for frame in reversed(frames):
        found = _FEED.fullmatch(frame.filename)
        index = int(found[1]) - 1 if found else -1
        if 0 <= index < len(bundle.modules):
            return f"{bundle.modules[index].name}:{frame.line}"
    return None


def _types_refused(module: str, fault: MontyTypingError) -> TypesRefused:
    lines = [line for line in fault.display().splitlines() if line]
    reports = [re.sub(r"^[^:]+:(\d+):(\d+): ", rf"{module}:\1:\2: ", line) for line in lines]
    found = re.match(r"[^:]+:(\d+)", reports[0]) if reports else None
    return TypesRefused("\n".join(reports), f"{module}:{found[1]}" if found else module)
