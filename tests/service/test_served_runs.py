"""The server process as plain HTTP sees it: sessions, runs, streams that are cut and resumed, steering, cancelling, keys."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fakes.provider import FakeProvider, Silence, Status, calls, says
from tests.fakes.server_process import ROOT
from tests.service.served import HELLO, Served, eventually, said, serving, whole

WORDS = " ".join(f"word{number}" for number in range(30))
CANCELLED_WITHIN = 0.5
"""Seconds; the goal is 0.1, the rest is for a busy machine."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as it:
        yield it


@pytest.fixture(autouse=True)
def provider(served: Served) -> FakeProvider:
    return served.provider.clear()


def token(served: Served, principal: str) -> dict[str, str]:
    command = [sys.executable, "-m", "gateways", "token", "create", principal, "--principal", principal]
    made = subprocess.run(command, cwd=served.server.folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    return {"Authorization": f"Bearer {made.stdout.decode().strip()}"}


def test_a_session_and_its_runs_can_be_made_and_read(served: Served) -> None:
    session = served.post("/v1/sessions", {"title": "Weather", "metadata": {"k": "v"}}, 201)
    first = served.start("one", session_id=session["session_id"])
    run = served.ended(first["run_id"])
    assert (run["status"], run["output"]["content"], run["error"]) == ("completed", [{"type": "text", "text": HELLO}], None)
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (12, 7)
    served.turn("two", session_id=session["session_id"])
    assert served.transcript(session["session_id"]) == [
        ("user", "one"), ("assistant", HELLO), ("user", "two"), ("assistant", HELLO)
    ]  # fmt: skip
    found = served.get(f"/v1/sessions/{session['session_id']}")
    assert (found["title"], found["metadata"], found["run_count"], found["active_run_id"]) == (
        "Weather",
        {"k": "v"},
        2,
        None,
    )
    runs = served.get(f"/v1/runs?session_id={session['session_id']}")["data"]
    assert [row["run_id"] for row in runs][1] == first["run_id"]


def test_a_run_can_be_read_as_soon_as_its_202_is_out(served: Served) -> None:
    with requests.Session() as http:
        for _ in range(10):
            run_id = http.post(f"{served.url}/v1/runs", json={"input": "hi"}, timeout=5).json()["run_id"]
            assert http.get(f"{served.url}/v1/runs/{run_id}", timeout=5).status_code == 200
            served.ended(run_id)


def test_a_stream_shows_what_the_pages_show_from_any_cursor(served: Served, provider: FakeProvider) -> None:
    provider.then(Status(503, retry_after="0"), says("one two three", pace=0.05))
    run_id = served.start()["run_id"]
    with served.follow(run_id) as stream:
        events = list(stream)
    assert whole(events)
    assert [event["type"] for event in events[:4]] == ["run.started", "model.started", "model.discarded", "model.started"]
    assert (said(events), events[-1]["type"]) == ("one two three", "run.completed")
    assert served.events(run_id, limit=2) == events
    for after in (1, len(events) - 1, len(events)):
        with served.follow(run_id, f"?after={after}") as stream:
            assert list(stream) == events[after:]
    with served.follow(run_id, "?types=model.completed") as stream:
        assert [event["type"] for event in stream] == ["model.completed", "run.completed"]


@pytest.mark.parametrize(
    ("stop", "cursor"),
    [("cut", "after"), ("cut", "Last-Event-ID"), ("sigterm", "Last-Event-ID"), ("sigkill", "after")],
)
def test_a_stream_that_was_cut_is_resumed_without_gap_or_repeat(
    served: Served, provider: FakeProvider, stop: str, cursor: str
) -> None:
    provider.then(says(WORDS, pace=0.03), says(WORDS, pace=0.01))
    run_id = served.start()["run_id"]
    before = served.follow(run_id).until(lambda events: "word3" in said(events))
    match stop:
        case "sigterm":
            served.server.stop()
            served.server.start()
        case "sigkill":
            served.server.kill()
            served.server.start()
    last = before[-1]["seq"]
    stream = served.follow(run_id, f"?after={last}") if cursor == "after" else served.follow(run_id, **{cursor: str(last)})
    with stream:
        events = [*before, *stream]
    assert whole(events)
    assert (said(events), events[-1]["type"]) == (WORDS, "run.completed")
    assert served.events(run_id) == events
    assert sum(event["type"] == "model.discarded" for event in events) == (stop != "cut")
    assert served.ended(run_id)["output"]["content"] == [{"type": "text", "text": WORDS}]


def test_many_readers_of_one_run_see_the_same(served: Served, provider: FakeProvider) -> None:
    provider.then(says(WORDS, pace=0.01))
    run_id = served.start()["run_id"]

    def read(_: int) -> list[Any]:
        with served.follow(run_id) as stream:
            return list(stream)

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(read, range(8)))
    assert whole(seen[0])
    assert all(events == seen[0] for events in seen)


