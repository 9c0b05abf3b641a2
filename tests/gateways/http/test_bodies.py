"""Bad bodies: each gets a clear error with a stable code, and nothing is lost or half done."""

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.gateways.http.conftest import Reader, Served, Site

TYPE = {"Content-Type": "application/json"}


def send(site: Site, raw: bytes, path: str = "/v1/runs") -> tuple[int, str, str]:
    answer = site.call("POST", path, body=raw, headers=TYPE)
    return answer.status_code, answer.json["code"], answer.json["detail"]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"{", "line 1"),
        (b"[]", "an array"),
        (b'"x"', "text"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"input": NaN}', "NaN"),
        (b'{"input": "x", "limits": {"a": 1e999}}', "too large"),
        (b'{"input": "x", "limits": {"a": 99999999999999999999}}', "64 bits"),
        (b'{"input": "x", "limits": {"a": ' + b"9" * 5000 + b"}}", "too long"),
        (b"[" * 100_000, "nests"),
        (b'{"input": ' + b"[" * 100 + b"]" * 100 + b"}", "64 levels"),
    ],
)
def test_what_is_not_a_json_object_is_refused_with_its_reason(site: Site, raw: bytes, says: str) -> None:
    status, code, detail = send(site, raw)
    assert (status, code) == (400, "invalid_json")
    assert says in detail
    assert site.service.inbounds == {}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_field", "input"),
        ({"input": "hi", "sesion_id": "x"}, "unknown_field", "sesion_id"),
        ({"input": 5}, "invalid_field", "input"),
        ({"input": []}, "invalid_field", "input"),
        ({"input": "  "}, "invalid_field", "input"),
        ({"input": "hi", "model": 5}, "invalid_field", "model"),
        ({"input": "hi", "model": None}, "invalid_field", "model"),
        ({"input": "hi", "metadata": []}, "invalid_field", "metadata"),
        ({"input": "hi", "on_disconnect": "explode"}, "invalid_field", "on_disconnect"),
        ({"input": "hi", "tools": [{"name": "a b"}]}, "invalid_field", "tools.0.name"),
        ({"input": "hi", "tools": [{"name": "a", "exec": "rm"}]}, "unknown_field", "tools.0.exec"),
        ({"input": [{"type": "text", "text": "x", "y": 1}]}, "unknown_field", "input.0.y"),
        ({"input": [{"type": "video"}]}, "invalid_field", "input.0.type"),
        ({"input": [{"type": "image"}]}, "invalid_field", "input.0"),
        ({"input": [{"type": "image", "url": "file:///etc/passwd"}]}, "invalid_field", "input.0"),
        ({"input": [{"type": "image", "media_type": "image/png", "data": "%%"}]}, "invalid_field", "input.0"),
        ({"input": [{"type": "image", "media_type": "text/html", "data": "aGk="}]}, "invalid_field", "input.0"),
        ({"input": [{"role": "system", "content": "x"}]}, "invalid_field", "input.0.role"),
        ({"input": [{"role": "user", "content": []}]}, "invalid_field", "input.0.content"),
        ({"input": [{"role": "tool", "content": "x"}]}, "missing_field", "input.0.call_id"),
        ({"input": [{"role": "tool", "call_id": "c", "content": "x", "ok": "yes"}]}, "invalid_field", "input.0.ok"),
        ({"input": ["x"]}, "invalid_field", "input.0"),
    ],
)
def test_a_wrong_field_is_named(site: Site, body: Any, code: str, param: str) -> None:
    answer = site.post("/v1/runs", body)
    assert (answer.status_code, answer.json["code"], answer.json["param"]) == (400, code, param)
    assert site.service.inbounds == {}


def test_an_unknown_field_comes_with_the_name_that_was_meant(site: Site) -> None:
    assert "did you mean `session_id`?" in site.post("/v1/runs", {"input": "hi", "sesion_id": "x"}).json["detail"]


def test_an_error_never_repeats_a_long_or_secret_value(site: Site) -> None:
    secret = "sk-very-secret" * 100
    assert secret[:20] not in site.post("/v1/runs", {"input": "hi", "model": [secret]}).text
    assert len(site.post("/v1/runs", {"input": "hi", "x" * 5000: 1}).text) < 2000


@pytest.mark.parametrize("text", ["\ud835", "a\x00b", "\udfff\ud800"])
def test_lone_surrogates_and_nul_are_replaced_before_anything_keeps_them(site: Site, text: str) -> None:
    raw = json.dumps({"input": text, "metadata": {text: text}}).encode()
    assert site.call("POST", "/v1/runs", body=raw, headers=TYPE).status_code == 202
    (inbound,) = site.service.inbounds.values()
    assert "\ufffd" in inbound.input[0]["content"][0]["text"]
    assert "\x00" not in repr(inbound)


def test_a_whole_surrogate_pair_and_four_byte_text_stay_as_they_are(site: Site) -> None:
    raw = b'{"input": "\\ud83d\\ude00 ' + "😀é".encode() + b'"}'
    site.call("POST", "/v1/runs", body=raw, headers=TYPE)
    (inbound,) = site.service.inbounds.values()
    assert inbound.input[0]["content"][0]["text"] == "😀 😀é"


def test_input_may_be_text_parts_or_messages_with_tool_results(site: Site) -> None:
    image = {"type": "image", "media_type": "image/png", "data": "aGk="}
    tool = {"role": "tool", "call_id": "c1", "name": "weather", "content": "sunny"}
    for given in ("hi", [{"type": "text", "text": "hi"}, image], [tool, {"role": "user", "content": "go on"}]):
        assert site.post("/v1/runs", {"input": given}).status_code == 202
    text, parts, messages = (inbound.input for inbound in site.service.inbounds.values())
    assert text == ({"role": "user", "content": [{"type": "text", "text": "hi"}]},)
    assert parts[0]["content"][1] == image
    assert messages == (tool | {"ok": True}, {"role": "user", "content": [{"type": "text", "text": "go on"}]})


def test_the_body_limit_counts_without_a_length_too(make_site: Callable[..., Site]) -> None:
    site = make_site(max_body_bytes=1000)
    assert send(site, b'{"input": "' + b"x" * 2000 + b'"}')[:2] == (413, "body_too_large")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/chat/completions"])
def test_fifty_megabytes_are_refused_by_their_length_alone(served: Served, path: str) -> None:
    with requests.post(f"{served.url}{path}", data=b"x" * 50_000_000, headers=TYPE, timeout=20) as answer:
        assert answer.status_code == 413
        body = answer.json()
    assert (body["error"] if "chat" in path else body)["code"] == "body_too_large"


def test_fifty_megabytes_in_chunks_are_refused_where_the_limit_is(served: Served) -> None:
    sock = served.connect()
    sock.sendall(
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for _ in range(20):
        sock.sendall(b"%x\r\n%s\r\n" % (1_000_000, b"x" * 1_000_000))
    answer = Reader(sock)
    assert answer.head().startswith("HTTP/1.1 413")
    assert b'"code":"body_too_large"' in answer.rest()


def test_what_is_no_http_at_all_is_a_problem_and_not_a_crash(served: Served) -> None:
    for raw in (
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(served.server.address, timeout=10) as sock:
            sock.sendall(raw)
            answer = b""
            while got := sock.recv(65536):
                answer += got
        assert b"application/problem+json" in answer
        assert b'"code":"' in answer
    assert requests.get(f"{served.url}/health", timeout=5).status_code == 200
