"""Sessions over HTTP: create, list, read, change, and the transcript in pages."""

import pytest

from tests.gateways.http.conftest import Site


def test_a_session_is_made_with_its_settings_and_read_again(site: Site) -> None:
    body = {"session_id": "mine", "title": "A talk", "model": "m", "provider": "p", "busy": "steer", "metadata": {"k": 1}}
    made = site.post("/v1/sessions", body)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/sessions/mine")
    read = site.get("/v1/sessions/mine").json
    assert read == made.json
    assert {name: read[name] for name in body} == body
    assert read["usage"]["input_tokens"] == 0


def test_a_session_needs_no_body_at_all(site: Site) -> None:
    made = site.call("POST", "/v1/sessions")
    assert made.status_code == 201
    assert made.json["profile"] == "default"


def test_a_session_that_exists_is_a_conflict(site: Site) -> None:
    site.post("/v1/sessions", {"session_id": "mine"})
    again = site.post("/v1/sessions", {"session_id": "mine"})
    assert (again.status_code, again.json["code"]) == (409, "session_exists")


def test_a_change_shows_in_the_answer_and_leaves_the_rest(site: Site) -> None:
    site.post("/v1/sessions", {"session_id": "mine", "title": "old", "busy": "steer"})
    changed = site.call("PATCH", "/v1/sessions/mine", json={"title": "new", "model": "other"})
    assert changed.status_code == 200
    assert (changed.json["title"], changed.json["model"], changed.json["busy"]) == ("new", "other", "steer")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_field"),
        ({"titel": "x"}, "unknown_field"),
        ({"title": None}, "invalid_field"),
        ({"owner": "x"}, "unknown_field"),
    ],
)
def test_a_change_that_changes_nothing_or_the_wrong_thing_is_refused(site: Site, body: dict[str, object], code: str) -> None:
    site.post("/v1/sessions", {"session_id": "mine"})
    refused = site.call("PATCH", "/v1/sessions/mine", json=body)
    assert (refused.status_code, refused.json["code"]) == (400, code)


def test_erasing_is_not_advertised_before_it_is_there(site: Site) -> None:
    site.post("/v1/sessions", {"session_id": "mine"})
    refused = site.call("DELETE", "/v1/sessions/mine")
    assert (refused.status_code, refused.json["code"]) == (405, "method_not_allowed")
    assert "GET" in refused.headers["allow"]


def test_the_list_goes_page_by_page_from_the_newest(site: Site) -> None:
    for name in ("a", "b", "c"):
        site.post("/v1/sessions", {"session_id": name})
    first = site.get("/v1/sessions", params={"limit": 2}).json
    assert [each["session_id"] for each in first["data"]] == ["c", "b"]
    assert (first["has_more"], first["next"]) == (True, "b")
    second = site.get("/v1/sessions", params={"limit": 2, "after": first["next"]}).json
    assert [each["session_id"] for each in second["data"]] == ["a"]
    assert (second["has_more"], second["next"]) == (False, None)


def test_sessions_of_single_completions_are_listed_only_where_asked_for(site: Site) -> None:
    site.service.on_admit = lambda run_id, _: site.service.answer(run_id, "hi")
    body = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
    assert site.post("/v1/chat/completions", body).status_code == 200
    assert site.get("/v1/sessions").json["data"] == []
    (row,) = site.get("/v1/sessions", params={"include_ephemeral": "true"}).json["data"]
    assert row["ephemeral"] is True


def test_the_transcript_is_paged_by_ordinal(site: Site) -> None:
    run_id = site.run("question")
    session_id = site.get(f"/v1/runs/{run_id}").json["session_id"]
    site.service.answer(run_id, "answer")
    first = site.get(f"/v1/sessions/{session_id}/messages", params={"limit": 1}).json
    assert [each["role"] for each in first["data"]] == ["user"]
    rest = site.get(f"/v1/sessions/{session_id}/messages", params={"after": first["next"]}).json
    assert [each["message"]["content"][0]["text"] for each in rest["data"]] == ["answer"]
    assert rest["data"][0]["run_id"] == run_id


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"limit": "0"}, "invalid_parameter"),
        ({"limit": "201"}, "invalid_parameter"),
        ({"limit": "x"}, "invalid_parameter"),
        ({"limit": ["1", "2"]}, "invalid_parameter"),
        ({"lmit": "1"}, "unknown_parameter"),
        ({"include_ephemeral": "yes"}, "invalid_parameter"),
    ],
)
def test_a_wrong_query_parameter_is_named(site: Site, params: dict[str, object], code: str) -> None:
    refused = site.get("/v1/sessions", params=params, params_csv=False)
    assert (refused.status_code, refused.json["code"]) == (400, code)


@pytest.mark.parametrize("name", ["nothing", "%00", "%ff", "a%2Fb", "x" * 3000])
def test_an_unknown_session_is_404_whatever_its_name(site: Site, name: str) -> None:
    assert site.get(f"/v1/sessions/{name}").status_code == 404
