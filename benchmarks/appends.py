"""Durable appends: group commit with 64 writers against one event per commit, on this disk and on one that takes 4 ms more.

Each rate is events per second over the whole path (redaction, encoding, chain,
projections); the floor beside it is one writer that waits for each commit, measured in the same run on the same disk.
"""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks.figures import Figure, Size, main
from eventstore import Append, Redactor, StreamPart
from eventstore.catalogue import ModelDelta, RunAdmitted, RunStarted, SessionCreated
from eventstore.errors import StoreBusy
from eventstore.log import Answer
from eventstore.sqlite import Store, open_store

Commit = Callable[[sqlite3.Connection], None]
TEXT = "a few words of an answer, as a provider streams them "


def quiet(db: sqlite3.Connection) -> None:
    """Commit as the log does."""
    db.execute("commit")


def slow(db: sqlite3.Connection) -> None:
    """Commit on a disk whose flush takes 4 ms longer."""
    db.execute("commit")
    time.sleep(0.004)


def events_per_second(commit: Commit, writers: int, seconds: float) -> float:
    """Return events per second; each writer has its own run and waits for each answer before the next event."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        store = open_store(Path(folder), Redactor(["a secret that is known"]), holder="a benchmark", commit=commit)
        try:
            return _rate(store, writers, seconds)
        finally:
            store.close()


def _rate(store: Store, writers: int, seconds: float) -> float:
    done, end = [0] * writers, time.monotonic() + seconds
    threads = [threading.Thread(target=_write, args=(store, number, end, done)) for number in range(writers)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - began)


def _write(store: Store, number: int, end: float, done: list[int]) -> None:
    answered = threading.Semaphore(0)
    session, run = f"session-{number}", f"run-01JDQ0V9A7B6C5D4E3F2G1{number:04}"
    admitted = RunAdmitted(session_id=str(number), owner="ann", message_id="m", input=())
    first = StreamPart(run, 0, (admitted, RunStarted(seq=1, session_id=str(number))))
    _append(store, Append((StreamPart(session, 0, (SessionCreated(owner="ann"),)), first), 0, run), answered)
    for seq in count(2):
        if time.monotonic() >= end:
            return
        part = StreamPart(run, seq, (ModelDelta(seq=seq, attempt=1, text=TEXT),))
        _append(store, Append((part,), time.time_ns() // 1000, run), answered)
        done[number] += 1


def _append(store: Store, request: Append, answered: threading.Semaphore) -> None:
    def answer(_: Answer) -> None:
        answered.release()

    while True:
        try:
            store.log.append(request, answer)
            break
        except StoreBusy:
            time.sleep(0.001)
    answered.acquire()


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
