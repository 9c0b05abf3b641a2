"""The configured profiles as the actors see them: policy, model and limits, and what scripts may know."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from actors.ports import Profile, Tool, Toolbox
from gateways.choice import Choice, default_model
from gateways.config import ProfileSettings
from gateways.errors import ConfigInvalid, placed
from gateways.http.ports import ModelOffer
from gateways.providers import Providers
from rss_policy.bundle import Bundle
from rss_policy.errors import BundleRefused, PolicyError
from rss_policy.loader import load_bundle
from rss_policy.profiles import describe
from rss_policy.script import BundleRef
from rss_policy.shelf import Shelf

DEFAULT = "default"


class NoTools:
    """The toolbox of a profile without tools."""

    def find(self, name: str) -> Tool | None:
        """Return None: there are no tools."""
        return None

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Return nothing: there are no tools."""
        return ()


class ConfiguredProfiles:
    """Implements `actors.ports.Profiles` over the configuration; safe from any thread."""

    def __init__(
        self,
        providers: Providers,
        shelf: Shelf,
        choice: Choice,
        *,
        policy: Path | None = None,
        toolbox: Toolbox | None = None,
    ) -> None:
        """Load the policy of every profile; `policy` None: the bundled one is the default.

        A configured policy is type-checked.  The default one is not: the tests of this version and `deedbox doctor` do that.

        Raises:
            ConfigInvalid: a profile's policy is refused; the message holds module and line.
        """
        self._providers, self._shelf, self._choice = providers, shelf, choice
        self._toolbox = toolbox or NoTools()
        self._settings = {DEFAULT: ProfileSettings(), **providers.loaded.config.profiles}
        self._default = _refusing(DEFAULT, partial(_load, policy))
        for name, settings in self._settings.items():
            if settings.policy is not None:
                _refusing(name, partial(shelf.put, name, Path(settings.policy)))

    def find(self, name: str) -> Profile | None:
        """Return the profile, or None; `default` always exists."""
        settings = self._settings.get(name)
        if settings is None:
            return None
        bundle = self._default if settings.policy is None else self._shelf.find(name)
        if bundle is None:
            return None
        provider = settings.provider or self._choice.provider
        return Profile(
            name=name,
            bundle=bundle,
            provider=provider,
            model=settings.model or self._model(provider),
            system_prompt=settings.system_prompt,
            toolbox=self._toolbox,
            limits=settings.limits,
            busy=settings.busy,
        )

    def names(self) -> list[str]:
        """Return the names of all profiles, `default` first."""
        return list(self._settings)

    def provider_names(self) -> list[str]:
        """Return the names of all providers."""
        return self._providers.names()

    def closed_models(self, provider: str) -> tuple[str, ...] | None:
        """Return the models of a provider that has these alone, or None where any name may be asked for."""
        return self._providers.closed_models(provider)

    def provider(self, name: str) -> Mapping[str, Any] | None:
        """Return what the script may know of a provider: name, adapter, capabilities, models, reasoning replay, prices."""
        profile = self._providers.profile(name)
        return None if profile is None else describe(profile)

    def bundle(self, digest: str, stored: Callable[[str], bytes | None]) -> BundleRef:
        """Return the bundle with this digest: a loaded one, else loaded from the stored blob `policy:<digest>`.

        Raises:
            BundleRefused: there is no such bundle any more.
        """
        known = self._default if digest == self._default.digest else self._shelf.known(digest)
        if known is not None:
            return known
        archive = stored(f"policy:{digest}")
        if archive is None:
            raise BundleRefused(f"the policy {digest[:16]} is neither loaded nor in the log")
        return self._shelf.restore(archive)

    def offers(self) -> list[ModelOffer]:
        """Return what clients may ask for: the default model, the profiles, then `provider/model` of what has a key."""
        found = [ModelOffer(name, profile=name) for name in self._settings]
        if self._choice.model is not None:
            model, provider = self._choice.model, self._choice.provider
            found.insert(0, ModelOffer(model, owned_by=provider, provider=provider, model=model))
        for name in self._providers.names():
            found += self._offers_of(name)
        return found

    def _offers_of(self, name: str) -> list[ModelOffer]:
        profile = self._providers.profile(name)
        if profile is None or not self._usable(name):
            return []
        models = dict.fromkeys([*filter(None, [default_model(profile)]), *profile.models])
        return [ModelOffer(f"{name}/{model}", owned_by=name, provider=name, model=model) for model in models]

    def _usable(self, name: str) -> bool:
        endpoint = self._providers.endpoint(name)
        return endpoint is not None and (endpoint.secret is not None or endpoint.is_loopback or endpoint.auth == "none")

    def _model(self, provider: str) -> str | None:
        if provider == self._choice.provider and self._choice.model is not None:
            return self._choice.model
        profile = self._providers.profile(provider)
        return None if profile is None else default_model(profile)


def _load(policy: Path | None) -> Bundle:
    if policy is not None:
        return load_bundle(policy)
    with as_file(files("rss_policy") / "scripts") as bundled:
        return load_bundle(bundled)


def _refusing(name: str, load: Callable[[], Bundle]) -> Bundle:
    try:
        return load()
    except PolicyError as exc:
        raise ConfigInvalid(f"profiles.{name}.policy is refused: {placed(exc)}") from exc
