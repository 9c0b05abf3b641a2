"""What the server process does with requests that it cannot use, and with what keeps it from starting."""

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.fakes.provider import FakeProvider
from tests.fakes.server_process import ROOT
from tests.service.served import HELLO, PATIENCE, Served, serving

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
TURN: dict[str, Any] = {"model": "default", "messages": HI}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as it:
        yield it


@pytest.fixture(autouse=True)
def provider(served: Served) -> FakeProvider:
    return served.provider.clear()


def send(served: Served, path: str, body: bytes, **headers: str) -> requests.Response:
    headers = {"Content-Type": "application/json", **headers}
    return requests.post(f"{served.url}{path}", data=body, headers=headers, timeout=PATIENCE)


def problem(answer: requests.Response) -> tuple[int, str, str]:
    """Return status, code and text of an error in the shape of its route; there must be something to read."""
    found = answer.json()
    if "error" in found:
        assert set(found["error"]) == {"message", "type", "param", "code"}
        code, text = found["error"]["code"], found["error"]["message"]
    else:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert found["status"] == answer.status_code
        code, text = found["code"], found["detail"]
    assert len(text) > 15
    return answer.status_code, code, text


def test_a_message_that_is_refused_leaves_no_session_behind(served: Served) -> None:
    body = TURN | {"messages": [{"role": "user", "content": "x" * 1_100_000}]}
    answer = served.ask("POST", CHAT, body, headers={"X-Session-Id": "left-behind"})
    assert problem(answer)[:2] == (413, "input_too_large")
    assert served.ask("GET", "/v1/sessions/left-behind").status_code == 404


@pytest.mark.parametrize("path", ["/v1/runs", CHAT])
@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        (b'{"input": ', "invalid_json", "line 1"),
        (b"", "invalid_json", "empty"),
        (b"[1, 2]", "invalid_json", "an array"),
        (b'"hi"', "invalid_json", "text"),
        (b'{"input": NaN}', "invalid_json", "NaN"),
        (b'{"input": "\xff\xfe"}', "invalid_json", "UTF-8"),
        (b"[" * 100_000, "invalid_json", "deep"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "invalid_json", "64"),
        (b'{"input": ' + b"9" * 5000 + b"}", "invalid_json", "number"),
        (b'{"input": 1e999}', "invalid_json", "too large"),
    ],
)
def test_a_body_that_is_no_json_object_is_told_where_it_breaks(
    served: Served, path: str, body: bytes, code: str, told: str
) -> None:
    status, found, text = problem(send(served, path, body))
    assert (status, found, told in text) == (400, code, True), text


