"""The doctor's one tiny run over a provider: by each protocol, and one sentence for each way to fail."""

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateways import doctor, trial
from gateways.cli import main
from gateways.config_load import load
from gateways.doctor import Finding
from gateways.errors import ConfigInvalid
from tests.fakes.certificate import Certificate
from tests.fakes.deedbox_api import fake_api
from tests.fakes.provider import Exactly, FakeProvider, HangUp, Silence, Status, Step, nobody_listens, says

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
HTML = b"<html><body>It works!</body></html>"
FAULTS: list[tuple[Step, str]] = [
    (Status(401, "no"), "mine does not accept the secret (401; look at MINE_API_KEY)."),
    (Status(403, "no"), "mine accepts the secret but forbids this; the account or region may lack access (403; look at"),
    (Status(402, "no"), "mine says that credit or quota is used up (402): check the account's plan and billing (no)."),
    (Status(429, "slow down", retry_after="7"), "mine limits the rate (429): wait 7 s, then try again (slow down)."),
    (Status(503, "busy"), "mine has trouble of its own; try again later (503)."),
    (Status(404, "no such thing"), "does not speak"),
    (Status(404, "the model fake-model does not exist"), "does not know the model fake-model (404): 'deedbox models"),
    (Status(400, "temperature is wrong"), "mine refuses the request (400): temperature is wrong."),
    (HangUp(), "mine cannot be used: the provider closed the connection without an answer."),
    (Exactly(HTML, content_type="text/html"), "mine answers with a web page: base_url leads to something else"),
    (Exactly(b"data: {no json}\n\n"), "mine answers, but not as "),
    (Exactly(b'{"hello": 1}', content_type="application/json"), "check providers.mine.adapter and base_url."),
    (says("one two three", error_after=2), "mine failed in the middle of its answer (server): the fake provider"),
    (Exactly(b"", status=302, headers={"Location": "http://127.0.0.1:1/v1"}), "(go elsewhere), which is refused"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MINE_API_KEY", "sk-good-and-secret")


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


def reach(url: str, more: str = "", name: str = "mine") -> Finding:
    text = f'[providers.mine]\nbase_url = "{url}"\ndefault_model = "fake-model"\napi_key_env = "MINE_API_KEY"\n{more}'
    Path("deedbox.toml").write_text(text, "utf-8")
    return doctor.reach(load(None, {}, None), name)


def failed(url: str, more: str = "") -> str:
    found = reach(url, more)
    assert found.state == "bad", found
    assert "\n" not in found.sentence
    assert "sk-good-and-secret" not in found.sentence
    return found.sentence


@pytest.mark.parametrize("adapter", PATHS)
def test_a_provider_that_works_answers_one_small_request(fake: FakeProvider, adapter: str) -> None:
    found = reach(fake.url, f'adapter = "{adapter}"\n')
    assert found.state == "good"
    assert found.sentence.startswith("mine answers with fake-model (12 tokens in, 7 out, ")
    (asked,) = fake.requests
    assert (asked.path, asked.body["model"]) == (PATHS[adapter], "fake-model")
    assert 16 in asked.body.values()
    assert "Reply with ok." in json.dumps(asked.body)
    assert list(Path().iterdir()) == [Path("deedbox.toml")]


@pytest.mark.parametrize(
    ("adapter", "step", "says_so"), [(each, *case) for each, case in zip(cycle(PATHS), FAULTS, strict=False)]
)
def test_an_answer_that_is_none_is_explained(fake: FakeProvider, adapter: str, step: Step, says_so: str) -> None:
    fake.then(step)
    assert says_so in failed(fake.url, f'adapter = "{adapter}"\n')
    assert len([each for each in fake.requests if each.method == "POST"]) == 1, "there is no second try"


def test_a_quota_that_is_used_up_is_told_apart_from_a_rate_limit(fake: FakeProvider) -> None:
    fake.then(Status(429, "You exceeded your current quota.", kind="insufficient_quota"))
    assert "credit or quota is used up (429): check the account's plan and billing" in failed(fake.url)


def test_a_model_that_the_provider_does_not_list_is_named_with_how_to_list(fake: FakeProvider) -> None:
    fake.then(Status(404, "not found"))
    sentence = failed(fake.url, '[model]\nprovider = "mine"\nmodel = "no-such-model"\n')
    assert sentence == (
        "mine does not know the model no-such-model (404): 'deedbox models --provider mine --live' lists what it has; "
        "set model.model or providers.mine.default_model."
    )


def test_a_wrong_base_url_is_told() -> None:
    told = "mine has nothing at this path (404): check base_url (it usually ends with /v1) and adapter (openai_chat)."
    with fake_api(lambda *_: (404, "text/html", HTML)) as site:
        assert failed(site.url) == told
    with fake_api(lambda *_: (200, "text/html", HTML)) as site:
        assert "a web page" in failed(site.url)


def test_a_provider_that_cannot_be_reached_is_told() -> None:
    assert failed(nobody_listens()).endswith("nothing listens there (connection refused).")
    sentence = failed("https://models.invalid/v1")
    assert sentence.startswith("mine cannot be used: cannot look up models.invalid: ")
    assert sentence.endswith("(check the host name in base_url, and the network).")


def test_a_certificate_that_nobody_vouches_for_is_told_and_can_be_trusted(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path)
    with FakeProvider(tls=certificate.server()) as fake:
        sentence = failed(fake.url)
        assert sentence.startswith("mine cannot be used: no secure connection to localhost: ")
        assert "(ca_file)" in sentence
        assert reach(fake.url, f'ca_file = "{certificate.file}"\n').state == "good"


@pytest.mark.parametrize("step", [Silence(), says("one two three", stall_after=2), says("x", comments_only=True)])
def test_a_provider_that_hangs_is_told_soon(fake: FakeProvider, step: Step) -> None:
    fake.then(step)
    sentence = failed(fake.url, "first_byte_timeout_s = 0.2\nidle_timeout_s = 0.2\ntotal_timeout_s = 0.4\n")
    assert "it is overloaded, or base_url leads to something else" in sentence


def test_the_whole_trial_has_a_deadline(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_LIMITS", {**trial._LIMITS, "deadline_ms": 200})
    fake.then(Silence())
    assert failed(fake.url).startswith("mine did not answer within 20 s: ")


def test_a_missing_key_names_its_variable_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINE_API_KEY")
    assert failed("https://models.invalid/v1") == "mine has no key: set MINE_API_KEY"
    assert reach("https://models.invalid/v1", name="openai").sentence == "openai has no key: set OPENAI_API_KEY"


def test_on_loopback_a_missing_key_is_told_by_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINE_API_KEY")
    with FakeProvider(key="sk-other") as fake:
        assert failed(fake.url) == "mine wants a secret and got none (401): set MINE_API_KEY."


def test_without_a_model_of_the_configuration_the_first_that_is_listed_is_asked(fake: FakeProvider) -> None:
    Path("deedbox.toml").write_text(f'[providers.mine]\nbase_url = "{fake.url}"\n', "utf-8")
    assert doctor.reach(load(None, {}, None), "mine").sentence.startswith("mine answers with fake-model (")
    with FakeProvider(models=()) as empty:
        Path("deedbox.toml").write_text(f'[providers.mine]\nbase_url = "{empty.url}"\n', "utf-8")
        sentence = doctor.reach(load(None, {}, None), "mine").sentence
    assert sentence == "no model is chosen for mine: set providers.mine.default_model"


def test_what_a_provider_says_is_shown_on_one_line_and_without_control_characters(fake: FakeProvider) -> None:
    fake.then(Status(400, "bad\n\x1b[31mred " + "x" * 500))
    assert "(400): bad [31mred xxx" in failed(fake.url)


def test_an_unknown_provider_is_refused_with_the_list() -> None:
    with pytest.raises(ConfigInvalid, match=r"^--provider: there is no provider 'opneai'; did you mean openai\? known are"):
        doctor.reach(load(None, {}, None), "opneai")


def test_the_embedded_model_needs_no_call() -> None:
    assert doctor.reach(load(None, {}, None), "embedded").check == "embedded model"


def test_the_command_prints_the_sentence_and_its_exit_code_tells(fake: FakeProvider) -> None:
    reach(fake.url)
    good = CliRunner().invoke(main, ["doctor", "--provider", "mine"])
    assert (good.exit_code, good.stdout.startswith("ok    provider: mine answers with fake-model (")) == (0, True)
    fake.then(Status(401))
    bad = CliRunner().invoke(main, ["doctor", "--provider", "mine", "--json"])
    assert (bad.exit_code, json.loads(bad.stdout)["state"]) == (1, "bad")
