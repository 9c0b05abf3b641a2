"""The hash chain over the log: how one event is linked to the one before it, and how a whole chain is checked.

    data_sha256 = sha256(salt + data)
    hash        = sha256(previous hash + header + data_sha256)

`previous hash` of position 1 is 32 zero bytes.  `header` is the JSON array `[position, stream, version, seq, type, schema,
at, actor, causation, correlation]` as Python's `json.dumps(…, separators=(",", ":"))` writes it: ASCII, no blanks, null for
what is absent.  `data` are the stored bytes of the payload: UTF-8 JSON, without the event's tag, large values replaced by
references.  Erasing an event nulls its data and salt; the two hashes stay, so the chain still holds.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

GENESIS = bytes(32)
EXCUSES = frozenset({"log.erased", "log.folded"})
"""Events that say at which positions data was removed on purpose; they may not be removed themselves."""

_dumps = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Header:
    """What is hashed of an event besides its data; `at` is UTC in microseconds."""

    position: int
    stream: str
    version: int
    seq: int | None
    type: str
    schema: int
    at: int
    actor: str
    causation: str | None
    correlation: str | None


@dataclass(frozen=True, slots=True)
class Link:
    """One stored event as the chain sees it; data and salt are None where they were removed."""

    header: Header
    data: bytes | None
    salt: bytes | None
    data_sha256: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """The first place where the chain does not hold, and why."""

    position: int
    reason: str


def digest(salt: bytes, data: bytes) -> bytes:
    """Return the salted SHA-256 of a payload: 32 bytes that do not let a short text be guessed once the salt is gone."""
    return sha256(salt + data).digest()


def canonical(header: Header) -> bytes:
    """Return the one encoding of a header that is hashed."""
    fields = (header.position, header.stream, header.version, header.seq, header.type, header.schema, header.at)
    return _dumps([*fields, header.actor, header.causation, header.correlation]).encode("ascii")


def following(previous: bytes, header: Header, data_sha256: bytes) -> bytes:
    """Return the hash of the event that follows the one with the hash `previous`."""
    return sha256(previous + canonical(header) + data_sha256).digest()


def check(
    links: Iterable[Link], previous: bytes = GENESIS, after: int = 0, keeps: Callable[[bytes], bool] = lambda _data: True
) -> Fault | None:
    """Return the first fault of the chain from position `after + 1`, or None if it holds.

    Data may be missing only where a chained `log.erased` or `log.folded` says so; since that comes later in the log, such
    a fault is found at the end.  `keeps` says whether the large values that some data refers to are those it names.
    """
    missing: set[int] = set()
    for position, link in enumerate(links, after + 1):
        if (fault := _fault(position, link, previous)) is not None:
            return fault
        if link.data is not None and not keeps(link.data):
            return Fault(position, "a large value of the event is not what was recorded")
        if link.data is None:
            missing.add(position)
        elif link.header.type in EXCUSES:
            missing -= _excused(link.data)
        previous = link.hash
    return Fault(min(missing), "the data is missing, and no event says that it was removed") if missing else None


def _fault(position: int, link: Link, previous: bytes) -> Fault | None:
    if link.header.position != position:
        return Fault(position, f"the event is missing; the next one is {link.header.position}")
    if link.data is None:
        if link.header.type in EXCUSES:
            return Fault(position, "an event that says what was removed has no data itself")
    elif link.salt is None or digest(link.salt, link.data) != link.data_sha256:
        return Fault(position, "the data is not what was recorded")
    if following(previous, link.header, link.data_sha256) != link.hash:
        return Fault(position, "the event or one before it is not what was recorded")
    return None


def _excused(data: bytes) -> set[int]:
    return set(json.loads(data).get("positions", ()))
