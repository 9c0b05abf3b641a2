"""The composition root: which parts the server has, in which order they start and, backwards, in which they stop.

Every part that touches the world is an argument with a production default, so that a test can bring its own commit, clock,
provider or policy.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from actors.front import Front, World
from actors.ports import Clock, Ids, ModelTransport
from eventstore.redaction import Redactor
from eventstore.sqlite import Store, open_store
from gateways.choice import Choice, choose
from gateways.clock import SystemClock, UlidIds
from gateways.config_load import Loaded
from gateways.embedded.local import LocalServer, find_local
from gateways.embedded.model import EmbeddedModel, Supervision
from gateways.errors import ConfigInvalid
from gateways.http.ports import HttpPorts, Readiness
from gateways.http.server import HttpServer
from gateways.http.tokens import TokenFile
from gateways.paths import token_file
from gateways.profiles import ConfiguredProfiles
from gateways.provider.errors import Broken
from gateways.provider.settings import Endpoint
from gateways.provider.transport import ProviderTransport
from gateways.providers import EMBEDDED, LOCAL, Providers
from gateways.settings import actor_settings, http_settings
from rss_policy.engine import MontyEngine
from rss_policy.seats import Parking
from rss_policy.shelf import Shelf

HTTP_STOP_S, ACTORS_STOP_S = 2.0, 2.0
"""Seconds, so that a stop takes less than five."""
READY_WORKERS = 2
"""Policy workers with the policy loaded, before anybody asks."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a test may replace; `transport` None: connections to real providers; `policy` None: the bundled one."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=UlidIds)
    look: Callable[[], LocalServer | None] = find_local
    store: Callable[..., Store] = open_store
    transport: ModelTransport | None = None
    policy: Path | None = None
    embedded: Callable[..., EmbeddedModel] = EmbeddedModel


@dataclass(frozen=True, slots=True)
class Server:
    """The running server; its methods may be called from any thread."""

    http: HttpServer
    front: Front
    store: Store
    choice: Choice
    profiles: ConfiguredProfiles

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.http.url

    @property
    def data_dir(self) -> Path:
        """Where its log is."""
        return self.store.data_dir.absolute()

    @property
    def model(self) -> str:
        """Which model answers by default, and why."""
        return f"{self.choice.provider}/{self.choice.model or 'none'}: {self.choice.why}"


@contextmanager
def serving(loaded: Loaded, parts: Parts | None = None) -> Iterator[Server]:
    """Run the server for the length of a block; on the way out everything stops in order, within five seconds.

    Raises:
        ConfigInvalid: a setting cannot work.
        StoreUnusable: the data directory cannot be used, or another server holds it.
        AddressInUse: the address is taken.
        EngineFailed: the policy engine does not start.
    """
    parts = parts or Parts()
    data_dir = Path(loaded.config.server.data_dir)
    with ExitStack() as stop:
        providers, choice = _providers(loaded, parts)
        redactor = Redactor(providers.secrets())
        store = parts.store(data_dir, redactor, holder=f"serving {loaded.config.server.address}")
        stop.callback(store.close)
        engine = MontyEngine(
            loaded.config.limits.policy_workers, parking=Parking(ready=READY_WORKERS), redacted=redactor.json
        )
        stop.callback(engine.close)
        loading = Supervision(load=loaded.config.server.ready_timeout_s)
        embedded = parts.embedded(data_dir, parts.clock, supervision=loading)
        if EMBEDDED in _wanted(loaded, choice):
            stop.callback(embedded.stop)
            embedded.start()
        providers = _with_moving(providers, choice, embedded)
        profiles = ConfiguredProfiles(providers, Shelf(engine), choice, policy=parts.policy)
        transport = parts.transport or stop.enter_context(_transport(providers, embedded, parts.clock))
        world = World(
            log=store.log,
            queries=store.queries,
            engine=engine,
            profiles=profiles,
            transport=transport,
            clock=parts.clock,
            ids=parts.ids,
            clean=redactor.json,
            clean_bytes=redactor.raw,
        )
        front = Front(world, actor_settings(loaded.config))
        stop.callback(front.shutdown, ACTORS_STOP_S)
        http = HttpServer(
            HttpPorts(
                service=front,
                queries=store.queries,
                subscribe=store.log.subscribe,
                tokens=TokenFile(token_file(data_dir)),
                clock=parts.clock,
                ready=partial(_readiness, choice, embedded),
                models=profiles.offers,
                settings=http_settings(loaded.config),
                gauges=_gauges(front),
            )
        )
        stop.callback(http.stop, HTTP_STOP_S)
        front.start()
        http.start()
        store.lock.describe(f"serving {http.url}")
        yield Server(http, front, store, choice, profiles)


def _providers(loaded: Loaded, parts: Parts) -> tuple[Providers, Choice]:
    providers = Providers(loaded, parts.environ)
    providers.check()
    return providers, choose(providers, parts.look)


def _with_moving(providers: Providers, choice: Choice, embedded: EmbeddedModel) -> Providers:
    moving: dict[str, Callable[[], Endpoint | None]] = {EMBEDDED: embedded.endpoint}
    if choice.found is not None:
        moving[LOCAL] = choice.found.endpoint
    return replace(providers, moving=moving)


@contextmanager
def _transport(providers: Providers, embedded: EmbeddedModel, clock: Clock) -> Iterator[ProviderTransport]:
    transport = ProviderTransport(partial(_endpoint, providers, embedded), clock)
    try:
        yield transport
    finally:
        transport.close()


def _endpoint(providers: Providers, embedded: EmbeddedModel, name: str) -> Endpoint | None:
    try:
        found = providers.endpoint(name)
    except ConfigInvalid as exc:
        raise Broken("unknown_provider", str(exc)) from exc
    if found is None and name == EMBEDDED:
        # One that loads is there in a moment, so the script tries again; one that is not installed never comes.
        state = embedded.state
        why = state.reason or "it is loading"
        raise Broken(
            "unknown_provider" if state.status == "absent" else "network_error", f"the embedded model cannot answer: {why}"
        )
    return found


def _wanted(loaded: Loaded, choice: Choice) -> set[str | None]:
    return {choice.provider, *(profile.provider for profile in loaded.config.profiles.values())}


def _gauges(front: Front) -> dict[str, Callable[[], float]]:
    names = {name: {"live": "live_actors", "failed": "failed_actors"}.get(name, name) for name in front.counts()}
    return {shown: partial(_count, front, name) for name, shown in names.items()}


def _count(front: Front, name: str) -> float:
    return front.counts()[name]


def _readiness(choice: Choice, embedded: EmbeddedModel) -> Readiness:
    """Tell whether requests are served: while the embedded model loads, a request would find no model."""
    parts = {"log": "ready", "policy": "ready", "model": f"{choice.provider}/{choice.model or 'none'}"}
    if choice.provider != EMBEDDED:
        return Readiness(ok=True, parts=parts)
    state = embedded.state
    told = state.status if state.reason is None else f"{state.status}: {state.reason}"
    return Readiness(ok=state.status in ("ready", "absent"), parts=parts | {"embedded": told})
