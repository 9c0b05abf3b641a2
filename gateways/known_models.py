"""What the configured providers offer: each known model with its sizes, abilities and price, and the key it needs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from gateways.choice import Choice, default_model
from gateways.config_checks import unknown
from gateways.embedded.weights import missing
from gateways.profiles import DEFAULT
from gateways.provider.probe import Listing, listing
from gateways.provider.settings import Endpoint, Timeouts
from gateways.providers import EMBEDDED, LOCAL, Providers
from rss_policy.profiles import Model, ProviderProfile, adapter_of

KeyState = Literal["present", "missing", "not needed", "not installed"]
_PATIENCE = Timeouts(connect=5, first_byte=10, idle=10, total=15)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One row: a model of a provider, or (`model` None) a provider of whose models nothing is known.

    `capabilities`: what is known, by name.  `price`: integer micro-units of money per million tokens, None where unknown.
    `key_env`: the variable that holds the key.  `profiles`: those that answer with it.  `listed`: whether the provider lists
    it itself, None where nobody asked.
    """

    provider: str
    model: str | None
    adapter: str
    context_tokens: int | None
    max_output_tokens: int | None
    capabilities: Mapping[str, bool]
    price: Mapping[str, Any] | None
    key: KeyState
    key_env: str | None
    profiles: tuple[str, ...]
    listed: bool | None = None


class KnownModels:
    """The rows of all providers, or of one."""

    def __init__(self, providers: Providers, choice: Choice, only: str | None = None) -> None:
        """`choice` says which model answers where a profile names none.

        Raises:
            ConfigInvalid: there is no provider `only`.
        """
        if only is not None and only not in providers.names():
            raise unknown("provider", only, providers.names(), "--provider")
        self._providers, self._choice, self._only = providers, choice, only
        self._names = [only] if only is not None else providers.names()
        self._chosen = dict(self._choices())

    def rows(self) -> Iterator[KnownModel]:
        """Yield what is known without asking anybody.

        Raises:
            ConfigInvalid: a provider's settings cannot work.
        """
        for name in self._names:
            yield from self._rows(name, self._known(name))

    def live(self) -> Iterator[tuple[list[KnownModel], str | None]]:
        """Ask each provider that can be asked; yield its rows, and a sentence where it does not tell.

        Raises:
            ConfigInvalid: a provider's settings cannot work.
        """
        for name in self._names:
            endpoint = self._endpoint(name)
            if endpoint is None or not self._may_ask(name, endpoint):
                yield list(self._rows(name, self._known(name))), None
                continue
            found = listing(replace(endpoint, timeouts=_PATIENCE))
            yield list(self._listed(name, found)), found.problem

    def _listed(self, name: str, found: Listing) -> Iterator[KnownModel]:
        known = self._known(name)
        if found.problem is not None:
            yield from self._rows(name, known)
            return
        for row in self._rows(name, [*known, *(each for each in found.models if each not in known)]):
            yield replace(row, listed=row.model in found.models if row.model is not None else None)

    def _rows(self, name: str, models: Iterable[str]) -> Iterator[KnownModel]:
        profile = self._profile(name)
        rows = [self._row(profile, model) for model in models]
        yield from rows or [self._row(profile, None)]

    def _row(self, profile: ProviderProfile, model: str | None) -> KnownModel:
        about = profile.models.get(model or "", Model())
        can = {**msgspec.to_builtins(profile.capabilities), **msgspec.to_builtins(about.capabilities)}
        return KnownModel(
            provider=profile.name,
            model=model,
            adapter=adapter_of(profile, model),
            context_tokens=about.context_tokens,
            max_output_tokens=about.max_output_tokens,
            capabilities=can,
            price=msgspec.to_builtins(about.price) if about.price is not None else None,
            key=self._key(profile),
            key_env=profile.api_key_env,
            profiles=tuple(each for each, chosen in self._chosen.items() if chosen == (profile.name, model)),
        )

    def _known(self, name: str) -> list[str]:
        """Return the models of a provider that are known, first the one that answers by default."""
        profile = self._profile(name)
        chosen = [model for provider, model in self._chosen.values() if provider == name]
        found = self._choice.found.models if self._choice.found is not None and name == LOCAL else ()
        return list(dict.fromkeys(filter(None, [default_model(profile), *chosen, *profile.models, *found])))

    def _choices(self) -> Iterator[tuple[str, tuple[str, str | None]]]:
        """Yield each profile with the provider and model that answer for it."""
        config = self._providers.loaded.config
        yield DEFAULT, (self._choice.provider, self._choice.model)
        for name, profile in config.profiles.items():
            provider = profile.provider or self._choice.provider
            usual = self._choice.model if provider == self._choice.provider else default_model(self._profile(provider))
            yield name, (provider, profile.model or usual)

    def _profile(self, name: str) -> ProviderProfile:
        profile = self._providers.profile(name)
        if profile is None:
            raise unknown("provider", name, self._providers.names(), "the configuration")
        return profile

    def _endpoint(self, name: str) -> Endpoint | None:
        found = self._choice.found
        return (
            replace(found.endpoint(), name=name) if found is not None and name == LOCAL else self._providers.endpoint(name)
        )

    def _key(self, profile: ProviderProfile) -> KeyState:
        if profile.name == EMBEDDED:
            return "not needed" if missing() is None else "not installed"
        if self._providers.secret(profile) is not None:
            return "present"
        endpoint = self._endpoint(profile.name)
        free = endpoint is not None and (endpoint.auth == "none" or endpoint.is_loopback)
        return "not needed" if free else "missing"

    def _may_ask(self, name: str, endpoint: Endpoint) -> bool:
        """Tell whether asking makes sense: nobody said that there is a server of the profile `local`."""
        meant = name == self._only or name in self._providers.loaded.config.providers or self._choice.found is not None
        return (name != LOCAL or meant) and (endpoint.secret is not None or endpoint.auth == "none" or endpoint.is_loopback)
