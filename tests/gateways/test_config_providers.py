"""Which provider answers, where it is, and what is said about one that cannot work."""

from pathlib import Path

import pytest

from gateways.choice import choose
from gateways.config_load import load
from gateways.embedded.local import LocalServer
from gateways.errors import ConfigInvalid
from gateways.profiles import ConfiguredProfiles
from gateways.providers import Providers
from rss_policy.bundle import Bundle
from rss_policy.shelf import Shelf

CUSTOM = """
[providers.custom]
base_url = "http://127.0.0.1:9000/v1"
api_key_env = "CUSTOM_API_KEY"
models = ["some-model", "other-model"]
"""


FOUND = LocalServer("ollama", "http://127.0.0.1:11434/v1", ("llama", "other"))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def providers(text: str = "", **environ: str) -> Providers:
    Path("deedbox.toml").write_text(text, "utf-8")
    return Providers(load(None, {}, None), environ)


def nobody() -> None:
    return None


def refused(text: str, **environ: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        providers(text, **environ).check()
    return str(caught.value)


def test_the_configuration_chooses_before_the_machine() -> None:
    found = choose(providers('[model]\nprovider = "deepseek"\n', OPENAI_API_KEY="sk-1"), nobody)
    assert (found.provider, found.model) == ("deepseek", "deepseek-chat")
    assert "deedbox.toml" in found.why


def test_a_configured_provider_is_the_default_without_being_named() -> None:
    found = choose(providers(CUSTOM), nobody)
    assert (found.provider, found.model) == ("custom", "some-model")


def test_a_key_in_the_environment_chooses_its_provider() -> None:
    found = choose(providers(OPENROUTER_API_KEY="sk-1", OPENAI_API_KEY=""), nobody)
    assert (found.provider, found.why) == ("openrouter", "OPENROUTER_API_KEY is in the environment")


def test_a_model_server_on_this_machine_is_taken_where_there_is_no_key() -> None:
    found = choose(providers(), lambda: FOUND)
    assert (found.provider, found.model, found.found) == ("local", "llama", FOUND)


def test_the_embedded_model_is_the_last_resort() -> None:
    found = choose(providers(), nobody)
    assert (found.provider, found.model) == ("embedded", "smollm2-135m-instruct")
    assert providers().endpoint("embedded") is None


def test_the_embedded_model_answers_under_its_own_name_alone() -> None:
    own = providers('[model]\nmodel = "smollm2-135m-instruct"\n')
    assert choose(own, nobody).model == "smollm2-135m-instruct"
    with pytest.raises(
        ConfigInvalid, match=r"deedbox.toml: model.model, since there is neither .* 'gpt'; known are smollm2"
    ):
        choose(providers('[model]\nmodel = "gpt"\n'), nobody)
    assert choose(providers('[model]\nmodel = "gpt"\n', OPENAI_API_KEY="sk-1"), nobody).model == "gpt"


def test_the_machine_is_not_looked_at_where_the_configuration_is_enough() -> None:
    def looked() -> None:
        raise AssertionError("looked for a model server without need")

    assert choose(providers(OPENAI_API_KEY="sk-1"), looked).provider == "openai"


def test_an_endpoint_has_address_secret_and_times_of_the_configuration() -> None:
    found = providers(CUSTOM + "first_byte_timeout_s = 3\n", CUSTOM_API_KEY="hidden-value").endpoint("custom")
    assert found is not None
    assert (found.base_url, found.secret, found.timeouts.first_byte) == ("http://127.0.0.1:9000/v1", "hidden-value", 3.0)
    assert "hidden-value" not in repr(found)


def test_a_bundled_provider_needs_only_its_key() -> None:
    found = providers(ANTHROPIC_API_KEY="sk-ant").endpoint("anthropic")
    assert found is not None
    assert (found.auth, found.secret) == ("x-api-key", "sk-ant")


def test_a_key_for_the_local_server_is_sent() -> None:
    found = providers('[providers.local]\napi_key_env = "MY_KEY"\n', MY_KEY="abc").endpoint("local")
    assert found is not None
    assert (found.auth, found.secret) == ("bearer", "abc")


def test_an_endpoint_is_made_once_and_again_when_its_secret_changes() -> None:
    environ = {"ANTHROPIC_API_KEY": "sk-old"}
    known = Providers(load(None, {}, None), environ)
    found = known.endpoint("anthropic")
    assert known.endpoint("anthropic") is found
    environ["ANTHROPIC_API_KEY"] = "sk-new"
    changed = known.endpoint("anthropic")
    assert changed is not None
    assert (changed.auth, changed.secret) == ("x-api-key", "sk-new")


def test_a_provider_whose_address_moves_is_asked_each_time() -> None:
    endpoints = [None, FOUND.endpoint()]
    moving = Providers(load(None, {}, None), {}, {"embedded": lambda: endpoints.pop(0)})
    assert moving.endpoint("embedded") is None
    found = moving.endpoint("embedded")
    assert found is not None
    assert (found.name, found.base_url) == ("embedded", FOUND.base_url)


def test_every_secret_is_known_to_the_redactor() -> None:
    environ = {"CUSTOM_API_KEY": "one", "OPENAI_API_KEY": "two", "TELEGRAM_BOT_TOKEN": "three", "HOME": "four"}
    found = providers(CUSTOM, **environ).secrets()
    assert sorted(found) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[model]\nprovider = "opneai"\n', "did you mean openai?"),
        ('[model]\nprovider = "nobody"\n', "known are anthropic, custom, deepseek"),
        ('[model]\nprovider = "custom"\n', "providers.custom needs base_url"),
        ('[profiles.p]\nprovider = "nobody"\n', "profiles.p.provider"),
        ('[providers.mine]\nadapter = "openai_chat"\n', "providers.mine needs base_url"),
        (
            '[profiles.p]\nprovider = "embedded"\nmodel = "nope"\n',
            "no model of the provider embedded 'nope'; known are smollm2",
        ),
        ("[providers.custom.capabilities]\nsinging = true\n", "singing"),
        (CUSTOM + 'allow_private = true\n[providers.other]\nbase_url = "https://x.example/../v1"\n', "base_url"),
    ],
)
def test_a_provider_that_cannot_work_is_named(text: str, says: str) -> None:
    assert says in refused(text)


