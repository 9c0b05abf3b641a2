"""A warm turn through the OpenAI-compatible route, against the least that a recorded turn can cost.

The floor is two durable commits on the same disk and the same provider called directly, with `requests` on a connection that
is kept, as the server's client also is.  Turn and floor take turns, so that what disturbs the machine disturbs both.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import requests

from benchmarks.figures import Figure, Size, main, quantile, spread
from benchmarks.stage import DurableCommits, folder, provider, server

ROUNDS: dict[Size, int] = {"tiny": 2, "quick": 150, "full": 1000}
WARM_UP: dict[Size, int] = {"tiny": 1, "quick": 20, "full": 50}
TARGET = 3.0


class Asker:
    """A client that keeps its connection, of the server or of the provider."""

    def __init__(self, url: str, *, stream: bool) -> None:
        self._session = requests.Session()
        self._url = f"{url}/chat/completions"
        self._body: dict[str, Any] = {"model": "fake-model", "messages": [{"role": "user", "content": "Say hello."}]}
        if stream:
            self._body["stream"] = True

    def ask(self) -> None:
        """Ask and read the whole answer."""
        answer = self._session.post(self._url, json=self._body, timeout=30)
        answer.raise_for_status()
        assert b"Hello" in answer.content, answer.text

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def measure(size: Size) -> Sequence[Figure]:
    """Return turns and floors, and their ratios."""
    with folder() as path, provider("--no-checks") as fake, server(fake) as running:
        kinds = {"plain": Asker(f"{running.url}/v1", stream=False), "streamed": Asker(f"{running.url}/v1", stream=True)}
        direct = Asker(fake, stream=True)
        commits = DurableCommits(path)
        works: dict[str, Callable[[], None]] = {name: asker.ask for name, asker in kinds.items()}
        works["floor"] = lambda: _floor(commits, direct)
        works["provider"] = direct.ask
        works["empty request"] = _empty(running.url)
        try:
            taken = _interleaved(works, ROUNDS[size], WARM_UP[size])
        finally:
            for asker in (*kinds.values(), direct):
                asker.close()
            commits.close()
    return _figures(taken)


def _figures(taken: dict[str, list[float]]) -> list[Figure]:
    floor = taken["floor"]
    figures = [figure for name, seconds in taken.items() for figure in spread(name, seconds)]
    for name in ("plain", "streamed"):
        for part, label, limit in ((0.1, "p10", None), (0.5, "p50", TARGET), (0.99, "p99", None)):
            ratio = quantile(taken[name], part) / quantile(floor, part)
            figures.append(Figure(f"{name} / floor, {label}", ratio, "times", limit, beside="two commits + the provider"))
    return figures


def _interleaved(works: dict[str, Callable[[], None]], rounds: int, warm_up: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(warm_up + rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if number >= warm_up:
                taken[name].append(time.perf_counter() - began)
    return taken


def _floor(commits: DurableCommits, direct: Asker) -> None:
    commits.commit()
    direct.ask()
    commits.commit()


def _empty(url: str) -> Callable[[], None]:
    """What a request costs that does nothing, for the part of the turn that is HTTP."""
    session = requests.Session()

    def ask() -> None:
        session.get(f"{url}/health", timeout=30).raise_for_status()

    return ask


if __name__ == "__main__":
    main(measure)
