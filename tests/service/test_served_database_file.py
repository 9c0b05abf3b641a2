"""Nothing but SQLite opens the log's file: whoever closes a file of its own drops the locks that SQLite holds on it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.server_process import ROOT
from tests.service.served import serving

WATCH = """
import os, sys

_told = os.open({told!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

def _watch(event, arguments):
    named = [os.fsdecode(each) for each in arguments if isinstance(each, (str, bytes, os.PathLike))]
    if any("deedbox.db" in each[-200:] for each in named) and event not in ("compile", "marshal.loads"):
        os.write(_told, (event + "\\n").encode())

sys.addaudithook(_watch)
"""
"""Runs at the start of every interpreter that finds it: the server, and each process that it starts."""


class Watch:
    """Python processes with `environ` tell what they do with any file of the log, by the name of the audit event."""

    def __init__(self, folder: Path) -> None:
        self._told = folder / "told"
        self._told.touch()
        (folder / "sitecustomize.py").write_text(WATCH.format(told=str(self._told)), "utf-8")
        self.environ = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}

    def told(self) -> set[str]:
        return set(self._told.read_text("utf-8").split())


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    (tmp_path / "watch").mkdir()
    return Watch(tmp_path / "watch")


def run(environ: Mapping[str, str], folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], env={**os.environ, **environ}, cwd=folder, capture_output=True, check=False)


def test_a_server_at_work_and_a_command_beside_it_leave_the_file_to_sqlite(tmp_path: Path, watch: Watch) -> None:
    with serving(tmp_path, **watch.environ) as served:
        session = served.turn("first")["session_id"]
        second = served.turn("second", session_id=session)
        assert len(served.transcript(session)) == 4
        assert served.events(second["run_id"])[-1]["type"] == "run.completed"
        assert served.ask("GET", "/metrics").status_code == 200
        assert served.ask("GET", "/v1/sessions").status_code == 200
        run(watch.environ, tmp_path, "-m", "gateways", "doctor")
    assert (tmp_path / "var" / "deedbox.db").exists()
    assert watch.told() - {"os.chmod"} == {"sqlite3.connect"}, "to change the mode opens nothing, all else does"


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("open('deedbox.db', 'rb')", "open"),
        ("import os; os.open('deedbox.db-wal', os.O_RDONLY)", "open"),
        ("import pathlib; pathlib.Path('deedbox.db').read_bytes()", "open"),
        ("import shutil; shutil.copyfile('deedbox.db', 'copy')", "shutil.copyfile"),
        ("import os; os.truncate(b'deedbox.db', 0)", "os.truncate"),
    ],
)
def test_the_watch_sees_what_it_is_for(tmp_path: Path, watch: Watch, deed: str, told: str) -> None:
    run(watch.environ, tmp_path, "-c", deed)
    assert told in watch.told()
