"""Long logs, quickly: turns that a real server recorded, appended again and again under other names.

What is appended are the very requests that the server made of its store, with new ids, and with a new id in each raw answer,
so that none is kept twice for being equal.  The store does all that it always does: gate, chain, projections, blobs.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import requests

from benchmarks.stage import wait_until
from eventstore.log import Answer, Append, Failed
from eventstore.redaction import Redactor
from eventstore.sqlite import SqliteLog, Store, open_store
from gateways.compose import Parts, Server, serving
from gateways.config import Config, ModelSettings, ProviderSettings, ServerSettings
from gateways.config_load import Loaded

WAITING = 2000
_RAW_ID = re.compile(rb"chatcmpl-fake(\d+)")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session of some turns as the server recorded it; `events` counts those of its appends."""

    turns: int
    appends: tuple[Append, ...]

    @property
    def events(self) -> int:
        """How many events it has."""
        return sum(len(part.events) for append in self.appends for part in append.parts)


def recorded(provider_url: str, folder: Path, turns: int, say: Callable[[int], str]) -> Conversation:
    """Have a real server answer so many turns of one session, and return what it appended."""
    noted: list[Append] = []
    with _noting(provider_url, folder, noted) as running:
        for number in range(turns):
            body = {"model": "fake-model", "messages": [{"role": "user", "content": say(number)}]}
            url = f"{running.url}/v1/chat/completions"
            requests.post(url, json=body, headers={"X-Session-Id": "ses_first"}, timeout=60).raise_for_status()
            wait_until(lambda: running.store.queries.sessions(None, limit=1)[0].active_run_id is None)
    return Conversation(turns, tuple(noted))


class Filler:
    """Appends a conversation under new names, as often as it is told to."""

    def __init__(self, log: SqliteLog, conversation: Conversation) -> None:
        self._log, self._conversation = log, conversation
        self._names = sorted(_names(conversation), key=len, reverse=True)
        self._room = threading.Semaphore(WAITING)
        self._failed: list[Failed] = []
        self._count = 0

    def fill(self, times: int) -> int:
        """Append it so many times, wait for the disk, and return how many events that were."""
        for _ in range(times):
            self._count += 1
            renamed = {name: _new(name, self._count) for name in self._names}
            for append in self._conversation.appends:
                self._room.acquire()
                self._log.append(_again(append, renamed, self._count), self._answered)
        for _ in range(WAITING):
            self._room.acquire()
        self._room.release(WAITING)
        if self._failed:
            raise self._failed[0].error
        return times * self._conversation.events

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, Failed):
            self._failed.append(answer)
        self._room.release()


@contextmanager
def opened(data_dir: Path) -> Iterator[Store]:
    """Open a store of its own, without a server."""
    store = open_store(data_dir, Redactor(()), holder="a benchmark")
    try:
        yield store
    finally:
        store.close()


class _NotingLog:
    """A log that keeps a copy of each request; everything else is the real one's."""

    def __init__(self, log: SqliteLog, noted: list[Append]) -> None:
        self._log, self._noted = log, noted

    def append(self, request: Append, answer: Callable[[Answer], None]) -> None:
        self._noted.append(request)
        self._log.append(request, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@contextmanager
def _noting(provider_url: str, folder: Path, noted: list[Append]) -> Iterator[Server]:
    def open_noted(data_dir: Path, redactor: Redactor, *, holder: str) -> Store:
        store = open_store(data_dir, redactor, holder=holder)
        return replace(store, log=cast("SqliteLog", _NotingLog(store.log, noted)))

    config = Config(
        server=ServerSettings(address="127.0.0.1:0", data_dir=str(folder / "recorded")),
        model=ModelSettings(provider="custom", model="fake-model"),
        providers={"custom": ProviderSettings(base_url=provider_url, models=("fake-model",))},
    )
    with serving(Loaded(config, {}, None), Parts(environ={}, store=open_noted)) as running:
        yield running


def _names(conversation: Conversation) -> set[str]:
    streams = {part.stream.partition("-")[2] for append in conversation.appends for part in append.parts}
    found = {str(getattr(event, "message_id", "")) for append in conversation.appends for event in _events(append)}
    return {name for name in streams | found if name}


def _events(append: Append) -> Iterator[Any]:
    for part in append.parts:
        yield from part.events


def _new(name: str, count: int) -> str:
    return f"{name[:-10]}{count:010}" if len(name) > 20 else f"{name}_{count:010}"


def _again(value: Any, renamed: dict[str, str], count: int) -> Any:
    match value:
        case str():
            kind, dash, name = value.partition("-")
            return renamed.get(value) or (f"{kind}-{renamed[name]}" if dash and name in renamed else value)
        case bytes():
            return _RAW_ID.sub(rb"chatcmpl-\g<1>x%010x" % (count * 2654435761 % 2**40), value)
        case tuple() | list():
            return type(value)(_again(item, renamed, count) for item in value)
        case dict():
            return {name: _again(item, renamed, count) for name, item in value.items()}
        case msgspec.Struct():
            changes = {name: _again(getattr(value, name), renamed, count) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **changes)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{each.name: _again(getattr(value, each.name), renamed, count) for each in fields(value)})
        case _:
            return value
