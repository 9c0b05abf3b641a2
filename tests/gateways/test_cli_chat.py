"""`deedbox chat`, piped, alone and at a terminal, against a server by script."""

import io
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from gateways.cli import chat, main
from gateways.cli import client as module
from gateways.cli.chat import Conversation
from gateways.cli.client import Client
from tests.docs.tables import ROOT
from tests.fakes.deedbox_api import Answer, FakeApi, as_json, as_stream, fake_api


def event(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "run_id": "run_1", "seq": seq, "at": "2026-01-01T00:00:00Z", **data}


def answering(*events: dict[str, Any]) -> Any:
    def script(method: str, path: str, _headers: Any, _body: Any) -> Answer:
        if path == "/health":
            return as_json({"status": "ok"})
        if method == "POST":
            return as_json({"run_id": "run_1", "session_id": "ses_1", "message_id": "msg_1", "status": "queued"}, 202)
        return as_stream(*events)

    return script


def posted(api: FakeApi) -> list[Any]:
    return [body for method, path, _, body in api.asked if (method, path) == ("POST", "/v1/runs")]


TEXT = (event(1, "model.delta", text="Hel"), event(2, "model.delta", text="lo"), event(3, "model.completed", message={}))
DONE = event(4, "run.completed", output={})


def test_each_piped_line_is_a_message_of_one_session() -> None:
    with fake_api(answering(*TEXT, DONE)) as api:
        result = CliRunner().invoke(main, ["chat", "--url", api.url, "--model", "m"], input="one\n\ntwo\n")
    assert result.stdout == "Hello\nHello\n"
    assert posted(api) == [{"input": "one", "model": "m"}, {"input": "two", "model": "m", "session_id": "ses_1"}]
    assert result.exit_code == 0


def test_new_starts_another_session_and_quit_ends() -> None:
    with fake_api(answering(*TEXT, DONE)) as api:
        CliRunner().invoke(main, ["chat", "--url", api.url], input="one\n/new\ntwo\n/quit\nthree\n")
    assert posted(api) == [{"input": "one"}, {"input": "two"}]


def test_one_message_as_an_argument_is_answered_once() -> None:
    with fake_api(answering(*TEXT, DONE)) as api:
        result = CliRunner().invoke(main, ["chat", "how", "are you", "--session", "ses_9", "--url", api.url])
    assert result.stdout == "Hello\n"
    assert posted(api) == [{"input": "how are you", "session_id": "ses_9"}]


def test_what_is_piped_in_beside_a_message_follows_it() -> None:
    with fake_api(answering(*TEXT, DONE)) as api:
        result = CliRunner().invoke(main, ["chat", "Summarise", "--url", api.url], input="one\n\ntwo\n")
        CliRunner().invoke(main, ["chat", "Summarise", "--url", api.url], input=" \n")
    assert posted(api) == [{"input": "Summarise\n\none\n\ntwo"}, {"input": "Summarise"}]
    assert (result.stdout, result.exit_code) == ("Hello\n", 0)


@pytest.mark.parametrize(
    ("piped", "says"), [(b"\xff\xfe", "is not UTF-8 text"), (b"123456789", "has more than 8 characters")]
)
def test_what_cannot_be_piped_in_is_refused(piped: bytes, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MOST_PIPED", 8)
    with fake_api(answering(*TEXT, DONE)) as api:
        result = CliRunner().invoke(main, ["chat", "Summarise", "--url", api.url], input=piped)
    assert (result.exit_code, says in result.stderr, posted(api)) == (2, True, [])


@pytest.mark.parametrize("typed", ["/nwe", "/nwe now", "/model x"])
def test_a_mistyped_command_is_refused_and_not_sent_to_the_model(typed: str) -> None:
    with fake_api(answering(*TEXT, DONE)) as api:
        result = CliRunner().invoke(main, ["chat", "--url", api.url], input=f"{typed}\n")
    assert (result.exit_code, posted(api)) == (2, [])
    assert f"there is no command {typed.partition(' ')[0]}; " in result.stderr
    assert ("did you mean /new? " in result.stderr) == ("nwe" in typed)
    assert "known are /new, /quit, /exit, /help" in result.stderr


def test_a_message_may_begin_with_a_path_or_with_a_space_and_a_slash() -> None:
    with fake_api(answering(*TEXT, DONE)) as api:
        CliRunner().invoke(main, ["chat", "--url", api.url], input="/etc/hosts is what?\n /etc is what?\n")
    assert [body["input"] for body in posted(api)] == ["/etc/hosts is what?", "/etc is what?"]


def test_a_single_answer_tells_a_person_how_to_go_on() -> None:
    ours, theirs = os.openpty()
    with fake_api(answering(*TEXT, DONE)) as api, os.fdopen(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-m", "gateways", "chat", "hi", "--url", api.url]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, env=environ
        ) as process:
            os.close(theirs)
            assert process.stdout is not None
            assert (process.stdout.read(), process.wait(10)) == (b"Hello\n", 0)
        assert b"'deedbox chat --session ses_1' goes on from here" in terminal.read(4096)


def test_an_answer_without_deltas_is_shown_whole() -> None:
    message = {"role": "assistant", "content": [{"type": "reasoning", "text": "x"}, {"type": "text", "text": "Whole"}]}
    with fake_api(answering(event(1, "model.completed", message=message), DONE)) as api:
        assert CliRunner().invoke(main, ["chat", "hi", "--url", api.url]).stdout == "Whole\n"


def test_a_discarded_attempt_is_marked_and_its_successor_shown() -> None:
    events = (
        event(1, "model.delta", text="Ha"),
        event(2, "model.discarded", reason="network"),
        event(3, "model.delta", text="Hi"),
    )
    with fake_api(answering(*events, DONE)) as api:
        shown = CliRunner().invoke(main, ["chat", "hi", "--url", api.url]).stdout
    assert shown == "Ha\n[the answer broke off and starts again]\nHi\n"


def test_an_answer_at_its_limit_is_marked_for_people_and_not_for_programs() -> None:
    cut = event(4, "run.completed", output={}, finish_reason="length")
    shown = {}
    for terminal in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=terminal, color_system=None)
        with fake_api(answering(*TEXT, cut)) as api, Client(api.url) as server:
            assert Conversation(server, {}, screen).say("hi")
        shown[terminal] = screen.file.getvalue()  # type: ignore[attr-defined]
    assert shown == {True: "Hello\n[cut off: this is as long as an answer may be]\n", False: "Hello\n"}


