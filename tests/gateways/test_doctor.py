"""The doctor: one sentence for each thing that may be missing on a machine."""

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eventstore.lock import Lock
from gateways import choice, doctor
from gateways.cli import main
from gateways.config_load import Loaded, load
from gateways.doctor import Finding
from gateways.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI", "ANTHROPIC", "OPENROUTER", "DEEPSEEK", "OPENCODE"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setattr(choice.choose, "__defaults__", (lambda: None,))


def loaded(**flags: Any) -> Loaded:
    return load(None, {}, {name.replace("__", "."): ("--flag", value) for name, value in flags.items()})


def from_file(text: str) -> Loaded:
    Path("deedbox.toml").write_text(text, "utf-8")
    return load(None, {}, None)


def test_a_data_directory_that_does_not_exist_will_be_made(tmp_path: Path) -> None:
    found = doctor.data_dir(loaded(server__data_dir=str(tmp_path / "a" / "b")))
    assert (found.state, "will be made" in found.sentence) == ("good", True)


def test_a_data_directory_that_is_a_file_is_bad(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert doctor.data_dir(loaded(server__data_dir=str(tmp_path / "file"))).state == "bad"


def test_a_data_directory_that_cannot_be_written_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    found = doctor.data_dir(loaded(server__data_dir=str(tmp_path)))
    assert (found.state, "Read-only file system" in found.sentence) == ("bad", True)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert doctor.data_dir(loaded(server__data_dir=str(tmp_path / "new"))).state == "bad"


def test_the_holder_of_the_data_directory_is_named(tmp_path: Path) -> None:
    settings = loaded(server__data_dir=str(tmp_path))
    assert doctor.lock(settings).state == "good"
    with closing(Lock(tmp_path, "serving http://127.0.0.1:1")):
        found = doctor.lock(settings)
    assert (found.state, "serving http://127.0.0.1:1" in found.sentence) == ("good", True)
    assert "stop it" not in found.sentence


def test_a_fault_of_the_data_directory_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(_: Path) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "exists", locked)
    monkeypatch.setattr(Path, "is_dir", locked)
    settings = loaded(server__data_dir=str(tmp_path))
    found = list(doctor.examine(settings, (doctor.data_dir, doctor.disk, doctor.lock)))
    assert [each.state for each in found] == ["bad", "warning", "warning"]
    assert [each.sentence for each in found[1:]] == ["not checked: see data directory"] * 2


def test_a_data_directory_that_cannot_be_written_is_not_a_fault_of_the_lock_too(tmp_path: Path) -> None:
    (tmp_path / "deedbox.lock").mkdir()
    found = doctor.lock(loaded(server__data_dir=str(tmp_path)))
    assert (found.state, "the data directory cannot be written" in found.sentence) == ("warning", True)


def test_a_taken_port_is_told() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        number = taken.getsockname()[1]
        assert doctor.port(loaded(server__address=f"127.0.0.1:{number}")).state == "warning"
    assert doctor.port(loaded(server__address=f"127.0.0.1:{number}")).state == "good"


def test_the_port_of_the_server_that_runs_is_no_fault(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        number = taken.getsockname()[1]
        with closing(Lock(tmp_path, f"serving http://127.0.0.1:{number}")):
            found = doctor.port(loaded(server__address=f"127.0.0.1:{number}", server__data_dir=str(tmp_path)))
    assert found.state == "good"


def test_little_space_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.disk(loaded()).state in ("good", "warning")
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 1 << 62)
    assert "make space" in doctor.disk(loaded()).sentence


def test_an_old_sqlite_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.sqlite(loaded()).state == "good"
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 30, 0))
    assert doctor.sqlite(loaded()).state == "bad"


def test_the_engine_runs_the_bundled_policy() -> None:
    found = doctor.engine(loaded())
    assert (found.state, "pydantic-monty" in found.sentence) == ("good", True)


def test_a_broken_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: Any) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(doctor, "MontyEngine", missing)
    assert doctor.engine(loaded()).state == "bad"


def test_a_provider_without_its_key_is_bad_and_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = from_file('[model]\nprovider = "openai"\n')
    found = doctor.provider(settings)
    assert (found.state, "OPENAI_API_KEY" in found.sentence) == ("bad", True)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    found = doctor.provider(settings)
    assert (found.state, "'deedbox doctor --provider openai' really asks it" in found.sentence) == ("good", True)


def test_a_provider_without_a_model_is_bad() -> None:
    found = doctor.provider(from_file('[providers.custom]\nbase_url = "http://127.0.0.1:9/v1"\n'))
    assert (found.state, "set model.model" in found.sentence) == ("bad", True)


def test_without_key_and_server_the_embedded_model_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing", lambda: "the weights are not installed")
    found = doctor.provider(loaded())
    assert (found.state, "the weights are not installed" in found.sentence) == ("bad", True)
    assert "without other models" in doctor.embedded(loaded()).sentence
    monkeypatch.setattr(doctor, "missing", lambda: None)
    assert doctor.provider(loaded()).state == "good"
    assert "it is installed" in doctor.embedded(loaded()).sentence


def test_a_check_that_fails_itself_is_a_finding_and_the_others_go_on() -> None:
    def broken(_: Loaded) -> Finding:
        raise RuntimeError("oh")

    def misled(_: Loaded) -> Finding:
        raise ConfigInvalid("this setting is wrong")

    found = list(doctor.examine(loaded(), (broken, misled, doctor.python)))
    assert [each.state for each in found] == ["bad", "bad", "good"]
    assert "RuntimeError: oh" in found[0].sentence
    assert found[1].sentence == "this setting is wrong"


def test_what_this_user_may_not_look_at_is_told_with_what_to_do() -> None:
    def locked(_: Loaded) -> Finding:
        raise PermissionError(13, "Permission denied", "/elsewhere/var")

    (found,) = doctor.examine(loaded(), (locked,))
    assert (
        found.sentence
        == "this user may not look at /elsewhere/var: be the user that runs the server, or set server.data_dir"
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_the_command_prints_a_line_a_check_and_fails_if_one_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing", lambda: "the weights are not installed")
    result = run("--data-dir", str(tmp_path), "--json")
    checks = {each["check"]: each["state"] for each in map(json.loads, result.stdout.splitlines())}
    assert checks["model"] == "bad"
    assert checks["python"] == "good"
    assert result.exit_code == 1
    assert "ok    python: Python 3" in run().stdout
