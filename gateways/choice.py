"""Which provider and model answer by default: what the configuration says, else what this machine has."""

from collections.abc import Callable
from dataclasses import dataclass

from gateways.embedded.local import LocalServer, find_local
from gateways.providers import EMBEDDED, LOCAL, Providers
from rss_policy.profiles import ProviderProfile

ORDER = ("openai", "anthropic", "openrouter", "deepseek", "opencode_zen")
"""Whose key is looked for first, where several are set."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The default provider and model, and a phrase that says why; `found` where only the choice knows the address."""

    provider: str
    model: str | None
    why: str
    found: LocalServer | None = None


def choose(
    providers: Providers,
    look: Callable[[], LocalServer | None] = find_local,
) -> Choice:
    """Return the default; `look` finds a model server on this machine, and is called only where it matters.

    Raises:
        ConfigInvalid: a provider that the configuration names does not exist or cannot be used.
    """
    config, source = providers.loaded.config, providers.loaded.source
    if config.model.provider is not None:
        return _chosen(providers, config.model.provider, f"model.provider is set by {source('model.provider')}")
    if config.providers:
        return _chosen(providers, next(iter(config.providers)), "it is the configured provider")
    for name in ORDER:
        profile = providers.profile(name)
        if profile is not None and providers.secret(profile):
            return _chosen(providers, name, f"{profile.api_key_env} is in the environment")
    found = look()
    if found is not None:
        model = config.model.model or next(iter(found.models), None)
        return Choice(LOCAL, model, f"a model server answers at {found.base_url}", found)
    return _chosen(providers, EMBEDDED, "there is neither a provider's key nor a model server on this machine")


def default_model(profile: ProviderProfile) -> str | None:
    """Return the model that a provider answers with where nobody chose one."""
    return profile.default_model or next(iter(profile.models), None)


def _chosen(providers: Providers, name: str, why: str) -> Choice:
    profile = providers.profile(name)
    model = providers.loaded.config.model.model or (default_model(profile) if profile else None)
    providers.check_model(name, model, f"{providers.loaded.source('model.model')}: model.model, since {why}")
    return Choice(name, model, why)
