"""What the benchmarks run against: the server and the fake provider, each a process of its own, in a folder that goes."""

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.server_process import ROOT, ServerProcess

PATIENCE = 60.0


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder on the disk that holds the logs and the floors alike."""
    with tempfile.TemporaryDirectory(prefix="deedbox-bench-") as path:
        yield Path(path)


@contextmanager
def provider(*arguments: str) -> Iterator[str]:
    """Run the fake provider (see `tests/fakes/provider/__main__.py`) and give its URL."""
    command = [sys.executable, "-m", "tests.fakes.provider", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def server(provider_url: str, settings: str = "") -> Iterator[ServerProcess]:
    """Run the server on a fresh data directory; `settings` are appended to its configuration."""
    with folder() as path, ServerProcess(path, provider_url, settings=settings) as process:
        yield process


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process and its children hold: resident bytes."""

    own: int
    children: int


def memory(pid: int) -> Memory:
    """Return what a process holds now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = {child for task in tasks for child in (task / "children").read_text("ascii").split()} | set(children)
    return Memory(_resident(pid), sum(_resident(int(child)) for child in found))


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def event_counts(database: Path) -> Mapping[str, int]:
    """Return how many events of each type a log holds."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return dict(db.execute("select type, count(*) from events group by type").fetchall())


def gaps(database: Path) -> int:
    """Return how many runs have a hole, or a repeat, in the numbers of their canonical events."""
    uneven = "select 1 from events where seq is not null group by stream having max(seq) != count(*) or min(seq) != 1"
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return len(db.execute(uneven).fetchall())


class DurableCommits:
    """Commits of one row to a database like the log's (WAL, FULL): the least that a recorded turn costs."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path / "floor.db", isolation_level=None)
        for setting in ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 0"):
            self._db.execute(f"pragma {setting}")
        self._db.execute("create table floor (id integer primary key, data blob not null)")

    def commit(self) -> None:
        """Write one kilobyte and wait for the disk."""
        self._db.execute("begin immediate")
        self._db.execute("insert into floor (data) values (?)", (bytes(1024),))
        self._db.execute("commit")

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def wait_until(holds: object, seconds: float = PATIENCE) -> None:
    """Wait until a function returns something true.

    Raises:
        TimeoutError: it did not within `seconds`.
    """
    until = time.monotonic() + seconds
    while not (callable(holds) and holds()):
        if time.monotonic() > until:
            raise TimeoutError("what the benchmark waits for does not happen")
        time.sleep(0.01)


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)