@pytest.mark.parametrize(
    ("path", "body", "code", "told"),
    [
        ("/v1/runs", {"input": 5}, "invalid_field", "input"),
        ("/v1/runs", {"input": []}, "invalid_field", "input"),
        ("/v1/runs", {"input": "  "}, "invalid_field", "blank"),
        ("/v1/runs", {"input": [{"type": "text"}]}, "invalid_field", "input.0.text"),
        ("/v1/runs", {"input": [{"type": "image", "media_type": "image/png", "data": "??"}]}, "invalid_field", "base64"),
        ("/v1/runs", {"input": [{"role": "assistant", "content": "x"}]}, "invalid_field", "role"),
        ("/v1/runs", {"input": "hi", "session_id": 7}, "invalid_field", "session_id"),
        ("/v1/runs", {"input": "hi", "metadata": []}, "invalid_field", "metadata"),
        ("/v1/runs", {"input": "hi", "limits": "none"}, "invalid_field", "limits"),
        ("/v1/runs", {"input": "hi", "limits": {"max_turns": None}}, "invalid_field", "limits.max_turns"),
        (CHAT, TURN | {"limits": {"deadline_ms": "x"}}, "invalid_command", "deadline_ms"),
        ("/v1/runs", {"input": "hi", "on_disconnect": "explode"}, "invalid_field", "continue, cancel"),
        ("/v1/runs", {"input": "hi", "tools": [{"name": "no spaces"}]}, "invalid_field", "tools.0.name"),
        ("/v1/runs", {"inptu": "hi", "input": "hi"}, "unknown_field", "did you mean `input`?"),
        ("/v1/runs", {}, "missing_field", "input"),
        ("/v1/runs", {"input": "hi", "profile": "none"}, "unknown_profile", "none"),
        ("/v1/runs", {"input": "hi", "provider": "none"}, "unknown_provider", "none"),
        ("/v1/sessions", {"session_id": "../etc"}, "invalid_field", "session_id"),
        ("/v1/sessions", {"busy": "never"}, "invalid_field", "queue, steer"),
        (CHAT, {"model": "default"}, "missing_field", "messages"),
        (CHAT, TURN | {"model": 5}, "invalid_field", "model"),
        (CHAT, TURN | {"messages": "hi"}, "invalid_message", "messages"),
        (CHAT, TURN | {"messages": []}, "invalid_message", "messages"),
        (CHAT, TURN | {"messages": [7]}, "invalid_message", "messages.0"),
        (CHAT, TURN | {"messages": [{"role": "wizard", "content": "hi"}]}, "invalid_message", "role"),
        (CHAT, TURN | {"messages": [{"role": "user", "content": 5}]}, "invalid_message", "messages.0.content"),
        (CHAT, TURN | {"messages": [*HI, {"role": "assistant", "content": "x"}]}, "invalid_message", "user or tool"),
        (CHAT, TURN | {"temprature": 1}, "unknown_field", "did you mean `temperature`?"),
        (CHAT, TURN | {"n": 2}, "unsupported_field", "n"),
        (CHAT, TURN | {"stream": "yes"}, "invalid_field", "stream"),
        (CHAT, TURN | {"metadata": {"session_id": 7}}, "invalid_field", "session id"),
        (CHAT, TURN | {"tools": [{"type": "function"}]}, "unsupported_field", "tools.0"),
    ],
)
def test_a_field_that_does_not_fit_is_named(served: Served, path: str, body: Any, code: str, told: str) -> None:
    status, found, text = problem(served.ask("POST", path, body))
    assert (status, found, told in text) == (400, code, True), text


@pytest.mark.parametrize("path", ["/v1/runs", CHAT])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_50_mb_is_refused_before_it_is_kept(served: Served, path: str, *, chunked: bool) -> None:
    piece = b"x" * 1_000_000

    def pieces() -> Iterator[bytes]:
        yield b'{"input": "'
        for _ in range(50):
            yield piece
        yield b'"}'

    url, headers = f"{served.url}{path}", {"Content-Type": "application/json"}
    before = memory(served.server.pid)
    with contextlib.suppress(requests.ConnectionError):  # it may hang up on who goes on sending
        answer = requests.post(url, data=pieces() if chunked else b"".join(pieces()), headers=headers, timeout=PATIENCE)
        assert problem(answer)[:2] == (413, "body_too_large")
    assert memory(served.server.pid) - before < 40_000_000
    assert served.turn()["status"] == "completed"


def memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_message_larger_than_the_limit_is_told_the_setting(served: Served) -> None:
    status, code, text = problem(served.ask("POST", "/v1/runs", {"input": "x" * 2_000_000}))
    assert (status, code, "limits.max_input_bytes" in text or "1048576" in text) == (413, "input_too_large", True)


def test_ten_thousand_messages_are_refused_as_a_chat_and_taken_as_the_input_of_a_run(served: Served) -> None:
    many = [{"role": "user", "content": f"message {number}"} for number in range(10_000)]
    status, code, text = problem(served.ask("POST", CHAT, TURN | {"messages": many}))
    assert (status, code, "10000" in text) == (400, "too_many_messages", True)
    run = served.ended(served.post("/v1/runs", {"input": many}, 202)["run_id"])
    asked = served.asked_of_the_model()
    assert (run["status"], len(asked), asked[-1]) == ("completed", 10_000, ("user", "message 9999"))


def test_two_thousand_messages_are_answered(served: Served) -> None:
    many = [{"role": ("user", "assistant")[number % 2], "content": f"message {number}"} for number in range(1_999)]
    answer = served.post(CHAT, TURN | {"messages": many}, 200)
    assert answer["choices"][0]["message"]["content"] == HELLO
    assert len(served.asked_of_the_model()) == 1_999


