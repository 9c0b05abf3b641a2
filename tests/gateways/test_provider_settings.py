"""What an endpoint allows: URLs, addresses, headers, and how it keeps its secret."""

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ports import ModelCall
from gateways.clock import SystemClock
from gateways.provider.addresses import AddressRule, kind_of
from gateways.provider.errors import Broken, InvalidEndpoint
from gateways.provider.settings import Endpoint, Timeouts
from gateways.provider.transport import ProviderTransport
from tests.fakes.provider import Exactly, FakeProvider, says

VARIABLE = "MINE_API_KEY"
SECRET = "sk-very-secret-value"  # noqa: S105 - made up
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
CALL = ModelCall("fake", "/chat/completions", BODY, stream=False)


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


def opened(endpoint: Endpoint, call: ModelCall = CALL) -> dict[str, Any]:
    with closing(ProviderTransport(lambda _: endpoint, SystemClock())) as transport:
        return transport.exchange(call).open()


@pytest.mark.parametrize(
    "url",
    [
        "api.example.com/v1",
        "ftp://api.example.com",
        "https://",
        "http://api.example.com/v1",
        "http://10.0.0.5/v1",
        "https://user:pass@api.example.com",
        "https://api.example.com/v1?key=1",
        "https://api.example.com/v1#x",
        "https://api.example.com/../v1",
        "https://api.example.com/a b",
        "https://api.example.com:port/",
        "https://[::1/v1",
        "https://exämple.com",
    ],
)
def test_a_base_url_that_cannot_be_used_is_an_error_that_names_the_provider(url: str) -> None:
    with pytest.raises(InvalidEndpoint, match="provider mine: "):
        Endpoint("mine", url)


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://api.example.com/v1", False),
        ("https://api.example.com", False),
        ("http://localhost:8080/v1/", False),
        ("http://127.0.0.1:1234", False),
        ("http://[::1]:1234/v1", False),
        ("http://192.168.1.5:8080/v1", True),
        ("http://gpu.lan:8080/v1", True),
    ],
)
def test_good_base_urls_are_taken(url: str, private: bool) -> None:
    assert Endpoint("mine", url, allow_private=private).url_for("/chat/completions").endswith("/chat/completions")


def test_a_path_is_joined_below_the_base_url() -> None:
    endpoint = Endpoint("mine", "https://api.example.com/v1/")
    assert (
        endpoint.url_for("/models?limit=2")
        == endpoint.url_for("models?limit=2")
        == "https://api.example.com/v1/models?limit=2"
    )


@pytest.mark.parametrize(
    "path",
    ["//evil.com/x", "/../admin", "..", "/a/../../b", "/%2e%2e/x", "/%252e%252e/x", "/a%2f..%2fb", "/a\\b", "/a%5cb", "/a b",
     "/a\nb", "/a#b", "/ä", "/a//b", "/%2f%2fevil.com"],
)  # fmt: skip
def test_a_path_that_would_leave_the_base_url_is_refused(path: str) -> None:
    with pytest.raises(Broken) as refused:
        Endpoint("mine", "https://api.example.com/v1").url_for(path)
    assert refused.value.code == "refused_url"


@given(st.text(max_size=30))
def test_no_path_leaves_the_base_url(path: str) -> None:
    base = "https://api.example.com/v1"
    try:
        url = Endpoint("mine", base).url_for(path)
    except Broken:
        return
    assert url.startswith(f"{base}/")
    assert "/../" not in f"{url}/"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("2002:a00:1::1", "private"),
        ("169.254.169.254", "forbidden"),
        ("::ffff:169.254.169.254", "forbidden"),
        ("fe80::1%eth0", "forbidden"),
        ("0.0.0.0", "forbidden"),  # noqa: S104 - it must not be reached
        ("::", "forbidden"),
        ("224.0.0.1", "forbidden"),
        ("255.255.255.255", "forbidden"),
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
    ],
)
def test_addresses_are_sorted_by_what_they_lead_to(address: str, kind: str) -> None:
    assert kind_of(address) == kind


def test_nothing_allows_cloud_metadata() -> None:
    assert not AddressRule(loopback=True, private=True, public=True).allows("169.254.169.254")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::ffff:192.168.0.1"])
