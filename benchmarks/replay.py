"""How fast the record is read back: the replay of a long run, and the check of the chain over a long log."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from actors.replaying import replay_run
from benchmarks.figures import Figure, Size, main
from benchmarks.fill import Filler, opened, recorded
from benchmarks.stage import folder, provider
from eventstore.sqlite import Store
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_bundle
from tests.fakes.system import FakeProfiles

PACE: dict[Size, float] = {"tiny": 0.0, "quick": 0.001, "full": 0.04}
"""Seconds between two pieces; at 0.04 each is a batch of its own, as with a slow model."""
PIECES: dict[Size, int] = {"tiny": 20, "quick": 2_000, "full": 500}
EVENTS: dict[Size, int] = {"tiny": 300, "quick": 50_000, "full": 300_000}
REPLAY_TARGET, CHECK_TARGET = 1.5, 50_000.0
LONG_RUN = 1_000
T = TypeVar("T")
POLICY = Path(__file__).parents[1] / "rss_policy" / "scripts"


def measure(size: Size) -> Sequence[Figure]:
    """Return the time of a replay, scaled to 1,000 events, and the rate of the check beside that of hashing alone."""
    text = "word " * PIECES[size]
    with folder() as path, provider("--no-checks", "--text", text, "--pace", str(PACE[size])) as fake:
        conversation = recorded(fake, path, 1, lambda _number: "Say much.")
        with opened(path / "recorded") as store:
            figures = _replay(store)
        with opened(path / "long") as store:
            held = Filler(store.log, conversation).fill(-(-EVENTS[size] // conversation.events))
            figures += _check(store, held, path / "long" / "deedbox.db")
    return figures


def _replay(store: Store) -> list[Figure]:
    run_id = store.queries.runs(None, limit=1)[0].run_id
    events = sum(1 for _ in store.log.read(f"run-{run_id}"))
    engine = MontyEngine(2)
    try:
        profiles = FakeProfiles(load_bundle(POLICY))
        cold, report = _timed(lambda: replay_run(store.log, store.queries, engine, profiles, run_id))
        warm, _ = _timed(lambda: replay_run(store.log, store.queries, engine, profiles, run_id))
        reading, _ = _timed(lambda: sum(1 for _ in store.log.read(f"run-{run_id}")))
    finally:
        engine.close()
    assert report.equal, report
    beside = f"{events:,} events of {report.steps:,} steps in {warm:.2f} s; first replay {cold:.2f} s"
    return [
        Figure("replay of a run, for 1,000 events", warm / events * LONG_RUN, "s", REPLAY_TARGET, beside=beside),
        Figure("replay / reading its events", warm / reading, "times", beside=f"{reading * 1e3:.1f} ms"),
    ]


def _check(store: Store, held: int, database: Path) -> list[Figure]:
    took, fault = _timed(store.log.check)
    assert fault is None, fault
    hashing, _ = _timed(lambda: _hash_file(database))
    rate = held / took
    beside = f"{held:,} events; the file alone is hashed in {hashing:.2f} s"
    return [
        Figure("chain check", rate, "events/s", CHECK_TARGET, at_least=True, beside=beside),
        Figure("chain check / hashing the file", took / hashing, "times"),
    ]


def _hash_file(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


if __name__ == "__main__":
    main(measure)
