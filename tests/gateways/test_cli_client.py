"""The command line against a server that misbehaves: cut streams, foreign answers, nobody there."""

import json
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateways.cli import client as module
from gateways.cli import main
from gateways.cli.client import Client
from gateways.errors import NoServer, ServerSaid
from tests.fakes.deedbox_api import Answer, as_json, as_stream, fake_api

STARTED = {"type": "run.started", "run_id": "run_1", "seq": 1, "at": "2026-01-01T00:00:00Z", "session_id": "ses_1"}
DELTA = {"type": "model.delta", "run_id": "run_1", "seq": 2, "at": "2026-01-01T00:00:00Z", "attempt": 1, "text": "Hi"}
END = {"type": "run.completed", "run_id": "run_1", "seq": 3, "at": "2026-01-01T00:00:00Z", "output": {}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.001)


def deedbox(*arguments: str, **rest: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="deedbox", **rest)


def test_a_cut_stream_is_taken_up_by_the_last_event_and_nothing_comes_twice() -> None:
    answers = [as_stream(STARTED), as_json({"status": "running", "last_seq": 2}), as_stream(STARTED, DELTA, END)]
    with fake_api(lambda *_: answers.pop(0)) as api, Client(api.url) as client:
        assert [event["seq"] for event in client.follow("run_1")] == [1, 2, 3]
    assert api.asked[2][2]["last-event-id"] == "1"


def test_following_an_ended_run_from_its_end_ends() -> None:
    answers = [as_stream(), as_json({"status": "completed", "last_seq": 3})]
    with fake_api(lambda *_: answers.pop(0)) as api, Client(api.url) as client:
        assert list(client.follow("run_1", 3)) == []


def test_a_server_that_goes_is_waited_for_and_then_ends_the_stream_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "RECONNECTS", 10)
    with ExitStack() as stack:
        with fake_api(lambda *_: as_stream(STARTED)) as api:
            client = stack.enter_context(Client(api.url))
            events = client.follow("run_1")
            assert next(events) == STARTED
        with pytest.raises(NoServer, match=r"broke off at event 1 .*'deedbox events run_1 --after 1 --follow'"):
            list(events)
    assert capsys.readouterr().err == "deedbox: the server does not answer; waiting for it\n"


def test_the_patience_with_a_server_that_restarts_is_longer_than_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert module.RECONNECTS * module.PAUSE_S >= 60


def test_a_server_that_was_never_there_is_not_waited_for() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(NoServer, match="start one with 'deedbox serve'"):
        list(client.follow("run_1"))


def test_a_server_that_restarts_is_waited_for() -> None:
    answers = [as_json({"code": "shutting_down", "detail": "soon"}, 503), as_stream(STARTED, DELTA, END)]
    with fake_api(lambda *_: answers.pop(0)) as api, Client(api.url) as client:
        assert [event["seq"] for event in client.follow("run_1")] == [1, 2, 3]


def test_a_run_that_is_unknown_is_not_asked_for_again() -> None:
    problem = {"code": "run_not_found", "title": "There is no such run", "detail": "there is no run run_1"}
    with fake_api(lambda *_: as_json(problem, 404)) as api:
        result = deedbox("events", "run_1", "--follow", "--url", api.url)
    assert (result.exit_code, result.stderr) == (3, "deedbox: there is no run run_1\n")
    assert len(api.asked) == 1


def test_pages_are_read_until_there_are_no_more() -> None:
    def script(_method: str, path: str, *_: Any) -> Answer:
        first = "after" not in path
        return as_json({"data": [{"run_id": "a" if first else "b"}], "has_more": first, "next": "a" if first else None})

    with fake_api(script) as api:
        result = deedbox("runs", "--json", "--status", "failed", "--url", api.url)
    assert [json.loads(line)["run_id"] for line in result.stdout.splitlines()] == ["a", "b"]
    assert all("status=failed" in path for _, path, _, _ in api.asked)


def test_a_listing_has_columns_and_an_empty_one_says_what_to_do() -> None:
    row = {"session_id": "ses_1", "title": None, "profile": "default", "model": "m", "run_count": 2, "updated_at": "t"}
    with fake_api(lambda *_: as_json({"data": [row], "has_more": False, "next": None})) as api:
        lines = deedbox("sessions", "--url", api.url).stdout.splitlines()
    assert lines[0].split() == ["SESSION_ID", "TITLE", "PROFILE", "MODEL", "RUN_COUNT", "UPDATED_AT"]
    assert lines[1].split() == ["ses_1", "-", "default", "m", "2", "t"]
    with fake_api(lambda *_: as_json({"data": [{**row, "preview": "Hi"}], "has_more": False, "next": None})) as api:
        shown, told = deedbox("sessions", "--url", api.url).stdout, deedbox("sessions", "--json", "--url", api.url).stdout
    assert shown.splitlines()[1].split() == ["ses_1", "Hi", "default", "m", "2", "t"]
    assert json.loads(told) == {**row, "preview": "Hi"}
    with fake_api(lambda *_: as_json({"data": [], "has_more": False, "next": None})) as api:
        result = deedbox("sessions", "--url", api.url)
        other = deedbox("sessions", "--platform", "telegram", "--url", api.url)
    assert result.stdout == ""
    assert "deedbox chat" in result.stderr
    assert other.stderr == "there are no sessions of the platform telegram\n"


