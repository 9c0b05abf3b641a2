"""What erasing does to the files: the chain holds, counted values go with their last reference, and no text is left."""

import random
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventstore import Append, Event, Redactor, StreamPart
from eventstore.catalogue import (
    MessageReceived,
    ModelCompleted,
    ModelDelta,
    NoteTaken,
    RunAdmitted,
    RunCompleted,
    RunStarted,
    SessionCreated,
    TurnSettled,
    TurnStarted,
    Usage,
)
from eventstore.chain import Link
from eventstore.errors import SessionBusy, StoreFull
from eventstore.log import REMOVALS, Batch, NamedBlob, Seal
from eventstore.sqlite import SqliteLog, traces
from tests.contract.tables import dump
from tests.fakes.logs import NOON, commit, record
from tests.fakes.town import eventually

LONG = "a long text, said by everybody\n" * 400
POLICY = NamedBlob("policy:1", b"a policy")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    yield log
    log.close()


def rows(log: SqliteLog, sql: str) -> list[Any]:
    return log.reader.rows(sql)


def note(log: SqliteLog, name: str, *texts: str) -> None:
    """Record a session that says these texts."""
    given = MessageReceived(message_id="m", run_id="r", input=tuple({"text": text} for text in texts))
    record(log, f"session-{name}", 0, SessionCreated(owner="ann"), given)


def test_the_chain_holds_over_an_erasure_and_the_projections_can_be_made_anew(log: SqliteLog) -> None:
    for session in Talk(log, 7).sessions(3, turns=2):
        for _ in session:
            pass
    log.erase("1", "asked for", NOON)
    before = dump(log)
    log.rebuild()
    assert (dump(log), log.check()) == (before, None)
    kept = rows(log, "select data is null, salt is null, length(data_sha256), length(hash) from events group by 1, 2, 3, 4")
    assert kept == [(0, 0, 32, 32), (1, 1, 32, 32)]


def test_data_that_goes_missing_beside_an_erasure_is_still_a_fault(log: SqliteLog, tmp_path: Path) -> None:
    note(log, "1", "a")
    note(log, "2", "b")
    log.erase("1", "asked for", NOON)
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        other.execute("update events set data = null, salt = null where position = 4")
    other.close()
    fault = log.check()
    assert fault is not None
    assert fault.position == 4


def test_a_large_value_goes_with_its_last_reference(log: SqliteLog) -> None:
    note(log, "1", LONG, LONG, "1" + LONG)
    note(log, "2", LONG)
    log.erase("1", "asked for", NOON)
    assert rows(log, "select size, refs from blobs") == [(len(LONG), 1)]
    assert [envelope.version for envelope in log.read("session-2")] == [1, 2]
    log.erase("2", "asked for", NOON)
    assert rows(log, "select size, refs from blobs") == []


def test_a_stream_that_two_runs_brought_goes_with_the_second(log: SqliteLog) -> None:
    for name in ("1", "2"):
        note(log, name)
        admitted = RunAdmitted(session_id=name, owner="ann", message_id="m", input=())
        end = RunCompleted(seq=1, output={})
        batch, seal = Batch(name, 1, 1, LONG.encode()), Seal(name, 1)
        parts = (StreamPart(f"run-{name}", 0, (admitted, end)),)
        commit(log, Append(parts, NOON, "a", batches=(batch,), seals=(seal,), blobs=(POLICY,)))
    log.erase("1", "asked for", NOON)
    assert list(log.batches("2", 1)) == [LONG.encode()]
    log.erase("2", "asked for", NOON)
    assert log.blob("policy:1") == b"a policy"
    assert rows(log, "select size, refs from blobs") == [(len(b"a policy"), 1)]


def test_a_large_value_that_was_erased_while_a_page_was_read_is_left_out(log: SqliteLog) -> None:
    note(log, "1", LONG)
    note(log, "2", LONG * 2)
    page = log.reader.page("e.position > ? order by e.position", (0,))
    log.erase("1", "asked for", NOON)
    assert [envelope.position for envelope in log.reader.envelopes(page)] == [1, 3, 4]


def test_an_erasure_while_the_chain_is_checked_is_no_fault(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    note(log, "1", LONG)
    links, erased = log.reader.links, [False]

    def erasing_links(after: int = 0) -> Iterator[Link]:
        page = list(links(after))
        if not erased[0]:
            erased[0] = True
            log.erase("1", "asked for", NOON)
        return iter(page)

    monkeypatch.setattr(log.reader, "links", erasing_links)
    assert (log.check(), erased) == (None, [True])


@pytest.mark.parametrize("after", [False, True])
def test_a_disk_that_fails_undoes_an_erasure_or_leaves_it_whole(tmp_path: Path, *, after: bool) -> None:
    failures: list[Exception] = []

    def fail(db: sqlite3.Connection) -> None:
        if failures and not after:
            raise failures.pop()
        db.execute("commit")
        if failures:
            raise failures.pop()

    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor(), commit=fail)
    note(log, "1", LONG)
    failures.append(StoreFull("no space"))
    with pytest.raises(StoreFull):
        log.erase("1", "asked for", NOON)
    assert len(list(log.read("session-1"))) == (1 if after else 2)
    record(log, "session-2", 0, SessionCreated(owner="ann"))
    assert log.check() is None
    log.close()


