"""Which models an endpoint lists, why it does not in one sentence, and how a model server on this machine is found."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateways.embedded.local import find_local
from gateways.provider.probe import Listing, listing, models_of
from gateways.provider.settings import Endpoint, Timeouts
from tests.fakes.provider import FakeProvider, nobody_listens

VARIABLE = "MINE_API_KEY"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key="sk-good") as provider:
        yield provider


def problem(endpoint: Endpoint, path: str = "/models") -> str:
    found = listing(endpoint, path)
    assert (found.models, models_of(endpoint) if path == "/models" else ()) == ((), ())
    return found.problem or ""


def endpoint(url: str, seconds: float = 5, **settings: Any) -> Endpoint:
    return Endpoint("mine", url, secret_env=VARIABLE, timeouts=Timeouts(seconds, seconds, seconds, 10), **settings)


def port_of(fake: FakeProvider) -> int:
    return int(fake.root.rsplit(":", 1)[1])


def test_an_endpoint_that_works_is_told_with_its_models(fake: FakeProvider) -> None:
    good = endpoint(fake.url, secret="sk-good")  # noqa: S106 - made up
    assert listing(good) == Listing(("fake-model", "fake-model-2"))
    assert models_of(good) == ("fake-model", "fake-model-2")


def test_a_wrong_secret_is_told_with_its_variable(fake: FakeProvider) -> None:
    sentence = problem(endpoint(fake.url, secret="sk-bad"))  # noqa: S106 - made up
    assert sentence == "mine does not accept the secret (401; look at MINE_API_KEY)."


def test_a_wrong_path_is_told(fake: FakeProvider) -> None:
    assert "base_url" in problem(endpoint(fake.url, secret="sk-good"), "/nothing")  # noqa: S106 - made up


def test_nobody_there_and_a_missing_secret_are_told() -> None:
    assert "nothing listens there" in problem(endpoint(nobody_listens()))
    assert "MINE_API_KEY" in problem(endpoint("https://api.example.com/v1"))


def test_a_wrong_host_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "check the host name" in problem(endpoint("https://typo.example/v1", auth="none"))


def test_a_server_that_is_not_one_of_models_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        sentence = problem(endpoint(f"http://127.0.0.1:{mute.getsockname()[1]}/v1", seconds=0.3))
    assert "overloaded, or base_url leads to something else" in sentence


def test_the_first_local_server_with_models_is_found() -> None:
    with FakeProvider(models=()) as empty, FakeProvider() as full:
        found = find_local([("nobody", 9), ("empty", port_of(empty)), ("llama.cpp", port_of(full))], wait=5)
        assert found is not None
        assert (found.name, found.models, found.endpoint().base_url) == (
            "llama.cpp",
            ("fake-model", "fake-model-2"),
            full.url,
        )


def test_no_local_server_is_found_quickly_even_if_one_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        assert find_local([("mute", mute.getsockname()[1]), ("nobody", 9)]) is None
    assert time.monotonic() - began < 2
