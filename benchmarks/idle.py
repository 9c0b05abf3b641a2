"""What a server costs that has nothing to do: memory with many sessions, and the time to get ready over a long log."""

import http.client
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.figures import Figure, Size, main
from benchmarks.fill import Filler, opened, recorded
from benchmarks.stage import cpu_seconds, folder, memory, provider, server
from tests.fakes.server_process import ServerProcess

SESSIONS: dict[Size, int] = {"tiny": 20, "quick": 2_000, "full": 10_000}
EVENTS: dict[Size, int] = {"tiny": 500, "quick": 100_000, "full": 1_000_000}
STARTS: dict[Size, int] = {"tiny": 1, "quick": 3, "full": 5}
MEGABYTE = 1_000_000
MEMORY_TARGET, START_TARGET = 120.0, 1.5
SETTLING: dict[Size, float] = {"tiny": 0.1, "quick": 1.0, "full": 1.0}
"""Seconds of rest before, and while, a server is looked at that has nothing to do."""


def measure(size: Size) -> Sequence[Figure]:
    """Return resident memory and start-up times, each beside that of an empty server."""
    with provider("--no-checks") as fake:
        return [*_memory(fake, SESSIONS[size], SETTLING[size]), *_starts(fake, EVENTS[size], STARTS[size])]


def _memory(fake: str, sessions: int, settling: float) -> list[Figure]:
    with server(fake) as running:
        empty = memory(running.pid)
        _create(running.url, sessions)
        time.sleep(settling)
        used = cpu_seconds(running.pid)
        time.sleep(settling)
        used = cpu_seconds(running.pid) - used
        full = memory(running.pid)
    one = (full.own - empty.own) / sessions
    return [
        Figure(
            f"memory with {sessions:,} idle sessions",
            full.own / MEGABYTE,
            "MB",
            MEMORY_TARGET,
            beside=f"{empty.own / MEGABYTE:.0f} MB empty; policy workers {full.children / MEGABYTE:.0f} MB",
        ),
        Figure("of that for each session", one / 1000, "KB"),
        Figure("processor time of an idle server", used / settling * 100, "percent"),
    ]


def _create(url: str, sessions: int) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    for _ in range(sessions):
        connection.request("POST", "/v1/sessions", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == http.client.CREATED, answer.status
    connection.close()


def _starts(fake: str, events: int, times: int) -> list[Figure]:
    with folder() as path:
        held = _filled(fake, path, events)
        long = [_start(path / "long", fake) for _ in range(times)]
        empty = [_start(path / f"empty-{number}", fake) for number in range(times)]
        size = (path / "long" / "var" / "deedbox.db").stat().st_size
    best = min(long)
    beside = f"{min(empty):.2f} s empty; best of {times}; {size / MEGABYTE:,.0f} MB"
    return [
        Figure(f"start to ready, {held:,} events", best, "s", START_TARGET, beside=beside),
        Figure("start over a long log / over an empty one", best / min(empty), "times"),
    ]


def _filled(fake: str, path: Path, events: int) -> int:
    conversation = recorded(fake, path, 2, lambda number: f"Question {number}")
    (path / "long").mkdir()
    with opened(path / "long" / "var") as store:
        return Filler(store.log, conversation).fill(-(-events // conversation.events))


def _start(path: Path, fake: str) -> float:
    """Return the seconds from the start of the process until it says that it is ready."""
    path.mkdir(exist_ok=True)
    began = time.perf_counter()
    with ServerProcess(path, fake) as running:
        took = time.perf_counter() - began
        running.stop()
    return took


if __name__ == "__main__":
    main(measure)
