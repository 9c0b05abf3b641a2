"""What can go wrong in the log, by whose fault it is.

* StoreError          whether the events were written is not known; the actor must end
  - CorruptEvent      a stored row is not an event this program knows
* Unwritten           nothing of the append was written
  - VersionConflict   somebody else wrote first; load again and decide again
  - SessionMissing    there is no session to erase
  - SessionBusy       a run of the session to erase has not ended
  - KeyTaken          the owner used this idempotency key for another message
  - StoreFull         the disk is full or read-only; try again when there is space
  - StoreBusy         the writer's queue is full; try again
* StoreUnusable       the data directory cannot be opened at all
  - AlreadyServed     another server holds the data directory
  - TooNew            the database was written by a newer version of deedbox
"""

from typing import ClassVar


class LogError(Exception):
    """Root of everything the log raises; `code` is stable and documented."""

    code: ClassVar[str] = "store_error"


class StoreError(LogError):
    """The log failed, and whether the events were written is not known."""


class CorruptEvent(StoreError):
    """A stored row is not an event this program knows."""

    code = "corrupt_event"


class Unwritten(LogError):
    """Nothing of the append was written."""

    code = "unwritten"


class VersionConflict(Unwritten):
    """The stream moved on since it was read."""

    code = "version_conflict"

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"stream {stream!r} is at version {actual}, not {expected}")
        self.stream, self.expected, self.actual = stream, expected, actual


class KeyTaken(Unwritten):
    """The owner used this idempotency key before."""

    code = "idempotency_key_taken"

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} is taken")
        self.key = key


class SessionMissing(Unwritten):
    """There is no such session, or it was erased before."""

    code = "session_not_found"


class SessionBusy(Unwritten):
    """A run of the session has not ended, so it cannot be erased."""

    code = "session_busy"


class StoreFull(Unwritten):
    """The disk is full or cannot be written."""

    code = "storage_full"


class StoreBusy(Unwritten):
    """The writer's queue is full."""

    code = "storage_busy"


class StoreUnusable(LogError):
    """The data directory cannot be opened."""

    code = "storage_unusable"


class AlreadyServed(StoreUnusable):
    """Another server holds the data directory."""

    code = "already_served"


class TooNew(StoreUnusable):
    """The database was written by a newer version."""

    code = "database_too_new"
