"""The one gate that every event and every raw batch passes before it is recorded.

Lone surrogates are replaced, secrets are redacted, the event is encoded, large values are cut out.  Nothing else writes,
so what is not caught here is not caught.  Runs on the thread that appends, while the writer waits for the disk.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from eventstore.catalogue import Event, decode, encode, seq_of
from eventstore.errors import Unwritten
from eventstore.log import Append, Batch, StreamPart
from eventstore.redaction import Redactor, clean
from eventstore.values import DEEPEST, Big, Keyed, externalise, is_too_deep


@dataclass(frozen=True, slots=True)
class Ready:
    """An event as it will be stored: `data` is the payload without its tag, `big` what was cut out of it."""

    event: Event
    tag: str
    schema: int
    seq: int | None
    data: bytes
    big: tuple[Big, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be written as it is; `parts` go with the request's own, in order."""

    request: Append
    parts: tuple[tuple[StreamPart, tuple[Ready, ...]], ...]
    batches: tuple[Batch, ...]


class Intake:
    """Prepares requests; safe from any thread.  `keyed` None: large values stay where they are."""

    def __init__(self, redactor: Redactor, keyed: Keyed | None = None) -> None:
        self._redactor, self._keyed = redactor, keyed

    def prepare(self, request: Append) -> Prepared:
        """Return the request, ready to be written.

        Raises:
            Unwritten: a value of an event cannot be expressed in JSON, or nests too deeply.
        """
        try:
            parts = tuple((part, tuple(map(self.ready, part.events))) for part in request.parts)
        except (TypeError, ValueError, RecursionError) as exc:
            raise Unwritten(f"an event cannot be encoded: {exc}") from exc
        batches = tuple(replace(batch, raw=self._redactor.raw(batch.raw)) for batch in request.batches)
        return Prepared(request, parts, batches)

    def ready(self, event: Event) -> Ready:
        """Return one event as it will be stored."""
        try:
            tag, schema, payload = encode(event)
        except UnicodeEncodeError:
            event = rewritten(event, clean)
            tag, schema, payload = encode(event)
        if self._redactor.suspects(payload):
            event = rewritten(event, self._redactor.text)
            tag, schema, payload = encode(event)
        if is_too_deep(payload):
            raise Unwritten(f"an event nests deeper than {DEEPEST} levels: {tag}")
        data = without_tag(tag, payload)
        big: tuple[Big, ...] = ()
        if self._keyed is not None and not tag.startswith("log."):  # what explains removals stays readable offline
            data, big = externalise(data, self._keyed)
        return Ready(event, tag, schema, seq_of(event), data, big)


def rewritten(event: Event, text: Callable[[str], str]) -> Event:
    """Return the event with every text passed through `text`, but for fields that hold one of a few words."""
    changed: Event = _rewritten(event, text)
    return changed


def without_tag(tag: str, payload: bytes) -> bytes:
    """Return the payload as it is stored: the tag has its own column."""
    rest = payload[len(tag) + 10 :]  # after {"type":"…"
    return b"{" + rest.removeprefix(b",")


def with_tag(tag: str, data: bytes) -> bytes:
    """Return the payload again, as `catalogue.decode` reads it."""
    comma = b"" if data == b"{}" else b","
    return b'{"type":"' + tag.encode() + b'"' + comma + data[1:]


def restored(tag: str, schema: int, data: bytes) -> Event:
    """Return the event of stored data whose large values are back in place.

    Raises:
        CorruptEvent: the data is not such an event.
    """
    return decode(tag, schema, with_tag(tag, data))


def _rewritten(value: Any, text: Callable[[str], str]) -> Any:
    match value:
        case str():
            return text(value)
        case msgspec.Struct():
            names = [name for name in value.__struct_fields__ if name not in _closed(type(value))]
            return msgspec.structs.replace(value, **{name: _rewritten(getattr(value, name), text) for name in names})
        case dict():
            return {_rewritten(key, text): _rewritten(item, text) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_rewritten(item, text) for item in value)
        case _:
            return value


@cache
def _closed(kind: type[msgspec.Struct]) -> frozenset[str]:
    def is_literal(hint: Any) -> bool:
        return get_origin(hint) is Literal or any(map(is_literal, get_args(hint)))

    return frozenset(name for name, hint in get_type_hints(kind).items() if is_literal(hint))
