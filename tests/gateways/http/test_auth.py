"""Who may come in: loopback without a token, tokens with scopes, owners apart, and no foreign web page."""

from collections.abc import Callable

import pytest

from gateways.http.ports import Scope
from tests.gateways.http.conftest import Site

REMOTE = {"address": ("0.0.0.0", 0)}  # noqa: S104 - only named, nothing is bound


def token(site: Site, *scopes: Scope, principal: str = "ann") -> dict[str, str]:
    secret, _ = site.world.tokens.create("test", scopes, 0, principal)
    return {"Authorization": f"Bearer {secret}"}


def code(answer: object) -> str:
    value: str = answer.json["code"]  # type: ignore[attr-defined]
    return value


def test_on_loopback_reading_and_running_need_no_token(site: Site) -> None:
    assert site.get("/v1/runs").status_code == 200
    assert site.post("/v1/runs", {"input": "hi"}).status_code == 202


def test_a_wrong_token_is_401_on_loopback_too(site: Site) -> None:
    for header in ("Bearer wrong", "Bearer dbx_wrong", "Basic eDp5", "Bearer one two"):
        answer = site.get("/v1/runs", headers={"Authorization": header})
        assert (answer.status_code, code(answer)) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_clients_placeholder_key_counts_as_no_token_on_loopback_only(make_site: Callable[..., Site]) -> None:
    headers = {"Authorization": "Bearer unused"}
    assert make_site().get("/v1/runs", headers=headers).status_code == 200
    assert make_site(**REMOTE).get("/v1/runs", headers=headers).status_code == 401


def test_the_key_that_a_client_makes_up_itself_is_a_placeholder(site: Site) -> None:
    assert site.get("/v1/runs", headers={"Authorization": "Bearer DUMMY_KEY"}).status_code == 200


def test_the_scheme_may_be_written_in_any_case(site: Site) -> None:
    secret = token(site, "read")["Authorization"].split()[1]
    assert site.get("/v1/runs", headers={"Authorization": f"bEARER  {secret} "}).status_code == 200


def test_off_loopback_everything_but_health_needs_a_token(make_site: Callable[..., Site]) -> None:
    site = make_site(**REMOTE)
    for path in ("/v1/runs", "/v1/sessions", "/v1/models", "/metrics", "/openapi.json"):
        assert site.get(path).status_code == 401, path
    assert site.get("/health").status_code == 200
    assert site.get("/ready").status_code == 200
    assert site.get("/v1/runs", headers=token(site, "read")).status_code == 200


def test_a_caller_behind_a_proxy_is_not_local(site: Site) -> None:
    for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert site.get("/v1/runs", headers={name: "203.0.113.9"}).status_code == 401


def test_a_missing_scope_is_403_and_names_the_scope(site: Site) -> None:
    answer = site.post("/v1/runs", {"input": "hi"}, headers=token(site, "read"))
    assert (answer.status_code, code(answer)) == (403, "missing_scope")
    assert "`run`" in answer.json["detail"]


def test_a_revoked_token_is_refused_at_the_next_request(site: Site) -> None:
    headers = token(site, "read")
    assert site.get("/v1/runs", headers=headers).status_code == 200
    assert site.world.tokens.revoke("test")
    assert site.get("/v1/runs", headers=headers).status_code == 401


def test_what_belongs_to_another_principal_is_not_found_anywhere(site: Site) -> None:
    run_id = site.run()
    session_id = site.get(f"/v1/runs/{run_id}").json["session_id"]
    site.service.answer(run_id, "secret")
    ann = token(site, "read", "run")
    calls = [
        site.get(f"/v1/runs/{run_id}", headers=ann),
        site.get(f"/v1/runs/{run_id}/events", headers=ann),
        site.get(f"/v1/runs/{run_id}/events", headers=ann | {"Accept": "text/event-stream"}),
        site.post(f"/v1/runs/{run_id}/cancel", {}, headers=ann),
        site.get(f"/v1/sessions/{session_id}", headers=ann),
        site.get(f"/v1/sessions/{session_id}/messages", headers=ann),
        site.call("PATCH", f"/v1/sessions/{session_id}", json={"title": "mine"}, headers=ann),
        site.post("/v1/runs", {"input": "hi", "session_id": session_id}, headers=ann),
    ]
    assert [call.status_code for call in calls] == [404] * len(calls)
    assert all("secret" not in call.text for call in calls)
    assert site.get("/v1/runs", headers=ann).json["data"] == []
    assert site.get("/v1/sessions", headers=ann).json["data"] == []


def test_a_chat_session_of_another_principal_is_not_found_and_not_continued(site: Site) -> None:
    assert site.post("/v1/sessions", {"session_id": "taken"}).status_code == 201
    body = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
    answer = site.post("/v1/chat/completions", body, headers=token(site, "run") | {"X-Session-Id": "taken"})
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "session_not_found")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "[::1", "0.0.0.0:80"])
def test_a_rebound_name_in_the_host_header_is_refused(site: Site, host: str) -> None:
    answer = site.get("/v1/runs", headers={"Host": host})
    assert (answer.status_code, code(answer)) == (403, "foreign_host")


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "http://[evil.example]", "", "http://]"])
def test_an_origin_that_is_no_url_is_refused_and_breaks_nothing(site: Site, origin: str) -> None:
    answer = site.post("/v1/runs", {"input": "hi"}, headers={"Origin": origin})
    assert (answer.status_code, code(answer)) == (403, "foreign_origin")


@pytest.mark.parametrize("host", ["localhost", "localhost:8787", "127.0.0.1:1", "127.9.9.9", "[::1]:8787", "LOCALHOST"])
def test_loopbacks_own_names_are_welcome(site: Site, host: str) -> None:
    assert site.get("/v1/runs", headers={"Host": host}).status_code == 200


def test_a_configured_name_is_welcome_but_needs_a_token(make_site: Callable[..., Site]) -> None:
    site = make_site(allowed_hosts=("agent.example",))
    assert site.get("/v1/runs", headers={"Host": "agent.example"}).status_code == 401
    assert site.get("/v1/runs", headers={"Host": "agent.example", **token(site, "read")}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "http://127.0.0.1:8788", "null"])
def test_a_foreign_web_page_may_not_drive_the_agent(site: Site, origin: str) -> None:
    for answer in (
        site.post("/v1/runs", {"input": "hi"}, headers={"Origin": origin}),
        site.call("OPTIONS", "/v1/runs", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}),
    ):
        assert (answer.status_code, code(answer)) == (403, "foreign_origin")
        assert "access-control-allow-origin" not in answer.headers
    assert site.service.inbounds == {}


def test_a_page_from_the_servers_own_address_may_call_it(site: Site) -> None:
    assert site.get("/v1/runs", headers={"Origin": "http://127.0.0.1:8787"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_that_a_page_can_send_without_asking_is_refused(site: Site, kind: str) -> None:
    answer = site.call("POST", "/v1/runs", body=b'{"input": "hi"}', headers={"Content-Type": kind})
    assert (answer.status_code, code(answer)) == (415, "unsupported_media_type")


def test_a_broken_token_file_lets_nobody_in(site: Site) -> None:
    headers = token(site, "read")
    site.world.tokens._path.write_text("{")
    answer = site.get("/v1/runs", headers=headers)
    assert (answer.status_code, code(answer)) == (500, "internal_error")
