"""A thousand open event streams, with 100 events a second in all, and what they leave for others.

Two crowds: many runs with a few watchers each, which is how it is used, and one run that everybody watches, whose events
come as fast as one run's can (25 a second).  Delivery is counted from an event's own time (taken before its commit) to its
arrival in another process; the peer is a single stream in the same run of the benchmark.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import requests

from benchmarks.figures import Figure, Size, main, quantile, spread
from benchmarks.stage import Memory, cpu_seconds, memory, provider, server
from tests.fakes.server_process import ROOT, ServerProcess

THOUSAND = ((1_000, 40), (1_000, 1))
CROWDS: dict[Size, tuple[tuple[int, int], ...]] = {"tiny": ((6, 2),), "quick": THOUSAND, "full": THOUSAND}
"""Streams, and runs that they watch."""
SECONDS: dict[Size, float] = {"tiny": 0.2, "quick": 5.0, "full": 30.0}
DELAY: dict[Size, float] = {"tiny": 0.3, "quick": 8.0, "full": 8.0}
"""Seconds that the provider waits before it answers, so that all streams are open by then."""
IN_ALL, OF_ONE = 100, 25
"""Events a second: of all runs together, and of one run as fast as it can be."""
DELIVERY, HEALTH, EACH_KB = 60.0, 50.0, 5.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a crowd of streams saw, and what the server was like meanwhile."""

    streams: int
    ended: int
    events: int
    delays: list[float]
    health: list[float]
    before: Memory
    during: Memory
    cores: float

    @property
    def each(self) -> float:
        """Kilobytes of the server's memory for each stream."""
        return (self.during.own - self.before.own) / self.streams / 1000


def measure(size: Size) -> Sequence[Figure]:
    """Return delivery, `/health` and memory for each crowd, and delivery to a single stream."""
    one = _crowd(size, 1, 1, OF_ONE)
    figures = spread("one stream: delivery", one.delays)
    for streams, runs in CROWDS[size]:
        crowd = _crowd(size, streams, runs, min(OF_ONE, IN_ALL / runs))
        figures += _figures(f"{streams:,} streams of {runs} run{'s' * (runs > 1)}", crowd, one)
    return figures


def _figures(what: str, crowd: Crowd, one: Crowd) -> list[Figure]:
    beside = f"{crowd.events:,} deliveries; {crowd.cores:.2f} cores"
    return [
        *spread(f"{what}: delivery", crowd.delays, p99=DELIVERY),
        Figure(f"{what} / one stream, p50", quantile(crowd.delays, 0.5) / quantile(one.delays, 0.5), "times", beside=beside),
        *spread(f"{what}: /health meanwhile", crowd.health, p99=HEALTH),
        Figure(f"{what}: memory of each", crowd.each, "KB", EACH_KB),
        Figure(f"{what}: not read to the end", crowd.streams - crowd.ended, "streams", 0),
    ]


def _crowd(size: Size, streams: int, runs: int, rate: float) -> Crowd:
    """Open the streams of runs whose answers all begin later, and watch until they have ended."""
    pieces = max(2, round(SECONDS[size] * rate))
    text = " ".join(["word"] * pieces)
    arguments = ("--no-checks", "--text", text, "--pace", str(1 / rate), "--delay", str(DELAY[size]))
    with provider(*arguments) as fake, server(fake) as running, requests.Session() as session:
        session.get(f"{running.url}/health", timeout=60).raise_for_status()
        paths = [_start(session, running.url) for _ in range(runs)]
        time.sleep(min(1.0, DELAY[size] / 4))  # the runs' own memory is none of the streams'
        before = memory(running.pid)
        command = [sys.executable, "-m", "benchmarks.listeners", running.url, str(streams), *paths]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as listeners:
            assert listeners.stdout is not None
            assert listeners.stdout.readline().strip() == "open"
            during = memory(running.pid)
            used = cpu_seconds(running.pid)
            health, told = _health(session, running, listeners)
            cores = (cpu_seconds(running.pid) - used) / SECONDS[size]
    found = json.loads(told)
    return Crowd(streams, found["ended"], found["events"], found["delays"], health, before, during, cores)


def _start(session: requests.Session, url: str) -> str:
    admitted = session.post(f"{url}/v1/runs", json={"input": "Say much."}, timeout=60)
    admitted.raise_for_status()
    return f"/v1/runs/{admitted.json()['run_id']}/events"


def _health(
    session: requests.Session, running: ServerProcess, listeners: "subprocess.Popen[str]"
) -> tuple[list[float], str]:
    """Ask for `/health` ten times a second until the listeners tell what they saw."""
    assert listeners.stdout is not None
    told: list[str] = []
    reader = threading.Thread(target=lambda: told.append(listeners.stdout.readline() if listeners.stdout else ""))
    reader.start()
    taken: list[float] = []
    while reader.is_alive():
        began = time.perf_counter()
        session.get(f"{running.url}/health", timeout=60).raise_for_status()
        taken.append(time.perf_counter() - began)
        reader.join(0.1)
    return taken, told[0]


if __name__ == "__main__":
    main(measure)