@pytest.mark.parametrize("path", ["/v1/runs", CHAT])
def test_lone_surrogates_and_nul_become_the_replacement_character_everywhere(served: Served, path: str) -> None:
    broken = r"a\ud835b\u0000c\udc00 \ud83d\ude42"
    if path == CHAT:
        messages = f'[{{"role": "user", "content": "{broken}"}}]'
        body = f'{{"model": "default", "messages": {messages}, "metadata": {{"{broken}": "x"}}}}'
        answer = send(served, path, body.encode())
        session = answer.headers["X-Session-Id"]
    else:
        body = f'{{"input": "{broken}", "title": "{broken}", "metadata": {{"{broken}": "{broken}"}}}}'
        run = served.ended(send(served, path, body.encode()).json()["run_id"])
        assert (run["status"], run["metadata"]) == ("completed", {"a�b�c� 🙂": "a�b�c� 🙂"})
        session = run["session_id"]
    assert served.asked_of_the_model() == [("user", "a�b�c� 🙂")]
    assert served.transcript(session) == [("user", "a�b�c� 🙂"), ("assistant", HELLO)]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", ["run_missing", "%00", "..%2f..%2fetc", "x" * 5000, "%ff", "' or 1=1 --", "🙂"])
def test_an_unknown_id_is_not_found_whatever_it_looks_like(served: Served, name: str, method: str) -> None:
    paths = ["/v1/sessions/{}", "/v1/sessions/{}/messages", "/v1/runs/{}", "/v1/runs/{}/events"]
    for path in paths if method == "GET" else ["/v1/runs/{}/cancel"]:
        status, code, _ = problem(served.ask(method, path.format(name)))
        assert (status, code in ("run_not_found", "session_not_found", "route_not_found")) == (404, True)


def test_a_run_in_an_unknown_session_is_refused_and_starts_nothing(served: Served) -> None:
    before = len(served.get("/v1/runs?limit=200")["data"])
    assert problem(served.ask("POST", "/v1/runs", {"input": "hi", "session_id": "ses_missing"}))[:2] == (
        404, "session_not_found"
    )  # fmt: skip
    assert len(served.get("/v1/runs?limit=200")["data"]) == before


@pytest.mark.parametrize("cursor", ["-1", "abc", "1.5", "9" * 30, "0x10", "\u0661"])
def test_a_cursor_that_is_no_number_is_refused(served: Served, cursor: str) -> None:
    run = served.turn()
    path = f"/v1/runs/{run['run_id']}/events"
    last: Mapping[str, Any] = {"Last-Event-ID": cursor.encode()}
    for answer in (served.ask("GET", path, params={"after": cursor}), served.ask("GET", path, headers=last)):
        assert problem(answer)[:2] == (400, "invalid_cursor")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/runs?limit=0", "limit"),
        ("/v1/runs?limit=100000", "limit"),
        ("/v1/runs?limit=1&limit=2", "limit"),
        ("/v1/runs?status=happy", "status"),
        ("/v1/runs?statsu=failed", "did you mean `status`?"),
        ("/v1/sessions?include_ephemeral=maybe", "include_ephemeral"),
    ],
)
def test_a_query_that_does_not_fit_is_named(served: Served, path: str, told: str) -> None:
    status, code, text = problem(served.ask("GET", path))
    assert (status, code in ("invalid_parameter", "unknown_parameter"), told in text) == (400, True, True), text


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/models", "/v1/sessions/x", "/metrics"])
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"X-Forwarded-For": "203.0.113.9"}, 401, "unauthorized"),
        ({"Authorization": "Bearer dbx_wrong"}, 401, "unauthorized"),
        ({"Authorization": "Bearer a b"}, 401, "unauthorized"),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, 401, "unauthorized"),
        ({"Host": "evil.example"}, 403, "foreign_host"),
        ({"Origin": "https://evil.example"}, 403, "foreign_origin"),
    ],
)
def test_without_a_right_token_nothing_is_shown(
    served: Served, path: str, headers: Mapping[str, str], status: int, code: str
) -> None:
    answer = served.ask("GET", path, headers=headers)
    assert problem(answer)[:2] == (status, code)
    assert "dbx_wrong" not in answer.text


def test_a_token_that_may_only_read_starts_nothing(served: Served) -> None:
    made = deedbox(served.server.folder, "token", "create", "reader", "--scope", "read")
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    assert served.ask("GET", "/v1/runs", headers=headers).status_code == 200
    for path, body in (("/v1/runs", {"input": "hi"}), (CHAT, TURN)):
        assert problem(served.ask("POST", path, body, headers=headers))[:2] == (403, "missing_scope")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "route_not_found"),
        ("GET", "/v1/nothing", 404, "route_not_found"),
        ("DELETE", "/v1/runs", 405, "method_not_allowed"),
        ("PUT", CHAT, 405, "method_not_allowed"),
    ],
)
def test_a_route_that_is_not_there_says_where_to_look(
    served: Served, method: str, path: str, status: int, code: str
) -> None:
    assert problem(served.ask(method, path))[:2] == (status, code)


