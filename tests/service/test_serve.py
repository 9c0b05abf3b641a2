"""`deedbox serve` as a process: what it says, what signals do, what a second one is told, what survives."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fakes.provider import FakeProvider, Silence, says
from tests.fakes.server_process import ROOT, ServerProcess

PATIENCE = 20


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, shared_provider: FakeProvider) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("shared"), shared_provider.url) as process:
        yield process


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture
def server(tmp_path: Path, provider: FakeProvider) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, provider.url) as process:
        yield process


def deedbox(server: ServerProcess, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DEEDBOX_URL": server.url}
    command = [sys.executable, "-m", "gateways", *arguments]
    return subprocess.run(
        command, cwd=server.folder, env=environ, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def start_run(server: ServerProcess, **body: Any) -> dict[str, Any]:
    answer = requests.post(f"{server.url}/v1/runs", json={"input": "hi", **body}, timeout=PATIENCE)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def run_of(server: ServerProcess, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"{server.url}/v1/runs/{run_id}", timeout=PATIENCE).json()
    return found


def ended(server: ServerProcess, run_id: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE
    while (found := run_of(server, run_id))["status"] not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < until, f"the run does not end: {found}"
        time.sleep(0.02)
    return found


def test_it_says_where_it_is_and_answers_when_it_is_ready(shared: ServerProcess) -> None:
    assert shared.said[0].startswith("deedbox 0.1.0 serves http://127.0.0.1:")
    assert shared.said[1] == f"data directory {shared.data_dir}"
    assert shared.said[2].startswith("model custom/fake-model: ")
    ready = requests.get(f"{shared.url}/ready", timeout=PATIENCE)
    assert (ready.status_code, ready.json()["ready"]) == (200, True)


def test_the_data_directory_is_made_for_its_owner_alone(shared: ServerProcess) -> None:
    assert shared.data_dir.stat().st_mode & 0o077 == 0
    assert (shared.data_dir / "deedbox.db").exists()


def test_sigterm_stops_an_idle_server_in_order(server: ServerProcess) -> None:
    code, took = server.stop()
    assert (code, server.said[-1]) == (0, "stopped")
    assert took < 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_busy_server_within_five_seconds_and_the_run_goes_on_after_a_restart(
    server: ServerProcess, provider: FakeProvider, number: signal.Signals
) -> None:
    provider.then(Silence()).always(says("Hello again."))
    run_id = start_run(server)["run_id"]
    assert provider.wait_requests(1)
    with requests.get(
        f"{server.url}/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, stream=True, timeout=PATIENCE
    ) as stream:
        shown = b""
        while b"model.started" not in shown:
            shown += stream.raw.read1(65536)
        time.sleep(0.3)  # what is being read for a stream at that moment comes instead of a good-bye
        server.signal(number)
        code, took = server.wait()
        assert stream.raw.read().endswith(b": bye\n\n")
    assert (code, took < 5) == (0, True)
    server.start()
    found = ended(server, run_id)
    assert (found["status"], found["output"]["content"][0]["text"]) == ("completed", "Hello again.")


def test_after_kill_9_everything_is_there_and_the_run_goes_on(server: ServerProcess, provider: FakeProvider) -> None:
    first = start_run(server)
    ended(server, first["run_id"])
    provider.then(Silence())
    second = start_run(server, session_id=first["session_id"])["run_id"]
    assert provider.wait_requests(2)
    server.kill()
    server.start()
    assert ended(server, second)["status"] == "completed"
    assert run_of(server, first["run_id"])["status"] == "completed"


def test_recovery_fail_ends_what_a_crash_cut_short(tmp_path: Path, provider: FakeProvider) -> None:
    provider.then(Silence())
    with ServerProcess(tmp_path, provider.url, "--recovery", "fail") as server:
        run_id = start_run(server)["run_id"]
        assert provider.wait_requests(1)
        server.kill()
        server.start()
        found = ended(server, run_id)
    assert (found["status"], found["error"]["code"]) == ("failed", "interrupted")


def test_a_second_server_on_the_same_directory_is_refused_and_told_who_holds_it(shared: ServerProcess) -> None:
    second = deedbox(shared, "serve", "--address", "127.0.0.1:0")
    assert second.returncode == 6
    assert f"pid {shared.pid}" in second.stderr
    assert shared.url in second.stderr
    assert "Traceback" not in second.stderr
    assert run_of(shared, start_run(shared)["run_id"])["status"] in ("queued", "running", "completed")


def test_a_port_in_use_is_told(shared: ServerProcess, tmp_path: Path) -> None:
    second = deedbox(shared, "serve", "--address", shared.url.removeprefix("http://"), "--data-dir", str(tmp_path / "other"))
    assert second.returncode == 6
    assert "stop what listens there, or set server.address" in second.stderr


def test_sigusr1_shows_what_every_thread_does(shared: ServerProcess) -> None:
    shared.signal(signal.SIGUSR1)
    until = time.monotonic() + PATIENCE
    while "Current thread" not in shared.log() and time.monotonic() < until:
        time.sleep(0.02)
    assert shared.log().count("Thread 0x") > 3
    assert requests.get(f"{shared.url}/health", timeout=PATIENCE).ok


def test_the_command_line_talks_with_the_server(shared: ServerProcess) -> None:
    chat = deedbox(shared, "chat", typed="one\ntwo\n")
    assert chat.stdout == "Hello from the fake provider.\nHello from the fake provider.\n"
    sessions = [json.loads(line) for line in deedbox(shared, "sessions", "--json").stdout.splitlines()]
    assert sessions[0]["run_count"] == 2
    runs = [json.loads(line) for line in deedbox(shared, "runs", "--limit", "2", "--json").stdout.splitlines()]
    assert [each["status"] for each in runs] == ["completed", "completed"]
    events = [
        json.loads(line) for line in deedbox(shared, "events", runs[0]["run_id"], "--follow", "--json").stdout.splitlines()
    ]
    assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "run.completed"


def test_ctrl_c_in_a_chat_cancels_the_run_and_not_the_program(shared: ServerProcess, shared_provider: FakeProvider) -> None:
    shared_provider.then(says("slowly and on", pace=5)).always(says("Done."))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DEEDBOX_URL": shared.url}
    with subprocess.Popen(
        [sys.executable, "-m", "gateways", "chat"],
        cwd=shared.folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as chat:
        assert chat.stdin is not None
        chat.stdin.write("first\n")
        chat.stdin.flush()
        assert chat.stdout is not None
        assert chat.stdout.read(1) == "s"
        chat.send_signal(signal.SIGINT)
        said, _ = chat.communicate("second\n", timeout=PATIENCE)
    assert "[cancelled]" in said
    assert said.endswith("Done.\n")


def test_a_revoked_token_is_refused_at_once(shared: ServerProcess) -> None:
    secret = deedbox(shared, "token", "create", "t").stdout.strip()
    headers = {"Authorization": f"Bearer {secret}"}
    assert requests.get(f"{shared.url}/v1/runs", headers=headers, timeout=PATIENCE).status_code == 200
    deedbox(shared, "token", "revoke", "t")
    assert requests.get(f"{shared.url}/v1/runs", headers=headers, timeout=PATIENCE).status_code == 401


def test_a_server_that_cannot_start_says_why_in_one_sentence(tmp_path: Path, shared: ServerProcess) -> None:
    for arguments, says_so in (
        (("--address", "nonsense"), "write host:port"),
        (("--data-dir", "/proc/deedbox"), "set server.data_dir"),
        (("--provider", "opneai"), "did you mean openai?"),
        (("--config", str(tmp_path / "none.toml")), "does not exist"),
    ):
        found = deedbox(shared, "serve", *arguments)
        assert (says_so in found.stderr, found.stderr.count("\n")) == (True, 1), found.stderr
        assert found.returncode in (2, 6)