def test_a_cursor_beyond_the_end_of_an_ended_run_ends_at_once(served: Served) -> None:
    run = served.turn()
    beyond = run["last_seq"] + 1000
    page = served.get(f"/v1/runs/{run['run_id']}/events?after={beyond}")
    assert (page["data"], page["has_more"], page["status"]) == ([], False, "completed")
    with served.follow(run["run_id"], f"?after={beyond}") as stream:
        assert list(stream) == []


def test_a_message_during_a_run_waits_for_the_next_turn(served: Served, provider: FakeProvider) -> None:
    provider.then(says("First.", head_after=0.3), says("Second."))
    first = served.start("one")
    second = served.start("two", session_id=first["session_id"])
    assert (second["run_id"] != first["run_id"], second["status"]) == (True, "queued")
    served.ended(second["run_id"])
    assert served.transcript(first["session_id"]) == [
        ("user", "one"), ("assistant", "First."), ("user", "two"), ("assistant", "Second.")
    ]  # fmt: skip


def test_a_steering_message_reaches_the_run_at_its_next_question_to_the_model(
    served: Served, provider: FakeProvider
) -> None:
    session = served.post("/v1/sessions", {"busy": "steer"}, 201)["session_id"]
    provider.then(calls("missing", {}, "call_1", head_after=0.4), says("In short: yes."))
    asked = len(provider.requests)
    first = served.start("one", session_id=session)
    assert provider.wait_requests(asked + 1)
    steering = served.start("be brief", session_id=session)
    assert steering["run_id"] == first["run_id"]
    assert served.ended(first["run_id"])["status"] == "completed"
    assert [text for role, text in served.asked_of_the_model() if role == "user"] == ["one", "be brief"]
    assert [text for role, text in served.transcript(session) if role == "user"] == ["one", "be brief"]


def test_a_steering_message_that_comes_too_late_is_not_lost(served: Served, provider: FakeProvider) -> None:
    session = served.post("/v1/sessions", {"busy": "steer"}, 201)["session_id"]
    provider.then(says("First.", head_after=0.4), says("Second."))
    asked = len(provider.requests)
    first = served.start("one", session_id=session)
    assert provider.wait_requests(asked + 1)
    served.start("and two", session_id=session)
    served.ended(first["run_id"])
    eventually(lambda: served.transcript(session)[-1] == ("assistant", "Second."), lambda: str(served.transcript(session)))
    assert [text for role, text in served.asked_of_the_model() if role == "user"] == ["one", "and two"]


