"""A server under load that is killed again and again at random moments: `python -m tests.crash.soak [KILLS] [RUNS] [SEED]`.

Clients repeat what was not answered, with the same key, as long as it takes.  In the end every message is on record once,
every run has ended once and right, its numbers have no gap, its replay is equal, and the log's chain holds.
"""

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from actors.replaying import replay_run
from eventstore.catalogue import (
    Canonical,
    Event,
    ModelDiscarded,
    RecoveryStarted,
    RunCompleted,
    RunFailed,
    ToolCompleted,
    ToolRequested,
)
from eventstore.redaction import Redactor
from eventstore.sqlite.store import Store, open_store
from rss_policy.engine import MontyEngine
from tests.crash.test_server_killed import StoredBundles
from tests.fakes.provider import Answer, FakeProvider, Faults, Status, Text, ToolCall
from tests.fakes.provider.request import Received
from tests.fakes.provider.script import Step
from tests.fakes.server_process import ServerProcess

CLIENTS = 20
PATIENCE_S = 120.0
KILLED_TOO_OFTEN = ("recovery_exhausted", "interrupted")
"""How a run ends that was taken up three times without progress, or interrupted six times in one turn."""


@dataclass
class Moods:
    """How the provider answers: now well, now slowly, now with a tool call, a cut or an error; by a seed."""

    dice: random.Random
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Received) -> Step:
        with self.lock:
            mood = self.dice.random()
        asked = any(message["role"] == "tool" for message in request.body["messages"])
        if mood < 0.1:
            return Status(500)
        if mood < 0.2:
            return Answer((Text("It breaks off in the middle of the answer"),), faults=Faults(cut_after=700, pace=0.02))
        if mood < 0.4 and not asked:
            return Answer((ToolCall("look", '{"place":"there"}'),), faults=Faults(pace=0.02))
        return Answer((Text("All is well, as far as I can see from here."),), faults=Faults(pace=0.02 + mood / 20))


@dataclass
class Soak:
    """One server, its clients and its killer."""

    server: ServerProcess
    dice: random.Random
    kills: int
    runs: int
    taken: dict[str, str] = field(default_factory=dict)

    def hold(self) -> None:
        """Send all messages while the server is killed; return when every run has ended."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            done = [clients.submit(self._client, number) for number in range(self.runs)]
            for _ in range(self.kills):
                time.sleep(self.dice.uniform(0.2, 1.2))
                self.server.kill()
                self.server.start()
            for each in done:
                each.result()

    def _client(self, number: int) -> None:
        """Say something in one of a few sessions, and wait for the end of the run that answers."""
        body = {"input": f"message {number}"} | ({"session_id": self._session(number)} if number % 3 == 0 else {})
        key = {"Idempotency-Key": f"key-{number}"}
        taken = insist(lambda: requests.post(f"{self.server.url}/v1/runs", json=body, headers=key, timeout=5), 202)
        self.taken[f"message {number}"] = taken["run_id"]
        place = f"/v1/runs/{taken['run_id']}"
        insist(lambda: requests.get(f"{self.server.url}{place}", timeout=5), 200, lambda run: run["finished_at"] is not None)

    def _session(self, number: int) -> str:
        name = f"talk-{number % 4}"
        insist(lambda: requests.post(f"{self.server.url}/v1/sessions", json={"session_id": name}, timeout=5), 201, known=409)
        return name


def insist(
    attempt: Callable[[], requests.Response],
    status: int,
    holds: Callable[[Any], bool] = lambda _: True,
    known: int | None = None,
) -> Any:
    """Try until the answer is as wanted, whatever happens to the server meanwhile."""
    until = time.monotonic() + PATIENCE_S
    told = "nothing"
    while time.monotonic() < until:
        try:
            answer = attempt()
        except requests.RequestException as error:
            told = repr(error)
        else:
            told = answer.text
            assert answer.status_code in (status, known, 429, 500, 503), told
            if answer.status_code in (status, known) and holds(answer.json()):
                return answer.json()
        time.sleep(0.05)
    raise AssertionError(f"it does not come: {told}")


def check(store: Store, taken: dict[str, str]) -> None:
    """See that the log tells of each message once, and of each run's one end."""
    assert store.log.check() is None
    engine = MontyEngine(2)
    try:
        rows = list(store.queries.runs(None, limit=100_000))
        assert sorted(taken.values()) == sorted(row.run_id for row in rows)
        for row in rows:
            assert row.status == "completed" or (row.error is not None and row.error.code in KILLED_TOO_OFTEN), row
            check_run([envelope.event for envelope in store.log.read(f"run-{row.run_id}")])
            report = replay_run(store.log, store.queries, engine, StoredBundles(), row.run_id)
            assert report.equal, report
        said = [
            message.message["content"][0]["text"]
            for session in {row.session_id for row in rows}
            for message in store.queries.messages(session, limit=10_000)
            if message.role == "user"
        ]
        assert sorted(said) == sorted(taken)
    finally:
        engine.close()


def check_run(events: list[Event]) -> None:
    """See that a run's numbers have no gap, that it ends once, and that every tool call has one result."""
    canonical = [event for event in events if isinstance(event, Canonical)]
    assert [event.seq for event in canonical] == list(range(1, len(canonical) + 1))
    assert isinstance(canonical[-1], RunCompleted | RunFailed)
    assert sum(isinstance(event, RunCompleted | RunFailed) for event in canonical) == 1
    interrupted = sum(isinstance(event, ModelDiscarded) and event.reason == "interrupted" for event in canonical)
    assert interrupted <= sum(isinstance(event, RecoveryStarted) for event in events), "one kill costs one attempt at most"
    calls = [event.call_id for event in events if isinstance(event, ToolRequested)]
    assert sorted(calls) == sorted(event.call_id for event in events if isinstance(event, ToolCompleted))


def soak(folder: Path, kills: int, runs: int, seed: int) -> None:
    """Do all of it in a folder."""
    dice = random.Random(seed)  # noqa: S311 - to be done again, not to be secret
    with FakeProvider(choose=Moods(random.Random(seed))) as provider:  # noqa: S311
        with ServerProcess(folder, provider.url) as server:
            scene = Soak(server, dice, kills, runs)
            scene.hold()
            code, _ = server.stop()
            assert (code, "Traceback" in server.log(), "unforeseen" in server.log()) == (0, False, False), server.log()
        store = open_store(server.data_dir, Redactor(()), holder="the soak")
        try:
            check(store, scene.taken)
        finally:
            store.close()


def main() -> None:
    """Soak with the numbers of the command line, and say how it went."""
    kills, runs, seed = [*map(int, sys.argv[1:4]), *(10, 200, 1)[len(sys.argv[1:4]) :]]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        soak(Path(folder), kills, runs, seed)
    told = {"kills": kills, "runs": runs, "seed": seed, "seconds": round(time.monotonic() - began, 1)}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
