"""Opening a data directory: made where it is missing, refused with a reason where it cannot be used."""

import multiprocessing
import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from eventstore import Event, Redactor, StoreUnusable
from eventstore.catalogue import NoteTaken
from eventstore.errors import AlreadyServed, TooNew
from eventstore.lock import Lock
from eventstore.sqlite import Store, open_queries, open_store
from eventstore.sqlite.schema import STEPS, migrate
from tests.fakes.logs import record

NOTE: Event = NoteTaken(kind="a")


def opened(path: Path, holder: str = "http://127.0.0.1:8787") -> Store:
    return open_store(path, Redactor(), holder=holder)


def change(path: Path, sql: str) -> None:
    db = sqlite3.connect(path / "deedbox.db", isolation_level=None)
    db.execute(sql)
    db.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_that_does_not_exist_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    store = opened(tmp_path / "var" / "deedbox")
    record(store.log, "run-1", 0, NOTE)
    assert mode(store.data_dir) == 0o700
    files = {path.name: mode(path) for path in store.data_dir.iterdir()}
    assert files == dict.fromkeys(("deedbox.db", "deedbox.db-wal", "deedbox.db-shm", "deedbox.lock"), 0o600)
    store.close()
    assert sorted(path.name for path in store.data_dir.iterdir()) == ["deedbox.db", "deedbox.lock"]


def test_what_was_recorded_is_there_after_a_restart(tmp_path: Path) -> None:
    for version in range(3):
        store = opened(tmp_path)
        record(store.log, "run-1", version, NOTE)
        assert [e.position for e in store.queries.log()] == list(range(1, version + 2))
        store.close()


def test_a_second_server_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(AlreadyServed, match=rf"in use by pid {os.getpid()} on .+, http://127.0.0.1:8787; stop it first"):
        opened(tmp_path, "http://127.0.0.1:9999")
    store.lock.describe("http://127.0.0.1:1234")
    with pytest.raises(AlreadyServed, match=":1234"):
        opened(tmp_path)
    store.close()
    store.lock.close()
    opened(tmp_path).close()


def _hold(path: str, ready: Callable[[], None]) -> None:
    lock = Lock(Path(path), "a child")
    ready()
    signal.pause()
    lock.close()


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=_hold, args=(str(tmp_path), ready.set))
    child.start()
    assert ready.wait(10)
    with pytest.raises(AlreadyServed, match=f"pid {child.pid}"):
        opened(tmp_path)
    child.kill()
    child.join()
    child.close()
    opened(tmp_path).close()


def test_removing_the_lock_file_lets_no_second_server_in(tmp_path: Path) -> None:
    first = opened(tmp_path)
    (tmp_path / "deedbox.lock").unlink()
    for _ in range(2):
        with pytest.raises(AlreadyServed, match="in use by another process"):
            opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match=r"cannot make the data directory .*Not a directory; set server.data_dir"):
        opened(tmp_path / "file" / "var")
    with pytest.raises(StoreUnusable, match="cannot make the data directory"):
        opened(tmp_path / "file")


def test_a_lock_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "deedbox.lock").mkdir()
    with pytest.raises(StoreUnusable, match="cannot make the lock file"):
        opened(tmp_path)


def test_a_database_that_is_a_directory_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "deedbox.db").mkdir()
    with pytest.raises(StoreUnusable, match=r"cannot open .*deedbox.db: unable to open database file"):
        opened(tmp_path)


def test_a_file_that_is_no_database_is_called_damaged_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "deedbox.db").write_bytes(b"this is not a database" * 1000)
    with pytest.raises(StoreUnusable, match="is damaged or no database"):
        opened(tmp_path)
    assert (tmp_path / "deedbox.db").read_bytes() == b"this is not a database" * 1000
    with pytest.raises(StoreUnusable, match="is damaged or no database"):
        open_queries(tmp_path / "deedbox.db")


def test_a_database_whose_schema_is_damaged_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    raw = bytearray((tmp_path / "deedbox.db").read_bytes())
    raw[100:4096] = b"\xff" * 3996
    (tmp_path / "deedbox.db").write_bytes(raw)
    with pytest.raises(StoreUnusable, match="is damaged or no database"):
        opened(tmp_path)


def test_a_refused_directory_is_not_left_locked(tmp_path: Path) -> None:
    (tmp_path / "deedbox.db").write_bytes(b"this is not a database" * 1000)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="is damaged or no database"):
            opened(tmp_path)
    (tmp_path / "deedbox.db").unlink()
    opened(tmp_path).close()


def test_a_database_of_a_newer_version_is_refused_for_writing_and_reading(tmp_path: Path) -> None:
    opened(tmp_path).close()
    change(tmp_path, "pragma user_version = 99")
    with pytest.raises(TooNew, match=r"has schema 99, this version knows \d+; upgrade deedbox"):
        opened(tmp_path)
    with pytest.raises(TooNew):
        open_queries(tmp_path / "deedbox.db")


def test_a_schema_step_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    change(tmp_path, "insert into migration_checksums values ('0099_future', 'x')")
    with pytest.raises(TooNew, match="0099_future"):
        opened(tmp_path)


def test_a_schema_step_that_was_edited_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    change(tmp_path, "update migration_checksums set sha256 = 'x'")
    with pytest.raises(StoreUnusable, match="0001_first was changed after it was applied"):
        opened(tmp_path)


def test_a_new_schema_step_is_applied_once_to_an_old_database(tmp_path: Path) -> None:
    opened(tmp_path).close()
    db = sqlite3.connect(tmp_path / "deedbox.db", isolation_level=None)
    steps = (*STEPS, ("0002_more", "create table more (id integer);\ninsert into more values (1);\n"))
    for _ in range(2):
        migrate(db, steps)
    assert db.execute("select * from more").fetchall() == [(1,)]
    assert db.execute("pragma user_version").fetchone() == (2,)
    db.close()
    with pytest.raises(TooNew):
        opened(tmp_path)


def test_a_schema_step_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "deedbox.db", isolation_level=None)
    migrate(db)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, (*STEPS, ("0002_bad", "create table more (id integer);\ncreate table more (id integer);\n")))
    assert db.execute("select name from sqlite_master where name = 'more'").fetchall() == []
    migrate(db)
    db.close()


def test_opening_writes_nothing_when_nothing_is_to_do(tmp_path: Path) -> None:
    opened(tmp_path).close()
    before = (tmp_path / "deedbox.db").read_bytes()
    opened(tmp_path).close()
    assert (tmp_path / "deedbox.db").read_bytes() == before


def test_there_must_be_a_database_to_read(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"cannot open .*check that the directory exists"):
        open_queries(tmp_path / "deedbox.db")
    assert list(tmp_path.iterdir()) == []
