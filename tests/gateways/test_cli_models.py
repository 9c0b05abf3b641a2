"""`deedbox models`: what the configured profiles and providers offer, and what is still missing for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateways import choice, known_models
from gateways.cli import main
from gateways.cli.models import price
from gateways.embedded.local import LocalServer
from tests.fakes.provider import FakeProvider, nobody_listens

KEYS = ("OPENAI", "ANTHROPIC", "OPENROUTER", "DEEPSEEK", "OPENCODE")


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in KEYS:
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setattr(choice.choose, "__defaults__", (lambda: None,))


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key="sk-good", models=("fake-model", "newer-model")) as provider:
        yield provider


def mine(url: str, more: str = "") -> None:
    text = (
        f'[providers.mine]\nbase_url = "{url}"\nadapter = "openai_responses"\nmodels = ["fake-model", "older-model"]\n'
        f'api_key_env = "MINE_API_KEY"\nprices = {{fake-model = {{input = 1500000, output = 2, currency = "EUR"}}}}\n{more}'
    )
    Path("deedbox.toml").write_text(text, "utf-8")


def models(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, ["models", *arguments], env=environ)


def rows(*arguments: str, **environ: str) -> dict[tuple[str, str | None], Any]:
    found = [json.loads(line) for line in models("--json", *arguments, **environ).stdout.splitlines()]
    return {(row["provider"], row["model"]): row for row in found}


def test_every_known_model_is_listed_with_what_it_can_and_what_is_missing() -> None:
    found = rows()
    assert {"openai", "openrouter", "deepseek", "opencode_zen", "opencode_go", "anthropic", "local", "embedded"} == {
        provider for provider, _ in found
    }
    deepseek = found["deepseek", "deepseek-chat"]
    assert (deepseek["adapter"], deepseek["context_tokens"], deepseek["key"]) == ("openai_chat", 128_000, "missing")
    assert (deepseek["key_env"], deepseek["price"]["output"]) == ("DEEPSEEK_API_KEY", 420_000)
    assert (deepseek["capabilities"]["tools"], deepseek["capabilities"]["images"]) == (True, False)
    assert found["openai", "o3"]["adapter"] == "openai_responses"
    assert found["opencode_zen", None]["price"] is None


def test_a_configured_provider_is_listed_with_its_settings_and_the_profiles_that_use_it() -> None:
    mine("https://mine.example/v1", '[profiles.old]\nmodel = "older-model"\n[profiles.far]\nprovider = "anthropic"\n')
    found = rows(MINE_API_KEY="sk-good")
    row = found["mine", "fake-model"]
    assert (row["adapter"], row["key"], row["profiles"]) == ("openai_responses", "present", ["default"])
    assert found["mine", "older-model"]["profiles"] == ["old"]
    assert found["anthropic", "claude-sonnet-4-5"]["profiles"] == ["far"]
    assert "sk-good" not in models("--json", MINE_API_KEY="sk-good").output


def test_people_read_prices_as_money_and_the_variable_that_is_missing() -> None:
    mine("https://mine.example/v1")
    lines = models("--provider", "mine").stdout.splitlines()
    assert lines[0].split() == ["PROVIDER", "MODEL", "ADAPTER", "CONTEXT", "CAN", "IN/OUT", "PER", "1M", "KEY", "PROFILES"]
    assert "1.50/0.000002 EUR  MINE_API_KEY is missing  default" in lines[1]
    assert "unknown" in lines[2]
    assert len(lines) == 3


def test_a_price_keeps_every_digit() -> None:
    told = [price({"input": 280_000, "output": 15_000_000}), price({"input": 0, "output": 1}), price(None)]
    assert told == ["0.28/15.00", "0.00/0.000001", "unknown"]


def test_a_live_list_is_laid_over_what_is_known(fake: FakeProvider) -> None:
    mine(fake.url)
    found = rows("--live", "--provider", "mine", MINE_API_KEY="sk-good")
    assert {model: row["listed"] for (_, model), row in found.items()} == {
        "fake-model": True, "newer-model": True, "older-model": False,
    }  # fmt: skip
    assert "older-model (not listed)" in models("--live", "--provider", "mine", MINE_API_KEY="sk-good").stdout
    assert {(each.method, each.path) for each in fake.requests} == {("GET", "/v1/models")}


def test_a_provider_that_does_not_tell_is_a_sentence_beside_what_is_known(fake: FakeProvider) -> None:
    mine(fake.url)
    result = models("--live", "--json", MINE_API_KEY="sk-bad")
    assert result.exit_code == 1
    assert result.stderr == "deedbox: mine does not accept the secret (401; look at MINE_API_KEY).\n"
    assert '"older-model"' in result.stdout
    mine(nobody_listens())
    assert "nothing listens there" in models("--live", MINE_API_KEY="sk-good").stderr


def test_without_a_key_nobody_is_asked() -> None:
    result = models("--live")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_model_server_on_this_machine_is_listed_with_its_models(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeProvider(models=("llama",)) as found:
        server = LocalServer("ollama", found.url, ("llama", "other"))
        monkeypatch.setattr(choice.choose, "__defaults__", (lambda: server,))
        listed = {model: (row["key"], row["listed"]) for (_, model), row in rows("--provider", "local", "--live").items()}
    assert listed == {"llama": ("not needed", True), "other": ("not needed", False)}


def test_an_embedded_model_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_models, "missing", lambda: "the weights are not installed")
    assert rows("--provider", "embedded")["embedded", "smollm2-135m-instruct"]["key"] == "not installed"


def test_an_unknown_provider_is_refused_with_the_list() -> None:
    result = models("--provider", "opneai")
    assert result.exit_code == 2
    assert "there is no provider 'opneai'; did you mean openai? known are anthropic, " in result.stderr
