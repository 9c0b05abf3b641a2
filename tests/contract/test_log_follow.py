"""Following a run: what is on record, then what comes, without a gap, without a repeat, to the end."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventstore import Append, Event, Redactor, StreamPart
from eventstore.catalogue import (
    ModelDelta,
    NoteTaken,
    Problem,
    RunAdmitted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionCreated,
)
from eventstore.errors import StoreBusy, StoreError
from eventstore.follow import WAITING, Follower, follow
from eventstore.log import Answer
from eventstore.queries import Queries
from eventstore.sqlite import SqliteLog, SqliteQueries
from tests.fakes.logs import NOON, Both, record

END = RunCompleted(seq=5, output={})


def delta(seq: int) -> Event:
    return ModelDelta(seq=seq, attempt=1, text=str(seq))


def begin(both: Both, run_id: str = "1", deltas: int = 0) -> int:
    """Record the start of a run and some deltas; return the stream's version."""
    record(both.log, f"session-{run_id}", 0, SessionCreated(owner="ann"))
    admitted = RunAdmitted(session_id=run_id, owner="ann", message_id="m", input=())
    events = (admitted, RunStarted(seq=1, session_id=run_id), *(delta(seq) for seq in range(2, deltas + 2)))
    return len(record(both.log, f"run-{run_id}", 0, *events))


def drained(follower: Follower, timeout: float = 0) -> list[int]:
    found = []
    while (envelope := follower.next(timeout)) is not None:
        found.append(envelope.seq or 0)
    return found


def test_the_backlog_comes_first_and_then_what_is_recorded(both: Both) -> None:
    version = begin(both, deltas=2)
    follower = follow(both.log, both.queries, "1")
    assert drained(follower) == [1, 2, 3]
    record(both.log, "run-1", version, NoteTaken(kind="a"), delta(4))
    record(both.log, "session-1", 1, NoteTaken(kind="a"))
    assert drained(follower, 0.2) == [4]
    assert not follower.ended
    record(both.log, "run-1", version + 2, END)
    assert (drained(follower, 5), follower.ended, follower.next(60)) == ([5], True, None)


@pytest.mark.parametrize("after", [0, 1, 300, 599, 600])
def test_a_long_backlog_is_read_from_the_cursor_on(both: Both, after: int) -> None:
    begin(both, deltas=599)
    follower = follow(both.log, both.queries, "1", after)
    assert drained(follower) == list(range(after + 1, 601))
    follower.close()


@pytest.mark.parametrize(
    "end",
    [END, RunCancelled(seq=5, reason="user"), RunFailed(seq=5, error=Problem(code="c", message="m"))],
)
def test_every_terminal_event_ends_a_follower(both: Both, end: Event) -> None:
    version = begin(both, deltas=3)
    record(both.log, "run-1", version, end)
    follower = follow(both.log, both.queries, "1", 3)
    assert (drained(follower, 60), follower.ended) == ([4, 5], True)


@pytest.mark.parametrize("after", [5, 99])
def test_a_cursor_at_or_behind_the_end_ends_at_once(both: Both, after: int) -> None:
    version = begin(both, deltas=3)
    record(both.log, "run-1", version, END)
    follower = follow(both.log, both.queries, "1", after)
    assert (follower.next(60), follower.ended) == (None, True)


def test_a_run_may_be_followed_before_it_exists(both: Both) -> None:
    follower = follow(both.log, both.queries, "1")
    assert follower.next(0) is None
    begin(both)
    assert drained(follower, 0.2) == [1]
    follower.close()


def test_a_slow_follower_falls_back_to_pages_and_misses_nothing(both: Both) -> None:
    version = begin(both)
    follower = follow(both.log, both.queries, "1")
    assert drained(follower) == [1]
    for seq in range(2, 2 * WAITING + 50):
        version = record(both.log, "run-1", version, delta(seq))[-1].version
        assert len(follower._live) <= WAITING
    assert drained(follower) == list(range(2, 2 * WAITING + 50))
    record(both.log, "run-1", version, delta(2 * WAITING + 50))
    assert drained(follower, 0.2) == [2 * WAITING + 50]
    follower.close()


def test_an_append_larger_than_the_queue_is_followed_too(both: Both) -> None:
    version = begin(both)
    follower = follow(both.log, both.queries, "1")
    assert drained(follower) == [1]
    record(both.log, "run-1", version, *(delta(seq) for seq in range(2, WAITING * 3)))
    assert drained(follower) == list(range(2, WAITING * 3))
    follower.close()


