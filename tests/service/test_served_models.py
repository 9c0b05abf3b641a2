"""Models in a served session: usage and cost on record, another model at each turn, and what is said of those that fail."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import openai
import pytest
import requests

from actors.replaying import replay_run
from gateways.compose import Parts, Server, serving
from gateways.config_load import load
from rss_policy.engine import MontyEngine
from tests.fakes.grammar import faults
from tests.fakes.provider import Answer, FakeProvider, Reasoning, Status, Text, Usage, says
from tests.service.served import PATIENCE, Stream, eventually, said, text_of

PROTOCOLS = {"chat": "openai_chat", "messages": "anthropic_messages", "responses": "openai_responses"}
PRICE = {"input": 1_000_000, "output": 2_000_000, "cached": 100_000}
PRICES = f"prices = {{fake-model = {{{', '.join(f'{name} = {micros}' for name, micros in PRICE.items())}}}}}"
SPENT = Usage(input=100, output=20, cached=40)
COST = 60 + 40 + 4
OWN_FIELDS = ("signature", "thinking", "encrypted_content", "reasoning_content", '"reasoning"')
"""What only reasoning blocks hold; of the three protocols."""


class Client:
    """What a program without any library would do."""

    def __init__(self, server: Server) -> None:
        self.server, self.url = server, server.url

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = requests.request(method, f"{self.url}{path}", json=body, timeout=PATIENCE)
        assert answer.status_code == status, answer.text
        return answer.json()

    def start(self, text: str = "hi", **fields: Any) -> Any:
        return self.ask("POST", "/v1/runs", {"input": text, **fields}, 202)

    def ended(self, run_id: str) -> Any:
        found: Any = None

        def over() -> bool:
            nonlocal found
            found = self.ask("GET", f"/v1/runs/{run_id}")
            return found["finished_at"] is not None

        eventually(over)
        return found

    def turn(self, text: str = "hi", **fields: Any) -> Any:
        return self.ended(self.start(text, **fields)["run_id"])

    def completed(self, run_id: str) -> Any:
        return self.ask("GET", f"/v1/runs/{run_id}/events?types=model.completed")["data"][-1]

    def session(self, session_id: str) -> Any:
        return self.ask("GET", f"/v1/sessions/{session_id}")


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture(scope="module")
def client(provider: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("models")
    text = f'[server]\ndata_dir = "{folder}/var"\n[model]\nprovider = "chat"\nmodel = "fake-model"\n'
    for name, adapter in PROTOCOLS.items():
        text += f'[providers.{name}]\nadapter = "{adapter}"\nbase_url = "{provider.url}"\n{PRICES}\n'
        text += 'models = ["fake-model", "fake-model-2"]\nreasoning_replay = "always"\n'
    text += '[providers.near]\nbase_url = "https://10.255.255.1/v1"\nauth = "none"\ndefault_model = "m"\n'
    (folder / "deedbox.toml").write_text(text + "[profiles.brief]\n", "utf-8")
    loaded = load(folder / "deedbox.toml", {}, {"server.address": ("--address", "127.0.0.1:0")})
    with serving(loaded, Parts(environ={}, look=lambda: None)) as server:
        yield Client(server)


@pytest.fixture(autouse=True)
def fresh(provider: FakeProvider) -> None:
    provider.clear()


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    with closing(MontyEngine(1)) as engine:
        yield engine


# --- usage and cost ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROTOCOLS)
def test_usage_and_cost_of_an_attempt_a_run_and_a_session_are_integers_and_the_price_is_on_record(
    client: Client, provider: FakeProvider, name: str
) -> None:
    provider.then(Answer((Text("one"),), usage=SPENT), Answer((Text("two"),), usage=SPENT))
    run = client.turn("one", provider=name, model="fake-model")
    attempt = client.completed(run["run_id"])["usage"]
    assert (attempt["cost_micros"], attempt["price"]) == (COST, PRICE)
    once = {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 40, "cost_micros": COST}
    assert {field: run["usage"][field] for field in once} == once
    client.turn("two", session_id=run["session_id"], provider=name, model="fake-model")
    total = client.session(run["session_id"])["usage"]
    assert {field: total[field] for field in once} == {field: 2 * count for field, count in once.items()}
    assert all(type(count) is int for count in [*run["usage"].values(), *total.values()])


def test_an_unknown_price_is_null_in_run_and_session_and_stays_so(client: Client, provider: FakeProvider) -> None:
    provider.then(says("one"), says("two"))
    run = client.turn("one", model="fake-model-2")
    assert (run["usage"]["cost_micros"], run["usage"]["output_tokens"]) == (None, 7)
    assert "cost_micros" not in client.completed(run["run_id"])["usage"]
    client.turn("two", session_id=run["session_id"], model="fake-model")
    assert client.session(run["session_id"])["usage"]["cost_micros"] is None, "a part of it is unknown, so the sum is"


def test_an_attempt_that_failed_does_not_hide_what_the_next_one_cost(client: Client, provider: FakeProvider) -> None:
    provider.then(Status(500), Answer((Text("one"),), usage=SPENT))
    run = client.turn(model="fake-model")
    assert (run["usage"]["input_tokens"], run["usage"]["cost_micros"]) == (100, COST)


def test_usage_is_there_although_the_client_has_left(client: Client, provider: FakeProvider) -> None:
    provider.then(Answer((Text("one two three four"),), usage=SPENT, faults=says("", pace=0.03).faults))
    run_id = client.start(on_disconnect="continue")["run_id"]
    Stream(f"{client.url}/v1/runs/{run_id}/events", {}).until(lambda events: "one" in said(events))
    run = client.ended(run_id)
    assert (run["status"], run["usage"]["output_tokens"], run["usage"]["cost_micros"]) == ("completed", 20, COST)
    assert client.session(run["session_id"])["usage"]["cost_micros"] == COST


# --- another model at each turn -----------------------------------------------------------------


def thinking(text: str) -> Answer:
    return Answer((Reasoning(f"Secret thoughts of {text}."), Text(text)))


def assert_accepted(provider: FakeProvider, since: int, *protocols: str) -> list[Any]:
    """Check that a request came by each protocol, in this order, as the vendors want it; return their bodies."""
    asked = provider.requests[since:]
    assert [each.protocol for each in asked] == list(protocols)
    assert [faults(each.protocol, each.body) for each in asked] == [[] for _ in asked]
    return [each.body for each in asked]


def assert_own_only(body: Any, foreign: str) -> None:
    """Check that what other models thought is gone, and what they said is there."""
    sent = json.dumps(body["messages"] if "messages" in body else body["input"])
    assert "Secret thoughts" not in sent
    assert [field for field in OWN_FIELDS if field in sent] == []
    assert foreign in sent


def test_a_session_goes_on_with_another_protocol_at_each_native_turn(
    client: Client, provider: FakeProvider, engine: MontyEngine
) -> None:
    since = len(provider.requests)
    turns = [(name, model) for name in PROTOCOLS for model in ("fake-model", "fake-model-2")]
    turns.append(turns[-1])
    provider.then(*(thinking(f"answer {number}") for number, _ in enumerate(turns)))
    session = client.ask("POST", "/v1/sessions", {}, 201)["session_id"]
    runs = []
    for name, model in turns:
        changed = client.ask("PATCH", f"/v1/sessions/{session}", {"provider": name, "model": model})
        assert (changed["provider"], changed["model"]) == (name, model)
        runs.append(client.turn(f"to {name}", session_id=session))
    assert [(run["status"], run["provider"], run["model"]) for run in runs] == [("completed", *turn) for turn in turns]
    *bodies, last = assert_accepted(provider, since, *(PROTOCOLS[name] for name, _ in turns))
    for number, body in enumerate(bodies[1:]):
        assert_own_only(body, f"answer {number}")
    own = json.dumps(last["input"])
    assert own.count('"encrypted_content"') == 1, "only what the same model thought goes back"
    assert_replayed(client, engine, [run["run_id"] for run in runs])


def test_a_session_goes_on_with_another_protocol_at_each_completion(
    client: Client, provider: FakeProvider, engine: MontyEngine
) -> None:
    since = len(provider.requests)
    provider.then(*(thinking(name) for name in PROTOCOLS))
    with openai.OpenAI(base_url=f"{client.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE) as sdk:
        answers = [
            sdk.chat.completions.create(
                model=f"{name}/fake-model",
                messages=[{"role": "user", "content": f"to {name}"}],
                extra_headers={"X-Session-Id": "switches"},
            )
            for name in PROTOCOLS
        ]
    assert [answer.choices[0].message.content for answer in answers] == list(PROTOCOLS)
    bodies = assert_accepted(provider, since, *PROTOCOLS.values())
    assert_own_only(bodies[1], "chat")
    assert_own_only(bodies[2], "messages")
    rows = client.ask("GET", "/v1/sessions/switches/messages")["data"]
    assert [text_of(row["message"]) for row in rows] == [text for name in PROTOCOLS for text in (f"to {name}", name)]
    assert_replayed(client, engine, list(dict.fromkeys(row["run_id"] for row in rows)))


def assert_replayed(client: Client, engine: MontyEngine, run_ids: list[str]) -> None:
    """Check that each run, done again from its recorded streams, does and says the same."""
    store, profiles = client.server.store, client.server.profiles
    reports = [replay_run(store.log, store.queries, engine, profiles, run_id) for run_id in run_ids]
    assert [(report.equal, report.message) for report in reports] == [(True, None)] * len(run_ids)
    assert len(reports) >= len(PROTOCOLS)
    assert all(report.steps > 2 for report in reports)


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "says_so"),
    [
        ({"profile": "breif"}, "unknown_profile", "there is no profile 'breif'; known are brief, default"),
        ({"provider": "chta"}, "unknown_provider", "there is no provider 'chta'; known are anthropic, chat, deepseek, "),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(client: Client, fields: Any, code: str, says_so: str) -> None:
    session = client.start()["session_id"]
    for method, path in (("POST", "/v1/runs"), ("POST", "/v1/sessions"), ("PATCH", f"/v1/sessions/{session}")):
        body = fields | ({"input": "hi"} if path == "/v1/runs" else {})
        problem = client.ask(method, path, body, 400)
        assert (problem["code"], says_so in problem["detail"]) == (code, True), problem


def test_a_key_that_is_not_there_fails_the_run_at_once_and_names_its_variable(client: Client) -> None:
    run = client.turn(provider="deepseek", model="deepseek-chat")
    assert (run["status"], run["error"]["code"], run["error"]["kind"]) == ("failed", "missing_secret", "auth")
    assert run["error"]["message"] == "provider deepseek needs a secret: set DEEPSEEK_API_KEY and start again"
    assert client.turn(session_id=run["session_id"], provider="chat", model="fake-model")["status"] == "completed"


def test_an_address_of_the_own_network_fails_the_run_unless_it_is_allowed(client: Client) -> None:
    run = client.turn(provider="near", model="m")
    assert (run["status"], run["error"]["code"]) == ("failed", "refused_url")
    assert run["error"]["message"].endswith("set allow_private = true for this provider if that is meant")


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/v1", "https://models.invalid/v1"])
def test_a_redirect_to_another_host_fails_the_run_and_is_not_followed(
    client: Client, provider: FakeProvider, target: str
) -> None:
    since = len(provider.requests)
    provider.then(Status(307, headers={"location": target}))
    run = client.turn()
    assert (run["status"], run["error"]["code"]) == ("failed", "refused_url")
    assert len(provider.requests) == since + 1
