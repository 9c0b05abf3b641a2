"""A database that somebody or something else changed: reading says so in the log's own words, and writing goes on."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventstore import Append, Committed, CorruptEvent, Redactor, StreamPart
from eventstore.catalogue import ModelCompleted, NoteTaken, Origin, RunAdmitted, RunStarted, SessionCreated, Usage
from eventstore.errors import StoreError
from eventstore.log import Batch, NamedBlob, Seal
from eventstore.sqlite import SqliteLog, SqliteQueries
from tests.fakes.logs import NOON, record, send

SAID = {"role": "user", "content": [{"type": "text", "text": "x" * 9_000}]}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "deedbox.db", redactor=Redactor())
    record(log, "session-s", 0, SessionCreated(owner="o", origin=Origin(platform="x", chat="c"), metadata={"a": 1}))
    events = (
        RunAdmitted(session_id="s", owner="o", message_id="m", input=(SAID,), run_id="r", metadata={"a": 1}),
        NoteTaken(kind="a", data={"text": "y" * 9_000}),
        RunStarted(seq=1, session_id="s"),
        ModelCompleted(seq=2, turn=1, attempt=1, message={}, usage=Usage(input_tokens=3)),
    )
    batches, named = (Batch("r", 1, 1, b"abc"), Batch("r", 1, 2, b"def")), (NamedBlob("policy:1", b"z" * 99),)
    record(log, "run-r", 0, *events, batches=batches, seals=(Seal("r", 1),), blobs=named)
    yield log
    log.close()


def change(log: SqliteLog, tmp_path: Path, sql: str) -> SqliteQueries:
    with sqlite3.connect(tmp_path / "deedbox.db") as other:
        other.execute(sql)
    other.close()
    return SqliteQueries(log.reader)


READERS: dict[str, Callable[[SqliteLog, SqliteQueries], object]] = {
    "read": lambda log, _: list(log.read("run-r")),
    "batches": lambda log, _: list(log.batches("r", 1)),
    "blob": lambda log, _: log.blob("policy:1"),
    "log": lambda _, queries: queries.log(),
    "messages": lambda _, queries: queries.messages("s", limit=9),
    "session": lambda _, queries: queries.session(None, "s"),
    "run": lambda _, queries: queries.run(None, "r"),
    "rebuild": lambda log, _: log.rebuild(),
}
EVENTS = {"read", "log", "rebuild"}


@pytest.mark.parametrize(
    ("sql", "met_by"),
    [
        ("update blobs set data = x'00'", EVENTS | {"messages", "batches", "blob"}),
        ("update blobs set data = substr(data, 1, 20)", EVENTS | {"messages"}),
        (
            "update blobs set data = (select data from named_blobs n join blobs b on b.id = n.blob)",
            EVENTS | {"messages", "batches"},
        ),
        ("update events set data = '{' where stream = 2", EVENTS | {"messages"}),
        ("update events set data = cast(x'7bff7d' as text) where stream = 2", EVENTS | {"messages"}),
        ("update events set data = '{\"$blob\":1}' where stream = 2", EVENTS | {"messages"}),
        ('update events set data = \'{"a":{"$blob":"z"}}\' where stream = 2', EVENTS | {"messages"}),
        ("update events set type = 'session.message_received', data = '{}' where stream = 2", EVENTS | {"messages"}),
        ("update events set type = 'nobody.knows' where stream = 2", EVENTS | {"messages"}),
        ("update seals set sizes = 'x'", {"batches"}),
        ("update seals set sizes = '[3]'", {"batches"}),
        ("update seals set sizes = '[7,-1]'", {"batches"}),
        ("update sessions set usage = 'x'", {"session"}),
        ("update sessions set origin = '[]'", {"session"}),
        ("update sessions set metadata = '['", {"session"}),
        ("update runs set usage = '3'", {"run"}),
    ],
)
def test_whatever_is_damaged_is_called_corrupt_by_those_who_meet_it(
    log: SqliteLog, tmp_path: Path, sql: str, met_by: set[str]
) -> None:
    queries = change(log, tmp_path, sql)
    met = set()
    for name, reads in READERS.items():
        try:
            reads(log, queries)
        except CorruptEvent:
            met.add(name)
    assert met >= met_by
    assert met <= met_by | {"rebuild"}  # which reads all there is
    assert isinstance(send(log, Append((StreamPart("run-other", 0, (NoteTaken(kind="a"),)),), NOON, "a")), Committed)


@pytest.mark.parametrize(
    "sql",
    [
        "update blobs set data = x'00' where id = 1",
        "update blobs set data = (select data from blobs where id = 2) where id = 1",
        "delete from blobs where id = 1",
    ],
)
def test_a_large_value_that_was_changed_is_a_fault_of_the_event_that_refers_to_it(
    log: SqliteLog, tmp_path: Path, sql: str
) -> None:
    assert log.check() is None
    change(log, tmp_path, sql)
    fault = log.check()
    assert fault is not None
    assert (fault.position, fault.reason) == (2, "a large value of the event is not what was recorded")


def test_what_another_connection_wrote_is_noticed_by_the_next_append(log: SqliteLog, tmp_path: Path) -> None:
    columns = "stream, version + 1, null, type, schema, at, actor, null, null, data, salt, data_sha256, hash"
    change(log, tmp_path, f"insert into events select position + 1, {columns} from events order by position desc limit 1")
    with pytest.raises(Exception, match="is at version 5, not 4"):
        record(log, "run-r", 4, NoteTaken(kind="a"))
    assert [one.version for one in record(log, "run-r", 5, NoteTaken(kind="a"))] == [6]


def test_a_damaged_projection_fails_the_appends_that_need_it_alone(tmp_path: Path, log: SqliteLog) -> None:
    change(log, tmp_path, "update runs set usage = 'x'")
    with pytest.raises(Exception, match="a row of the projections is damaged"):
        record(log, "run-r", 4, NoteTaken(kind="a"))
    record(log, "run-other", 0, NoteTaken(kind="a"))
    with pytest.raises(StoreError):
        SqliteQueries(log.reader).run(None, "r")
    log.rebuild()
    record(log, "run-r", 4, NoteTaken(kind="a"))
