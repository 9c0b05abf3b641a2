"""The bundled scripts as Python functions: their sources run in one shared namespace, as the engine feeds them."""

from functools import cache
from pathlib import Path
from typing import Any

from rss_policy.loader import load_bundle

SCRIPTS = Path(__file__).parents[2] / "rss_policy" / "scripts"


@cache
def script_names() -> dict[str, Any]:
    """Return every top-level name of the bundle; host calls do nothing."""
    names: dict[str, Any] = {}
    for module in load_bundle(SCRIPTS).modules:
        exec(compile(module.feed, module.name, "exec"), names)  # noqa: S102 - our own sources
    return names


class ScriptAdapter:
    """The six functions of the adapter with this prefix."""

    def __init__(self, prefix: str) -> None:
        names = script_names()
        self.encode = names[f"{prefix}_encode"]
        self.decode = names[f"{prefix}_decode"]
        self.begin = names[f"{prefix}_begin"]
        self.feed = names[f"{prefix}_feed"]
        self.end = names[f"{prefix}_end"]
        self.error = names[f"{prefix}_error"]
