"""Says which settings have a good type and still cannot work, in one sentence each that names setting, source and remedy."""

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from gateways.config import Config, ProviderSettings
from gateways.errors import ConfigInvalid

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Source = Callable[[str], str]


def check(config: Config, source: Source) -> None:
    """Check what a type cannot say; that a provider or policy exists is checked where the bundled ones are known.

    Raises:
        ConfigInvalid: a setting cannot work.
    """
    address(config.server.address, source("server.address"))
    if not config.server.data_dir.strip():
        raise ConfigInvalid(f"{source('server.data_dir')}: server.data_dir is empty: name a folder, such as ./var")
    _variable_name("telegram.token_env", config.telegram.token_env, source)
    base_url("telegram.api_base", config.telegram.api_base, source("telegram.api_base"))
    for name, provider in config.providers.items():
        _provider(f"providers.{name}", provider, source)


def address(text: str, source: str = "--address") -> tuple[str, int]:
    """Return (host, port) of `host:port` or `[v6]:port`; port 0 lets the system choose.

    Raises:
        ConfigInvalid: the text is no such address.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
        raise ConfigInvalid(f"{source}: server.address {text!r} is no address: write host:port, such as 127.0.0.1:8787")
    return host, int(port)


def base_url(name: str, url: str, source: str, *, allow_private: bool = False) -> None:
    """Check a base URL: a scheme, a host, no credentials, no query, and TLS unless the host is near.

    Raises:
        ConfigInvalid: the URL cannot or must not be used.
    """
    parts = _parts(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        example = f"https://{url}" if "://" not in url and url else "https://api.example.com/v1"
        raise ConfigInvalid(
            f"{source}: {name} {_shown(url)!r} is no web address: write it with its scheme, such as {example}"
        )
    if parts.username or parts.password:
        raise ConfigInvalid(f"{source}: {name} holds credentials: put the key into a variable and name it in api_key_env")
    if parts.query or parts.fragment:
        raise ConfigInvalid(f"{source}: {name} {url!r} has a query or fragment: a base URL ends with its path")
    if parts.scheme == "http" and not _stays_near(parts.hostname, allow_private=allow_private):
        raise ConfigInvalid(
            f"{source}: {name} {url!r} would be sent unencrypted to another machine: write https://, "
            "or for a machine of your own network add allow_private = true"
        )


def unknown(what: str, name: str, known: Iterable[str], where: str) -> ConfigInvalid:
    """Return the error for a name that is not one of the known ones, with the nearest and the list; `where` it stands."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    return ConfigInvalid(f"{where}: there is no {what} {name!r}; {hint}known are {', '.join(known)}")


def _provider(name: str, provider: ProviderSettings, source: Source) -> None:
    if provider.base_url is not None:
        where = source(f"{name}.base_url")
        base_url(f"{name}.base_url", provider.base_url, where, allow_private=provider.allow_private)
    if provider.api_key_env is not None:
        _variable_name(f"{name}.api_key_env", provider.api_key_env, source)
    for header in provider.headers:
        if header.lower() in ("authorization", "x-api-key", "api-key", "cookie"):
            raise ConfigInvalid(
                f"{source(f'{name}.headers')}: {name}.headers.{header} would hold a secret: name its variable in api_key_env"
            )


def _variable_name(name: str, variable: str, source: Source) -> None:
    # The value is not repeated: who gets this wrong has usually written the secret itself.
    if not VARIABLE.fullmatch(variable) or variable.startswith(("sk_", "sk-")):
        raise ConfigInvalid(
            f"{source(name)}: {name} must name the environment variable that holds the key, not hold the key"
        )


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError:  # a bracket that is not closed, a port that is no number
        return None
    return parts


def _stays_near(host: str, *, allow_private: bool) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return allow_private  # where the name leads is checked at each connection
    return found.is_loopback or (allow_private and found.is_private)


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)
