"""One tiny real run over a provider, by the same path as any run, on a log that is kept nowhere."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from actors.front import Front, World
from actors.ports import Exchange, ModelCall, ModelTransport, StreamBatch
from actors.service import Inbound
from eventstore.log import Envelope
from eventstore.memory import MemoryLog
from eventstore.queries import RunRow
from eventstore.redaction import Redactor
from gateways.choice import Choice
from gateways.clock import SystemClock, UlidIds
from gateways.http.views import is_end
from gateways.profiles import ConfiguredProfiles
from gateways.provider.settings import Endpoint, Timeouts
from gateways.provider.transport import ProviderTransport
from gateways.providers import Providers
from rss_policy.engine import MontyEngine
from rss_policy.shelf import Shelf

SECONDS: Final = 20
_TIMES: Final = Timeouts(connect=10, first_byte=15, idle=15, total=18)
"""Shorter than the run's deadline, so that the part that took too long is named."""

_LIMITS: Final = {"deadline_ms": SECONDS * 1000, "max_retries": 0, "max_turns": 1, "max_output_tokens": 16}
_QUESTION: Final = {"role": "user", "content": [{"type": "text", "text": "Reply with ok."}]}
_STOP_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Trial:
    """`run` as it ended, None where it did not in time; `heard`: how its exchange went, as `Exchange.open` returns it.

    `heard` is None where nothing was asked; an error that broke the answer's stream takes the place of its head.
    """

    run: RunRow | None
    heard: Mapping[str, Any] | None


def attempt(providers: Providers, endpoint: Endpoint, model: str) -> Trial:
    """Ask a provider for two letters and wait for the run's end, about `SECONDS` at most.

    Raises:
        ScriptError: the policy engine does not start.
    """
    clock = SystemClock()
    redactor = Redactor(providers.secrets())
    with ExitStack() as stop:
        log = MemoryLog(redactor=redactor)
        stop.callback(log.close)
        engine = MontyEngine(1)
        stop.callback(engine.close)
        provider = ProviderTransport({endpoint.name: replace(endpoint, timeouts=_shorter(endpoint.timeouts))}.get, clock)
        stop.callback(provider.close)
        overheard = _Overheard(provider)
        profiles = ConfiguredProfiles(
            _without_profiles(providers), Shelf(engine), Choice(endpoint.name, model, "the doctor tries it")
        )
        world = World(
            log=log,
            queries=log.queries,
            engine=engine,
            profiles=profiles,
            transport=overheard,
            clock=clock,
            ids=UlidIds(),
            clean=redactor.json,
            clean_bytes=redactor.raw,
        )
        front = Front(world)
        stop.callback(front.shutdown, _STOP_S)
        front.start()
        return Trial(_run(front, log, Inbound("doctor", (_QUESTION,), ephemeral=True, limits=_LIMITS)), overheard.last)


def _run(front: Front, log: MemoryLog, inbound: Inbound) -> RunRow | None:
    ended = threading.Event()

    def listen(envelopes: tuple[Envelope, ...]) -> None:
        if any(is_end(envelope) for envelope in envelopes):
            ended.set()

    log.subscribe(listen)
    run_id = front.admit(inbound).run_id
    return log.queries.run(None, run_id) if ended.wait(SECONDS + _STOP_S) else None


def _without_profiles(providers: Providers) -> Providers:
    """Leave out the configured profiles: their policies are not what is tried."""
    config = msgspec.structs.replace(providers.loaded.config, profiles={})
    return replace(providers, loaded=replace(providers.loaded, config=config))


def _shorter(given: Timeouts) -> Timeouts:
    return Timeouts(
        connect=min(given.connect, _TIMES.connect),
        first_byte=min(given.first_byte, _TIMES.first_byte),
        idle=min(given.idle, _TIMES.idle),
        total=min(given.total, _TIMES.total),
    )


class _Overheard:
    """A transport that remembers how its last exchange went."""

    def __init__(self, inner: ModelTransport) -> None:
        self._inner = inner
        self.last: dict[str, Any] | None = None

    def exchange(self, call: ModelCall, on_first_byte: Callable[[], None] | None = None) -> Exchange:
        return _OverheardExchange(self, self._inner.exchange(call, on_first_byte))


class _OverheardExchange:
    """An exchange whose outcomes are remembered."""

    def __init__(self, listener: _Overheard, inner: Exchange) -> None:
        self._listener, self._inner = listener, inner

    def open(self) -> dict[str, Any]:
        self._listener.last = outcome = self._inner.open()
        return outcome

    def read(self) -> StreamBatch:
        batch = self._inner.read()
        if batch.error is not None and batch.error["code"] != "cancelled":
            self._listener.last = {"ok": False, "error": batch.error}
        return batch

    def cancel(self) -> None:
        self._inner.cancel()
