"""What only the SQLite log has: one transaction for many appends, a disk that fails, a chain, files."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventstore import Append, Committed, Event, Failed, Redactor, StoreError, StreamPart, Unwritten
from eventstore.catalogue import (
    Erased,
    Folded,
    MessageReceived,
    ModelDelta,
    NoteTaken,
    RunAdmitted,
    RunStarted,
    SessionCreated,
)
from eventstore.errors import StoreBusy, StoreFull
from eventstore.log import Answer, Batch, NamedBlob, Seal
from eventstore.sqlite import SqliteLog, SqliteQueries, open_queries
from eventstore.sqlite import log as sqlite_log
from tests.contract.tables import dump
from tests.fakes.logs import NOON, commit, record, send

NOTE: Event = NoteTaken(kind="a")
LARGE = "a line of text\n" * 1000


class Disk:
    """The commit port: counts, can be held, and fails when it is told to."""

    def __init__(self) -> None:
        self.commits = 0
        self.free = threading.Event()
        self.free.set()
        self.fail_before: list[Exception] = []
        self.fail_after: list[Exception] = []

    def __call__(self, db: sqlite3.Connection) -> None:
        self.free.wait(10)
        if self.fail_before:
            raise self.fail_before.pop(0)
        db.execute("commit")
        self.commits += 1
        if self.fail_after:
            raise self.fail_after.pop(0)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def log(tmp_path: Path, disk: Disk) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor(), commit=disk)
    yield log
    disk.free.set()
    log.close()


def reopened(log: SqliteLog, tmp_path: Path) -> SqliteLog:
    log.close()
    return SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())


def rows(log: SqliteLog, sql: str) -> list[Any]:
    return log.reader.rows(sql)


def test_what_waits_goes_into_one_transaction(log: SqliteLog, disk: Disk) -> None:
    disk.free.clear()
    answers: list[Answer] = []
    for number in range(400):
        log.append(Append((StreamPart(f"run-{number}", 0, (NOTE,)),), NOON, "a"), answers.append)
    disk.free.set()
    record(log, "run-last", 0, NOTE)
    assert [type(answer) for answer in answers] == [Committed] * 400
    assert disk.commits <= 4


def test_a_commit_waits_for_the_disk_and_holds_the_write_lock_from_the_start(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    def commit(db: sqlite3.Connection) -> None:
        settings = [
            db.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
        ]
        other = sqlite3.connect(tmp_path / "deedbox.db", timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("begin immediate")
        other.close()
        seen.append(tuple(settings))
        db.execute("commit")

    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor(), commit=commit)
    assert isinstance(
        send(log, Append((), NOON, "a")), Committed
    )  # it has nothing to write, and holds the lock all the same
    assert seen == [("wal", 2, 0)]
    log.close()


def test_the_chain_holds_over_restarts(log: SqliteLog, tmp_path: Path) -> None:
    assert log.check() is None
    record(log, "run-1", 0, NOTE, RunStarted(seq=1, session_id="s"), actor="é")
    again = reopened(log, tmp_path)
    record(again, "run-1", 2, ModelDelta(seq=2, attempt=1, text="x"))
    assert again.check() is None
    assert [row[0] for row in rows(again, "select length(salt) from events")] == [16, 16, 16]
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        "update events set data = '{}' where position = 2",
        "update events set actor = 'me' where position = 2",
        "update events set at = at + 1 where position = 2",
        "update streams set name = 'run-9'",
        "delete from events where position = 2",
        "update events set data = null where position = 2",
    ],
)
def test_a_change_from_outside_is_found(log: SqliteLog, tmp_path: Path, change: str) -> None:
    record(log, "run-1", 0, NOTE, NOTE, NOTE)
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        other.execute(change)
    other.close()
    fault = log.check()
    assert fault is not None
    assert fault.position == (1 if "streams" in change else 2)


@pytest.mark.parametrize("excuse", [Erased(positions=(2,), reason="asked for"), Folded(positions=(2,))])
def test_data_that_was_removed_on_purpose_leaves_the_chain_whole(log: SqliteLog, tmp_path: Path, excuse: Event) -> None:
    record(log, "run-1", 0, NOTE, NOTE, NOTE)
    record(log, "session-1", 0, excuse)
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        other.execute("update events set data = null, salt = null where position = 2")
    other.close()
    assert log.check() is None
    assert [e.version for e in log.read("run-1")] == [1, 3]
    log.rebuild()


def test_an_erasure_of_many_positions_stays_readable_for_an_offline_verifier(log: SqliteLog) -> None:
    record(log, "session-1", 0, Erased(positions=tuple(range(10_000)), reason="asked for"))
    ((data,),) = rows(log, "select data from events")
    assert len(json.loads(data)["positions"]) == 10_000


def test_a_large_text_is_kept_once_whoever_says_it(log: SqliteLog) -> None:
    for number in range(3):
        record(log, f"run-{number}", 0, NoteTaken(kind="a", data={"one": LARGE, "two": [LARGE]}))
    assert rows(log, "select size, refs from blobs") == [(len(LARGE), 6)]
    assert all(len(data) < 2500 for (data,) in rows(log, "select data from events"))


def test_references_are_not_counted_for_an_append_that_fails(log: SqliteLog) -> None:
    event = NoteTaken(kind="a", data={"text": LARGE})
    stale = StreamPart("run-2", 5, (NOTE,))
    assert isinstance(send(log, Append((StreamPart("run-1", 0, (event,)), stale), NOON, "a")), Failed)
    assert rows(log, "select * from blobs") == rows(log, "select * from streams") == []


def test_ids_of_blobs_differ_from_one_database_to_another(log: SqliteLog, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SqliteLog(tmp_path / "other" / "deedbox.db", redactor=Redactor())
    keys = []
    for one in (log, other):
        record(one, "run-1", 0, NoteTaken(kind="a", data={"text": LARGE}))
        keys += rows(one, "select key from blobs")
    other.close()
    assert keys[0] != keys[1]


def test_a_sealed_stream_is_compressed_and_its_rows_are_gone(log: SqliteLog) -> None:
    batches = tuple(Batch("1", 1, number, b"data: the same again\n\n" * 50) for number in range(1, 41))
    commit(log, Append((), NOON, "a", batches=batches))
    commit(log, Append((), NOON, "a", seals=(Seal("1", 1),)))
    assert rows(log, "select count(*) from batches") == [(0,)]
    ((stored,),) = rows(log, "select length(data) from blobs")
    assert stored < sum(len(batch.raw) for batch in batches) / 50
    assert list(log.batches("1", 1)) == [batch.raw for batch in batches]


def test_batches_are_whole_when_the_stream_is_sealed_while_they_are_read(log: SqliteLog) -> None:
    raws = [str(number).encode() for number in range(600)]
    commit(log, Append((), NOON, "a", batches=tuple(Batch("1", 1, number, raw) for number, raw in enumerate(raws, 1))))
    reading = log.batches("1", 1)
    first = next(reading)
    commit(log, Append((), NOON, "a", seals=(Seal("1", 1),)))
    assert [first, *reading] == raws


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), OSError("gone"), ZeroDivisionError()])
def test_a_commit_that_fails_leaves_the_outcome_unknown_and_the_log_usable(
    log: SqliteLog, disk: Disk, error: Exception
) -> None:
    record(log, "run-1", 0, NOTE)
    disk.fail_before.append(error)
    answer = send(log, Append((StreamPart("run-1", 1, (NOTE,)),), NOON, "a"))
    assert isinstance(answer, Failed)
    assert type(answer.error) is StoreError
    assert [e.position for e in record(log, "run-1", 1, NOTE)] == [2]
    disk.fail_after.append(error)
    assert isinstance(send(log, Append((StreamPart("run-1", 2, (NOTE,)),), NOON, "a")), Failed)
    assert [e.position for e in record(log, "run-1", 3, NOTE)] == [4]
    assert log.check() is None


def test_values_that_sqlite_cannot_hold_fail_their_append_alone(log: SqliteLog, disk: Disk) -> None:
    record(log, "session-1", 0, SessionCreated(owner="ann"))
    record(log, "run-1", 0, RunAdmitted(session_id="1", owner="ann", message_id="m", input=()))
    disk.free.clear()
    answers: list[Answer] = []
    log.append(Append((StreamPart("run-1", 1, (NOTE,)),), 10**30, "a"), answers.append)
    log.append(Append((StreamPart("run-\ud835", 0, (NOTE,)),), NOON, "a"), answers.append)
    log.append(Append((StreamPart("run-2", 0, (NOTE,)),), NOON, "a"), answers.append)
    disk.free.set()
    log.rebuild()
    errors = [type(answer.error) if isinstance(answer, Failed) else None for answer in answers]
    assert errors == [Unwritten, Unwritten, None]
    assert log.check() is None


def test_nothing_is_published_that_was_not_written(log: SqliteLog, disk: Disk) -> None:
    heard: list[object] = []
    log.subscribe(heard.append)
    disk.fail_before.append(OSError("gone"))
    send(log, Append((StreamPart("run-1", 0, (NOTE,)),), NOON, "a"))
    assert heard == []


def test_a_full_disk_fails_the_append_whole_and_the_log_goes_on_when_there_is_space(log: SqliteLog) -> None:
    record(log, "run-1", 0, NOTE)
    pages = int(str(rows(log, "select page_count from pragma_page_count")[0][0]))
    log._writer.do(lambda: log._db.execute(f"pragma max_page_count = {pages}"))
    big = Append((StreamPart("session-1", 0, (SessionCreated(owner="o"),)), StreamPart("run-2", 0, notes(300))), NOON, "a")
    for _ in range(2):
        answer = send(log, big)
        assert isinstance(answer, Failed)
        assert isinstance(answer.error, StoreFull)
        assert "full" in str(answer.error)
    assert list(log.read("session-1")) == list(log.read("run-2")) == []
    log._writer.do(lambda: log._db.execute("pragma max_page_count = 1000000"))
    assert isinstance(send(log, big), Committed)
    assert log.check() is None


def notes(count: int) -> tuple[Event, ...]:
    return tuple(NoteTaken(kind="a", data={"text": "x" * 200}) for _ in range(count))


def test_a_database_that_can_no_longer_be_written_fails_the_append(log: SqliteLog) -> None:
    log._writer.do(lambda: log._db.execute("pragma query_only = on"))
    answer = send(log, Append((StreamPart("run-1", 0, (NOTE,)),), NOON, "a"))
    assert isinstance(answer, Failed)
    assert isinstance(answer.error, StoreFull)
    log._writer.do(lambda: log._db.execute("pragma query_only = off"))
    record(log, "run-1", 0, NOTE)


@pytest.mark.parametrize(("times", "answer"), [(2, Committed), (3, Failed)])
def test_a_transaction_that_meets_a_lock_is_tried_three_times(
    log: SqliteLog, disk: Disk, times: int, answer: type[Answer]
) -> None:
    for _ in range(times):
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
        disk.fail_before.append(busy)
    given = send(log, Append((StreamPart("run-1", 0, (NOTE,)),), NOON, "a"))
    assert isinstance(given, answer)
    assert not isinstance(given, Failed) or isinstance(given.error, StoreBusy)
    assert [one.version for one in log.read("run-1")] == [1] * (answer is Committed)


def test_another_process_s_lock_is_waited_for_and_then_named(log: SqliteLog, tmp_path: Path) -> None:
    log._writer.do(lambda: log._db.execute("pragma busy_timeout = 20"))
    other = sqlite3.connect(tmp_path / "deedbox.db", isolation_level=None)
    other.execute("begin immediate")
    answer = send(log, Append((StreamPart("run-1", 0, (NOTE,)),), NOON, "a"))
    assert isinstance(answer, Failed)
    assert isinstance(answer.error, StoreBusy)
    assert "another process" in str(answer.error)
    other.execute("rollback")
    other.close()
    assert [e.position for e in record(log, "run-1", 0, NOTE)] == [1]


def test_readers_cannot_write(log: SqliteLog, tmp_path: Path) -> None:
    record(log, "run-1", 0, NOTE)
    for reader in (log.reader, open_queries(tmp_path / "deedbox.db")._reader):
        with pytest.raises(StoreError, match="readonly"), reader.lent() as db:
            db.execute("delete from events")
        assert len(list(log.read("run-1"))) == 1
    reader.close()


def test_a_table_that_is_gone_is_a_store_error(log: SqliteLog, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        other.execute("drop table events")
    other.close()
    answer = send(log, Append((StreamPart("run-1", 0, (NOTE,)),), NOON, "a"))
    assert isinstance(answer, Failed)
    assert (type(answer.error), "no such table" in str(answer.error)) == (StoreError, True)
    with pytest.raises(StoreError, match="cannot be read"):
        list(SqliteQueries(log.reader).log())


def test_the_write_ahead_log_does_not_grow_without_end(
    log: SqliteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "PASSIVE_BYTES", 50_000)
    monkeypatch.setattr(sqlite_log, "TRUNCATE_BYTES", 200_000)
    log._checkpoint_above = 50_000
    sizes = []
    for number in range(60):
        record(log, f"run-{number}", 0, *notes(40))
        sizes.append((tmp_path / "deedbox.db-wal").stat().st_size)
    assert max(sizes) < 400_000
    log.close()
    assert not (tmp_path / "deedbox.db-wal").exists()


def test_a_reader_that_stays_holds_up_neither_the_appends_nor_the_next_checkpoint(
    log: SqliteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "PASSIVE_BYTES", 50_000)
    monkeypatch.setattr(sqlite_log, "TRUNCATE_BYTES", 100_000)
    log._checkpoint_above = 50_000
    record(log, "run-1", 0, NOTE)
    other = sqlite3.connect(tmp_path / "deedbox.db", isolation_level=None)
    other.execute("begin")
    other.execute("select * from events").fetchone()
    for number in range(8):
        record(log, f"run-x{number}", 0, *notes(40))
    other.execute("commit")
    other.close()
    for number in range(30):
        record(log, f"run-y{number}", 0, *notes(40))
    assert (tmp_path / "deedbox.db-wal").stat().st_size < 600_000


def test_a_reader_of_its_own_sees_what_is_committed_and_nothing_when_closed(log: SqliteLog, tmp_path: Path) -> None:
    record(log, "run-1", 0, NOTE)
    queries = open_queries(tmp_path / "deedbox.db")
    assert len(queries.log()) == 1
    record(log, "run-1", 1, NOTE)
    assert len(queries.log()) == 2
    queries.close()
    queries.close()
    with pytest.raises(StoreError, match="closed"):
        queries.log()


def test_a_database_can_be_read_when_no_server_holds_it(log: SqliteLog, tmp_path: Path) -> None:
    record(log, "run-1", 0, NOTE)
    log.close()
    queries = open_queries(tmp_path / "deedbox.db")
    assert [e.event for e in queries.log()] == [NOTE]
    queries.close()


def test_rows_are_small(log: SqliteLog) -> None:
    for version in range(200):
        record(log, "run-01JDQ0V9A7B6C5D4E3F2G1H0JK", version, ModelDelta(seq=version + 1, attempt=1, text="some words "))
    log.close()
    size = log._path.stat().st_size
    empty = 31 * 4096
    assert (size - empty) / 200 < 330


def test_a_rebuild_gives_the_same_tables_and_leaves_the_caches_right(log: SqliteLog) -> None:
    record(log, "session-1", 0, SessionCreated(owner="ann"))
    before = dump(log)
    log.rebuild()
    assert dump(log) == before
    record(log, "session-1", 1, NOTE)
    record(log, "session-2", 0, SessionCreated(owner="ann"))
    assert SqliteQueries(log.reader).counts()["sessions"] == 2


@pytest.mark.parametrize("text", ["hello", LARGE])
def test_an_event_of_an_older_version_is_lifted_wherever_it_is_read(log: SqliteLog, tmp_path: Path, text: str) -> None:
    said = {"role": "user", "content": [{"type": "text", "text": text}]}
    message = MessageReceived(message_id="m", run_id="1", input=(said,), key="k", fingerprint="f")
    record(log, "session-1", 0, SessionCreated(owner="ann"), message)
    before = dump(log)
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        old = "json_set(json_remove(data, '$.input'), '$.text', json_extract(data, '$.input[0].content[0].text'))"
        other.execute(f"update events set schema = 1, data = {old} where position = 2")
    other.close()
    queries = SqliteQueries(log.reader)
    assert [one.event for one in log.read("session-1")][1:] == [message]
    assert [one.event for one in queries.log(after=1)] == [message]
    log.rebuild()
    assert dump(log) == before


def test_a_blob_that_is_gone_is_named(log: SqliteLog, tmp_path: Path) -> None:
    record(log, "run-1", 0, NoteTaken(kind="a", data={"text": LARGE}))
    commit(log, Append((), NOON, "a", blobs=(NamedBlob("policy:1", b"x"),)))
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        other.execute("delete from blobs where id = 1")
    other.close()
    with pytest.raises(StoreError, match=r"the blob [0-9a-f]{40} is missing"):
        list(log.read("run-1"))
    assert log.blob("policy:1") == b"x"


def test_salts_come_from_the_given_source(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor(), random=lambda size: b"r" * size)
    record(log, "run-1", 0, NOTE)
    assert (rows(log, "select salt from events"), log.check()) == ([(b"r" * 16,)], None)
    log.close()
