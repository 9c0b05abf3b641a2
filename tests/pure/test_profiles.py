"""Provider profiles: all are there, strict, and without endpoint or secret where scripts see them."""

import json

import pytest

from rss_policy.errors import ProfileRefused
from rss_policy.profiles import NAMES, bundled, describe, overlaid, parse
from tests.fakes.adapter import SCRIPTS


def test_every_profile_is_bundled_and_every_file_is_a_profile() -> None:
    assert set(bundled()) == set(NAMES) == {path.stem for path in (SCRIPTS / "providers").glob("*.toml")}
    assert all(profile.name == name for name, profile in bundled().items())


def test_all_endpoints_on_the_net_use_tls_and_need_a_key() -> None:
    for name, profile in bundled().items():
        if name not in ("local", "custom"):
            assert (profile.base_url or "").startswith("https://")
            assert profile.api_key_env


def test_a_script_sees_no_endpoint_no_header_and_no_variable() -> None:
    for profile in bundled().values():
        seen = json.dumps(describe(profile))
        for hidden in (profile.base_url, profile.api_key_env, "anthropic-version", "http"):
            assert hidden is None or hidden not in seen


def test_prices_are_integers_in_micro_units_of_a_million_tokens() -> None:
    price = describe(bundled()["openai"])["prices"]["gpt-4o"]
    assert price == {"input": 2_500_000, "output": 10_000_000, "cached": 1_250_000, "currency": "USD"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "Invalid value"),
        ('name = "x"', "missing required field `title`"),
        ('name = "x"\ntitle = "X"\nadapter = "smoke_signals"', "Invalid enum value 'smoke_signals'"),
        ('name = "x"\ntitle = "X"\nadapter = "openai_chat"\nbaseurl = "y"', "unknown field `baseurl`"),
        ('name = "x"\ntitle = "X"\nadapter = "openai_chat"\n[wire]\nreasoning_replay = "maybe"', "wire.reasoning_replay"),
    ],
)
def test_a_wrong_profile_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ProfileRefused, match=said):
        parse(text)


def test_a_configuration_lies_over_the_bundled_profile_key_by_key() -> None:
    mine = overlaid("anthropic", {"base_url": "https://proxy.test/v1", "headers": {"x-team": "a"}, "adapter": None})
    assert (mine.base_url, mine.adapter) == ("https://proxy.test/v1", "anthropic_messages")
    assert mine.headers == {"anthropic-version": "2023-06-01", "x-team": "a"}
    assert mine.models == bundled()["anthropic"].models


@pytest.mark.parametrize("name", ["custom", "local", "acme"])
def test_a_wish_for_reasoning_reaches_a_server_of_which_nothing_is_known(name: str) -> None:
    assert overlaid(name, {"base_url": "http://127.0.0.1:9/v1"}).wire.reasoning_field == "reasoning_effort"


def test_a_provider_that_nobody_knows_starts_from_custom() -> None:
    settings = {
        "base_url": "http://127.0.0.1:9000/v1",
        "models": ("a", "b"),
        "prices": {"b": {"input": 1, "output": 2}},
        "capabilities": {"images": False},
        "reasoning_replay": "always",
    }
    mine = overlaid("mine", settings)
    seen = describe(mine)
    assert (mine.name, mine.auth, seen["adapter"]) == ("mine", "bearer", "openai_chat")
    assert (set(seen["models"]), seen["prices"]) == ({"a", "b"}, {"b": {"input": 1, "output": 2}})
    assert (seen["capabilities"], seen["reasoning_replay"]) == ({"images": False}, "always")


def test_models_of_openai_that_reason_are_asked_by_responses_unless_the_configuration_says_otherwise() -> None:
    models = describe(bundled()["openai"])["models"]
    assert (models["gpt-5"]["adapter"], models["gpt-4.1"].get("adapter")) == ("openai_responses", None)
    for settings in ({"adapter": "openai_chat"}, {"base_url": "https://proxy.test/v1"}):
        assert describe(overlaid("openai", settings))["models"]["gpt-5"].get("adapter") is None
    assert describe(overlaid("openai", {"adapter": "openai_responses"}))["adapter"] == "openai_responses"


def test_whoever_speaks_anthropics_protocol_wants_its_version_and_the_key_in_its_header() -> None:
    assert overlaid("mine", {"adapter": "anthropic_messages"}).auth == "x-api-key"
    headers = overlaid("mine", {"adapter": "anthropic_messages", "headers": {"x-team": "a"}}).headers
    assert headers == {"anthropic-version": "2023-06-01", "x-team": "a"}
    assert overlaid("mine", {"adapter": "anthropic_messages", "auth": "bearer"}).auth == "bearer"
    assert overlaid("local", {"adapter": "anthropic_messages"}).auth == "none"


def test_automatic_caching_is_asked_of_the_vendors_own_server_only() -> None:
    assert describe(bundled()["anthropic"])["cache"] == "automatic"
    assert describe(overlaid("anthropic", {"base_url": "https://proxy.test/v1"}))["cache"] == "marks"


def test_every_profile_says_which_reasoning_goes_back() -> None:
    rules = {name: describe(profile)["reasoning_replay"] for name, profile in bundled().items()}
    assert rules == {
        "openai": "never", "openrouter": "tool_turns", "deepseek": "tool_turns", "opencode_zen": "tool_turns",
        "opencode_go": "tool_turns", "anthropic": "always", "local": "never", "custom": "never",
    }  # fmt: skip


def test_a_wrong_setting_is_refused_by_the_providers_name() -> None:
    with pytest.raises(ProfileRefused, match=r"providers\.openai: .*imagess"):
        overlaid("openai", {"capabilities": {"imagess": True}})