@pytest.mark.parametrize("step", [Silence(), says("one two", stall_after=2), Status(429, retry_after="30")])
def test_a_run_is_cancelled_at_once_whatever_it_waits_for(served: Served, provider: FakeProvider, step: Any) -> None:
    asked = len(provider.requests)
    provider.then(step)
    run_id = served.start()["run_id"]
    assert provider.wait_requests(asked + 1)
    time.sleep(0.1)
    began = time.monotonic()
    status = served.post(f"/v1/runs/{run_id}/cancel", {"reason": "enough"}, 202)["status"]
    run = served.ended(run_id)
    assert time.monotonic() - began < CANCELLED_WITHIN
    assert (status in ("running", "cancelled"), run["status"], run["cancel_reason"]) == (True, "cancelled", "enough")
    assert whole(served.events(run_id))
    assert served.ask("POST", f"/v1/runs/{run_id}/cancel").status_code in (202, 409)
    assert served.turn("again", session_id=run["session_id"])["status"] == "completed"


def test_a_cancelled_run_keeps_what_was_said_and_marks_it(served: Served, provider: FakeProvider) -> None:
    provider.then(says("one two three", stall_after=3))
    run_id = served.start()["run_id"]
    served.follow(run_id).until(lambda events: "two" in said(events))
    served.post(f"/v1/runs/{run_id}/cancel", {}, 202)
    run = served.ended(run_id)
    rows = served.get(f"/v1/sessions/{run['session_id']}/messages")["data"]
    assert (rows[-1]["role"], rows[-1]["message"]["aborted"]) == ("assistant", True)
    served.turn("go on", session_id=run["session_id"])
    assert served.asked_of_the_model()[0] == ("user", "hi")
    assert served.asked_of_the_model()[-1] == ("user", "go on")


def test_a_queued_run_can_be_cancelled_before_it_begins(served: Served, provider: FakeProvider) -> None:
    asked = len(provider.requests)
    provider.then(Silence())
    first = served.start("one")
    second = served.start("two", session_id=first["session_id"])
    assert provider.wait_requests(asked + 1)
    served.post(f"/v1/runs/{second['run_id']}/cancel", {}, 202)
    assert served.ended(second["run_id"])["status"] == "cancelled"
    served.post(f"/v1/runs/{first['run_id']}/cancel", {}, 202)
    assert served.ended(first["run_id"])["status"] == "cancelled"
    assert len(provider.requests) == asked + 1


@pytest.mark.parametrize(("rule", "status"), [("continue", "completed"), ("cancel", "cancelled")])
def test_what_a_lost_stream_does_to_its_run_is_the_callers_choice(
    served: Served, provider: FakeProvider, rule: str, status: str
) -> None:
    provider.then(says(WORDS, pace=0.03))
    run_id = served.start(on_disconnect=rule)["run_id"]
    served.follow(run_id).until(lambda events: "word1" in said(events))
    assert served.ended(run_id)["status"] == status


def test_what_belongs_to_somebody_else_is_not_there(served: Served) -> None:
    ann, bob, key = token(served, "ann"), token(served, "bob"), {"Idempotency-Key": "ann-1"}
    mine = served.start("my secret", headers=ann | key)
    run, session = mine["run_id"], mine["session_id"]
    hidden: list[tuple[str, str, Any]] = [
        ("GET", f"/v1/runs/{run}", None),
        ("GET", f"/v1/runs/{run}/events", None),
        ("POST", f"/v1/runs/{run}/cancel", {}),
        ("GET", f"/v1/sessions/{session}", None),
        ("PATCH", f"/v1/sessions/{session}", {"title": "t"}),
        ("DELETE", f"/v1/sessions/{session}", None),
        ("GET", f"/v1/sessions/{session}/messages", None),
        ("POST", "/v1/runs", {"input": "hi", "session_id": session}),
        ("POST", "/v1/chat/completions", _chat(session)),
    ]
    for method, path, body in hidden:
        for headers in (bob, {}):
            answer = served.ask(method, path, body, headers=headers)
            assert (path, answer.status_code, "secret" in answer.text) == (path, 404, False)
        missing = path.replace(run, "run_missing").replace(session, "ses_missing")
        if missing != path:
            assert served.ask(method, missing, body, headers=ann).json()["code"] in ("run_not_found", "session_not_found")
    for path in ("/v1/runs", "/v1/sessions"):
        assert served.get(path, headers=bob)["data"] == []
        assert len(served.get(path, headers=ann)["data"]) == 1
    with served.follow(run, **bob) as stream:
        assert stream.answer.status_code == 404
    bobs = served.ended(served.start("my secret", headers=bob | key)["run_id"], bob)
    assert (bobs["run_id"] != run, bobs["session_id"] != session) == (True, True)


