"""The lock file of a data directory: one server at a time, and a text that says which.

The lock is on a file of its own: opening and closing the database file outside SQLite would take SQLite's locks away.  The
kernel releases it when the process ends, however it ends, so a stale file is no obstacle.  The directory is locked as well,
for a file can be removed by somebody who takes it for stale.
"""

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from eventstore.errors import AlreadyServed, StoreUnusable

NAME = "deedbox.lock"


class Lock:
    """An exclusive lock on a data directory, held until `close`."""

    def __init__(self, data_dir: Path, holder: str) -> None:
        """Take the lock; `holder` says more about the holder, such as its address.

        Raises:
            AlreadyServed: another process, or another store of this one, holds it; the message says which.
            StoreUnusable: the lock file cannot be made.
        """
        path = data_dir / NAME
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StoreUnusable(f"cannot make the lock file {path}: {exc.strerror}") from exc
        self._directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for held in (self._file, self._directory):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            text = os.pread(self._file, 1024, 0).decode(errors="replace").strip()
            os.close(self._directory)
            os.close(self._file)
            raise AlreadyServed(f"{data_dir} is in use by {text or 'another process'}; stop it first") from exc
        self.describe(holder)

    def describe(self, holder: str) -> None:
        """Write who holds the lock, for the one who meets it; on a full disk the lock holds without."""
        text = f"pid {os.getpid()} on {socket.gethostname()}, {holder}\n"
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text.encode(), 0)

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
            os.close(self._directory)
            os.close(self._file)
            self._file = -1
