"""Turns per second with many clients at once, and whether the log holds every one of them.

Each client has a thread, a connection that is kept, and asks again as soon as it has its answer.  The peer is the same
clients asking the provider itself: what this machine gives when nothing is recorded.
"""

import http.client
import json
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from benchmarks.figures import Figure, Size, main, spread
from benchmarks.stage import cpu_seconds, event_counts, gaps, provider, server

SECONDS: dict[Size, float] = {"tiny": 0.2, "quick": 6.0, "full": 30.0}
CLIENTS: dict[Size, int] = {"tiny": 2, "quick": 32, "full": 32}
TARGET = 100.0
_BODY = json.dumps({"model": "fake-model", "messages": [{"role": "user", "content": "Say hello."}]}).encode()


class Crowd:
    """Clients that ask until the time is up."""

    def __init__(self, url: str, clients: int) -> None:
        self._where = urlsplit(url)
        self._lock = threading.Lock()
        self._until = 0.0
        self._threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(clients)]
        self.taken: list[float] = []
        self.refused = 0

    def run(self, seconds: float) -> float:
        """Ask for so long; return the seconds until the last answer was there."""
        began = time.perf_counter()
        self._until = began + seconds
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        return time.perf_counter() - began

    def _ask_on(self) -> None:
        connection = http.client.HTTPConnection(self._where.netloc, timeout=60)
        while (began := time.perf_counter()) < self._until:
            connection.request("POST", f"{self._where.path}/chat/completions", _BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            whole = answer.read()
            with self._lock:
                if answer.status == http.client.OK and b"Hello" in whole:
                    self.taken.append(time.perf_counter() - began)
                else:
                    self.refused += 1
        connection.close()


def measure(size: Size) -> Sequence[Figure]:
    """Return turns a second, what they cost, and what the log says about them."""
    with provider("--no-checks") as fake, server(fake) as running:
        Crowd(f"{running.url}/v1", 2).run(SECONDS[size] / 10)
        before = event_counts(running.data_dir / "deedbox.db").get("run.completed", 0)
        used = cpu_seconds(running.pid)
        crowd = Crowd(f"{running.url}/v1", CLIENTS[size])
        took = crowd.run(SECONDS[size])
        used = cpu_seconds(running.pid) - used
        peer = Crowd(fake, CLIENTS[size])
        peer_took = peer.run(SECONDS[size] / 3)
        running.stop()
        database = running.data_dir / "deedbox.db"
        completed = event_counts(database).get("run.completed", 0) - before
        uneven = gaps(database)
    return _figures(crowd, took, used, (peer, peer_took), (completed, uneven))


def _figures(crowd: Crowd, took: float, used: float, peer: tuple[Crowd, float], logged: tuple[int, int]) -> list[Figure]:
    rate, peer_rate = len(crowd.taken) / took, len(peer[0].taken) / peer[1]
    return [
        Figure("turns a second", rate, "/s", TARGET, at_least=True, beside=f"{peer_rate:.0f}/s without deedbox"),
        Figure("peer's rate / turns a second", peer_rate / rate, "times", beside="the provider called directly"),
        *spread("a turn among them", crowd.taken),
        Figure("the server's processor time for a turn", used / len(crowd.taken) * 1e3, "ms"),
        Figure("turns that were answered", len(crowd.taken), "turns"),
        Figure("answered and not completed in the log", abs(len(crowd.taken) - logged[0]), "turns", 0),
        Figure("runs with a gap in their events", logged[1], "runs", 0),
        Figure("turns that were refused", crowd.refused, "turns", 0),
    ]


if __name__ == "__main__":
    main(measure)
