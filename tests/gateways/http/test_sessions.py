"""Sessions over HTTP: create, list, read, change, and the transcript in pages."""

import pytest

from gateways.http.paging import next_page
from gateways.http.streams import EventStream, RunRenderer
from gateways.http.views import preview
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


def test_a_session_without_a_title_is_told_by_the_first_words_of_its_user(site: Site) -> None:
    run = site.run("  What\nis \x1b[31mred and " + "very " * 40)
    site.post("/v1/sessions", {"session_id": "silent"})
    before = {row["session_id"]: row["preview"] for row in site.get("/v1/sessions").json["data"]}
    site.service.answer(run, "Blood.")
    (told,) = [row for row in site.get("/v1/sessions").json["data"] if row["session_id"] != "silent"]
    assert before == {told["session_id"]: None, "silent": None}
    assert told["title"] is None
    assert told["preview"] == "What is [31mred and very very very very very very very very…"
    assert site.get(f"/v1/sessions/{told['session_id']}").json == told


def test_a_preview_is_of_text_alone_and_never_longer_than_a_line() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "x"}
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    user = {"role": "user", "content": [image, {"type": "text", "text": "a" * 100_000}]}
    assert preview([system, user]) == "a" * 59 + "…"
    assert preview([{"role": "user", "content": [image]}]) is None
    assert preview([]) is None


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


def test_an_erased_session_is_gone_with_its_runs_and_their_events(site: Site) -> None:
    run = site.run("something private")
    session = site.get(f"/v1/runs/{run}").json["session_id"]
    site.service.answer(run, "an", "swer")
    erased = site.call("DELETE", f"/v1/sessions/{session}")
    assert (erased.status_code, erased.content) == (204, b"")
    paths = (f"/v1/sessions/{session}", f"/v1/sessions/{session}/messages", f"/v1/runs/{run}", f"/v1/runs/{run}/events")
    found = [site.get(path) for path in paths]
    assert [(each.status_code, each.json["code"]) for each in found] == [
        *[(404, "session_not_found")] * 2,
        *[(404, "run_not_found")] * 2,
    ]
    stream = site.get(f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream"})
    assert (stream.status_code, stream.json["code"]) == (404, "run_not_found")
    assert [site.get(path).json["data"] for path in ("/v1/sessions", "/v1/runs")] == [[], []]


def test_erasing_once_more_finds_no_session(site: Site) -> None:
    site.post("/v1/sessions", {"session_id": "mine"})
    answers = [site.call("DELETE", "/v1/sessions/mine") for _ in range(2)]
    assert [each.status_code for each in answers] == [204, 404]
    assert answers[1].json["code"] == "session_not_found"


def test_a_session_with_a_run_that_has_not_ended_is_not_erased(site: Site) -> None:
    run = site.run()
    session = site.get(f"/v1/runs/{run}").json["session_id"]
    refused = site.call("DELETE", f"/v1/sessions/{session}")
    assert (refused.status_code, refused.json["code"]) == (409, "session_busy")
    site.post(f"/v1/runs/{run}/cancel", {})
    assert site.call("DELETE", f"/v1/sessions/{session}").status_code == 204


def test_only_its_owner_erases_a_session_and_only_with_the_scope_run(site: Site) -> None:
    site.post("/v1/sessions", {"session_id": "mine"})
    ann = {"Authorization": f"Bearer {site.world.tokens.create('ann', ('read', 'run', 'admin'), 0, 'ann')[0]}"}
    reader = {"Authorization": f"Bearer {site.world.tokens.create('reader', ('read',), 0)[0]}"}
    answers = [site.call("DELETE", "/v1/sessions/mine", headers=headers) for headers in (ann, reader)]
    assert [each.json["code"] for each in answers] == ["session_not_found", "missing_scope"]
    assert site.get("/v1/sessions/mine").status_code == 200


def test_a_stream_that_is_open_ends_when_its_run_is_erased(site: Site) -> None:
    run = site.run()
    site.service.answer(run, "an", "swer")
    stream = EventStream(run, 0, RunRenderer())
    stream.feed_page(site.world.ports.queries.events(run, limit=2), 10_000)
    site.call("DELETE", f"/v1/sessions/{site.get(f'/v1/runs/{run}').json['session_id']}")
    assert (next_page(site.world.ports.queries, stream), stream.over, stream.cursor) == ((b"", 0), True, 2)


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
