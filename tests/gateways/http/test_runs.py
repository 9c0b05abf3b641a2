"""Runs over HTTP: start, repeat, list, read, cancel, and pages of events."""

import pytest

from actors.errors import Refused
from eventstore.catalogue import ModelDelta, Problem, RunFailed
from eventstore.errors import StoreError, StoreFull
from tests.gateways.http.conftest import Site

KEY = {"Idempotency-Key": "key-1"}


def test_a_run_is_readable_as_soon_as_its_202_is_out(site: Site) -> None:
    made = site.post("/v1/runs", {"input": "hello"})
    assert made.status_code == 202
    assert made.json["status"] == "queued"
    assert made.headers["location"] == f"/v1/runs/{made.json['run_id']}"
    read = site.get(f"/v1/runs/{made.json['run_id']}")
    assert (read.status_code, read.json["session_id"]) == (200, made.json["session_id"])


def test_everything_that_a_client_may_choose_reaches_the_actors(site: Site) -> None:
    site.post("/v1/sessions", {"session_id": "s"})
    chosen = {
        "session_id": "s",
        "profile": "default",
        "model": "m",
        "provider": "p",
        "provider_options": {"temperature": 0},
        "system_prompt": "be kind",
        "limits": {"max_turns": 3},
        "metadata": {"k": "v"},
        "title": "t",
        "on_disconnect": "cancel",
    }
    tools = [{"name": "b", "parameters": {}}, {"name": "a"}]
    made = site.post("/v1/runs", {"input": "hi", "tools": tools, **chosen}, headers=KEY)
    inbound = site.service.inbounds[made.json["run_id"]]
    assert {name: getattr(inbound, name) for name in chosen} == chosen
    assert [tool["name"] for tool in inbound.client_tools] == ["a", "b"]
    assert (inbound.owner, inbound.key, inbound.ephemeral) == ("local", "key-1", False)


def test_a_repeat_with_the_same_key_gives_the_same_run_and_says_so(site: Site) -> None:
    first = site.post("/v1/runs", {"input": "hi", "metadata": {"a": 1, "b": 2}}, headers=KEY)
    again = site.call(
        "POST",
        "/v1/runs",
        body=b'{ "metadata": {"b": 2, "a": 1}, "input": "hi" }',
        headers=KEY | {"Content-Type": "application/json"},
    )
    assert (again.status_code, again.json["run_id"]) == (202, first.json["run_id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert len(site.service.inbounds) == 1


def test_the_same_key_with_another_body_is_a_conflict(site: Site) -> None:
    site.post("/v1/runs", {"input": "hi"}, headers=KEY)
    refused = site.post("/v1/runs", {"input": "ho"}, headers=KEY)
    assert (refused.status_code, refused.json["code"]) == (409, "idempotency_conflict")


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "ü"])
def test_a_key_that_cannot_be_one_is_refused(site: Site, key: str) -> None:
    refused = site.post("/v1/runs", {"input": "hi"}, headers={"Idempotency-Key": key})
    assert (refused.status_code, refused.json["code"]) == (400, "invalid_idempotency_key")
    assert site.service.inbounds == {}


def test_a_run_of_an_unknown_session_is_404(site: Site) -> None:
    refused = site.post("/v1/runs", {"input": "hi", "session_id": "nothing"})
    assert (refused.status_code, refused.json["code"]) == (404, "session_not_found")


@pytest.mark.parametrize(
    ("error", "status", "code", "pause"),
    [
        (Refused("overloaded", "busy", retry_after=7), 503, "overloaded", "7"),
        (Refused("storage_failed", "broken", retry_after=9), 503, "storage_failed", "9"),
        (Refused("session_queue_full", "busy"), 429, "session_queue_full", None),
        (Refused("shutting_down", "bye"), 503, "shutting_down", "5"),
        (Refused("unknown_profile", "no such profile"), 400, "unknown_profile", None),
        (StoreFull("disk full: /some/secret/path"), 507, "storage_full", None),
        (StoreError("x"), 500, "store_error", None),
    ],
)
def test_each_refusal_from_inside_has_its_status_code_and_pause(
    site: Site, error: Exception, status: int, code: str, pause: str | None
) -> None:
    site.service.refuse = error
    refused = site.post("/v1/runs", {"input": "hi"})
    assert (refused.status_code, refused.json["code"], refused.headers.get("retry-after")) == (status, code, pause)
    assert "/some/secret/path" not in refused.text