def test_a_form_is_not_taken_for_json(served: Served) -> None:
    answer = send(served, "/v1/runs", b'{"input": "hi"}', **{"Content-Type": "text/plain"})
    assert problem(answer)[:2] == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Many: 1\r\n" * 30_000 + b"\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_bytes_that_are_no_request_are_refused_or_hung_up_on(served: Served, raw: bytes) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=5) as sock:
        sock.settimeout(2)
        with contextlib.suppress(OSError):
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            head = sock.recv(65536).split(b"\r\n")[0]
            assert head == b"" or int(head.split()[1]) >= 400, head
    assert served.ask("GET", "/health").status_code == 200


def test_clients_that_send_half_a_request_and_wait_do_not_keep_others_out(served: Served) -> None:
    address = urlsplit(served.url)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=5))
            sock.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
        assert served.turn()["status"] == "completed"


# --- what keeps it from starting ---------------------------------------------------------------------------------------


def deedbox(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(folder)}
    command = [sys.executable, "-m", "gateways", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def refused(folder: Path, settings: str = "") -> str:
    """Start a server that must not start, and return the one sentence that it says."""
    (folder / "deedbox.toml").write_text(
        f'[providers.custom]\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n{settings}'
    )
    found = deedbox(folder, "serve", "--address", "127.0.0.1:0")
    assert (found.returncode in (2, 6), found.stdout, "Traceback" in found.stderr) == (True, "", False), found.stderr
    return found.stderr


def policy(folder: Path, body: str) -> str:
    (folder / "mine" / "agent").mkdir(parents=True)
    (folder / "mine" / "policy.toml").write_text('name = "mine"\nversion = "1"\nentry = "agent.main"\n')
    (folder / "mine" / "agent" / "main.rss.py").write_text(
        '"""Does nothing well."""\n\nfrom typing import Any\n\nfrom host import emit\n\n\n'
        f"async def run(context: dict[str, Any]) -> dict[str, Any]:\n{body}"
        '    return {"output": None, "finish_reason": "stop", "error": None}\n'
    )
    return '[profiles.mine]\npolicy = "mine"\n'


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('    number: int = "text"\n', "invalid-assignment"),
        ('    eval("1")\n', "eval"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_refused_at_its_module_and_line(tmp_path: Path, body: str, told: str) -> None:
    said = refused(tmp_path, policy(tmp_path, body))
    assert "profiles.mine.policy" in said
    assert "agent.main:9" in said
    assert told in said.lower()


def test_a_policy_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "nowhere" in refused(tmp_path, '[profiles.mine]\npolicy = "nowhere"\n')


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    path = tmp_path / "var" / "deedbox.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table events (position integer)")
        db.execute("pragma user_version = 999")
    before = path.read_bytes()
    said = refused(tmp_path)
    assert ("999" in said, "upgrade deedbox" in said) == (True, True)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    bytes_ = b"this is no database, but a letter" * 100
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "deedbox.db").write_bytes(bytes_)
    assert "deedbox.db" in refused(tmp_path)
    assert (tmp_path / "var" / "deedbox.db").read_bytes() == bytes_


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("mine")
    assert "server.data_dir" in refused(tmp_path)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("[server]\nadress = '127.0.0.1:1'\n", "did you mean server.address?"),
        ("[providers.key]\napi_key_env = 'sk-abcdef'\n", "api_key_env"),
    ],
)
def test_a_setting_that_cannot_work_is_named_with_what_to_write(tmp_path: Path, settings: str, told: str) -> None:
    said = refused(tmp_path, settings)
    assert told in said
    assert "sk-abcdef" not in said


def test_a_completion_is_refused_in_one_line_of_json(served: Served) -> None:
    answer = served.ask("POST", CHAT, TURN | {"stream": True, "n": 3})
    assert answer.headers["Content-Type"].startswith("application/json")
    assert json.loads(answer.text)["error"]["code"] == "unsupported_field"
