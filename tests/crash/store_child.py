"""A process that appends and writes down what it was answered, to be killed.

`python -m tests.crash.store_child commits DIR`: a fixed history, once for each commit and each side of it, in a fork that
kills itself there; `DIR/<n>-<side>/answered` holds what was answered.  `… erasure DIR`: the same at the one commit of an
erasure.  `… storm DIR`: appends until somebody kills it.
"""

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from eventstore import Append, Redactor, StreamPart
from eventstore.catalogue import (
    MessageReceived,
    ModelCompleted,
    ModelDelta,
    ModelStarted,
    RunAdmitted,
    RunCompleted,
    RunStarted,
    SessionCreated,
    StreamSealed,
    TurnSettled,
    TurnStarted,
    Usage,
)
from eventstore.log import Batch, NamedBlob, Seal
from eventstore.sqlite import Store, open_store
from eventstore.sqlite.log import commit as sqlite_commit
from tests.fakes.logs import NOON, commit

USER = {"role": "user", "content": [{"type": "text", "text": "hello " * 2000}]}
ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
RAW = b"data: {}\n\n" * 20


def history(number: int) -> list[Append]:
    """Return one session with one run, as the server would record it."""
    session, run, seq = f"session-{number}", f"run-{number}", count(1)
    received = MessageReceived(message_id="m", run_id=str(number), input=(USER,), key=f"k{number}", fingerprint="f")
    admitted = RunAdmitted(session_id=str(number), owner="ann", message_id="m", input=(USER,))
    started = RunStarted(seq=next(seq), session_id=str(number), provider="p", model="m")
    deltas = (ModelStarted(seq=next(seq), turn=1, attempt=1), *(ModelDelta(seq=next(seq), attempt=1) for _ in "abc"))
    usage = Usage(input_tokens=3, cost_micros=5)
    answered = ModelCompleted(seq=next(seq), turn=1, attempt=1, message=ANSWER, usage=usage)
    sealed = StreamSealed(call=1, batches=2, size=2 * len(RAW))
    end = (sealed, answered, RunCompleted(seq=next(seq), output=ANSWER))
    settled = TurnSettled(run_id=str(number), status="completed")
    return [
        _append((session, 0, SessionCreated(owner="ann"), received), (run, 0, admitted)),
        _append((session, 2, TurnStarted(run_id=str(number))), (run, 1, started)),
        _append((run, 2, *deltas[:2]), batches=(Batch(str(number), 1, 1, RAW),)),
        _append((run, 4, *deltas[2:]), batches=(Batch(str(number), 1, 2, RAW),), blobs=(NamedBlob("policy:1", RAW),)),
        _append((run, 6, *end), seals=(Seal(str(number), 1),)),
        _append((session, 3, settled)),
    ]


def _append(*parts: tuple[Any, ...], **more: Any) -> Append:
    return Append(tuple(StreamPart(part[0], part[1], part[2:]) for part in parts), NOON, "child", **more)


def opened(folder: Path, commit_port: Callable[[sqlite3.Connection], None]) -> Store:
    return open_store(folder, Redactor(), holder="a child", commit=commit_port)


def run(store: Store, folder: Path, number: int) -> None:
    file = os.open(folder / "answered", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for request in history(number):
        for envelope in commit(store.log, request):
            os.write(file, f"{envelope.stream} {envelope.version} {envelope.position}\n".encode())
    os.close(file)


def die_at(target: int, side: str) -> Callable[[sqlite3.Connection], None]:
    commits = count(1)

    def port(db: sqlite3.Connection) -> None:
        here = next(commits) == target
        if here and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        db.execute("commit")
        if here and side == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    return port


def commits(root: Path) -> None:
    for target in count(1):
        for side in ("before", "after"):
            folder = root / f"{target}-{side}"
            if (pid := os.fork()) == 0:  # nothing but this thread is there yet
                store = opened(folder, die_at(target, side))
                run(store, folder, 1)
                store.close()
                os._exit(0)
            if os.waitpid(pid, 0)[1] == 0:
                return


def erasure(root: Path) -> None:
    for side in ("before", "after"):
        folder = root / side
        if (pid := os.fork()) == 0:
            store = opened(folder, die_at(2 * len(history(1)) + 1, side))
            for number in (1, 2):
                run(store, folder, number)
            store.log.erase("1", "asked for", NOON)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def storm(folder: Path) -> None:
    store = opened(folder, sqlite_commit)
    numbers = count(store.queries.counts()["events"])  # more than there are sessions, so these are new ones

    def work() -> None:
        while True:
            run(store, folder, next(numbers))

    for _ in range(8):
        threading.Thread(target=work).start()


if __name__ == "__main__":
    {"commits": commits, "erasure": erasure, "storm": storm}[sys.argv[1]](Path(sys.argv[2]))