def test_a_public_name_that_leads_inside_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    def rebound(*_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    outcome = opened(Endpoint("mine", "https://rebound.example/v1", auth="none"))
    assert outcome["error"]["code"] == "refused_url"
    assert "rebound.example" in outcome["error"]["message"]


def test_a_private_literal_needs_the_setting() -> None:
    outcome = opened(Endpoint("mine", "https://10.255.255.1/v1", auth="none"))
    assert "allow_private" in outcome["error"]["message"]


def test_plain_http_never_goes_to_a_public_address() -> None:
    outcome = opened(Endpoint("mine", "http://8.8.8.8/v1", auth="none", allow_private=True))
    assert (outcome["error"]["code"], "https" in outcome["error"]["message"]) == ("refused_url", True)


def test_a_redirect_is_refused(fake: FakeProvider) -> None:
    fake.then(Exactly(b"", status=307, headers={"location": "https://evil.example/v1"}))
    outcome = opened(Endpoint("mine", fake.url, secret=SECRET))
    assert outcome["error"]["code"] == "refused_url"
    assert len(fake.requests) == 1


@pytest.mark.parametrize(("auth", "header"), [("bearer", "authorization"), ("x-api-key", "x-api-key")])
def test_the_secret_goes_where_the_scheme_says(fake: FakeProvider, auth: Any, header: str) -> None:
    opened(Endpoint("mine", fake.url, auth=auth, secret=SECRET, headers={"X-Fixed": "1"}))
    sent = fake.requests[0].headers
    assert sent[header].endswith(SECRET)
    assert (sent["x-fixed"], sent["accept-encoding"], sent["content-type"]) == ("1", "identity", "application/json")
    assert sent["user-agent"].startswith("deedbox/")


def test_a_missing_secret_names_its_variable_and_sends_nothing() -> None:
    outcome = opened(Endpoint("mine", "https://api.example.com/v1", secret_env=VARIABLE))
    assert outcome["error"]["code"] == "missing_secret"
    assert "MINE_API_KEY" in outcome["error"]["message"]


def test_on_loopback_the_secret_is_optional(fake: FakeProvider) -> None:
    assert opened(Endpoint("mine", fake.url, secret_env=VARIABLE))["status"] == 200
    assert "authorization" not in fake.requests[0].headers


@pytest.mark.parametrize("secret", ["", "sk-1\n", " sk-1", "sk-\u00e4", "sk-1\r\nx: y"])
def test_a_secret_that_no_header_can_carry_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(InvalidEndpoint) as invalid:
        Endpoint("mine", "https://api.example.com", secret=secret)
    assert not secret.strip() or secret not in str(invalid.value)


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Host", "Cookie", "Content-Length", "bad name", "x\r\ny"])
def test_a_policy_cannot_set_headers_of_authority(fake: FakeProvider, name: str) -> None:
    call = ModelCall("fake", "/chat/completions", BODY, stream=False, headers={name: "x"})
    assert opened(Endpoint("mine", fake.url, secret=SECRET), call)["error"]["code"] == "invalid_request"
    assert fake.requests == []


def test_a_policy_sets_what_the_profile_allows(fake: FakeProvider) -> None:
    call = ModelCall("fake", "/chat/completions", BODY, stream=False, headers={"X-Beta": "a"})
    allowing = Endpoint("mine", fake.url, allowed_headers=frozenset({"x-beta"}))
    assert opened(allowing, call)["status"] == 200
    assert fake.requests[0].headers["x-beta"] == "a"
    forbidding = Endpoint("mine", fake.url, allowed_headers=frozenset())
    assert opened(forbidding, call)["error"]["code"] == "invalid_request"


def test_the_secret_is_in_no_log_error_or_repr(fake: FakeProvider, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint = Endpoint("mine", fake.url, secret=SECRET, headers={"x-other": SECRET}, timeouts=Timeouts(first_byte=0.5))
    fake.then(says("Hi", head_after=3), says("Hi", cut_after=5))
    outcomes = [opened(endpoint), opened(endpoint), opened(endpoint, ModelCall("fake", "/..", BODY, stream=False))]
    assert [outcome["error"]["code"] for outcome in outcomes] == ["timeout_first_byte", "network_error", "refused_url"]
    assert SECRET not in f"{outcomes} {endpoint!r} {caplog.text}"


def test_proxies_and_passwords_of_the_environment_are_ignored(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert opened(Endpoint("mine", fake.url))["status"] == 200
    assert "authorization" not in fake.requests[0].headers


def test_a_configured_proxy_is_used(fake: FakeProvider) -> None:
    endpoint = Endpoint("mine", "http://gpu.lan:8080/v1", allow_private=True, auth="none", proxy=fake.root)
    assert opened(endpoint)["status"] == 200
    assert fake.requests[0].path == "http://gpu.lan:8080/v1/chat/completions"


def test_cookies_of_a_provider_are_not_kept(fake: FakeProvider) -> None:
    fake.always(Exactly(b"{}", content_type="application/json", headers={"set-cookie": "track=1; Path=/"}))
    with closing(ProviderTransport(lambda _: Endpoint("mine", fake.url), SystemClock())) as transport:
        transport.exchange(CALL).open()
        transport.exchange(CALL).open()
    assert "cookie" not in fake.requests[1].headers