class FaultyOnce:
    """Queries whose first answers cannot be read."""

    def __init__(self, queries: Queries, *broken: str) -> None:
        self._queries, self._broken = queries, list(broken)

    def __getattr__(self, name: str) -> Any:
        if name in self._broken:
            self._broken.remove(name)
            raise StoreError("the disk stutters")
        return getattr(self._queries, name)


@pytest.mark.parametrize("broken", ["events", "run"])
def test_a_follower_that_could_not_read_reads_again(both: Both, broken: str) -> None:
    record(both.log, "run-1", begin(both, deltas=2), delta(4), END)
    follower = follow(both.log, FaultyOnce(both.queries, broken), "1", after=0 if broken == "events" else 9)
    with pytest.raises(StoreError, match="stutters"):
        follower.next(0)
    assert (drained(follower, 0.1), follower.ended) == ([1, 2, 3, 4, 5] if broken == "events" else [], True)


def test_what_was_recorded_although_its_append_failed_is_followed_too(tmp_path: Path) -> None:
    faults: list[Exception] = []

    def commit(db: sqlite3.Connection) -> None:
        db.execute("commit")
        if faults:
            raise faults.pop()

    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor(), commit=commit)
    both = Both(log, SqliteQueries(log.reader))
    version = begin(both, deltas=1)
    follower = follow(log, both.queries, "1")
    assert drained(follower) == [1, 2]
    faults.append(OSError("nobody knows"))
    with pytest.raises(StoreError, match="nobody knows"):
        record(log, "run-1", version, delta(3))
    record(log, "run-1", version + 1, delta(4), END)
    assert (drained(follower, 0.1), follower.ended) == ([3, 4, 5], True)
    log.close()


def test_closing_wakes_who_waits(both: Both) -> None:
    begin(both)
    follower = follow(both.log, both.queries, "1", 1)
    threading.Timer(0.05, follower.close).start()
    began = time.monotonic()
    assert follower.next(30) is None
    assert (follower.ended, time.monotonic() - began < 10) == (True, True)
    follower.close()


def test_a_wait_ends_in_time_although_other_runs_are_busy(both: Both) -> None:
    begin(both)
    follower = follow(both.log, both.queries, "1", 1)
    for number in range(20):
        record(both.log, f"run-x{number}", 0, delta(1))
    assert follower.next(0.01) is None
    follower.close()


LAST = 700


def watch(both: Both, run: str, number: int, seqs: list[int]) -> None:
    """Follow a run to its end, at a pace of its own; the first of `seqs` is where to begin."""
    pace = random.Random(number)  # noqa: S311 - it only spreads the followers
    follower = follow(both.log, both.queries, run, seqs[0])
    while not follower.ended:
        envelope = follower.next(0.5)
        if envelope is not None:
            seqs.append(envelope.seq or 0)
        if pace.random() < 0.01:
            time.sleep(0.01)


def write(both: Both, run: str, version: int) -> None:
    """Append to the run's end in small and large steps, often without waiting for the answer."""
    pace, seq = random.Random(run), 1  # noqa: S311 - as above
    while seq < LAST:
        step = min(pace.choice([1, 1, 5, 60]), LAST - seq)
        events = [delta(one) for one in range(seq + 1, seq + step + 1)]
        if seq + step == LAST:
            events[-1] = RunCompleted(seq=LAST, output={})
        waiting = threading.Semaphore(0)
        request = Append((StreamPart(f"run-{run}", version, tuple(events)),), NOON, "a")
        try:
            both.log.append(request, releasing(waiting))
        except StoreBusy:
            continue
        if pace.random() < 0.5:
            waiting.acquire(timeout=5)
        version, seq = version + step, seq + step


def releasing(waiting: threading.Semaphore) -> Callable[[Answer], None]:
    return lambda _: waiting.release()


def test_many_followers_of_growing_runs_see_each_event_once_and_in_order(both: Both) -> None:
    versions = {run: begin(both, run) for run in ("1", "2")}
    found = {(run, number): [(0, 1, 40, 0)[number]] for run in versions for number in range(4)}
    threads = [threading.Thread(target=watch, args=(both, *name, seqs)) for name, seqs in found.items()]
    threads += [threading.Thread(target=write, args=(both, run, version)) for run, version in versions.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [name for name, seqs in found.items() if seqs != list(range(seqs[0], LAST + 1))] == []
