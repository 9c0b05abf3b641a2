"""The store in SQLite: everything that knows SQL.  Named by the composition root alone."""

from eventstore.sqlite.log import SqliteLog
from eventstore.sqlite.queries import SqliteQueries, open_queries
from eventstore.sqlite.store import DATABASE, Store, open_store

__all__ = ["DATABASE", "SqliteLog", "SqliteQueries", "Store", "open_queries", "open_store"]
