"""What becomes of secrets that go through the server process: they are in no file, no diagnostics and no answer."""

import base64
import contextlib
import hashlib
import os
import re
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.provider import Answer, Exactly, FakeProvider, Reasoning, Status, Text, calls, says
from tests.fakes.server_process import ROOT, ServerProcess
from tests.service.served import Served

KEY = "wholly-secret-Key_of-the-provider/42"
SHAPED = "sk-proj-" + "Ab1" * 12
SECRETS = (KEY, SHAPED)
ONCE = {"max_retries": 0}
SETTINGS = 'api_key_env = "CUSTOM_API_KEY"\n'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server that logs all it can, and whose provider wants the key."""
    environ = {"CUSTOM_API_KEY": KEY}
    with (
        FakeProvider(key=KEY) as provider,
        ServerProcess(
            tmp_path, provider.url, "--log-level", "debug", settings=SETTINGS, environ=environ
        ) as server,
    ):  # fmt: skip
        yield Served(server, provider)


def kept(folder: Path) -> bytes:
    """Return all bytes below a folder, and what is compressed in the database unpacked as well."""
    found = b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())
    with contextlib.closing(sqlite3.connect(folder / "deedbox.db")) as db:
        for table, column in (("blobs", "data"), ("batches", "raw"), ("seals", "sizes"), ("events", "data")):
            for (value,) in db.execute(f"select {column} from {table} where {column} is not null"):
                found += _unpacked(value if isinstance(value, bytes) else value.encode())
    return found


def _unpacked(value: bytes) -> bytes:
    for window in (zlib.MAX_WBITS, -zlib.MAX_WBITS, zlib.MAX_WBITS | 16):
        for offset in (0, 1):
            with contextlib.suppress(zlib.error):
                return value + zlib.decompress(value[offset:], window)
    return value


def leaks(data: bytes, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    """Return which secrets are in the bytes, as they are or in base64."""
    encoded = {secret: base64.b64encode(secret.encode())[:-4] for secret in secrets}
    return [secret for secret in secrets if secret.encode() in data or encoded[secret] in data]


def deedbox(served: Served, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CUSTOM_API_KEY": KEY, "DEEDBOX_URL": served.url}
    command = [sys.executable, "-m", "gateways", *arguments]
    return subprocess.run(
        command, cwd=served.server.folder, env=environ, capture_output=True, text=True, timeout=20, check=False
    )


def test_a_key_that_people_and_models_repeat_is_nowhere_on_record(served: Served) -> None:
    answers: list[Any] = []
    both = f"{KEY} and {SHAPED}"
    whole, words = (
        Answer(
            (
                Reasoning(both),
                Text(f"Your keys are {both}."),
            ),
            piece=0,
        ),
        says(f"Keys: {both} ."),
    )
    for step in (
        whole, words, calls("missing", {"key": both}), says("x", error_after=1),
        Status(401, f"Incorrect API key provided: {both}"), Status(500, both, kind=KEY), Status(429, both),
        Exactly(both.encode(), status=503, content_type="text/html"), Exactly(both.encode(), content_type="text/html"),
        Exactly(b"", status=302, headers={"Location": f"http://127.0.0.1:1/v1?key={KEY}"}),
        Exactly(f'data: {{"error": {{"message": "{both}", "type": "{KEY}"}}}}\n\n'.encode()),
        Exactly(b"", status=400, headers={"X-Request-Id": KEY}),
    ):  # fmt: skip
        served.provider.then(step)
        run = served.turn("hi", limits=ONCE)
        answers += [run, served.events(run["run_id"]), served.transcript(run["session_id"])]
    assert served.provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "[redacted:" in str(answers)
    assert leaks(str(answers).encode()) == []
    served.server.stop()
    assert leaks(kept(served.server.data_dir)) == []
    assert leaks(served.server.log().encode()) == []


def test_a_key_that_a_client_sends_is_kept_nowhere(served: Served) -> None:
    both = f"{KEY} and {SHAPED}"
    image = base64.b64encode(KEY.encode() * 3).decode()
    parts: list[Any] = [
        {"type": "text", "text": both}, {"type": "file", "name": KEY, "media_type": "text/plain", "data": image}
    ]  # fmt: skip
    tool = {"name": "find", "description": both, "parameters": {"type": "object", "description": both}}
    run = served.turn(parts, title=both, metadata={KEY: both}, system_prompt=both, tools=[tool], limits=ONCE)  # type: ignore[arg-type]
    served.turn("again", session_id=run["session_id"])
    chat = {"model": "default", "messages": [{"role": "user", "content": both, "name": "n"}], "user": KEY}
    served.ask("POST", "/v1/chat/completions", chat)
    served.ask("POST", "/v1/runs", {"input": both}, headers={"Idempotency-Key": KEY})
    served.ask("POST", f"/v1/runs/{run['run_id']}/cancel", {"reason": both})
    served.ask("POST", "/v1/runs", {"input": "hi", "model": KEY, "limits": ONCE})
    assert len(served.get("/v1/runs")["data"]) >= 4
    for bad in ({"input": 5, KEY: both}, {KEY: KEY}, {"input": "hi", "profile": KEY}):
        served.ask("POST", "/v1/runs", bad)
    for path in (f"/v1/runs/{SHAPED}", f"/v1/sessions/{SHAPED}", f"/{SHAPED}", f"/v1/runs?status={KEY}"):
        served.ask("GET", path, headers={"Authorization": f"Bearer {KEY}"})
        served.ask("GET", path)
    for run_id in [row["run_id"] for row in served.get("/v1/runs")["data"]]:
        served.ended(run_id)
    shown = served.get("/v1/runs"), served.get("/v1/sessions"), served.transcript(run["session_id"])
    assert leaks(str(shown).encode()) == []
    assert leaks(served.ask("GET", "/metrics").content + served.ask("GET", "/openapi.json").content) == []
    served.server.stop()
    assert leaks(served.server.log().encode()) == []
    assert leaks(kept(served.server.data_dir)) == []


def test_a_secret_that_a_stream_cuts_into_deltas_is_whole_in_no_event(served: Served) -> None:
    served.provider.then(Answer((Text(f"It is {KEY}."),), piece=5))
    run = served.turn()
    assert KEY not in run["output"]["content"][0]["text"]
    served.server.stop()
    assert leaks(kept(served.server.data_dir)) == []


def test_the_command_line_does_not_show_the_key(served: Served) -> None:
    for arguments in (["config"], ["config", "--chosen"], ["config", "--json"], ["doctor"]):
        found = deedbox(served, *arguments)
        assert leaks((found.stdout + found.stderr).encode()) == []
    assert leaks("".join(served.server.said).encode()) == []


def test_a_provider_that_wants_a_key_and_gets_none_ends_the_run_with_a_code_for_it(tmp_path: Path) -> None:
    with FakeProvider(key=KEY) as provider, ServerProcess(tmp_path, provider.url, settings=SETTINGS) as server:
        run = Served(server, provider).turn(limits=ONCE)
        assert (run["status"], run["error"]["code"]) == ("failed", "provider_auth")
        assert "authorization" not in provider.requests[-1].headers


def test_a_token_is_hashed_and_files_are_for_their_owner_alone(served: Served) -> None:
    secret = deedbox(served, "token", "create", "mine", "--scope", "read", "--scope", "admin").stdout.strip()
    headers = {"Authorization": f"Bearer {secret}"}
    assert served.ask("GET", "/v1/runs", headers=headers).status_code == 200
    served.ask("GET", "/v1/runs", headers={"Authorization": f"Bearer {secret}x"})
    served.turn("hi")
    listed = deedbox(served, "token", "list", "--json")
    folder = served.server.data_dir
    modes = {each.relative_to(folder): each.stat().st_mode & 0o777 for each in folder.rglob("*") if each.is_file()}
    assert (folder.stat().st_mode & 0o777, set(modes.values())) == (0o700, {0o600}), modes
    served.server.stop()
    data = kept(folder)
    assert leaks(data + listed.stdout.encode() + served.server.log().encode(), (secret,)) == []
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in data
    assert re.fullmatch(r"dbx_[\w-]{40,}", secret)
