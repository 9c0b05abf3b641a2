"""Provider profiles: what is known of each provider without asking it, as frozen values read from the bundled TOML files.

A profile names the endpoint, how to get in, which adapter speaks its protocol and what its models can do and cost; it holds
no parsing.  What a script sees of one (`describe`) has neither endpoint nor secret.  Pure, but for `bundled`, which reads
package files.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from rss_policy.errors import ProfileRefused

Auth = Literal["bearer", "x-api-key", "none"]
Replay = Literal["always", "tool_turns", "never"]
Adapter = Literal["openai_chat", "openai_responses", "anthropic_messages"]

NAMES = ("openai", "openrouter", "deepseek", "opencode_zen", "opencode_go", "anthropic", "local", "custom")


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a million tokens cost, in integer micro-units of the currency; `cached` and `cache_write` only if they differ."""

    input: int
    output: int
    cached: int | None = None
    cache_write: int | None = None
    currency: str | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a model can do; None where nobody says: then it may be tried."""

    stream: bool | None = None
    tools: bool | None = None
    parallel_tool_calls: bool | None = None
    images: bool | None = None
    files: bool | None = None
    reasoning: bool | None = None
    response_format: bool | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model: sizes in tokens, its price, and where it departs from its provider."""

    context_tokens: int | None = None
    max_output_tokens: int | None = None
    adapter: Adapter | None = None
    capabilities: Capabilities = Capabilities()
    price: Price | None = None


class Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this provider departs from its protocol's plain form.

    Attributes:
        max_tokens_field: under which name the output limit goes.
        system_role: the role of the system prompt.
        reasoning_field: under which name reasoning is asked for; None where it cannot be.
        reasoning_replay: whose reasoning goes back with the next request: of all answers, of turns with tool calls, of none.
            Only Chat Completions leaves that open; the other two protocols want it back always.
        cache: how the provider is told what to cache, where it must be told: by marks on fixed places, or besides by its own
            automatic caching of the whole conversation.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    reasoning_field: Literal["reasoning_effort", "reasoning"] | None = None
    reasoning_replay: Replay = "never"
    cache: Literal["marks", "automatic"] = "marks"


class ProviderProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider.

    Attributes:
        name: its key in the configuration.
        title: its name for people.
        adapter: the protocol that it speaks.
        base_url: everything before the protocol's own paths; None where the configuration must say it.
        auth: how the secret goes along: `Authorization: Bearer`, `x-api-key`, or not at all.
        api_key_env: the environment variable that holds the secret.
        headers: sent with each request; no secrets.
        default_model: asked where nobody chose one.
        capabilities: of its models, where they do not say otherwise.
        models: what is known of models by id; others can be used too.
        wire: departures from the protocol.
    """

    name: str
    title: str
    adapter: Adapter
    base_url: str | None = None
    auth: Auth = "bearer"
    api_key_env: str | None = None
    headers: dict[str, str] = {}
    default_model: str | None = None
    capabilities: Capabilities = Capabilities()
    models: dict[str, Model] = {}
    wire: Wire = Wire()


def parse(text: str) -> ProviderProfile:
    """Read a profile's TOML, strictly.

    Raises:
        ProfileRefused: it is no TOML, a key is unknown or missing, or a value does not fit.
    """
    try:
        return msgspec.convert(tomllib.loads(text), ProviderProfile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as fault:
        raise ProfileRefused(f"this is no provider profile: {fault}") from None


@cache
def bundled() -> dict[str, ProviderProfile]:
    """Return the profiles that come with deedbox, by name; reads package files at the first call."""
    folder = files("rss_policy") / "scripts" / "providers"
    return {name: parse((folder / f"{name}.toml").read_text(encoding="utf-8")) for name in NAMES}


def overlaid(name: str, settings: Mapping[str, Any]) -> ProviderProfile:
    """Return the bundled profile of this name, else `custom`, with a configuration's settings laid over it.

    A setting of `adapter` holds for all models.  Whoever speaks Anthropic's protocol wants its version header, and the
    key as `x-api-key` unless `auth` says otherwise; and what only a vendor's own server can do is not asked of another
    `base_url`.

    `settings` has keys of `ProviderProfile` but `wire`, plus `reasoning_replay`; `models` may be a list of ids, `prices`
    maps ids to prices.  A value of None leaves the profile's; tables are laid over key by key.

    Raises:
        ProfileRefused: a setting does not fit.
    """
    table: dict[str, Any] = msgspec.to_builtins(bundled().get(name, bundled()["custom"]))
    given = {key: value for key, value in settings.items() if value is not None}
    models, prices = given.pop("models", {}), given.pop("prices", {})
    if "base_url" in given:
        table["wire"].pop("cache", None)
    if "adapter" in given or "base_url" in given:
        table["models"] = {model: {**about, "adapter": None} for model, about in table["models"].items()}
    if given.get("adapter") == "anthropic_messages":
        table["auth"] = "x-api-key" if table["auth"] == "bearer" else table["auth"]
        table["headers"] = {**bundled()["anthropic"].headers, **table["headers"]}
    if (replay := given.pop("reasoning_replay", None)) is not None:
        table["wire"]["reasoning_replay"] = replay
    for key in ("headers", "capabilities"):
        table[key] = {**table[key], **given.pop(key, {})}
    for model, about in (models if isinstance(models, Mapping) else {model: {} for model in models}).items():
        table["models"][model] = {**table["models"].get(model, {}), **about}
    for model, price in prices.items():
        table["models"][model] = {**table["models"].get(model, {}), "price": price}
    try:
        return msgspec.convert({**table, **given, "name": name}, ProviderProfile)
    except msgspec.ValidationError as fault:
        raise ProfileRefused(f"providers.{name}: {fault}") from None


def adapter_of(profile: ProviderProfile, model: str | None) -> Adapter:
    """Return the protocol that a model is asked by: its own where it has one, else its provider's."""
    about = profile.models.get(model) if model is not None else None
    return (about.adapter if about is not None else None) or profile.adapter


def describe(profile: ProviderProfile) -> dict[str, Any]:
    """Return what a script may know of a provider: no endpoint, no headers, no secret."""
    models = msgspec.to_builtins(profile.models)
    prices = {name: about.pop("price") for name, about in models.items() if "price" in about}
    return {
        "name": profile.name,
        "adapter": profile.adapter,
        "capabilities": msgspec.to_builtins(profile.capabilities),
        "models": models,
        "prices": prices,
        **msgspec.to_builtins(profile.wire),
    }