def test_a_secret_that_no_header_may_carry_is_refused_without_being_shown() -> None:
    message = refused(CUSTOM, CUSTOM_API_KEY="abc\ndef")
    assert "the secret" in message
    assert "abc" not in message


class Lenient:
    def check_types(self, bundle: Bundle) -> None:
        assert bundle.modules


def profiles(text: str = CUSTOM) -> ConfiguredProfiles:
    found = providers(text)
    Path("small").mkdir(exist_ok=True)
    Path("small/policy.toml").write_text('name = "x"\nversion = "1"\nentry = "main"\n', "utf-8")
    Path("small/main.rss.py").write_text("async def run(context):\n    return {}\n", "utf-8")
    return ConfiguredProfiles(found, Shelf(Lenient()), choose(found, nobody), policy=Path("small"))


def test_the_default_profile_always_exists() -> None:
    found = profiles().find("default")
    assert found is not None
    assert (found.provider, found.model, found.busy) == ("custom", "some-model", "queue")
    assert profiles().find("other") is None


def test_a_profile_has_its_own_model_prompt_and_limits() -> None:
    text = CUSTOM + '[profiles.short]\nprovider = "deepseek"\nsystem_prompt = "Be brief."\nlimits = {max_turns = 2}\n'
    found = profiles(text).find("short")
    assert found is not None
    assert (found.provider, found.model, found.system_prompt) == ("deepseek", "deepseek-chat", "Be brief.")
    assert found.limits == {"max_turns": 2}


def test_a_script_learns_of_a_provider_neither_address_nor_secret() -> None:
    found = profiles().provider("custom")
    assert found is not None
    assert found["adapter"] == "openai_chat"
    assert "127.0.0.1" not in str(found)
    assert profiles().provider("nobody") is None


def test_a_faulty_policy_is_refused_with_its_place(tmp_path: Path) -> None:
    faulty = tmp_path / "faulty"
    faulty.mkdir()
    (faulty / "policy.toml").write_text('name = "x"\nversion = "1"\nentry = "main"\n', "utf-8")
    (faulty / "main.rss.py").write_text("async def run(context):\n    return eval('1')\n", "utf-8")
    with pytest.raises(ConfigInvalid, match=r"profiles\.mine\.policy is refused: main:2: "):
        profiles(CUSTOM + f'[profiles.mine]\npolicy = "{faulty}"\n')


def test_a_bundle_is_found_by_digest_among_the_loaded_and_in_the_log() -> None:
    found = profiles()
    default = found.find("default")
    assert default is not None
    assert found.bundle(default.bundle.digest, lambda _: None) is default.bundle
    archives = {f"policy:{default.bundle.digest}": default.bundle.archive}
    assert profiles().bundle(default.bundle.digest, archives.get).digest == default.bundle.digest


def test_clients_are_offered_the_default_the_profiles_and_what_has_a_key() -> None:
    offers = [offer.id for offer in profiles(CUSTOM + "[profiles.short]\n").offers()]
    assert offers == ["some-model", "default", "short", "custom/some-model", "custom/other-model"]
