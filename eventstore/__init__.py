"""The append-only log: typed events, their codec, projections, and logs that keep one contract.

Only pure names are re-exported here.  `eventstore.sqlite` is imported by the composition root alone, so that importing an
event never opens a database.
"""

from eventstore.catalogue import Event, decode, encode
from eventstore.errors import CorruptEvent, LogError, StoreError, StoreUnusable, Unwritten, VersionConflict
from eventstore.log import Append, Committed, Envelope, EventLog, Failed, StreamPart
from eventstore.redaction import Redactor

__all__ = [
    "Append",
    "Committed",
    "CorruptEvent",
    "Envelope",
    "Event",
    "EventLog",
    "Failed",
    "LogError",
    "Redactor",
    "StoreError",
    "StoreUnusable",
    "StreamPart",
    "Unwritten",
    "VersionConflict",
    "decode",
    "encode",
]
