"""A server process whose disk is full, broken or read-only: a clear error, nothing half done, and on when all is well."""

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventstore.redaction import Redactor
from eventstore.sqlite import open_store
from tests.fakes.provider import says
from tests.fakes.server_process import ServerProcess
from tests.service.served import HELLO, Served, eventually, said, serving, whole

WORDS = " ".join(f"word{number}" for number in range(40))
CHAT: Any = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the data directory, with room for little."""
    disk = tmp_path / "var"
    disk.mkdir(mode=0o700)
    mount("-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(disk))
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")


def fill(disk: Path) -> Callable[[], None]:
    """Use up what is left, and return the way to give it back."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return filler.unlink


def break_disk(served: Served) -> Callable[[], None]:
    """Let every write that makes a file longer fail, as a bad disk does, and return the way to repair it."""
    size = max(each.stat().st_size for each in served.server.data_dir.iterdir())
    before = resource.prlimit(served.server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.server.pid, resource.RLIMIT_FSIZE, (size, before[1]))

    def repair() -> None:
        resource.prlimit(served.server.pid, resource.RLIMIT_FSIZE, before)

    return repair


def check_chain(folder: Path) -> None:
    """See that the log is whole; no server may run."""
    store = open_store(folder, Redactor(()), holder="a test")
    try:
        assert store.log.check() is None
    finally:
        store.close()


def refuse_and_recover(served: Served, spoil: Callable[[], Callable[[], None]], status: int, code: str) -> None:
    """Spoil the disk, see every kind of request answered, mend it, and see that it is as if nothing had been."""
    first = served.turn("one")
    session = first["session_id"]
    eventually(lambda: served.get(f"/v1/sessions/{session}")["active_run_id"] is None)
    mend = spoil()
    key = {"Idempotency-Key": "spoilt-1"}
    body = {"input": "two", "session_id": session}
    for _ in range(2):
        told = served.post("/v1/runs", body, status, headers=key)
        assert (told["code"], len(told["detail"]) > 15) == (code, True)
    assert served.post("/v1/chat/completions", CHAT, status)["error"]["code"] == code
    assert served.post("/v1/sessions", {"title": "t"}, status)["code"] == code
    assert served.get(f"/v1/runs/{first['run_id']}") == first
    assert served.transcript(session) == [("user", "one"), ("assistant", HELLO)]
    assert served.ask("GET", "/health").status_code == 200
    mend()
    assert served.turn("two", session_id=session)["status"] == "completed"
    again = served.post("/v1/runs", body, 202, headers=key)
    assert served.ended(again["run_id"])["status"] == "completed"
    assert [text for role, text in served.transcript(session) if role == "user"] == ["one", "two", "two"]
    assert len(served.get("/v1/runs")["data"]) == 3


def go_on_after(served: Served, spoil: Callable[[], Callable[[], None]]) -> None:
    """Spoil the disk while a run streams, mend it, and see the run come to its one end with the whole answer."""
    served.provider.then(says(WORDS, pace=0.02)).always(says(WORDS))
    run_id = served.start()["run_id"]
    before = served.follow(run_id).until(lambda events: "word3" in said(events))
    mend = spoil()
    time.sleep(0.5)
    assert served.get(f"/v1/runs/{run_id}")["status"] == "running"
    mend()
    run = served.ended(run_id)
    events = served.events(run_id)
    assert (run["status"], said(events), whole(events)) == ("completed", WORDS, True)
    assert events[: len(before)] == before


def test_a_full_disk_refuses_until_there_is_space(small_disk: Path, tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        refuse_and_recover(served, lambda: fill(small_disk), 507, "storage_full")
    check_chain(small_disk)


def test_a_run_that_meets_a_full_disk_goes_on_when_there_is_space(small_disk: Path, tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        go_on_after(served, lambda: fill(small_disk))
    check_chain(small_disk)


def test_a_server_that_cannot_start_on_a_full_disk_says_so_and_starts_when_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    with serving(tmp_path) as served:
        run = served.turn("one")
        served.server.stop()
        free = fill(small_disk)
        with pytest.raises(AssertionError, match="did not start") as caught:
            served.server.start()
        assert ("space left" in str(caught.value), "Traceback" in str(caught.value)) == (True, False)
        free()
        served.server.start()
        assert served.get(f"/v1/runs/{run['run_id']}") == run
        assert served.turn("two", session_id=run["session_id"])["status"] == "completed"


def test_a_disk_that_was_mounted_read_only_is_told_at_the_start(small_disk: Path, tmp_path: Path) -> None:
    mount("-o", "remount,ro", str(small_disk))
    with pytest.raises(AssertionError, match="the server did not start") as caught:
        ServerProcess(tmp_path, "http://127.0.0.1:9/v1").start()
    told = str(caught.value)
    assert ("Read-only" in told or "readonly" in told, "Traceback" in told, str(small_disk) in told) == (True, False, True)


@pytest.mark.skipif(os.name != "posix" or not hasattr(resource, "prlimit"), reason="only Linux lets a test break the disk")
def test_a_disk_that_fails_to_write_refuses_until_it_is_repaired(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        refuse_and_recover(served, lambda: break_disk(served), 500, "store_error")
    check_chain(tmp_path / "var")


@pytest.mark.skipif(os.name != "posix" or not hasattr(resource, "prlimit"), reason="only Linux lets a test break the disk")
def test_a_run_that_meets_a_disk_that_fails_goes_on_when_it_is_repaired(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        go_on_after(served, lambda: break_disk(served))
    check_chain(tmp_path / "var")