def test_a_failed_run_is_told_and_makes_the_exit_code() -> None:
    failed = event(1, "run.failed", error={"code": "auth", "message": "the key is wrong"})
    with fake_api(answering(failed)) as api:
        result = CliRunner().invoke(main, ["chat", "hi", "--url", api.url])
    assert "[failed: the key is wrong]" in result.stdout
    assert result.exit_code == 1


def test_ctrl_c_cancels_the_run_and_shows_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    follow, calls = Client.follow, []

    def interrupted_once(self: Client, run_id: str, after: int = 0) -> Any:
        calls.append(after)
        if len(calls) == 1:
            yield event(1, "model.delta", text="Hel")
            raise KeyboardInterrupt
        yield from follow(self, run_id, after)

    monkeypatch.setattr(Client, "follow", interrupted_once)
    with fake_api(answering(event(2, "run.cancelled", reason="asked"))) as api:
        result = CliRunner().invoke(main, ["chat", "hi", "--url", api.url])
    assert ("POST", "/v1/runs/run_1/cancel") in [(method, path) for method, path, _, _ in api.asked]
    assert result.stdout == "Hel\n[cancelled]\n"
    assert calls == [0, 1]


def test_ctrl_c_before_the_run_is_known_cancels_the_one_that_the_same_key_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    post, keys = Client.post, []

    def interrupted_once(self: Client, path: str, body: Any, key: str | None = None) -> Any:
        if key is not None:
            keys.append(key)
            if len(keys) == 1:
                raise KeyboardInterrupt
        return post(self, path, body, key)

    monkeypatch.setattr(Client, "post", interrupted_once)
    with fake_api(answering(event(1, "run.cancelled", reason="asked"))) as api:
        result = CliRunner().invoke(main, ["chat", "hi", "--url", api.url])
    assert len(set(keys)) == 1
    assert ("POST", "/v1/runs/run_1/cancel") in [(method, path) for method, path, _, _ in api.asked]
    assert "[cancelled]" in result.stdout


def test_a_piped_chat_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.5)
    result = CliRunner().invoke(main, ["chat", "--url", "http://127.0.0.1:9"], input="hi\n")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "deedbox serve" in result.stderr


def test_lines_that_are_pasted_together_at_a_terminal_are_one_message() -> None:
    pytest.importorskip("readline")
    ours, theirs = os.openpty()
    with fake_api(answering(*TEXT, DONE)) as api, os.fdopen(ours, "r+b", buffering=0) as terminal:
        command = [sys.executable, "-m", "gateways", "chat", "--url", api.url]
        environ = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as chat:
            os.close(theirs)
            shown = b""
            for awaited, typed in ((b"> ", b"\x1b[200~one\ntwo\x1b[201~\r"), (b"Hello", b"/quit\r")):
                while awaited not in shown:
                    shown += terminal.read(4096)
                terminal.write(typed)
            with suppress(OSError):  # Linux says so where the other side of a terminal is gone
                while terminal.read(4096):
                    pass
            assert chat.wait(10) == 0
    assert posted(api) == [{"input": "one\ntwo"}]