def _chat(session: str) -> Any:
    return {"model": "default", "messages": [{"role": "user", "content": "hi"}], "metadata": {"session_id": session}}


def test_the_same_key_gives_the_same_run_also_after_a_restart(served: Served, provider: FakeProvider) -> None:
    asked = len(provider.requests)
    key = {"Idempotency-Key": "once-1"}
    first = served.start("hi", headers=key)
    repeat = served.ask("POST", "/v1/runs", {"input": "hi"}, headers=key)
    assert (repeat.status_code, repeat.headers["Idempotent-Replayed"]) == (202, "true")
    assert {name: repeat.json()[name] for name in ("run_id", "session_id", "message_id")} == {
        name: first[name] for name in ("run_id", "session_id", "message_id")
    }
    served.ended(first["run_id"])
    served.server.kill()
    served.server.start()
    again = served.start("hi", headers=key)
    assert (again["run_id"], again["status"]) == (first["run_id"], "completed")
    assert len(provider.requests) == asked + 1
    other = served.ask("POST", "/v1/runs", {"input": "something else"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert served.turn("hi")["run_id"] != first["run_id"]


def test_ten_requests_at_once_with_one_key_are_one_run(served: Served, provider: FakeProvider) -> None:
    asked = len(provider.requests)
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: served.start("hi", headers={"Idempotency-Key": "at-once"}), range(10)))
    assert len({each["run_id"] for each in found}) == 1
    served.ended(found[0]["run_id"])
    assert len(provider.requests) == asked + 1


def test_ten_bodies_at_once_with_one_key_are_one_run_and_nine_conflicts(served: Served) -> None:
    def send(number: int) -> requests.Response:
        return served.ask("POST", "/v1/runs", {"input": f"body {number}"}, headers={"Idempotency-Key": "fought-over"})

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(send, range(10)))
    assert sorted(answer.status_code for answer in found) == [202] + [409] * 9
    assert served.ended(next(answer.json()["run_id"] for answer in found if answer.ok))["status"] == "completed"


def test_a_completion_with_a_key_is_answered_again_without_asking_the_model(served: Served, provider: FakeProvider) -> None:
    asked = len(provider.requests)
    body = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
    answers = [served.post("/v1/chat/completions", body, 200, headers={"Idempotency-Key": "completion"}) for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(provider.requests) == asked + 1


def test_runs_of_many_sessions_go_side_by_side(served: Served, provider: FakeProvider) -> None:
    provider.then(*[says("Hello.", head_after=0.3) for _ in range(8)])
    began = time.monotonic()
    runs = [served.start(f"hi {number}") for number in range(8)]
    assert all(served.ended(run["run_id"])["status"] == "completed" for run in runs)
    assert time.monotonic() - began < 8 * 0.3


def test_a_run_that_goes_down_with_the_server_each_time_is_given_up_after_three_tries(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.provider.always(Silence())
        run_id = served.start()["run_id"]
        for life in range(1, 5):
            assert served.provider.wait_requests(life)
            served.server.kill()
            served.server.start()
        run = served.ended(run_id)
        assert (run["status"], run["error"]["code"]) == ("failed", "recovery_exhausted")
        assert whole(served.events(run_id))
        served.provider.always(says(HELLO))
        assert served.turn("again", session_id=run["session_id"])["status"] == "completed"
        served.server.kill()
        served.server.start()
        assert served.get(f"/v1/runs/{run_id}")["last_seq"] == run["last_seq"]
