"""Checks a folder of recorded answers, one JSON Lines file for each protocol, against the bundled adapters."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rss_policy.errors import RecordingsRefused
from rss_policy.loader import load_bundle
from rss_policy.transcript_protocols import PROTOCOLS
from rss_policy.transcripts import Frames, Recording, Report, check_all, recording_of

SCRIPTS = Path(__file__).with_name("scripts")


class BundledAdapter:
    """The six functions of one bundled adapter, run as plain Python: the sources are our own, and they do no I/O."""

    def __init__(self, name: str) -> None:
        """Take the adapter of the protocol `name`."""
        functions = _adapters()[name]
        self.encode: Callable[..., dict[str, Any]] = functions["encode"]
        self.decode: Callable[..., dict[str, Any]] = functions["decode"]
        self.begin: Callable[..., dict[str, Any]] = functions["begin"]
        self.feed: Callable[..., list[dict[str, Any]]] = functions["feed"]
        self.end: Callable[..., dict[str, Any]] = functions["end"]
        self.error: Callable[..., dict[str, Any]] = functions["error"]


@cache
def _adapters() -> dict[str, dict[str, Any]]:
    names: dict[str, Any] = {}
    for module in load_bundle(SCRIPTS).modules:
        if not module.name.startswith("agent."):
            exec(compile(module.feed, module.name, "exec"), names)  # noqa: S102 - our own sources, shipped with this file
    adapters: dict[str, dict[str, Any]] = names["LLM_ADAPTERS"]
    return adapters


def check_folder(folder: Path, frames: Callable[[], Frames]) -> Iterator[tuple[str, Report]]:
    """Check `<protocol>.jsonl` for each protocol whose file is in the folder; yield its name and what was found.

    `frames` makes a parser of server-sent events.  Takes about a second for a hundred recordings.

    Raises:
        RecordingsRefused: there is no such folder, it holds no such file, or a line is no recording.
    """
    if not folder.is_dir():
        raise RecordingsRefused(f"there is no folder {folder}")
    found = [name for name in PROTOCOLS if (folder / f"{name}.jsonl").is_file()]
    if not found:
        raise RecordingsRefused(f"{folder} holds none of {', '.join(f'{name}.jsonl' for name in PROTOCOLS)}")
    for name in found:
        yield name, check_all(name, BundledAdapter(name), _recordings(folder / f"{name}.jsonl"), frames)


def _recordings(path: Path) -> Iterator[Recording]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield recording_of(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError) as fault:
                    raise RecordingsRefused(f"{path.name}:{number} is no recording: {fault!r}") from None
