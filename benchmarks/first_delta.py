"""How long a piece of the model's answer takes from the provider's socket to the client's.

The fake provider writes 50 pieces a second and puts into each the monotonic clock's time of its sending; the client compares
with its own, which is the same clock.  Nothing is shown before it is on the disk, so that the way holds two commits.  Later
pieces are gathered for up to 40 ms by design; they are told, without a target.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence

import requests

from benchmarks.figures import Figure, Size, main, quantile, spread
from benchmarks.stage import provider, server

ROUNDS: dict[Size, int] = {"tiny": 1, "quick": 15, "full": 100}
PIECES: dict[Size, int] = {"tiny": 3, "quick": 10, "full": 25}
PACE = 0.02
DELAY = 0.06
TARGET = 10.0
_STAMP = re.compile(rb"@(\d{6,})@")


def measure(size: Size) -> Sequence[Figure]:
    """Return the delays by both streams, and that of the provider read directly."""
    text = " ".join(["@@monotonic@@"] * PIECES[size])
    arguments = ("--no-checks", "--stamp", "--text", text, "--pace", str(PACE), "--delay", str(DELAY))
    with provider(*arguments) as fake, server(fake) as running, requests.Session() as session:
        ways: dict[str, Callable[[], requests.Response]] = {
            "native events": lambda: _native(session, running.url),
            "chat stream": lambda: _chat(session, f"{running.url}/v1"),
            "provider": lambda: _chat(session, fake),
        }
        delays: dict[str, list[list[float]]] = {name: [] for name in ways}
        for number in range(ROUNDS[size] + 1):
            for name, way in ways.items():
                found = list(_delays(way()))
                if number:
                    delays[name].append(found)
    return _figures(delays)


def _figures(delays: dict[str, list[list[float]]]) -> list[Figure]:
    figures: list[Figure] = []
    floor = quantile([found[0] for found in delays["provider"]], 0.5)
    for name, rounds in delays.items():
        first = [found[0] for found in rounds]
        limit = None if name == "provider" else TARGET
        figures += spread(f"{name}, first piece", first, p50=limit)
        if name != "provider":
            figures.append(Figure(f"{name} / provider, first piece", quantile(first, 0.5) / floor, "times"))
            later = [delay for found in rounds for delay in found[1:]]
            figures += spread(f"{name}, later pieces (gathered)", later)
    return figures


def _delays(answer: requests.Response) -> Iterator[float]:
    """Yield, for each piece in order, the seconds from its sending to its arrival."""
    rest = b""
    with answer:
        answer.raise_for_status()
        while data := answer.raw.read1(65536):
            now = time.monotonic_ns()
            rest += data
            whole, rest = rest[: rest.rfind(b"\n") + 1], rest[rest.rfind(b"\n") + 1 :]
            for line in whole.splitlines():
                if b"model.delta" in line or b"chat.completion.chunk" in line:
                    yield from ((now - int(stamp)) / 1e9 for stamp in _STAMP.findall(line))
            if b"event: run.completed" in whole:
                return


def _chat(session: requests.Session, url: str) -> requests.Response:
    body = {"model": "fake-model", "stream": True, "messages": [{"role": "user", "content": "Say hello."}]}
    return session.post(f"{url}/chat/completions", json=body, stream=True, timeout=60)


def _native(session: requests.Session, url: str) -> requests.Response:
    admitted = session.post(f"{url}/v1/runs", json={"input": "Say hello."}, timeout=60).json()
    headers = {"Accept": "text/event-stream"}
    return session.get(f"{url}/v1/runs/{admitted['run_id']}/events", headers=headers, stream=True, timeout=60)


if __name__ == "__main__":
    main(measure)
