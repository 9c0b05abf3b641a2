"""Durable appends: group commit with 64 writers against one event per commit, on this disk and on one that takes 4 ms more.

Each rate is events per second over the whole path (redaction, encoding, chain,
projections); the floor beside it is one writer that waits for each commit, measured in the same run on the same disk.
"""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from benchmarks.figures import Figure, Size, main
from eventstore import Append, Redactor, StreamPart
from eventstore.catalogue import ModelDelta, RunAdmitted, RunStarted, SessionCreated
from eventstore.log import Answer, Committed
from eventstore.sqlite import Store, open_store

Commit = Callable[[sqlite3.Connection], None]
POOL = 4
"""Threads on which the writers live, as actors do."""
TEXT = "a few words of an answer, as a provider streams them "


def quiet(db: sqlite3.Connection) -> None:
    """Commit as the log does."""
    db.execute("commit")


def slow(db: sqlite3.Connection) -> None:
    """Commit on a disk whose flush takes 4 ms longer."""
    db.execute("commit")
    time.sleep(0.004)


def events_per_second(commit: Commit, writers: int, seconds: float) -> float:
    """Return events per second; each writer waits for each answer before the next event."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        store = open_store(Path(folder), Redactor(["a secret that is known"]), holder="a benchmark", commit=commit)
        try:
            return _rate(store, writers, seconds)
        finally:
            store.close()


def _rate(store: Store, writers: int, seconds: float) -> float:
    runs = [Run(store, number) for number in range(writers)]
    answered: SimpleQueue[Run | None] = SimpleQueue()
    pool = [threading.Thread(target=_serve, args=(answered,)) for _ in range(POOL)]
    for run in runs:
        run.begin(answered)
    began = time.monotonic()
    for thread in pool:
        thread.start()
    time.sleep(seconds)
    done = sum(run.done for run in runs)
    took = time.monotonic() - began
    for _ in pool:
        answered.put(None)
    for thread in pool:
        thread.join()
    return done / took


class Run:
    """One writer: it has its own run, and appends the next event when it was told that the one before is durable."""

    def __init__(self, store: Store, number: int) -> None:
        self._log, self._number = store.log, number
        self._stream = f"run-01JDQ0V9A7B6C5D4E3F2G1{number:04}"
        self._answered: SimpleQueue[Run | None] = SimpleQueue()
        self.done = 0

    def begin(self, answered: "SimpleQueue[Run | None]") -> None:
        """Make session and run, and say so to `answered`, as after each event."""
        self._answered = answered
        admitted = RunAdmitted(session_id=str(self._number), owner="ann", message_id="m", input=())
        session = StreamPart(f"session-{self._number}", 0, (SessionCreated(owner="ann"),))
        started = RunStarted(seq=1, session_id=str(self._number))
        self._append(session, StreamPart(self._stream, 0, (admitted, started)))

    def go_on(self) -> None:
        """Append the next event."""
        seq = self.done + 2
        self.done += 1
        self._append(StreamPart(self._stream, seq, (ModelDelta(seq=seq, attempt=1, text=TEXT),)))

    def _append(self, *parts: StreamPart) -> None:
        self._log.append(Append(parts, time.time_ns() // 1000, self._stream), self._tell)

    def _tell(self, answer: Answer) -> None:
        if isinstance(answer, Committed):
            self._answered.put(self)


def _serve(answered: "SimpleQueue[Run | None]") -> None:
    while (run := answered.get()) is not None:
        run.go_on()


def measure(size: Size) -> list[Figure]:
    """Measure both disks, each with its own floor."""
    seconds = {"tiny": 0.2, "quick": 2.0, "full": 8.0}[size]
    figures: list[Figure] = []
    for disk, commit, target in (("this disk", quiet, 8.0), ("4 ms more a commit", slow, 30.0)):
        floor, rate = events_per_second(commit, 1, seconds), events_per_second(commit, 64, seconds)
        figures.append(Figure(f"{disk}: one event a commit", floor, "events/s"))
        figures.append(Figure(f"{disk}: 64 writers", rate, "events/s"))
        figures.append(Figure(f"{disk}: ratio", rate / floor, "times", target, at_least=True, beside="one event a commit"))
    return figures


if __name__ == "__main__":
    main(measure)