def test_a_reader_that_stays_does_not_hold_up_an_erasure_for_ever(log: SqliteLog, tmp_path: Path) -> None:
    note(log, "1", "MARKED text")
    other = sqlite3.connect(f"file:{tmp_path / 'deedbox.db'}?mode=ro", uri=True, isolation_level=None)
    other.execute("begin")
    other.execute("select * from events").fetchall()
    log.erase("1", "asked for", NOON)
    assert b"MARKED" in (tmp_path / "deedbox.db-wal").read_bytes()
    other.execute("commit")
    other.close()
    record(log, "run-9", 0, NoteTaken(kind="a"))
    eventually(lambda: (tmp_path / "deedbox.db-wal").stat().st_size == 0)


def test_erasures_and_appends_at_the_same_time_keep_the_log_whole(log: SqliteLog) -> None:
    for number in range(20):
        note(log, str(number), "text")
    busy: list[BaseException] = []

    def write() -> None:
        try:
            for version in range(60):
                record(log, "run-x", version, NoteTaken(kind="a"))
        except BaseException as exc:  # noqa: BLE001 - told below
            busy.append(exc)

    writer = threading.Thread(target=write)
    writer.start()
    for number in range(20):
        log.erase(str(number), "asked for", NOON)
    writer.join(20)
    assert (busy, log.check(), len(list(log.read("run-x")))) == ([], None, 60)
    assert [envelope.version for envelope in log.read(REMOVALS)] == [*range(1, 21)]


@pytest.mark.parametrize("seed", range(2))
def test_no_byte_of_an_erased_text_is_left_in_the_files(tmp_path: Path, seed: int) -> None:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    talk = Talk(log, seed)
    going = talk.sessions(12, turns=2)
    while going:
        session = talk.random.choice(going)
        if next(session, None) is None:
            going.remove(session)
    record(log, "run-last", 0, RunAdmitted(session_id="0", owner="ann", message_id="m", input=()))
    with pytest.raises(SessionBusy):
        log.erase("0", "asked for", NOON)
    for number in range(1, 10):
        log.erase(str(number), "asked for", NOON)
    log.close()
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = {name: {int(number) for number in re.findall(rb"MARK(\d{4})", data)} for name, data in files.items()}
    assert {name: numbers for name, numbers in found.items() if numbers} == {"deedbox.db": {0, 10, 11}}


def test_freed_pages_are_overwritten_also_where_the_file_is_too_large_to_be_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MOST_BYTES", 0)
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    for _ in Talk(log, 3).session(1, turns=3):
        pass
    log.erase("1", "asked for", NOON)
    assert [path.name for path in tmp_path.iterdir() if b"MARK" in path.read_bytes()] == []
    log.close()


def test_the_file_is_made_anew_once_a_minute_and_at_the_stop(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    done: list[str] = []
    log._db.set_trace_callback(done.append)
    for number in range(3):
        note(log, str(number), "text")
        log.erase(str(number), "asked for", NOON)
    assert done.count("vacuum") == 1
    log.close()
    assert done.count("vacuum") == 2


def test_a_crash_does_not_make_the_log_forget_that_its_file_is_to_be_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(traces, "MOST_BYTES", 0)
        log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
        note(log, "1", "text")
        log.erase("1", "asked for", NOON)
        log.close()
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    assert rows(log, "select count(*) from meta where name = 'traces'") == [(0,)]
    log.close()


class Talk:
    """Sessions that say marked texts of every size, step by step; the marks of session 7 begin with `MARK0007`."""

    def __init__(self, log: SqliteLog, seed: int) -> None:
        self.log, self.random = log, random.Random(seed)  # noqa: S311 - it is to be the same each time
        self.versions: dict[str, int] = {}

    def sessions(self, count: int, turns: int) -> list[Iterator[bool]]:
        return [self.session(number, turns) for number in range(count)]

    def session(self, number: int, turns: int) -> Iterator[bool]:
        stream = f"session-{number}"
        self.append(stream, SessionCreated(owner="ann", title=self.text(number), metadata={"a": self.text(number)}))
        for turn in range(turns):
            yield True
            run, raw = f"{number}.{turn}", self.text(number).encode()
            said = {"role": "user", "content": [{"type": "text", "text": self.text(number)}]}
            key = f"MARK{number:04}-{turn}"
            received = MessageReceived(message_id="m", run_id=run, input=(said,), key=key, fingerprint=key)
            self.append(stream, received, TurnStarted(run_id=run))
            admitted = RunAdmitted(session_id=str(number), owner="ann", message_id="m", input=(said,), metadata={"a": key})
            self.append(f"run-{run}", admitted, RunStarted(seq=1, session_id=str(number)))
            for seq in range(2, 8):
                yield True
                delta = ModelDelta(seq=seq, attempt=1, text=self.text(number))
                self.append(f"run-{run}", delta, batches=(Batch(run, 1, seq, raw),))
            end = ModelCompleted(seq=8, turn=1, attempt=1, message=said, usage=Usage(input_tokens=1))
            self.append(f"run-{run}", end, RunCompleted(seq=9, output=said, finish_reason=key), seals=(Seal(run, 1),))
            self.append(stream, TurnSettled(run_id=run, status="completed"))

    def text(self, number: int) -> str:
        return f"MARK{number:04}. " * self.random.choice([1, 1, 1, 5, 30, 200, 900])

    def append(self, stream: str, *events: Event, **more: Any) -> None:
        version = self.versions.get(stream, 0)
        commit(self.log, Append((StreamPart(stream, version, events),), NOON, stream, **more))
        self.versions[stream] = version + len(events)
