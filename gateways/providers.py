"""The providers that this configuration knows: bundled profiles with its settings over them, their addresses and secrets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from gateways.config import ProviderSettings
from gateways.config_checks import unknown
from gateways.config_load import Loaded
from gateways.embedded.child import ALIAS as MODEL
from gateways.errors import ConfigInvalid
from gateways.provider.errors import InvalidEndpoint
from gateways.provider.settings import Endpoint, Timeouts
from rss_policy.errors import ProfileRefused
from rss_policy.profiles import ProviderProfile, bundled, overlaid

LOCAL, EMBEDDED, CUSTOM = "local", "embedded", "custom"
PROFILE_SETTINGS = (
    "adapter", "base_url", "auth", "api_key_env", "headers", "default_model", "capabilities", "models", "prices",
    "reasoning_replay",
)  # fmt: skip
EMBEDDED_SETTINGS: Mapping[str, Any] = {
    "title": "The embedded model",
    "default_model": MODEL,
    "capabilities": {"stream": True, "tools": False, "images": False, "files": False},
}


@dataclass(frozen=True, slots=True)
class Providers:
    """All providers by name; safe from any thread.

    `moving` gives the endpoint of a provider whose address is known only at run time (None: it is not there now).
    """

    loaded: Loaded
    environ: Mapping[str, str] = field(repr=False)
    moving: Mapping[str, Callable[[], Endpoint | None]] = field(default_factory=dict)
    _profiles: dict[str, ProviderProfile] = field(default_factory=dict, init=False, repr=False)
    _endpoints: dict[str, Endpoint] = field(default_factory=dict, init=False, repr=False)

    def names(self) -> list[str]:
        """Return the names of all providers that can be used: the bundled ones, and the configured ones."""
        configured = self.loaded.config.providers
        return [name for name in (*bundled(), EMBEDDED) if name != CUSTOM or name in configured] + [
            name for name in configured if name not in bundled()
        ]

    def profile(self, name: str) -> ProviderProfile | None:
        """Return what is known of a provider, or None if there is no such provider.

        Raises:
            ConfigInvalid: its settings do not fit.
        """
        if name in self._profiles:
            return self._profiles[name]
        if name not in self.names():
            return None
        self._profiles[name] = self._overlaid(name)
        return self._profiles[name]

    def endpoint(self, name: str) -> Endpoint | None:
        """Return where a provider is now and how to get in, or None if there is no such provider, or it is not there.

        Raises:
            ConfigInvalid: it has no address, or its address or secret cannot be used.
        """
        if name in self.moving:
            found = self.moving[name]()
            return replace(found, name=name) if found else None
        profile = self.profile(name)
        if profile is None or name == EMBEDDED:
            return None
        if profile.base_url is None:
            raise ConfigInvalid(f"provider {name} has no address: set providers.{name}.base_url")
        made = self._endpoints.get(name)
        if made is None or made.secret != self.secret(profile):  # each request asks for each provider
            made = self._endpoints[name] = self._endpoint(name, profile, profile.base_url)
        return made

    def closed_models(self, name: str) -> tuple[str, ...] | None:
        """Return the models of a provider that has these alone, or None where any name may be asked for.

        Raises:
            ConfigInvalid: its settings do not fit.
        """
        profile = self.profile(name) if name == EMBEDDED else None
        return None if profile is None else tuple(dict.fromkeys(filter(None, [profile.default_model, *profile.models])))

    def check_model(self, name: str, model: str | None, where: str) -> None:
        """Check the model that a setting, `where`, asks a provider for.

        Raises:
            ConfigInvalid: the provider has others alone.
        """
        known = self.closed_models(name) if model is not None else None
        if model is not None and known is not None and model not in known:
            raise unknown(f"model of the provider {name}", model, known, where)

    def secret(self, profile: ProviderProfile) -> str | None:
        """Return the provider's secret from the environment, or None where there is none."""
        return (self.environ.get(profile.api_key_env) or None) if profile.api_key_env else None

    def secrets(self) -> list[str]:
        """Return every secret that the log must never hold."""
        found = {profile.api_key_env for name in self.names() if (profile := self.profile(name)) and profile.api_key_env}
        found.add(self.loaded.config.telegram.token_env)
        return [value for name in sorted(found) if (value := self.environ.get(name))]

    def check(self) -> None:
        """Check every name and address of the configuration that is about providers.

        Raises:
            ConfigInvalid: a provider does not exist, or cannot be used.
        """
        config = self.loaded.config
        named = {"model.provider": config.model.provider}
        named |= {f"profiles.{name}.provider": profile.provider for name, profile in config.profiles.items()}
        for setting, name in named.items():
            if name is not None and name not in self.names():
                if name == CUSTOM:
                    self._check(name)
                raise unknown("provider", name, [*self.names(), CUSTOM], f"{self.loaded.source(setting)}: {setting}")
        for name in config.providers:
            self._check(name)
        for name, profile in config.profiles.items():
            where = f"profiles.{name}.model"
            self.check_model(profile.provider or "", profile.model, f"{self.loaded.source(where)}: {where}")

    def _endpoint(self, name: str, profile: ProviderProfile, base_url: str) -> Endpoint:
        settings = self._settings(name)
        try:
            return Endpoint(
                name=name,
                base_url=base_url,
                auth=profile.auth,
                secret=self.secret(profile),
                secret_env=profile.api_key_env,
                headers=profile.headers,
                timeouts=_timeouts(settings),
                allow_private=settings.allow_private,
                proxy=settings.proxy,
                ca_file=settings.ca_file,
            )
        except InvalidEndpoint as exc:
            raise ConfigInvalid(f"{self.loaded.source(f'providers.{name}.base_url')}: {exc}") from exc

    def _overlaid(self, name: str) -> ProviderProfile:
        settings = self._settings(name)
        given = {key: getattr(settings, key) for key in PROFILE_SETTINGS}
        if given["models"] is not None and not isinstance(given["models"], Mapping):
            given["models"] = list(given["models"])
        try:
            profile = overlaid(name, {**(EMBEDDED_SETTINGS if name == EMBEDDED else {}), **_given(given)})
        except ProfileRefused as exc:
            raise ConfigInvalid(f"{self.loaded.file or 'the configuration'}: {exc}") from exc
        wants_key = settings.api_key_env is not None and settings.auth is None and profile.auth == "none"
        return msgspec.structs.replace(profile, auth="bearer") if wants_key else profile

    def _check(self, name: str) -> None:
        profile = self.profile(name)
        if name == EMBEDDED:
            return
        if profile is None or profile.base_url is None:
            source = self.loaded.file or "the configuration"
            raise ConfigInvalid(f"{source}: providers.{name} needs base_url, such as http://127.0.0.1:9000/v1")
        self.endpoint(name)

    def _settings(self, name: str) -> ProviderSettings:
        return self.loaded.config.providers.get(name, ProviderSettings())


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value not in (None, {})}


def _timeouts(settings: ProviderSettings) -> Timeouts:
    given = {
        "connect": settings.connect_timeout_s,
        "first_byte": settings.first_byte_timeout_s,
        "idle": settings.idle_timeout_s,
        "total": settings.total_timeout_s,
    }
    return replace(Timeouts(), **{name: value for name, value in given.items() if value is not None})
