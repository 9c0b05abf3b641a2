"""The composition root: what may be replaced, what is told of the embedded model, and that a failed start leaves nothing."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from actors.ports import Clock
from actors.service import Inbound
from eventstore.errors import AlreadyServed
from eventstore.sqlite import open_store
from gateways.compose import Parts, serving
from gateways.config_load import Loaded, load
from gateways.embedded.model import EmbeddedModel, ModelState, Supervision
from gateways.errors import AddressInUse, ConfigInvalid
from tests.fakes.provider import FakeProvider

TEXT = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
PATIENCE = 20


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(text: str = "", address: str = "127.0.0.1:0") -> Loaded:
    Path("deedbox.toml").write_text(text, "utf-8")
    return load(None, {}, {"server.address": ("--address", address)})


def custom(provider: FakeProvider) -> str:
    return f'[providers.custom]\nbase_url = "{provider.url}"\nmodels = ["fake-model"]\n'


def bare(**parts: Any) -> Parts:
    return Parts(environ={}, look=lambda: None, **parts)


class StillModel(EmbeddedModel):
    """An embedded model whose state the test decides; no child is started."""

    told = ModelState("loading")

    def start(self) -> None:
        """Start nothing."""

    @property
    def state(self) -> ModelState:
        return self.told


def model_that_is(state: ModelState) -> Any:
    def make(data_dir: Path, clock: Clock, supervision: Supervision) -> StillModel:
        model = StillModel(data_dir, clock, supervision=supervision)
        model.told = state
        return model

    return make


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


def outcome(url: str, run_id: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE
    while (found := requests.get(f"{url}/v1/runs/{run_id}", timeout=PATIENCE).json())["finished_at"] is None:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return dict(found)


def test_a_test_may_bring_its_own_commit(provider: FakeProvider) -> None:
    commits = []

    def counting(db: Any) -> None:
        commits.append(threading.current_thread().name)
        db.execute("commit")

    with serving(loaded(custom(provider)), bare(store=partial(open_store, commit=counting))) as server:
        admitted = server.front.admit(Inbound("local", (TEXT,)))
        assert outcome(server.url, admitted.run_id)["status"] == "completed"
    assert len(commits) > 3
    assert len(set(commits)) == 1


def test_while_the_embedded_model_loads_the_server_is_not_ready_and_says_so() -> None:
    with serving(loaded(), bare(embedded=model_that_is(ModelState("loading")))) as server:
        answer = requests.get(f"{server.url}/ready", timeout=PATIENCE)
    assert (answer.status_code, answer.json()["parts"]["embedded"]) == (503, "loading")


def test_a_model_that_is_not_installed_is_told_by_ready_and_by_the_run() -> None:
    absent = ModelState("absent", "the weights are not installed")
    with serving(loaded(), bare(embedded=model_that_is(absent))) as server:
        answer = requests.get(f"{server.url}/ready", timeout=PATIENCE)
        run = requests.post(f"{server.url}/v1/runs", json={"input": "hi"}, timeout=PATIENCE).json()
        found = outcome(server.url, run["run_id"])
    assert (answer.status_code, answer.json()["parts"]["embedded"]) == (200, "absent: the weights are not installed")
    assert (found["status"], "the weights are not installed" in found["error"]["message"]) == ("failed", True)


def test_the_embedded_model_is_asked_by_its_own_name_alone() -> None:
    with serving(loaded(), bare(embedded=model_that_is(ModelState("ready")))) as server:
        session = requests.post(f"{server.url}/v1/sessions", timeout=PATIENCE).json()["session_id"]
        asked = {"model": "nope", "messages": [{"role": "user", "content": "hi"}]}
        completion = requests.post(f"{server.url}/v1/chat/completions", json=asked, timeout=PATIENCE)
        others = [
            requests.request(method, f"{server.url}{path}", json=body, timeout=PATIENCE)
            for method, path, body in (
                ("POST", "/v1/runs", {"input": "hi", "model": "nope"}),
                ("POST", "/v1/sessions", {"model": "nope"}),
                ("PATCH", f"/v1/sessions/{session}", {"model": "nope"}),
            )
        ]
        renamed = requests.patch(f"{server.url}/v1/sessions/{session}", json={"title": "t"}, timeout=PATIENCE)
        open_ = requests.post(f"{server.url}/v1/sessions", json={"model": "nope", "provider": "openai"}, timeout=PATIENCE)
    known = "embedded has no model 'nope'; known are smollm2-135m-instruct"
    error = {"message": known, "type": "not_found_error", "param": "model", "code": "model_not_found"}
    assert (completion.status_code, completion.json()) == (404, {"error": error})
    assert [(each.status_code, each.json()["code"], each.json()["detail"]) for each in others] == [
        (404, "model_not_found", known)
    ] * 3
    assert (renamed.status_code, open_.status_code) == (200, 201)


def test_the_embedded_model_has_as_long_to_load_as_the_configuration_says() -> None:
    given = []

    def make(data_dir: Path, clock: Clock, supervision: Supervision) -> StillModel:
        given.append(supervision.load)
        return StillModel(data_dir, clock, supervision=supervision)

    with serving(loaded("[server]\nready_timeout_s = 7\n"), bare(embedded=make)):
        assert given == [7.0]


def test_a_failed_start_lets_everything_go(provider: FakeProvider) -> None:
    with serving(loaded(custom(provider)), bare()) as first:
        taken = first.url.removeprefix("http://")
        other = load(None, {}, {"server.address": ("", taken), "server.data_dir": ("", "other")})
        with pytest.raises(AddressInUse), serving(other, bare()):
            pass
        with pytest.raises(AlreadyServed, match=first.url), serving(loaded(custom(provider)), bare()):
            pass
        again = load(None, {}, {"server.address": ("", "127.0.0.1:0"), "server.data_dir": ("", "other")})
        with serving(again, bare()) as second:
            assert requests.get(f"{second.url}/health", timeout=PATIENCE).ok


def test_what_cannot_work_is_refused_before_the_data_directory_is_made() -> None:
    with (
        pytest.raises(ConfigInvalid, match="did you mean openai"),
        serving(loaded('[model]\nprovider = "opneai"\n'), bare()),
    ):
        pass
    assert not Path("var").exists()


def test_no_thread_outlives_the_server(provider: FakeProvider) -> None:
    before = set(threading.enumerate())
    with serving(loaded(custom(provider)), bare()) as server:
        admitted = server.front.admit(Inbound("local", (TEXT,)))
        outcome(server.url, admitted.run_id)
    until = time.monotonic() + PATIENCE
    while left := {thread for thread in threading.enumerate() if thread.is_alive()} - before - provider_threads():
        assert time.monotonic() < until, left
        time.sleep(0.02)


def provider_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "fake" in thread.name or "provider" in thread.name}


def test_the_profiles_of_the_configuration_can_be_asked_for(provider: FakeProvider) -> None:
    text = custom(provider) + '[profiles.brief]\nsystem_prompt = "Be brief."\n'
    with serving(loaded(text), bare()) as server:
        listed = requests.get(f"{server.url}/v1/models", timeout=PATIENCE).json()
        run = requests.post(f"{server.url}/v1/runs", json={"input": "hi", "profile": "brief"}, timeout=PATIENCE).json()
        assert outcome(server.url, run["run_id"])["status"] == "completed"
    assert [each["id"] for each in listed["data"]][:3] == ["fake-model", "default", "brief"]
    asked = provider.requests[-1].body
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}


def test_the_numbers_of_the_actors_are_metrics(provider: FakeProvider) -> None:
    with serving(loaded(custom(provider)), bare()) as server:
        shown = requests.get(f"{server.url}/metrics", timeout=PATIENCE).text
    assert "deedbox_active_runs 0.0" in shown
    assert "deedbox_live_actors " in shown
