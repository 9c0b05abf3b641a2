"""Finds out what is missing on this machine: one check a question, one sentence an answer, nothing is changed."""

import os
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from eventstore.errors import AlreadyServed, StoreUnusable
from eventstore.lock import Lock
from gateways.choice import choose, default_model
from gateways.config_checks import address, unknown
from gateways.config_load import Loaded
from gateways.embedded.local import find_local
from gateways.embedded.weights import missing
from gateways.errors import GatewayError, cannot_listen
from gateways.provider.probe import listing
from gateways.provider.settings import Endpoint
from gateways.providers import EMBEDDED, LOCAL, Providers
from gateways.trial import attempt
from gateways.verdict import verdict
from rss_policy.engine import MontyEngine
from rss_policy.errors import ScriptError
from rss_policy.profiles import ProviderProfile, adapter_of
from rss_policy.shelf import check

State = Literal["good", "warning", "bad"]
LITTLE_SPACE = 1 << 30
OLDEST_SQLITE = (3, 37, 0)
"""STRICT tables came with 3.37."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `sentence` says what is so and, where it is not good, what to do."""

    check: str
    state: State
    sentence: str


Check = Callable[[Loaded], Finding]


def python(_: Loaded) -> Finding:
    """Tell the interpreter's version."""
    return Finding("python", "good", f"Python {sys.version.split()[0]} runs deedbox")


def data_dir(loaded: Loaded) -> Finding:
    """Tell whether the data directory can be written, or be made."""
    folder = Path(loaded.config.server.data_dir)
    if not folder.exists():
        above = next(each for each in folder.absolute().parents if each.exists())
        if os.access(above, os.W_OK | os.X_OK):
            return Finding("data directory", "good", f"{folder} does not exist yet and will be made")
        return Finding("data directory", "bad", f"{folder} cannot be made: {above} is not writable; set server.data_dir")
    if not folder.is_dir():
        return Finding("data directory", "bad", f"{folder} is not a folder: set server.data_dir to one")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("data directory", "good", f"{folder} can be written")
    except OSError as exc:
        return Finding(
            "data directory", "bad", f"{folder} cannot be written ({exc.strerror}): free it or set server.data_dir"
        )


def disk(loaded: Loaded) -> Finding:
    """Tell how much space the data directory's disk has left."""
    folder = Path(loaded.config.server.data_dir).absolute()
    free = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free
    said = f"{free / (1 << 30):.1f} GiB are free where the data directory is"
    if free < LITTLE_SPACE:
        return Finding("disk", "warning", f"{said}: make space, a full disk refuses messages")
    return Finding("disk", "good", said)


def lock(loaded: Loaded) -> Finding:
    """Tell whether a server holds the data directory."""
    try:
        holder = _holder(loaded)
    except StoreUnusable:
        return Finding("lock", "warning", "not checked, for the data directory cannot be written")
    return Finding("lock", "good", holder or "no server holds the data directory")


def port(loaded: Loaded) -> Finding:
    """Tell whether the server's address is free."""
    host, number = address(loaded.config.server.address, loaded.source("server.address"))
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, number))
    except OSError as exc:
        with suppress(StoreUnusable, PermissionError):
            if (_holder(loaded) or "").endswith(f"http://{host}:{number}"):
                return Finding("address", "good", f"{host}:{number} is where the server of this data directory listens")
        return Finding("address", "warning", cannot_listen(host, number, exc))
    return Finding("address", "good", f"{host}:{number} is free")