def test_an_unforeseen_fault_is_500_with_an_id_that_the_log_has_and_no_contents(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.service.refuse = RuntimeError("the person said: hello")
    refused = site.post("/v1/runs", {"input": "hi"})
    assert (refused.status_code, refused.json["code"]) == (500, "internal_error")
    number = refused.json["detail"].rstrip(".").split()[-1]
    assert number in caplog.text
    assert "the person said" not in caplog.text + refused.text


def test_runs_are_listed_by_session_and_status(site: Site) -> None:
    one, two = site.run(), site.run()
    site.service.answer(one, "hi")
    assert [each["run_id"] for each in site.get("/v1/runs").json["data"]] == [two, one]
    assert [each["run_id"] for each in site.get("/v1/runs", params={"status": "completed"}).json["data"]] == [one]
    session_id = site.get(f"/v1/runs/{two}").json["session_id"]
    assert [each["run_id"] for each in site.get("/v1/runs", params={"session_id": session_id}).json["data"]] == [two]
    assert site.get("/v1/runs", params={"status": "odd"}).json["code"] == "invalid_parameter"


def test_a_run_that_ended_shows_output_usage_and_times(site: Site) -> None:
    run_id = site.run()
    site.service.answer(run_id, "hi")
    read = site.get(f"/v1/runs/{run_id}").json
    assert (read["status"], read["finish_reason"], read["last_seq"]) == ("completed", "stop", 5)
    assert read["output"]["content"][0]["text"] == "hi"
    assert read["usage"]["output_tokens"] == 3
    assert read["finished_at"].endswith("Z")


def test_a_run_that_failed_shows_its_error(site: Site) -> None:
    run_id = site.run()
    site.service.start(run_id)
    site.service.emit(run_id, RunFailed, error=Problem(code="x", message="broken"))
    read = site.get(f"/v1/runs/{run_id}").json
    assert (read["status"], read["error"]) == ("failed", {"code": "x", "message": "broken", "kind": "other"})


def test_a_cancel_is_202_and_a_repeat_changes_nothing(site: Site) -> None:
    run_id = site.run()
    site.service.start(run_id)
    first = site.call("POST", f"/v1/runs/{run_id}/cancel")
    assert (first.status_code, first.json) == (202, {"run_id": run_id, "status": "cancelled"})
    again = site.post(f"/v1/runs/{run_id}/cancel", {"reason": "really"})
    assert (again.status_code, again.json["status"]) == (202, "cancelled")
    assert site.service.cancelled == [(run_id, "requested")]


def test_an_unknown_run_is_404_everywhere(site: Site) -> None:
    for answer in (site.get("/v1/runs/no"), site.get("/v1/runs/no/events"), site.post("/v1/runs/no/cancel", {})):
        assert (answer.status_code, answer.json["code"]) == (404, "run_not_found")


def test_events_come_in_pages_with_a_cursor(site: Site) -> None:
    run_id = site.run()
    site.service.answer(run_id, "a", "b")
    first = site.get(f"/v1/runs/{run_id}/events", params={"limit": 4}).json
    assert [each["seq"] for each in first["data"]] == [1, 2, 3, 4]
    assert (first["has_more"], first["next"], first["status"], first["last_seq"]) == (True, 4, "completed", 6)
    second = site.get(f"/v1/runs/{run_id}/events", params={"after": 4}).json
    assert [each["type"] for each in second["data"]] == ["model.completed", "run.completed"]
    assert not second["has_more"]


def test_a_cursor_beyond_the_end_gives_an_empty_page_and_keeps_the_cursor(site: Site) -> None:
    run_id = site.run()
    page = site.get(f"/v1/runs/{run_id}/events", params={"after": 999}).json
    assert (page["data"], page["has_more"], page["next"]) == ([], False, 999)


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "1" * 19])
def test_a_cursor_that_is_no_number_is_refused(site: Site, after: str) -> None:
    refused = site.get(f"/v1/runs/{site.run()}/events", params={"after": after})
    assert (refused.status_code, refused.json["code"]) == (400, "invalid_cursor")


def test_an_event_page_can_be_filtered_by_type_and_a_wrong_type_is_named(site: Site) -> None:
    run_id = site.run()
    site.service.start(run_id)
    site.service.emit(run_id, ModelDelta, attempt=1, text="a")
    page = site.get(f"/v1/runs/{run_id}/events?types=model.delta,run.started").json
    assert [each["type"] for each in page["data"]] == ["run.started", "model.delta"]
    refused = site.get(f"/v1/runs/{run_id}/events?types=model.dleta")
    assert (refused.status_code, refused.json["code"]) == (400, "invalid_parameter")
    assert "model.delta" in refused.json["detail"]


def test_a_last_event_id_goes_before_the_parameter(site: Site) -> None:
    run_id = site.run()
    site.service.answer(run_id, "a")
    page = site.get(f"/v1/runs/{run_id}/events?after=0", headers={"Last-Event-ID": "4"}).json
    assert [each["seq"] for each in page["data"]] == [5]


def test_journal_events_are_not_shown(site: Site) -> None:
    run_id = site.run()
    site.service.answer(run_id, "a")
    assert all("admitted" not in each["type"] for each in site.get(f"/v1/runs/{run_id}/events").json["data"])
