"""A process that appends is killed with SIGKILL, at each commit and at any moment: what was answered is there, and whole."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from eventstore import Envelope, Redactor
from eventstore.sqlite import Store, open_store
from tests.contract.tables import dump
from tests.crash.store_child import RAW, history
from tests.fakes.logs import NOON

ROOT = Path(__file__).parents[2]


def child(mode: str, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "tests.crash.store_child", mode, str(folder)], cwd=ROOT)


def answered(folder: Path) -> list[tuple[str, int, int]]:
    path = folder / "answered"
    lines = path.read_text().splitlines() if path.exists() else []
    whole = [line.split() for line in lines if line.count(" ") == 2]
    return [(stream, int(version), int(position)) for stream, version, position in whole]


def check(store: Store, folder: Path, erased: frozenset[str] = frozenset()) -> None:
    assert store.log.check() is None
    before = dump(store.log)
    store.log.rebuild()
    assert dump(store.log) == before
    recorded = {(e.stream, e.version, e.position) for e in everything(store)}
    assert [one for one in answered(folder) if one not in recorded and one[0] not in erased] == []


def everything(store: Store) -> list[Envelope]:
    found: list[Envelope] = []
    after = 0
    while page := store.queries.log(after=after):
        found += page
        after = page[-1].position
    return found


def test_nothing_that_was_answered_is_lost_at_any_commit(tmp_path: Path) -> None:
    assert child("commits", tmp_path).wait(60) == 0
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == [
        *(f"{n}-{side}" for n in range(1, len(history(1)) + 1) for side in ("after", "before")),
        f"{len(history(1)) + 1}-before",
    ]
    for folder in folders:
        store = open_store(folder, Redactor(), holder="the test")
        check(store, folder)
        target, side = folder.name.split("-")
        done = int(target) - (side == "before")
        expected = sum(len(part.events) for request in history(1)[:done] for part in request.parts)
        assert store.queries.counts()["events"] == expected, "an append is there whole or not at all"
        assert list(store.log.batches("1", 1)) == [RAW] * max(0, min(2, done - 2))
        store.close()


def test_nothing_that_was_answered_is_lost_at_any_moment(tmp_path: Path) -> None:
    known = 0
    for number in range(4):
        process = child("storm", tmp_path)
        deadline = time.monotonic() + 30
        while len(answered(tmp_path)) < known + 40 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.013 * number)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
        assert len(answered(tmp_path)) > known
        known = len(answered(tmp_path))
        store = open_store(tmp_path, Redactor(), holder="the test")
        check(store, tmp_path)
        store.close()


def test_an_erasure_that_is_killed_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    assert child("erasure", tmp_path).wait(60) == 0
    for side in ("before", "after"):
        folder = tmp_path / side
        kept, text = side == "before", b"hello hello"
        assert text in b"".join(path.read_bytes() for path in folder.iterdir()), "the crash left it in the files"
        store = open_store(folder, Redactor(), holder="the test")
        check(store, folder, erased=frozenset() if kept else frozenset({"session-1", "run-1"}))
        found = [store.queries.session(None, "1"), store.queries.run(None, "1"), store.queries.key("ann", "k1")]
        assert [one is not None for one in found] == [kept] * 3
        assert (list(store.log.batches("1", 1)), list(store.log.batches("2", 1))) == ([RAW] * 2 * kept, [RAW] * 2)
        assert (len(store.queries.messages("2", limit=9)), store.log.blob("policy:1")) == (2, RAW)
        for number in ("1", "2"):
            if kept or number == "2":
                store.log.erase(number, "asked for", NOON)
        store.close()
        left = {path.name for path in folder.iterdir() if text in path.read_bytes()}
        assert left == set(), "what was erased before the crash goes with it"