def sqlite(_: Loaded) -> Finding:
    """Tell the version of SQLite."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(str(number) for number in OLDEST_SQLITE)
        sentence = f"SQLite {sqlite3.sqlite_version} is too old: use a Python that comes with {wanted} or newer"
        return Finding("sqlite", "bad", sentence)
    return Finding("sqlite", "good", f"SQLite {sqlite3.sqlite_version} keeps the log")


def engine(_: Loaded) -> Finding:
    """Tell whether the policy engine starts, and whether the bundled policy is good."""
    try:
        with closing(MontyEngine(workers=1)) as started, as_file(files("rss_policy") / "scripts") as folder:
            bundle = check(folder, started)
            return Finding("policy engine", "good", f"{started.version} runs the bundled policy {bundle.digest[:12]}")
    except (ScriptError, OSError) as exc:
        return Finding(
            "policy engine", "bad", f"the policy engine cannot run the bundled policy: {exc}; install deedbox again"
        )


def provider(loaded: Loaded) -> Finding:
    """Tell which provider answers by default, and whether what it needs is there."""
    providers = Providers(loaded, os.environ)
    providers.check()
    choice = choose(providers)
    if choice.provider == EMBEDDED:
        lacks = missing()
        if lacks:
            return Finding("model", "bad", f"no model can answer: {choice.why}, and {lacks}")
        return Finding("model", "good", f"the embedded model {choice.model} answers, since {choice.why}")
    profile = providers.profile(choice.provider)
    endpoint = choice.found.endpoint() if choice.found else providers.endpoint(choice.provider)
    if profile is not None and endpoint is not None and _lacks_key(endpoint):
        sentence = f"{choice.provider} has no key: set {profile.api_key_env or f'providers.{choice.provider}.api_key_env'}"
        return Finding("model", "bad", sentence)
    if choice.model is None:
        return Finding("model", "bad", f"no model is chosen for {choice.provider}: set model.model")
    said = f"{choice.provider} is to answer with {choice.model}, since {choice.why}"
    return Finding("model", "good", f"{said}; 'deedbox doctor --provider {choice.provider}' really asks it")


def embedded(_: Loaded) -> Finding:
    """Tell whether the embedded model is installed."""
    lacks = missing()
    sentence = "it is installed" if lacks is None else f"{lacks} (only a machine without other models needs it)"
    return Finding("embedded model", "good", sentence)


def reach(loaded: Loaded, name: str) -> Finding:
    """Have a provider's model answer one tiny run and tell how it went; nothing is recorded.

    Raises:
        ConfigInvalid: there is no such provider, or it cannot be used.
    """
    if name == EMBEDDED:
        return embedded(loaded)
    providers = Providers(loaded, os.environ)
    endpoint, profile = providers.endpoint(name), providers.profile(name)
    if name == LOCAL and name not in loaded.config.providers:
        found = find_local()
        endpoint = replace(found.endpoint(), name=name) if found else endpoint
    if endpoint is None or profile is None:
        raise unknown("provider", name, [each for each in providers.names() if each != EMBEDDED], "--provider")
    if _lacks_key(endpoint):
        variable = profile.api_key_env or f"providers.{name}.api_key_env"
        return Finding("provider", "bad", f"{name} has no key: set {variable}")
    model = _asked_model(loaded, profile)
    if model is None:
        listed = listing(endpoint)
        if not listed.models:
            advice = f"no model is chosen for {name}: set providers.{name}.default_model"
            return Finding("provider", "bad", listed.problem or advice)
        model = listed.models[0]
    trial = attempt(providers, endpoint, model)
    good, sentence = verdict(endpoint, adapter_of(profile, model), model, trial, partial(listing, endpoint))
    return Finding("provider", "good" if good else "bad", sentence)


CHECKS: tuple[Check, ...] = (python, sqlite, engine, data_dir, disk, lock, port, provider, embedded)
TITLES = {
    "data_dir": "data directory",
    "port": "address",
    "engine": "policy engine",
    "provider": "model",
    "embedded": "embedded model",
}


def examine(loaded: Loaded, checks: tuple[Check, ...] = CHECKS) -> Iterator[Finding]:
    """Yield what each check finds; a check that fails itself is a finding too, and the same fault is told once."""
    told: dict[str, str] = {}
    for found in _found(loaded, checks):
        first = told.setdefault(found.sentence, found.check)
        again = found.state == "bad" and first != found.check
        yield replace(found, state="warning", sentence=f"not checked: see {first}") if again else found


def _found(loaded: Loaded, checks: tuple[Check, ...]) -> Iterator[Finding]:
    for each in checks:
        try:
            yield each(loaded)
        except GatewayError as exc:
            yield Finding(_title(each), "bad", str(exc))
        except PermissionError as exc:
            advice = "be the user that runs the server, or set server.data_dir"
            yield Finding(_title(each), "bad", f"this user may not look at {exc.filename}: {advice}")
        except Exception as exc:  # noqa: BLE001 - a doctor reports every fault, whatever it is, and goes on
            yield Finding(_title(each), "bad", f"the check itself failed with {type(exc).__name__}: {exc}")


def _holder(loaded: Loaded) -> str | None:
    folder = Path(loaded.config.server.data_dir)
    if folder.is_dir():
        try:
            Lock(folder, "a doctor that looks").close()
        except AlreadyServed as held:
            return str(held).removesuffix("; stop it first")  # the advice is for one who wants to start another
    return None


def _title(check: Check) -> str:
    return TITLES.get(check.__name__, check.__name__)


def _asked_model(loaded: Loaded, profile: ProviderProfile) -> str | None:
    """Return the model that the server would ask this provider for, if the configuration or its profile names one."""
    config = loaded.config
    usual = config.model.provider or next(iter(config.providers), None)
    return (config.model.model if usual == profile.name else None) or default_model(profile)


def _lacks_key(endpoint: Endpoint) -> bool:
    return endpoint.secret is None and endpoint.auth != "none" and not endpoint.is_loopback
