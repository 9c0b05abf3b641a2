"""The projections' tables of a SQLite log as values, to be compared."""

from typing import Any

from eventstore.sqlite import SqliteLog
from eventstore.sqlite.schema import PROJECTIONS


def dump(log: SqliteLog) -> dict[str, list[Any]]:
    rows = {table: log.reader.rows(f"select * from {table} order by 1, 2") for table in PROJECTIONS}
    rows["counters"] = [row for row in rows["counters"] if row[1]]  # a status that nothing has any more may be 0 or absent
    return rows