def test_events_are_shown_by_line_or_as_json_and_by_type() -> None:
    page = {"data": [STARTED, DELTA, END], "has_more": False, "next": 3}
    with fake_api(lambda *_: as_json(page)) as api:
        plain = deedbox("events", "run_1", "--url", api.url).stdout.splitlines()
        chosen = deedbox("events", "run_1", "--json", "--types", "model.delta", "--url", api.url).stdout.splitlines()
    assert plain[1].split() == ["2", "model.delta", '{"attempt":1,"text":"Hi"}']
    assert [json.loads(line) for line in chosen] == [DELTA]


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ("model.dleta", "did you mean model.delta? known are"),
        ("run.started,foo", "no type of event 'foo'; known are approval"),
    ],
)
def test_a_type_of_event_that_does_not_exist_is_refused_before_anything_is_asked(types: str, says: str) -> None:
    with fake_api(lambda *_: as_json({})) as api:
        result = deedbox("events", "run_1", "--types", types, "--url", api.url)
    assert (result.exit_code, result.stdout, api.asked) == (2, "", [])
    assert says in result.stderr


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("running", "run_1 is being cancelled"),
        ("cancelled", "run_1 is cancelled"),
        ("completed", "run_1 has ended already: it completed"),
    ],
)
def test_a_run_is_cancelled_by_its_id(status: str, says: str) -> None:
    with fake_api(lambda *_: as_json({"run_id": "run_1", "status": status}, 202)) as api:
        result = deedbox("cancel", "run_1", "--url", api.url)
    assert (result.exit_code, result.stdout) == (0, f"{says}\n")
    assert [asked[:2] for asked in api.asked] == [("POST", "/v1/runs/run_1/cancel")]


def test_cancelling_a_run_that_does_not_exist_is_a_sentence() -> None:
    with fake_api(lambda *_: as_json({"code": "run_not_found", "detail": "There is no such run."}, 404)) as api:
        result = deedbox("cancel", "../x", "--url", api.url)
    assert (result.exit_code, result.stderr) == (3, "deedbox: There is no such run.\n")
    assert api.asked[0][1] == "/v1/runs/..%2Fx/cancel"


def test_without_a_server_a_command_says_how_to_start_one() -> None:
    result = deedbox("sessions", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 5
    assert "start one with 'deedbox serve'" in result.stderr
    assert deedbox("sessions", "--url", "nonsense").exit_code == 5


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (409, 3), (503, 3)])
def test_a_problem_becomes_its_sentence_and_its_familys_exit_code(status: int, code: int) -> None:
    with fake_api(lambda *_: as_json({"code": "x", "detail": "it is so"}, status)) as api:
        result = deedbox("runs", "--url", api.url)
    assert (result.exit_code, result.stderr) == (code, "deedbox: it is so\n")


def test_a_missing_token_is_told_in_words_of_the_command_line() -> None:
    problem = {"code": "unauthorized", "detail": "This server needs a token: send `Authorization: Bearer TOKEN`."}
    with fake_api(lambda *_: as_json(problem, 401)) as api:
        without = deedbox("runs", "--url", api.url)
        wrong = deedbox("runs", "--url", api.url, "--token", "dbx_1")
    assert "'deedbox token create NAME'" in without.stderr
    assert "--token" in without.stderr
    assert (without.exit_code, wrong.exit_code) == (4, 4)
    assert wrong.stderr == f"deedbox: {problem['detail']}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "deedbox: No such command 'nonsense'. See 'deedbox --help'."),
        (["sesions"], "deedbox: No such command 'sesions'. Did you mean 'sessions'? See 'deedbox --help'."),
        (["token", "creat"], "deedbox: No such command 'creat'. Did you mean 'create'? See 'deedbox token --help'."),
        (["--nonsense"], "deedbox: No such option '--nonsense'. See 'deedbox --help'."),
        (["events"], "deedbox: Missing argument 'RUN_ID'. See 'deedbox events --help'."),
        (
            ["runs", "--status", "done"],
            "deedbox: Invalid value for '--status': 'done' is not one of 'queued', 'running', "
            "'waiting', 'completed', 'cancelled', 'failed'. See 'deedbox runs --help'.",
        ),
        (["token", "revoke"], "deedbox: Missing argument 'TOKEN_ID'. See 'deedbox token revoke --help'."),
        (["chat", " "], "deedbox: MESSAGE is empty. See 'deedbox chat --help'."),
    ],
)
def test_a_wrong_command_line_is_one_sentence(arguments: list[str], sentence: str) -> None:
    result = deedbox(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", sentence + "\n")


@pytest.mark.parametrize("arguments", [[], ["token"], ["policy"]])
def test_the_help_of_a_group_says_of_each_command_in_a_whole_sentence_what_it_does(arguments: list[str]) -> None:
    shown = deedbox(*arguments, "--help").stdout
    assert "Commands:" in shown
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize(("status", "says"), [(200, "not a deedbox server"), (502, "status 502")])
def test_what_is_not_a_deedbox_server_is_told_apart(status: int, says: str) -> None:
    with (
        fake_api(lambda *_: (status, "text/html", b"<html>")) as api,
        Client(api.url) as client,
        pytest.raises(ServerSaid, match=says),
    ):
        client.get("/v1/runs")


def test_the_token_is_sent_from_the_flag_or_the_variable() -> None:
    with fake_api(lambda *_: as_json({"data": [], "has_more": False, "next": None})) as api:
        deedbox("runs", "--url", api.url, "--token", "dbx_1")
        deedbox("runs", env={"DEEDBOX_URL": api.url, "DEEDBOX_TOKEN": "dbx_2"})
    assert [headers["authorization"] for _, _, headers, _ in api.asked] == ["Bearer dbx_1", "Bearer dbx_2"]


def test_a_fault_of_deedbox_itself_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(Client, "get", broken)
    result = deedbox("runs")
    assert result.exit_code == 1
    assert result.stderr.startswith("deedbox: RuntimeError: oh (set DEEDBOX_TRACEBACK=1")
